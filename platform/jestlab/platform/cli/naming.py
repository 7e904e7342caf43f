"""How people name experiments and runs, for every verb: `quickstart/joint/1`, or EXPERIMENT/RUN/SEED.

RUN is the run's name or label in the experiment. Parts are left out where they are clear: the seed where
there is one, the experiment where no other has such a run. The first characters of a fingerprint do as well.
Whatever jestlab prints as the name of a run can be pasted into a shell.
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
from jestlab.platform.store.records import RunRow, RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Run

SHORTEST = 4
"""Number of characters of a fingerprint that are enough to name a run."""

HELP = """\
RUN is EXPERIMENT/RUN/SEED, as in quickstart/joint/1, without the parts that are clear: the seed where there
is one, the experiment where no other has such a run. The first characters of a fingerprint will do, too."""
"""What a verb's help says of its RUN."""


@dataclass(frozen=True)
class ListedRun:
    """A run of the store as launchers and listeners know runs, by its names alone: it is stopped, or shown.

    What it needs and executes does not matter any more.
    """

    fingerprint: str
    name: str
    label: str
    seed: int
    needs: Mapping[str, str] = field(default_factory=dict)
    program: str = ""

    @classmethod
    def of(cls, row: RunRow) -> ListedRun:
        """Return the run of a row."""
        return cls(row.fingerprint, row.name, row.label, row.seed)


@dataclass(frozen=True)
class Named:
    """Runs of one experiment that somebody has named.

    Attributes:
        experiment: The experiment.
        runs: Its runs that are meant, at least one.
        whole: Whether the experiment was named.
    """

    experiment: str
    runs: Sequence[RunRow]
    whole: bool = False


@dataclass(frozen=True)
class NamedRun:
    """A run that was named: its experiment, what the store says of it, and its whole name."""

    experiment: str
    row: RunRow

    @property
    def fingerprint(self) -> str:
        """Return the run's identity."""
        return self.row.fingerprint

    @property
    def title(self) -> str:
        """Write the run's whole name; its folder's, where it belongs to no experiment any more."""
        if not self.experiment:
            return self.row.label
        return f"{self.experiment}/{self.row.label}/{self.row.seed}"


def existing_store(lab: Lab, *, writes: bool = False) -> Store:
    """Open a lab's store for reading, or for writing too; StoreError, which says what to do, if it can't."""
    readable = None if writes else Store.open_readonly(lab.store_url)
    return readable or Store.open(lab.store_url, create=False)


def pasted(*parts: object) -> str:
    """Write the name of a run, of an experiment or of a seed as a shell takes it, in one word.

    Args:
        parts: Those of the name, which slashes join.
    """
    return shlex.quote(one_line("/".join(map(str, parts))))


def subject(store: Store, name: str) -> Subject:
    """Find the experiment, or the run, that a note or tag is about."""
    if name in _experiments(store):
        return Subject(experiment=name)
    return Subject(fingerprint=run(store, name).fingerprint)


def run(store: Store, name: str) -> NamedRun:
    """Find the one run that is meant.

    Raises:
        UserError: No run matches, or several do; the message says how to choose.
    """
    named = several(store, name)
    if len(named.runs) > 1:
        of = f"{named.experiment} has" if named.whole else f"{name} stands for"
        shown = [pasted(named.experiment, row.label, row.seed) for row in named.runs]
        raise UserError(f"{of} {len(shown)} runs: choose one: {_few(shown)}")
    return NamedRun(named.experiment, named.runs[0])


def several(store: Store, name: str) -> Named:
    """Find the runs that are meant: one, all seeds or points of one, or all of an experiment.

    Raises:
        UserError: No run matches, or such runs are in several experiments; the message says how to choose.
    """
    experiments = _experiments(store)
    if name in experiments:
        if not (rows := store.runs(name)):
            raise UserError(f"{name} has no runs")
        return Named(name, rows, whole=True)
    for experiment in (found for found in experiments if name.startswith(f"{found}/")):
        rest = name.removeprefix(f"{experiment}/")
        rows = store.runs(experiment)
        if found := within(rows, rest):
            return Named(experiment, found)
        known = {row.label for row in rows} | {row.name for row in rows}
        labelled, _, seed = rest.rpartition("/")
        if labelled in known:
            seeds = sorted({row.seed for row in rows if labelled in (row.label, row.name)})
            raise UserError(f"{experiment}/{labelled} has no seed {seed}: {', '.join(map(str, seeds))}")
        raise UserError(f"no run {rest!r} in {experiment}: {nearest(rest, known)}")
    return _anywhere(store, name, experiments)


def _anywhere(store: Store, name: str, experiments: Sequence[str]) -> Named:
    """Find runs that are named without their experiment."""
    rows = {experiment: store.runs(experiment) for experiment in experiments}
    found = {experiment: its for experiment in experiments if (its := _named(rows[experiment], name))}
    if len({frozenset(row.fingerprint for row in its) for its in found.values()}) > 1:
        shown = [pasted(experiment, name) for experiment in found]
        raise UserError(f"{name} is in {len(found)} experiments: choose one: {_few(shown)}")
    if found:
        return Named(*next(iter(found.items())))
    if is_fingerprint(name):
        one = _by_fingerprint(store, name)
        for experiment, its in rows.items():
            if mine := [row for row in its if row.fingerprint == one.fingerprint]:
                return Named(experiment, mine[:1])
        return Named("", [one])
    head, slash, _ = name.partition("/")
    how = "" if slash else " (a run: EXPERIMENT/RUN/SEED)"
    raise UserError(f"no experiment {head!r} in the store: {nearest(head, experiments)}{how}")


def _by_fingerprint(store: Store, beginning: str) -> RunRow:
    """Find the one run whose fingerprint begins so, which may belong to no experiment any more."""
    columns = (
        Run.fingerprint, Run.seed, Run.state, Run.reason, Run.step, Run.total_steps, Run.directory,
        Run.program,
    )  # fmt: skip
    with store.reading() as connection:
        query = select(*columns).where(Run.fingerprint.startswith(beginning.lower())).limit(2)
        found = connection.execute(query).all()
    if len(found) != 1:
        raise UserError(
            f"{'several runs have' if found else 'no run has'} a fingerprint that begins with {beginning!r}: "
            f"{'give more of it' if found else 'see `jestlab query --columns experiment,label,fingerprint`'}"
        )
    [row] = found
    title = row.directory.removeprefix("runs/")
    return RunRow(
        row.fingerprint, title, title, row.seed, RunState(row.state), row.reason, row.step, row.total_steps,
        attempts=0, directory=row.directory, started_at=None, ended_at=None, program=row.program,
    )  # fmt: skip


def within(runs: Sequence[RunRow], wanted: str) -> list[RunRow]:
    """Find the runs of an experiment that are meant; none if none is.

    Args:
        runs: Those of the experiment.
        wanted: Name or label, either with /SEED, or the first characters of fingerprints.
    """
    if (found := _named(runs, wanted)) or not is_fingerprint(wanted):
        return found
    return [row for row in runs if row.fingerprint.startswith(wanted.lower())]


def _named(runs: Sequence[RunRow], wanted: str) -> list[RunRow]:
    """Find the runs of a label or name, with or without a seed."""
    found = [row for row in runs if row.label == wanted] or [row for row in runs if row.name == wanted]
    rest, slash, seed = wanted.rpartition("/")
    if found or not slash or not seed.lstrip("-").isdecimal():
        return found
    return [row for row in _named(runs, rest) if row.seed == int(seed)]


def is_fingerprint(text: str) -> bool:
    """Tell whether a name can be the first characters of a fingerprint."""
    return len(text) >= SHORTEST and set(text.lower()) <= set("0123456789abcdef")


def _experiments(store: Store) -> list[str]:
    return [row.name for row in store.experiments()]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
