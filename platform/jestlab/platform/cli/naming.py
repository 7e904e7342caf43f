"""Names of experiments and runs on the command line: `quickstart/joint/1` is EXPERIMENT/RUN/SEED.

RUN is the run's name or label in the experiment. The seed may be omitted if there is only one, and the
experiment if no other one has such a run. The first characters of a fingerprint also name a run. The names of
runs that verbs print can be pasted into a shell.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.logs import one_line
from jestlab.platform.store.annotations import Subject
from jestlab.platform.store.records import RunState, RunSummary
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import RunRow

SHORTEST = 4
"""Minimum number of characters of a fingerprint that name a run."""

HELP = """\
RUN is EXPERIMENT/RUN/SEED, as in quickstart/joint/1. Omit the seed if there is only one, and the experiment
if no other one has such a run. The first characters of a fingerprint also name a run."""
"""Explanation of RUN for the help of verbs."""


@dataclass(frozen=True)
class ListedRun:
    """A run as launchers and listeners know it: its names are enough to stop it or show it."""

    fingerprint: str
    name: str
    label: str
    seed: int
    needs: Mapping[str, str] = field(default_factory=dict)
    program: str = ""

    @classmethod
    def of(cls, row: RunSummary) -> ListedRun:
        """Return the run of a row."""
        return cls(row.fingerprint, row.name, row.label, row.seed)


@dataclass(frozen=True)
class Named:
    """The runs with a name.

    Attributes:
        experiment: Their experiment; empty for a run that belongs to none.
        runs: The runs, at least one.
    """

    experiment: str
    runs: Sequence[RunSummary]

    @property
    def row(self) -> RunSummary:
        """The run, if the name is that of one run."""
        [row] = self.runs
        return row

    @property
    def fingerprint(self) -> str:
        """The run's identity."""
        return self.row.fingerprint

    @property
    def title(self) -> str:
        """The run's full name, or the name of its folder if it belongs to no experiment."""
        return f"{self.experiment}/{self.row.label}/{self.row.seed}" if self.experiment else self.row.label


def existing_store(lab: Lab, *, writes: bool = False) -> Store:
    """Open a lab's store, which must exist, read-only unless `writes`."""
    readable = None if writes else Store.open_readonly(lab.store_url)
    return readable or Store.open(lab.store_url, create=False)


def pasted(*parts: object) -> str:
    """Join the parts of a name by slashes, quoted for a shell."""
    return shlex.quote(one_line("/".join(map(str, parts))))


def subject(store: Store, name: str) -> Subject:
    """Find the experiment, or the run, of a note or tag."""
    if any(row.name == name for row in store.experiments()):
        return Subject(experiment=name)
    return Subject(fingerprint=run(store, name).fingerprint)


def run(store: Store, name: str) -> Named:
    """Find the one run of a name.

    Raises:
        UserError: No run or several runs match; the message lists the choices.
    """
    named = several(store, name)
    if len(named.runs) > 1:
        choices = [pasted(named.experiment, row.label, row.seed) for row in named.runs]
        raise UserError(f"{name} matches {len(choices)} runs: choose one: {_first(choices)}")
    return named


def several(store: Store, name: str) -> Named:
    """Find the runs of a name: one, all seeds or points of one, or all of an experiment.

    Raises:
        UserError: No run matches, or runs of several experiments; the message lists the choices.
    """
    rows = {row.name: store.runs(row.name) for row in store.experiments()}
    if name in rows:
        if not rows[name]:
            raise UserError(f"{name} has no runs")
        return Named(name, rows[name])
    for experiment, runs in rows.items():
        if name.startswith(f"{experiment}/"):
            return Named(experiment, _within(experiment, runs, name.removeprefix(f"{experiment}/")))
    found = {experiment: matching for experiment, runs in rows.items() if (matching := _labeled(runs, name))}
    if len({frozenset(row.fingerprint for row in runs) for runs in found.values()}) > 1:
        choices = [pasted(experiment, name) for experiment in found]
        raise UserError(f"{name} is in {len(found)} experiments: choose one: {_first(choices)}")
    if found:
        return Named(*next(iter(found.items())))
    if is_fingerprint(name):
        return _by_fingerprint(store, rows, name.lower())
    experiment, slash, _ = name.partition("/")
    hint = "" if slash else " (a run: EXPERIMENT/RUN/SEED)"
    raise UserError(f"no experiment {experiment!r} in the store: {nearest(experiment, rows)}{hint}")


def _within(experiment: str, runs: Sequence[RunSummary], name: str) -> list[RunSummary]:
    """Find runs of an experiment by a label or name with or without /SEED, or by a fingerprint's start."""
    if found := _labeled(runs, name):
        return found
    prefix = name.lower()
    if is_fingerprint(name) and (found := [row for row in runs if row.fingerprint.startswith(prefix)]):
        return found
    label, _, seed = name.rpartition("/")
    if same := _labeled(runs, label):
        seeds = ", ".join(map(str, sorted({row.seed for row in same})))
        raise UserError(f"{experiment}/{label} has no seed {seed}: {seeds}")
    known = {row.label for row in runs} | {row.name for row in runs}
    raise UserError(f"no run {name!r} in {experiment}: {nearest(name, known)}")


def _labeled(runs: Sequence[RunSummary], name: str) -> list[RunSummary]:
    """Find runs by their label, else by their name, with or without /SEED."""
    found = [row for row in runs if row.label == name] or [row for row in runs if row.name == name]
    rest, slash, seed = name.rpartition("/")
    if found or not slash or not seed.lstrip("-").isdecimal():
        return found
    return [row for row in _labeled(runs, rest) if row.seed == int(seed)]


def _by_fingerprint(store: Store, rows: Mapping[str, Sequence[RunSummary]], prefix: str) -> Named:
    """Find the run whose fingerprint starts with a prefix, also one that belongs to no experiment."""
    columns = (RunRow.fingerprint, RunRow.seed, RunRow.state, RunRow.reason, RunRow.step, RunRow.total_steps,
               RunRow.directory, RunRow.program)  # fmt: skip
    with store.reading() as connection:
        query = select(*columns).where(RunRow.fingerprint.startswith(prefix)).limit(2)
        found = connection.execute(query).all()
    if len(found) != 1:
        fix = "give more of it" if found else "see `jestlab query --columns experiment,label,fingerprint`"
        raise UserError(f"{'several runs have' if found else 'no run has'} a fingerprint {prefix!r}…: {fix}")
    [one] = found
    for experiment, runs in rows.items():
        if mine := [row for row in runs if row.fingerprint == one.fingerprint]:
            return Named(experiment, mine[:1])
    folder = one.directory.removeprefix("runs/")
    row = RunSummary(
        one.fingerprint, folder, folder, one.seed, RunState(one.state), one.reason, one.step, one.total_steps,
        attempts=0, directory=one.directory, started_at=None, ended_at=None, program=one.program,
    )  # fmt: skip
    return Named("", [row])


def is_fingerprint(text: str) -> bool:
    """Return whether a name can be the start of a fingerprint."""
    return len(text) >= SHORTEST and set(text.lower()) <= set("0123456789abcdef")


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
