"""How people name experiments and runs, for every verb: `quickstart`, `quickstart/joint/1`, `3fa2c8`.

A run is named by its experiment and its name or label there, with its seed where there are several; or by the
first characters of its fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.annotations import Subject
from jestlab.platform.store.records import RunRow
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Run

SHORTEST = 4
"""Number of characters of a fingerprint that are enough to name a run."""


@dataclass(frozen=True)
class NamedRun:
    """A run that was named: its fingerprint, and what people call it."""

    fingerprint: str
    title: str


def existing_store(lab: Lab) -> Store:
    """Open a lab's store for reading; StoreError, which says what to do, if there is none that this reads."""
    return Store.open_readonly(lab.store_url) or Store.open(lab.store_url, create=False)


def subject(store: Store, name: str) -> Subject:
    """Find the experiment, or the run by a name as `run` takes it, that a note or tag is about."""
    experiments = [row.name for row in store.experiments()]
    if name in experiments:
        return Subject(experiment=name)
    if "/" not in name and not is_fingerprint(name):
        raise UserError(f"no experiment {name!r} in the store: {nearest(name, experiments)}")
    return Subject(fingerprint=run(store, name).fingerprint)


def run(store: Store, name: str, experiment: str | None = None, seed: int | None = None) -> NamedRun:
    """Find the one run that is meant.

    Args:
        store: Where to look.
        name: experiment/run, experiment/label, either with /seed; a fingerprint's first characters; or, if
            the experiment is given, run or label, with or without /seed.
        experiment: The experiment, if the name does not say it.
        seed: Replicate, if the name does not say it.

    Raises:
        UserError: No run matches, or several do; the message says how to choose.
    """
    if experiment is None and "/" in name:
        experiment, _, name = name.partition("/")
    if experiment is None:
        return _by_fingerprint(store, name)
    runs = store.runs(experiment)
    rest, slash, last = name.rpartition("/")
    is_whole = any(name in (run.name, run.label) for run in runs)
    if not is_whole and slash and last.lstrip("-").isdecimal():
        name, seed = rest, int(last)
    found = find(runs, name, seed, option=False)
    return NamedRun(found.fingerprint, f"{experiment}/{found.label}/{found.seed}")


def _by_fingerprint(store: Store, beginning: str) -> NamedRun:
    """Find the one run whose fingerprint begins so, in any experiment."""
    if not is_fingerprint(beginning):
        raise UserError(f"no run {beginning!r}: expected experiment/run, or a fingerprint's first characters")
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
    """Find the one run of an experiment that is meant.

    Args:
        runs: Those of the experiment.
        wanted: Name, label, or the first characters of the fingerprint.
        seed: Replicate; None if there is only one.
        option: Whether the verb has the option `--seed`; else the name is to say the seed.

    Raises:
        UserError: No run matches, or several do; the message says how to choose.
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
        raise UserError(f"several runs are named {wanted!r}: choose one by its label: {shown}")
    if wanted in labels:
        found = [run for run in found if run.label == wanted]
    seeds = sorted(run.seed for run in found)
    if seed is not None:
        found = [run for run in found if run.seed == seed]
    if len(found) != 1:
        choose = "choose one by --seed" if option else f"choose one, as in {wanted}/{seeds[0]}"
        raise UserError(f"{wanted!r} was run with seeds {', '.join(map(str, seeds))}: {choose}")
    return found[0]


def is_fingerprint(text: str) -> bool:
    """Tell whether a name can be the first characters of a fingerprint."""
    return len(text) >= SHORTEST and set(text.lower()) <= set("0123456789abcdef")
