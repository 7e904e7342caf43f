"""Names of experiments and runs on the command line: `quickstart/joint/1` is EXPERIMENT/RUN/SEED.

RUN is the run's name or label in the experiment. The seed can be omitted if the run has only one, and the
experiment if no other experiment has such a run. Alternatively, the first characters of a run's fingerprint
name it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.store.annotations import Subject
from jestlab.platform.store.records import RunSummary
from jestlab.platform.store.store import Store
from jestlab.platform.words import few

_MOST = 4  # choices that an error lists


@dataclass(frozen=True)
class NamedRuns:
    """The runs that a name on the command line refers to: at least one, all of one experiment."""

    experiment: str
    runs: Sequence[RunSummary]

    @property
    def row(self) -> RunSummary:
        """The only run. ValueError if there are several."""
        [row] = self.runs
        return row

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the only run."""
        return self.row.fingerprint

    @property
    def title(self) -> str:
        """The full name of the only run."""
        return f"{self.experiment}/{self.row.label}/{self.row.seed}"


def existing_store(lab: Lab, *, writes: bool = False) -> Store:
    """Open a lab's store, read-only unless `writes`; UserError if the store doesn't exist."""
    readable = None if writes else Store.open_readonly(lab.store_url)
    return readable or Store.open(lab.store_url, create=False)


def shell_name(*parts: object) -> str:
    """Join the parts of a name with slashes, and quote the result so that it can be pasted into a shell."""
    return shlex.quote(one_line("/".join(map(str, parts))))


def find_subject(store: Store, name: str) -> Subject:
    """Find the experiment or run with a name, to annotate it."""
    if any(row.name == name for row in store.experiments()):
        return Subject(experiment=name)
    return Subject(fingerprint=find_run(store, name).fingerprint)


def find_run(store: Store, name: str) -> NamedRuns:
    """Find the only run that a name refers to.

    Raises:
        UserError: No run or several runs match; the message lists the choices.
    """
    named = find_runs(store, name)
    if len(named.runs) > 1:
        choices = [shell_name(named.experiment, row.label, row.seed) for row in named.runs]
        raise UserError(f"{name} matches {len(choices)} runs: choose one: {few(choices, _MOST)}")
    return named


def find_runs(store: Store, name: str) -> NamedRuns:
    """Find the runs that a name refers to: one run, the runs with a label or name, or a whole experiment.

    Raises:
        UserError: No run matches, or different runs of several experiments; the message lists the choices.
    """
    rows = {row.name: store.runs(row.name) for row in store.experiments()}
    experiment = next((experiment for experiment in rows if f"{name}/".startswith(f"{experiment}/")), None)
    if experiment is not None:
        within = name.removeprefix(experiment).strip("/")
        runs = _matching(rows[experiment], within) if within else rows[experiment]
        if not runs:
            known = {label for row in rows[experiment] for label in (row.label, f"{row.label}/{row.seed}")}
            raise UserError(f"no run {within!r} in {experiment}: {nearest(within, known)}")
        return NamedRuns(experiment, runs)
    found = {experiment: runs for experiment, listed in rows.items() if (runs := _matching(listed, name))}
    if not found:
        raise UserError(
            f"no experiment or run {name!r} in the store: {nearest(name.partition('/')[0], rows)}"
        )
    if len({frozenset(row.fingerprint for row in runs) for runs in found.values()}) > 1:
        choices = [shell_name(experiment, name) for experiment in found]
        raise UserError(f"{name} is in {len(found)} experiments: choose one: {few(choices, _MOST)}")
    return NamedRuns(*next(iter(found.items())))


def _matching(runs: Sequence[RunSummary], name: str) -> list[RunSummary]:
    """Return the runs with a label or name, with or without a seed, or the run with a fingerprint prefix."""
    for form in ("{0.label}", "{0.name}", "{0.label}/{0.seed}", "{0.name}/{0.seed}"):
        if found := [row for row in runs if form.format(row) == name]:
            return found
    found = [row for row in runs if is_fingerprint(name) and row.fingerprint.startswith(name.lower())]
    return found if len({row.fingerprint for row in found}) == 1 else []


def is_fingerprint(text: str) -> bool:
    """Return whether a text can be a fingerprint prefix: at least 4 hexadecimal digits."""
    return len(text) >= 4 and set(text.lower()) <= set("0123456789abcdef")
