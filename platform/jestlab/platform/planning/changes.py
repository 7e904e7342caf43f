"""Find results that were made with different code or data: compared with each other, and with the current
files.

A run's identity is its config: different code doesn't make a run run again. The differences are reported, can
be accepted (`store.judgments`), and `jestlab launch --rerun-changed` repeats the runs.
"""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
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
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs.sources import interpreter_of, sources_of
from jestlab.platform.spec.schema import Record, StudySpec
from jestlab.platform.store.judgments import acceptances, retracted
from jestlab.platform.store.provenance import versions
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store, of_runs
from jestlab.platform.store.tables import AttemptRow, RunRow
from jestlab.platform.store.views import FIRST_STEP

_MAX_BYTES = 1 << 30
"""Larger data are digested only by workers, so that planning stays fast."""

_ATTEMPT_COLUMNS = ("number", "state", "started_at", "sources", "inputs", "versions", "git_commit")


@dataclass(frozen=True)
class StoredRun:
    """A run of an experiment in the store."""

    fingerprint: str
    label: str
    seed: int
    program: str
    config: Mapping[str, Any]
    state: RunState


@dataclass(frozen=True)
class ResultChanges:
    """Results that were made with different code, data, or package versions.

    An item is a file, a package, or jestlab itself; see `jestlab.analysis.mixing`.

    Attributes:
        completed: Number of completed runs.
        changed: Runs whose code or data differ from the current files → the differing items.
        mixed: Item with several values among the results of one label → those labels.
        values: Each differing item → all its values, including the current one.
        older: Runs that differ from the latest result of their label → the differing items.
        names: Label and seed of each completed run.
        retracted: Completed runs whose results, or those of a dependency, are retracted → the reason.
    """

    completed: int = 0
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mixed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    older: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    retracted: Mapping[str, str] = field(default_factory=dict)

    def without(self, fingerprints: Collection[str]) -> ResultChanges:
        """Return the changes that remain once these runs have run again."""

        def remaining(runs: Mapping[str, Any]) -> dict[str, Any]:
            return {run: value for run, value in runs.items() if run not in fingerprints}

        older = remaining(self.older)
        # An item stops being mixed once all older runs with it have run again.
        items = {item for run_items in older.values() for item in run_items}
        resolved = {item for run_items in self.older.values() for item in run_items} - items
        return replace(
            self,
            changed=remaining(self.changed),
            older=older,
            retracted=remaining(self.retracted),
            mixed={item: labels for item, labels in self.mixed.items() if item not in resolved},
        )

    def lines(self, experiment: str) -> list[str]:
        """Describe each difference and its remedies in one line."""
        accept = f'jestlab accept {shlex.quote(experiment)} --reason "…"'
        lines = []
        if self.retracted:
            reasons = "; ".join(dict.fromkeys(" ".join(why.split()) for why in self.retracted.values()))
            lines.append(
                f"{self._count(self.retracted, 'is', 'are')} retracted: {reasons} "
                "(--rerun-retracted runs them again; jestlab retract lists them)"
            )
        if self.changed:
            items = dict.fromkeys(item for run_items in self.changed.values() for item in run_items)
            kinds = [kind for kind in ("code", "data") if any(item.startswith(f"{kind} ") for item in items)]
            first = f"{experiment}/{self.names[next(iter(self.changed))]}"
            lines.append(
                f"{self._count(self.changed, 'was', 'were')} made with different {' and '.join(kinds)}: "
                f"{names_of(items)} changed (jestlab diff {shlex.quote(first)}; --rerun-changed runs them "
                f"again; {accept})"
            )
        for item, labels in self.mixed.items():
            values = "commits of jestlab" if item == JESTLAB else f"versions of {names_of([item])}"
            named = ", ".join(labels[:3]) + (", …" if len(labels) > 3 else "")
            can_rerun = any(item in items for items in self.older.values())
            remedy = f"--rerun-changed runs the older ones again; {accept}" if can_rerun else accept
            lines.append(f"results mix {len(self.values[item])} {values}: {named} ({remedy})")
        return lines

    def _count(self, runs: Collection[str], singular: str, plural: str) -> str:
        subject = f"{len(runs)} of {self.completed} runs" if self.completed > 1 else "the run"
        return f"{subject} {singular if len(runs) == 1 else plural}"


def changes(store: Store, study: StudySpec, runs: Iterable[PlannedRun | StoredRun]) -> ResultChanges:
    """Compare the code and data of a study's completed runs, given all its runs, with each other and with the
    current files."""
    runs = list(runs)
    completed = [run for run in runs if run.state == RunState.COMPLETED]
    if not completed:
        return ResultChanges()
    studies = (study, *study.studies.values())
    accepted = [row.accepted for each in studies for row in acceptances(store, each.name)]
    packages = tuple(dict.fromkeys(name for each in studies for name in each.record.packages))
    files = tuple(dict.fromkeys(file for each in studies for file in each.record.files))
    current = _Current(Record(packages=packages, files=files))
    attempts = attempts_of(store, [run.fingerprint for run in completed])
    made = {run.fingerprint: made_by(run.program, attempts[run.fingerprint], packages) for run in completed}
    values: dict[str, dict[str, None]] = defaultdict(dict)

    def differing_items(results: Iterable[Made]) -> tuple[str, ...]:
        items = differing(results, accepted)
        for item, its_values in items.items():
            values[item] |= dict.fromkeys(its_values)
        return tuple(items)

    changed: dict[str, tuple[str, ...]] = {}
    for run in completed:
        result = made[run.fingerprint]
        if items := differing_items([result, current.files(run, result)]):
            changed[run.fingerprint] = items
    reported = {item for items in changed.values() for item in items}
    mixed: dict[str, dict[str, None]] = defaultdict(dict)
    older: dict[str, tuple[str, ...]] = {}
    by_label: dict[str, list[PlannedRun | StoredRun]] = defaultdict(list)
    for run in runs:
        by_label[run.label].append(run)
    for label, group in by_label.items():
        done = [run.fingerprint for run in group if run.state == RunState.COMPLETED]
        if not done:
            continue
        results = [made[fingerprint] for fingerprint in done]
        results += [current.packages(run, packages) for run in group if run.state != RunState.COMPLETED]
        items = tuple(item for item in differing_items(results) if item not in reported)
        for item in items:
            mixed[item][label] = None
        latest = max(done, key=lambda fingerprint: _started_at(attempts[fingerprint]))
        for fingerprint in done if items else ():
            differs = differing([made[fingerprint], made[latest]], accepted)
            if outdated := tuple(item for item in items if item in differs):
                older[fingerprint] = outdated
    reasons = {row.fingerprint: row.reason for row in retracted(store)}
    return ResultChanges(
        completed=len(completed),
        changed=changed,
        mixed={item: tuple(labels) for item, labels in mixed.items()},
        values={item: tuple(its_values) for item, its_values in values.items()},
        older=older,
        names={run.fingerprint: f"{run.label}/{run.seed}" for run in completed},
        retracted={
            run.fingerprint: reasons[run.fingerprint] for run in completed if run.fingerprint in reasons
        },
    )


def _started_at(attempts: Sequence[Mapping[str, Any]]) -> str:
    """Return when the attempt started that completed a run; empty if unknown."""
    used = contributing(attempts)
    return str(used[-1]["started_at"]) if used else ""


def changes_of(store: Store, experiment: str) -> ResultChanges:
    """Compare the runs of an experiment as it was last launched; no changes if its spec has become invalid.

    Raises:
        UserError: There is no such experiment.
    """
    spec = store.spec(experiment)
    try:
        study = StudySpec.parse(spec)
    except SpecError:
        return ResultChanges()
    return changes(store, study, _stored_runs(store, experiment))


def _stored_runs(store: Store, experiment: str) -> list[StoredRun]:
    """Return the runs of an experiment with their configs, in the study's order."""
    rows = {row.fingerprint: row for row in store.runs(experiment)}
    query = select(RunRow.fingerprint, RunRow.program, RunRow.config).where(of_runs(rows))
    configs = {run: (program, json.loads(config)) for run, program, config in store.rows(query)}
    return [
        StoredRun(row.fingerprint, row.label, row.seed, *configs[row.fingerprint], row.state)
        for row in rows.values()
    ]


class _Current:
    """The current code, data, and packages. Each file is read once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._code: dict[str, dict[str, str]] = {}
        self._data: dict[str, str] | None = None
        self._versions: dict[str, str] | None = None

    def files(self, run: PlannedRun | StoredRun, recorded_items: Made) -> Made:
        """Return the current digests of a run's recorded code and data files."""
        digests: dict[str, str] = {}
        if any(item.startswith("code ") for item in recorded_items):
            digests |= {f"code {name}": digest for name, digest in self._code_digests(run).items()}
        if any(item.startswith("data ") for item in recorded_items):
            digests |= {f"data {name}": digest for name, digest in self._data_digests().items()}
        return {item: frozenset([value]) for item, value in digests.items() if item in recorded_items}

    def packages(self, run: PlannedRun | StoredRun, names: Sequence[str]) -> Made:
        """Return the current versions of a run's packages; empty if it uses another Python.

        NOTE: the other Python isn't executed, since the config may come from an imported study.
        """
        if interpreter_of(run.program, run.config, Path.cwd()) is not None:
            return {}
        if self._versions is None:
            self._versions = versions(names)
        attempt = {"sources": None, "inputs": None, "versions": json.dumps(self._versions)}
        return {item: frozenset([value]) for item, value in recorded("", attempt, names).items()}

    def _code_digests(self, run: PlannedRun | StoredRun) -> dict[str, str]:
        if run.program in OWN_PROGRAMS:  # the digest of custom code in their configs is in their identity
            return {}
        relevant = {key: run.config[key] for key in ("command", "cwd", "code") if key in run.config}
        has_placeholders = "{" in str(relevant.get("command"))
        key = json.dumps([run.program, run.config if has_placeholders else relevant], default=str)
        if key not in self._code:
            sources = sources_of(run.program, run.config, Path.cwd())
            self._code[key] = {} if sources is None else sources.digests()
        return self._code[key]

    def _data_digests(self) -> dict[str, str]:
        if self._data is None:
            small = (entry for entry in self._record.named_files().items() if _is_small(entry[1]))
            digests = {name: digest_of(path) for name, path in small}
            self._data = {name: digest for name, digest in digests.items() if digest is not None}
        return self._data


def _is_small(path: Path) -> bool:
    try:
        files = [path] if path.is_file() else path.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) <= _MAX_BYTES
    except OSError:
        return False


def attempts_of(store: Store, fingerprints: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return the recorded code and data of runs' attempts, by the fingerprint of the run."""
    attempts: dict[str, list[dict[str, Any]]] = {fingerprint: [] for fingerprint in fingerprints}
    columns = [getattr(AttemptRow, name) for name in _ATTEMPT_COLUMNS]
    columns.append(literal_column(FIRST_STEP).label("first_step"))
    patch_size = func.length(AttemptRow.git_patch).label("changes")
    query = select(RunRow.fingerprint, *columns, patch_size).join(RunRow, RunRow.id == AttemptRow.run_id)
    for row in store.rows(query.where(of_runs(fingerprints))):
        attempts[row.fingerprint].append(dict(row._mapping))
    return attempts
