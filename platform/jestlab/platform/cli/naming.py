"""How people name experiments and runs, for every verb: `quickstart`, `quickstart/joint/1`, `3fa2c8`.

A run is named by its experiment and its name or label there, with its seed where there are several; or by the
first characters of its fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jestlab.platform.errors import UserError, nearest

if TYPE_CHECKING:
    from jestlab.platform.store.annotations import Subject
    from jestlab.platform.store.records import RunRow
    from jestlab.platform.store.store import Store

SHORTEST = 4
"""Characters of a fingerprint that name a run."""


@dataclass(frozen=True)
class NamedRun:
    """A run that was named.

    Attributes:
        fingerprint: Its identity.
        title: As people call it.
    """

    fingerprint: str
    title: str


def subject(store: Store, name: str) -> str | NamedRun:
    """The experiment or run that is meant.

    Args:
        store: Where it is looked for.
        name: An experiment, or a run as `run` takes it.

    Returns:
        The experiment's name, or the run.

    Raises:
        UserError: None, or several runs; the message says how to choose.
    """
    experiments = [row.name for row in store.experiments()]
    if name in experiments:
        return name
    if "/" not in name and not is_fingerprint(name):
        raise UserError(f"no experiment {name!r} in the store: {nearest(name, experiments)}")
    return run(store, name)


def annotated(store: Store, name: str) -> Subject:
    """As `subject`, as notes and tags have it."""
    from jestlab.platform.store.annotations import Subject

    found = subject(store, name)
    return Subject(experiment=found) if isinstance(found, str) else Subject(fingerprint=found.fingerprint)


def run(store: Store, name: str, experiment: str | None = None, seed: int | None = None) -> NamedRun:
    """The one run that is meant.

    Args:
        store: Where it is looked for.
        name: experiment/run, experiment/label, either with /seed; a fingerprint's beginning; or, where the
            experiment is given, run or label, with or without /seed.
        experiment: The experiment, where the name does not say it.
        seed: Replicate, where the name does not say it.

    Raises:
        UserError: None, or several runs; the message says how to choose.
    """
    if experiment is None and "/" in name:
        experiment, _, name = name.partition("/")
    if experiment is not None:
        found = _of_experiment(store.runs(experiment), name, seed)
        return NamedRun(found.fingerprint, f"{experiment}/{found.label}/{found.seed}")
    return by_fingerprint(store, name)


def by_fingerprint(store: Store, beginning: str) -> NamedRun:
    """The one run whose fingerprint begins so, whatever experiment it stands in."""
    from sqlalchemy import select

    from jestlab.platform.store.tables import Run

    if not is_fingerprint(beginning):
        raise UserError(f"no run {beginning!r}: name it experiment/run, or by its fingerprint's beginning")
    with store.reading() as connection:
        found = connection.execute(
            select(Run.fingerprint, Run.directory)
            .where(Run.fingerprint.startswith(beginning.lower()))
            .limit(2)
        ).all()
    if len(found) != 1:
        raise UserError(
            f"{'several runs have' if found else 'no run has'} a fingerprint that begins with {beginning!r}: "
            f"{'give more of it' if found else 'see `jestlab query --columns experiment,label,fingerprint`'}"
        )
    return NamedRun(found[0].fingerprint, found[0].directory.removeprefix("runs/"))


def find(runs: Sequence[RunRow], wanted: str, seed: int | None, option: bool = True) -> RunRow:
    """The one run of an experiment that is meant.

    Args:
        runs: Of the experiment.
        wanted: Name, label, or the first characters of the fingerprint.
        seed: Replicate; None where there is one only.
        option: Whether the user may give the seed as an option, and not in the name alone.

    Raises:
        UserError: None or several; the message says how to choose.
    """
    found = [run for run in runs if wanted in (run.name, run.label)]
    if not found and len(wanted) >= SHORTEST:
        found = [run for run in runs if run.fingerprint.startswith(wanted)]
    if not found:
        raise UserError(
            f"no run {wanted!r}: {nearest(wanted, {run.label for run in runs} | {run.name for run in runs})}"
        )
    labels = sorted({run.label for run in found})
    if len(labels) > 1 and wanted not in labels:
        shown = ", ".join(map(repr, labels[:6])) + (", …" if len(labels) > 6 else "")
        raise UserError(f"several runs are named {wanted!r}: say which by its label: {shown}")
    if wanted in labels:
        found = [run for run in found if run.label == wanted]
    seeds = sorted(run.seed for run in found)
    if seed is not None:
        found = [run for run in found if run.seed == seed]
    if len(found) != 1:
        choose = "choose one by --seed" if option else f"choose one, as in {wanted}/{seeds[0]}"
        raise UserError(f"{wanted!r} was run with seeds {', '.join(map(str, seeds))}: {choose}")
    return found[0]


def _of_experiment(runs: Sequence[RunRow], name: str, seed: int | None) -> RunRow:
    """As `find`, where the name may end in /seed."""
    known = {run.name for run in runs} | {run.label for run in runs}
    rest, slash, last = name.rpartition("/")
    if name not in known and slash and last.lstrip("-").isdecimal():
        name, seed = rest, int(last)
    return find(runs, name, seed, option=False)


def is_fingerprint(text: str) -> bool:
    """Whether a name can be the beginning of a fingerprint."""
    return len(text) >= SHORTEST and set(text.lower()) <= set("0123456789abcdef")
