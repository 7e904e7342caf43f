"""What completed runs were made by, compared with each other and with the code and the data of now.

A run's identity is its config: nothing here makes anything run again. It is said, can be accepted
(`store.judgments`), and `jestlab launch --rerun-changed` runs again what it names.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import func, literal_column, select

from jestlab.analysis.mixing import (
    JESTLAB,
    OWN_PROGRAMS,
    Made,
    contributing,
    differing,
    made_by,
    names_of,
    recorded,
)
from jestlab.platform.digests import digest_of
from jestlab.platform.errors import SpecError
from jestlab.platform.planning.explain import Pair, differing_pairs, source_diff
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs.sources import interpreter_of, sources_of
from jestlab.platform.spec.record import Record
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.judgments import acceptances, retracted
from jestlab.platform.store.provenance import versions
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import chunks
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import Attempt, Run
from jestlab.platform.store.view_queries import FIRST_STEP

_MOST_BYTES = 1 << 30
"""Data that are larger are digested by workers alone: a plan does not wait for that."""

_OF_ATTEMPT = ("number", "state", "started_at", "sources", "inputs", "versions", "git_commit")


@dataclass(frozen=True)
class _StoredRun:
    """A run of an experiment as the store has it."""

    fingerprint: str
    label: str
    seed: int
    program: str
    config: Mapping[str, Any]
    state: RunState


Subject = PlannedRun | _StoredRun
"""A run that may have been made by other code."""


@dataclass(frozen=True)
class Changes:
    """What does not go together.

    Attributes:
        completed: Number of completed runs.
        changed: Runs that were made by other code or data than is there now, with the items that differ.
        mixed: Items of which the results of one label mix several values, with the labels.
        values: All values of every item that differs anywhere, those of now included.
        older: Runs that differ in such items from the newest result of their label, with the items.
        names: Label and seed of each completed run.
        retracted: Completed runs whose results are retracted, or rest on such results, with the reason.
    """

    completed: int = 0
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    older: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    retracted: Mapping[str, str] = field(default_factory=dict)

    def without(self, fingerprints: Collection[str]) -> Changes:
        """Return what is left to say when these runs run again."""
        changed = {run: items for run, items in self.changed.items() if run not in fingerprints}
        older = {run: items for run, items in self.older.items() if run not in fingerprints}
        retracted = {run: why for run, why in self.retracted.items() if run not in fingerprints}
        # What is mixed is no more, if all that is older runs again.
        left = {item for items in older.values() for item in items}
        gone = {item for items in self.older.values() for item in items} - left
        mixed = {item: labels for item, labels in self.mixed.items() if item not in gone}
        return replace(self, changed=changed, older=older, retracted=retracted, mixed=mixed)

    def lines(self, experiment: str) -> list[str]:
        """Say in one line each what differs, and what can be done."""
        accept = f'jestlab accept {shlex.quote(experiment)} --reason "…"'
        said = []
        if self.retracted:
            count = len(self.retracted)
            some = f"{count} of {self.completed} runs" if self.completed > 1 else "the run"
            reasons = "; ".join(dict.fromkeys(" ".join(why.split()) for why in self.retracted.values()))
            said.append(
                f"{some} {'is' if count == 1 else 'are'} retracted: {reasons} "
                "(--rerun-retracted runs them again; jestlab retract lists them)"
            )
        if self.changed:
            items = dict.fromkeys(item for its in self.changed.values() for item in its)
            kinds = [kind for kind in ("code", "data") if any(item.startswith(f"{kind} ") for item in items)]
            count = len(self.changed)
            some = f"{count} of {self.completed} runs" if self.completed > 1 else "the run"
            named = self.names[next(iter(self.changed))]
            show = f"jestlab diff {shlex.quote(f'{experiment}/{named}')}"
            made = f"{'was' if count == 1 else 'were'} made by other {' and '.join(kinds)}"
            said.append(
                f"{some} {made}: {names_of(items)} changed "
                f"({show}; --rerun-changed runs them again; {accept})"
            )
        for item, labels in self.mixed.items():
            what = "commits of jestlab" if item == JESTLAB else f"versions of {names_of([item])}"
            few = ", ".join(labels[:3]) + (", …" if len(labels) > 3 else "")
            again = any(item in items for items in self.older.values())
            remedy = f"--rerun-changed runs the older ones again; {accept}" if again else accept
            said.append(f"results mix {len(self.values[item])} {what}: {few} ({remedy})")
        return said


def changes(store: Store, study: Study, runs: Iterable[Subject]) -> Changes:
    """Compare what the completed runs of a study were made by with each other and with what is there now.

    Args:
        store: Where they are recorded.
        study: The study: what it wants recorded, and its name, by which differences are accepted.
        runs: All its runs.
    """
    subjects = list(runs)
    done = [run for run in subjects if run.state == RunState.COMPLETED]
    if not done:
        return Changes()
    studies = (study, *study.studies.values())
    accepted = [row.accepted for each in studies for row in acceptances(store, each.name)]
    record = Record(
        packages=tuple(dict.fromkeys(name for each in studies for name in each.record.packages)),
        files=tuple(dict.fromkeys(file for each in studies for file in each.record.files)),
    )
    now, packages = _Now(record), record.packages
    attempts = _attempts(store, [run.fingerprint for run in done])
    made = {run.fingerprint: made_by(run.program, attempts[run.fingerprint], packages) for run in done}
    changed: dict[str, tuple[str, ...]] = {}
    values: dict[str, dict[str, None]] = {}

    def note(found: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        for item, its in found.items():
            values.setdefault(item, {}).update(dict.fromkeys(its))
        return tuple(found)

    for run in done:
        then = made[run.fingerprint]
        if items := note(differing([then, now.files(run, then)], accepted)):
            changed[run.fingerprint] = items
    mixed: dict[str, dict[str, None]] = {}
    older: dict[str, tuple[str, ...]] = {}
    told = {item for items in changed.values() for item in items}
    by_label: dict[str, list[Subject]] = {}
    for run in subjects:
        by_label.setdefault(run.label, []).append(run)
    for label, its_runs in by_label.items():
        of_label = [run.fingerprint for run in its_runs if run.state == RunState.COMPLETED]
        if not of_label:
            continue
        its = [made[run] for run in of_label]
        its += [now.packages(run, packages) for run in its_runs if run.state != RunState.COMPLETED]
        found = [item for item in note(differing(its, accepted)) if item not in told]
        for item in found:
            mixed.setdefault(item, {})[label] = None
        newest = max(of_label, key=lambda its_run: _made_at(attempts[its_run]))
        for one in of_label if found else ():
            unlike = differing([made[one], made[newest]], accepted)
            if behind := tuple(item for item in found if item in unlike):
                older[one] = behind
    why = {row.fingerprint: row.reason for row in retracted(store)}
    return Changes(
        completed=len(done),
        changed=changed,
        mixed={item: tuple(labels) for item, labels in mixed.items()},
        values={item: tuple(its) for item, its in values.items()},
        older=older,
        names={run.fingerprint: f"{run.label}/{run.seed}" for run in done},
        retracted={run.fingerprint: why[run.fingerprint] for run in done if run.fingerprint in why},
    )


def _made_at(attempts: Sequence[Mapping[str, Any]]) -> str:
    """Return when the attempt began that completed a run; empty if nobody knows."""
    made = contributing(attempts)
    return str(made[-1]["started_at"]) if made else ""


def changes_of(store: Store, experiment: str) -> Changes:
    """Compare the runs of an experiment as it was launched last; none of an experiment that is no spec now.

    Raises:
        UserError: No such experiment.
    """
    spec = store.spec(experiment)
    try:
        study = Study.parse(spec)
    except SpecError:  # of an older jestlab
        return Changes()
    return changes(store, study, _stored_runs(store, experiment))


def _stored_runs(store: Store, experiment: str) -> list[_StoredRun]:
    """Return the runs of an experiment with their configs, in the study's order."""
    rows = {row.fingerprint: row for row in store.runs(experiment)}
    found = {}
    with store.reading() as connection:
        for chunk in chunks(rows):
            query = select(Run.fingerprint, Run.program, Run.config).where(Run.fingerprint.in_(chunk))
            for fingerprint, program, config in connection.execute(query).tuples():
                found[fingerprint] = (program, json.loads(config))
    return [
        _StoredRun(row.fingerprint, row.label, row.seed, *found[row.fingerprint], row.state)
        for row in rows.values()
    ]


@dataclass(frozen=True)
class Since:
    """How the user's own code and data differ from what a run was made by.

    Attributes:
        known: Whether the run's code was recorded, or is jestlab's own.
        code: File → digests, then and now; None where it is not there.
        data: The same of recorded files.
        source: The difference of the code as a unified diff.
    """

    known: bool
    code: Mapping[str, Pair[str]]
    data: Mapping[str, Pair[str]]
    source: str


def changed_since(store: Store, fingerprint: str) -> Since:
    """Compare what a run was made by with what is there now."""
    run = store.run(fingerprint)
    made = contributing(_attempts(store, [fingerprint])[fingerprint])
    last = made[-1] if made else {"sources": None, "inputs": None}
    sources = sources_of(run.program, run.config, Path.cwd())
    then = json.loads(last["sources"] or "{}")
    here = {} if sources is None or last["sources"] is None else sources.digests()
    files: dict[str, Path] = {}
    for record in store.record_of(fingerprint):
        files |= Record.model_validate(record).named_files()
    data = json.loads(last["inputs"] or "{}")
    now = {name: digest_of(path) for name, path in files.items() if name in data}
    return Since(
        known=last["sources"] is not None or run.program in OWN_PROGRAMS,
        code=differing_pairs(then, here),
        data=differing_pairs(data, now),
        source=source_diff(store, then, here, {} if sources is None else sources.files),
    )


class _Now:
    """What runs would be made by if they were launched now; each file is read once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._sources: dict[str, dict[str, str]] = {}
        self._inputs: dict[str, str] | None = None
        self._versions: dict[str, str] | None = None

    def files(self, run: Subject, then: Made) -> Made:
        """Return the files of a run's code and data, of those that it was made by."""
        found: dict[str, str] = {}
        if any(item.startswith("code ") for item in then):
            found |= {f"code {name}": digest for name, digest in self._code(run).items()}
        if any(item.startswith("data ") for item in then):
            found |= {f"data {name}": digest for name, digest in self._data().items()}
        return {item: frozenset([value]) for item, value in found.items() if item in then}

    def packages(self, run: Subject, names: Sequence[str]) -> Made:
        """Return the versions of packages that a run would find here; of another Python nobody is asked.

        NOTE: the config may be that of an imported study, which names what is executed.
        """
        if interpreter_of(run.program, run.config, Path.cwd()) is not None:
            return {}
        if self._versions is None:
            self._versions = versions(names)
        there = {"sources": None, "inputs": None, "versions": json.dumps(self._versions)}
        found = recorded("", there, names)
        return {item: frozenset([value]) for item, value in found.items()}

    def _code(self, run: Subject) -> dict[str, str]:
        config = {key: run.config[key] for key in ("command", "cwd", "code") if key in run.config}
        braces = "{" in str(config.get("command"))
        key = json.dumps([run.program, run.config if braces else config], default=str)
        if run.program in OWN_PROGRAMS:  # what their configs name is in their identity, but for comments
            return {}
        if key not in self._sources:
            sources = sources_of(run.program, run.config, Path.cwd())
            self._sources[key] = {} if sources is None else sources.digests()
        return self._sources[key]

    def _data(self) -> dict[str, str]:
        if self._inputs is None:
            digests = {
                name: digest_of(path) for name, path in self._record.named_files().items() if _is_small(path)
            }
            self._inputs = {name: digest for name, digest in digests.items() if digest is not None}
        return self._inputs


def _is_small(path: Path) -> bool:
    """Whether data can be digested while somebody waits."""
    try:
        files = [path] if path.is_file() else path.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) <= _MOST_BYTES
    except OSError:
        return False


def _attempts(store: Store, fingerprints: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what the attempts at runs recorded, by the fingerprint of the run."""
    found: dict[str, list[dict[str, Any]]] = {fingerprint: [] for fingerprint in fingerprints}
    columns = [getattr(Attempt, name) for name in _OF_ATTEMPT]
    columns.append(literal_column(FIRST_STEP).label("first_step"))
    changes_size = func.length(Attempt.git_patch).label("changes")
    with store.reading() as connection:
        for chunk in chunks(fingerprints):
            query = (
                select(Run.fingerprint, *columns, changes_size)
                .join(Run, Run.id == Attempt.run_id)
                .where(Run.fingerprint.in_(chunk))
            )
            for row in connection.execute(query).mappings():
                found[row["fingerprint"]].append(dict(row))
    return found
