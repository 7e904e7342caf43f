"""Find results whose code or data differ from those of other results, or from the current files.

A run's identity is its config, so a change of code doesn't cause the run to be executed again. Instead, the
differences are reported. Users can accept them (`store.annotations`), or execute the runs again with
`jestlab launch --rerun-changed`.
"""

import json
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import func, literal_column, select

from jestlab.analysis.provenance.code import (
    JESTLAB,
    OWN_PROGRAMS,
    Made,
    contributing,
    differing,
    made_by,
    made_with_different,
    package_items,
)
from jestlab.platform.errors import SpecError
from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs.sources import interpreter_of, sources_of
from jestlab.platform.spec.schema import Record, StudySpec
from jestlab.platform.store.annotations import acceptances, retracted
from jestlab.platform.store.provenance import digests_of, versions
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store, in_study_order, of_runs
from jestlab.platform.store.tables import AttemptRow, MemberRow, RunRow
from jestlab.platform.store.views import FIRST_STEP
from jestlab.platform.words import few

_MAX_BYTES = 1 << 30
"""Larger data are digested only by workers, so that planning stays fast."""

_ATTEMPT_COLUMNS = ("number", "state", "started_at", "sources", "inputs", "versions", "git_commit")


@dataclass
class ResultChanges:
    """Results that were made with different code, data, or package versions.

    Attributes:
        names: Label and seed of each completed run.
        retracted: Completed runs whose results, or those of a dependency, are retracted → the reason.
        changed: Runs that differ from the current files → the differing items (`analysis.provenance.code`).
        mixed: Other item that differs among the results of a label → all such labels.
        older: Runs that differ from the latest result of their label → these items.
        values: Each differing item → all its values, including the current one.
    """

    names: dict[str, str] = field(default_factory=dict)
    retracted: dict[str, str] = field(default_factory=dict)
    changed: dict[str, list[str]] = field(default_factory=dict)
    mixed: dict[str, list[str]] = field(default_factory=dict)
    older: dict[str, list[str]] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)

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
            different = made_with_different(dict.fromkeys(chain.from_iterable(self.changed.values())))
            first = shlex.quote(f"{experiment}/{self.names[next(iter(self.changed))]}")
            lines.append(
                f"{self._count(self.changed, 'was', 'were')} {different} than the current files "
                f"(jestlab diff {first}; --rerun-changed runs them again; {accept})"
            )
        can_rerun = {*chain.from_iterable(self.older.values())}
        for item, labels in self.mixed.items():
            remedy = f"--rerun-changed runs the older ones again; {accept}" if item in can_rerun else accept
            lines.append(f"seeds of {few(labels)} were {made_with_different([item])} ({remedy})")
        return lines

    def _count(self, runs: Collection[str], singular: str, plural: str) -> str:
        subject = f"{len(runs)} of {len(self.names)} runs" if len(self.names) > 1 else "the run"
        return f"{subject} {singular if len(runs) == 1 else plural}"

    def _add_values(self, items: Mapping[str, Sequence[str]]) -> None:
        for item, values in items.items():
            self.values[item] = list(dict.fromkeys([*self.values.get(item, ()), *values]))


def changes(store: Store, study: StudySpec, runs: Iterable[PlannedRun]) -> ResultChanges:
    """Compare the code and data of completed runs with each other and with the current files.

    Args:
        store: The store.
        study: The study.
        runs: All runs of the study, with their states.
    """
    by_label: dict[str, list[PlannedRun]] = defaultdict(list)
    for run in runs:
        by_label[run.label].append(run)
    completed = [run for group in by_label.values() for run in group if run.state == RunState.COMPLETED]
    if not completed:
        return ResultChanges()
    studies = (study, *study.studies.values())
    accepted = [row.accepted for each in studies for row in acceptances(store, each.name)]
    packages = tuple(dict.fromkeys(name for each in studies for name in each.record.packages))
    files = tuple(dict.fromkeys(file for each in studies for file in each.record.files))
    current = _Current(Record(packages=packages, files=files))
    attempts = attempts_of(store, [run.fingerprint for run in completed])
    made = {run.fingerprint: made_by(run.program, attempts[run.fingerprint], packages) for run in completed}
    reasons = {row.fingerprint: row.reason for row in retracted(store)}
    names = {run.fingerprint: f"{run.label}/{run.seed}" for run in completed}
    result = ResultChanges(names=names, retracted={run: reasons[run] for run in names if run in reasons})
    for run in completed:
        recorded = made[run.fingerprint]
        if items := differing([recorded, current.files(run, recorded)], accepted):
            result.changed[run.fingerprint] = [*items]
            result._add_values(items)
    reported = {*result.values}
    for label, group in by_label.items():
        done = [run.fingerprint for run in group if run.state == RunState.COMPLETED]
        if not done:
            continue
        unfinished = [current.packages(run) for run in group if run.state != RunState.COMPLETED]
        items = differing([*(made[run] for run in done), *unfinished], accepted)
        result._add_values(items)
        latest = made[max(done, key=lambda run: _started_at(attempts[run]))]
        outdated = {run: differing([made[run], latest], accepted) for run in done}
        for item in items:
            if item not in reported:
                result.mixed.setdefault(item, []).append(label)
                for fingerprint in done:
                    if item in outdated[fingerprint]:
                        result.older.setdefault(fingerprint, []).append(item)
    by_script: dict[str, list[Made]] = defaultdict(list)
    for run in completed:
        by_script[f"{run.program} {run.config.get('command')}"].append(made[run.fingerprint])
    for of_script in by_script.values():  # tables mark labels that differ from others: `Origins.marks`
        items = differing(of_script, accepted)
        result._add_values({item: items[item] for item in items if item != JESTLAB})
    return result


def _started_at(attempts: Sequence[Mapping[str, Any]]) -> str:
    """Return the start time of the attempt that completed a run; empty if unknown."""
    used = contributing(attempts)
    return str(used[-1]["started_at"]) if used else ""


def changes_of(store: Store, experiment: str) -> ResultChanges:
    """Compare the runs of an experiment, as last launched. Reports no changes if its spec is no longer valid.

    Raises:
        UserError: The experiment is unknown.
    """
    spec = store.spec(experiment)
    try:
        study = StudySpec.parse(spec)
    except SpecError:
        return ResultChanges()
    query = (
        select(RunRow.__table__, MemberRow.name, MemberRow.label, MemberRow.position)
        .join(RunRow, RunRow.id == MemberRow.run_id)
        .where(MemberRow.experiment == experiment)
    )
    stored = {
        row.fingerprint: PlannedRun(
            row.fingerprint, row.name, row.label, {}, row.seed, row.program, json.loads(row.config), {}, None,
            RunState(row.state),
        )
        for row in in_study_order(store.rows(query))
    }  # fmt: skip
    return changes(store, study, stored.values())  # a run with several labels counts under one of them


class _Current:
    """The current code, data, and packages. Each file is read once."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._code: dict[str, dict[str, str]] = {}

    def files(self, run: PlannedRun, recorded: Made) -> Made:
        """Return the current digests of a run's recorded code and data files."""
        digests: dict[str, str] = {}
        if any(item.startswith("code ") for item in recorded):
            digests |= {f"code {name}": digest for name, digest in self._code_digests(run).items()}
        if any(item.startswith("data ") for item in recorded):
            digests |= self._data_digests
        return {item: frozenset([value]) for item, value in digests.items() if item in recorded}

    def packages(self, run: PlannedRun) -> Made:
        """Return the current versions of the recorded packages; empty if the run uses another Python.

        NOTE: don't execute that Python to get its versions: the config may come from an imported study.
        """
        uses_other = interpreter_of(run.program, run.config) is not None
        return {} if uses_other else self._packages

    def _code_digests(self, run: PlannedRun) -> dict[str, str]:
        if run.program in OWN_PROGRAMS:  # their identity includes the digests of custom code
            return {}
        relevant = {key: run.config[key] for key in ("command", "cwd", "code") if key in run.config}
        has_placeholders = "{" in str(relevant.get("command"))
        key = json.dumps([run.program, run.config if has_placeholders else relevant], default=str)
        if key not in self._code:
            self._code[key] = digests_of(sources_of(run.program, run.config) or {})
        return self._code[key]

    @cached_property
    def _data_digests(self) -> dict[str, str]:
        digests = digests_of({n: path for n, path in self._record.named_files().items() if _is_small(path)})
        return {f"data {name}": digest for name, digest in digests.items()}

    @cached_property
    def _packages(self) -> Made:
        names = self._record.packages
        return {item: frozenset([value]) for item, value in package_items(versions(names), names).items()}


def _is_small(path: Path) -> bool:
    try:
        files = [path] if path.is_file() else path.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file()) <= _MAX_BYTES
    except OSError:
        return False


def attempts_of(store: Store, fingerprints: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what the attempts of runs recorded about code and data: fingerprint of the run → attempts."""
    attempts: dict[str, list[dict[str, Any]]] = {fingerprint: [] for fingerprint in fingerprints}
    columns = [getattr(AttemptRow, name) for name in _ATTEMPT_COLUMNS]
    columns.append(literal_column(FIRST_STEP).label("first_step"))
    patch_size = func.length(AttemptRow.git_patch).label("changes")
    query = select(RunRow.fingerprint, *columns, patch_size).join(RunRow, RunRow.id == AttemptRow.run_id)
    for row in store.rows(query.where(of_runs(fingerprints))):
        attempts[row.fingerprint].append(dict(row._mapping))
    return attempts
