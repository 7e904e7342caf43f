"""Read and write adopted runs in the store."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import Connection, delete, func, or_, select, update

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.source_run import Score, SourceRun, State
from jestlab.platform.planning.identity import folder_suffix
from jestlab.platform.store.annotations import valid_tags
from jestlab.platform.store.records import ADOPTED, RunState
from jestlab.platform.store.rows import execute_many, insert, now, to_json, upsert, write_points
from jestlab.platform.store.spool import as_number
from jestlab.platform.store.tables import (
    AttemptRow,
    CostRow,
    EvaluationRow,
    ExperimentRow,
    MemberRow,
    MetricNameRow,
    MetricRow,
    NoteRow,
    RunRow,
    TagRow,
    run_key,
)
from jestlab.platform.whoami import host_name, user_name

if TYPE_CHECKING:
    from jestlab.analysis.metrics import Goal
    from jestlab.platform.store.store import Store

Change = Literal["new", "changed", "same"]

_DIGEST = "adopted"
"""Key of the digest of an adopted run in the versions of its attempt."""

_POINTS_AT_ONCE = 50_000

_STATES: dict[State, tuple[RunState, str | None]] = {
    "COMPLETED": (RunState.COMPLETED, None),
    "FAILED": (RunState.FAILED, "failed, according to its tool"),
    "CANCELLED": (RunState.CANCELLED, "stopped, according to its tool"),
    "RUNNING": (RunState.CANCELLED, "had not ended when it was adopted"),
}
"""State in its tool → state in the store, and the reason."""


@dataclass(frozen=True)
class Placed:
    """A run and its place in a study; its label is the same for all its seeds.

    Attributes:
        run: As its tool recorded it, with text and metrics that a store can hold.
        path: Where it was read.
        scores: Scores, by evaluation and step.
    """

    run: SourceRun
    fingerprint: str
    path: str
    name: str
    label: str
    seed: int
    scores: Sequence[Score]

    @property
    def state(self) -> RunState:
        """State in the store."""
        return _STATES[self.run.state][0]

    def digest(self) -> str:
        """Return a digest of all that the store holds of the run, except its place in studies."""
        about = [self.seed, self.scores, asdict(replace(self.run, metrics={}, left_out={}))]
        digest = hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode())
        for name, (steps, values) in sorted(self.run.metrics.items()):
            for part in (name.encode(), steps.tobytes(), values.tobytes()):
                digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


def score_names(store: Store, study: str) -> set[str]:
    """Return the names DATASET/METRIC of the scores in a study.

    Raises:
        UserError: The study is a union of other studies.
    """
    with store.reading() as connection:
        spec = connection.scalar(select(ExperimentRow.spec).where(ExperimentRow.name == study))
        if spec is not None and json.loads(spec).get("studies"):
            raise UserError(f"{study} is a union: adopt into one of its studies")
        query = select(EvaluationRow.dataset, EvaluationRow.metric).join(
            MemberRow, MemberRow.run_id == EvaluationRow.run_id
        )
        rows = connection.execute(query.where(MemberRow.experiment == study).distinct())
        return {f"{dataset}/{metric}" for dataset, metric in rows}


def seeds(
    connection: Connection, study: str, fingerprint: str, name: str, label: str
) -> tuple[int | None, set[int]]:
    """Return the seed of a run in the store, and the seeds that other runs with its label have.

    The others are those in the study, and in all studies that have the run.

    Raises:
        UserError: A run that isn't adopted has the name or label.
    """
    key = run_key(fingerprint)
    mine = select(MemberRow.experiment, MemberRow.name, MemberRow.label).where(MemberRow.run_id == key)
    places = {row.experiment: (row.name, row.label) for row in connection.execute(mine)} | {
        study: (name, label)
    }
    has_name = [
        (MemberRow.experiment == each) & (MemberRow.name.in_(texts) | MemberRow.label.in_(texts))
        for each, texts in places.items()
    ]
    others = connection.execute(
        select(MemberRow.experiment, MemberRow.label, RunRow.seed, RunRow.program)
        .join(RunRow, RunRow.id == MemberRow.run_id)
        .where(MemberRow.run_id != key, or_(*has_name))
    ).all()
    if any(row.program != ADOPTED for row in others):
        remedy = "choose another label, such as --label 'old {name}'"
        raise UserError(f"a study has a run {name!r} that isn't adopted: {remedy}")
    own = connection.scalar(select(RunRow.seed).where(RunRow.id == key))
    return own, {row.seed for row in others if row.label == places[row.experiment][1]}


def write(
    connection: Connection,
    study: str,
    placed: Placed,
    author: str,
    moved: bool = False,
    goal: Goal | None = None,
) -> Change:
    """Write a run and its place in a study, in a write transaction; replace an earlier version of the run.

    The study is created if it doesn't exist. The options are those of `Adoption`.

    Raises:
        UserError: A different run of the same origin was read at another path.
    """
    run, key, digest = placed.run, run_key(placed.fingerprint), placed.digest()
    before = connection.execute(
        select(AttemptRow.number, AttemptRow.versions, AttemptRow.handle).where(AttemptRow.run_id == key)
    ).one_or_none()
    is_same = before is not None and json.loads(before.versions or "{}").get(_DIGEST) == digest
    if before is not None and not is_same and not moved and before.handle not in (None, placed.path):
        # Runs of the other kinds have names that don't depend on the path.
        is_named = run.origin.startswith(("csv:", "parquet:", "tensorboard:"))
        remedy = "name this source with --source NAME, or " if is_named else ""
        remedy += "add --moved if it is the same run, moved here"
        raise UserError(f"{run.origin} was adopted from {before.handle}, and differs there: {remedy}")
    if not is_same:
        _write_run(connection, placed)
        _write_attempt(connection, placed, before.number + 1 if before is not None else 1, digest)
        _write_values(connection, placed)
        _annotate(connection, placed, author)
    _list_in_spec(connection, study, placed, goal)
    entered = _enter(connection, study, placed)
    return "changed" if entered == "same" and not is_same else entered


def _write_run(connection: Connection, placed: Placed) -> None:
    """Insert or update a run, and delete what the store has of its earlier version."""
    key, step = run_key(placed.fingerprint), placed.run.last_step
    for table in (MetricRow, EvaluationRow, CostRow, AttemptRow):
        connection.execute(delete(table).where(table.run_id == key))
    identity = {
        "id": key,
        "fingerprint": placed.fingerprint,
        "directory": _folder(placed),
        "created_at": now(),
    }
    values = {
        "program": ADOPTED, "config": to_json(placed.run.config), "seed": placed.seed,
        "state": str(placed.state), "reason": _STATES[placed.run.state][1], "step": step,
        "total_steps": step or None, "updated_at": now(), "failures": 0,
    }  # fmt: skip
    upsert(connection, RunRow, [identity | values], ["id"], [*values])


def _folder(placed: Placed) -> str:
    """Return the folder that the run would have; nothing is in it."""
    return f"runs/adopted{folder_suffix(placed.fingerprint)}"


def _write_attempt(connection: Connection, placed: Placed, number: int, digest: str) -> None:
    """Write the only attempt of a run. A new number ends a retraction of the earlier one."""
    run = placed.run
    began = run.began or run.ended or now()
    values = {
        "run_id": run_key(placed.fingerprint), "number": number, "state": str(placed.state),
        "reason": _STATES[run.state][1], "executor": ADOPTED, "handle": placed.path, "claimed_at": began,
        "started_at": run.began, "heartbeat_at": run.ended or began, "ended_at": run.ended or began,
        "host": run.host, "device": run.device, "code_commit": run.git_commit,
        "log": f"{_folder(placed)}/log.txt", "versions": to_json({_DIGEST: digest}), "first_step": 0,
        "chips": 0,
    }  # fmt: skip
    connection.execute(insert(connection, AttemptRow).values(**values))
    of_run = {"run_id": values["run_id"], "attempt": number}
    scores = [of_run | score._asdict() | {"value": as_number(score.value)} for score in placed.scores]
    execute_many(connection, insert(connection, EvaluationRow), scores)


def _write_values(connection: Connection, placed: Placed) -> None:
    key = run_key(placed.fingerprint)
    names = [{"name": name} for name in placed.run.metrics]
    execute_many(connection, insert(connection, MetricNameRow).on_conflict_do_nothing(), names)
    ids = dict(connection.execute(select(MetricNameRow.name, MetricNameRow.id)).tuples().all())
    for name, (steps, values) in placed.run.metrics.items():
        for start in range(0, len(steps), _POINTS_AT_ONCE):
            part = slice(start, start + _POINTS_AT_ONCE)
            points = zip(steps[part].tolist(), values[part].tolist(), strict=True)
            write_points(connection, key, [(ids[name], step, as_number(value)) for step, value in points])
    flops = [(score.step, score.flops_total) for score in placed.scores if score.flops_total is not None]
    if flops:  # other tools don't split FLOPs into parts: all count as the learner's
        parts = {"learner": max(flops)[1], "scoring": 0.0, "reference_scoring": 0.0}
        costs = [{"run_id": key, "component": name, "flops": value} for name, value in parts.items()]
        execute_many(connection, insert(connection, CostRow), costs)


def _annotate(connection: Connection, placed: Placed, author: str) -> None:
    """Add the tags and the note of a run that it doesn't have yet; those added here stay."""
    key = run_key(placed.fingerprint)
    about = {"run_id": key, "author": author, "created_at": now()}
    tags = [about | {"name": name} for name in dict.fromkeys(valid_tags(placed.run.tags))]
    execute_many(connection, insert(connection, TagRow).on_conflict_do_nothing(), tags)
    same = select(NoteRow.id).where(NoteRow.run_id == key, NoteRow.text == placed.run.notes)
    if placed.run.notes and connection.execute(same).first() is None:
        connection.execute(insert(connection, NoteRow).values(**about, text=placed.run.notes))


def _list_in_spec(connection: Connection, study: str, placed: Placed, goal: Goal | None) -> None:
    """List the run and its scores in the spec of a study that has only adopted runs; create the study."""
    text = connection.scalar(select(ExperimentRow.spec).where(ExperimentRow.name == study))
    before: dict[str, Any] = {"name": study} if text is None else json.loads(text)
    if before.get("runs"):
        return
    metrics = before.get("metrics") or {}
    if goal is not None:
        own = {
            name: {"goal": goal, **metrics.get(name, {})}
            for name in dict.fromkeys(s.name for s in placed.scores)
        }
        metrics = own | {name: each for name, each in metrics.items() if name not in own}
    spec = before | {"adopted": [*dict.fromkeys([*(before.get("adopted") or ()), placed.name])]}
    spec |= {"metrics": metrics} if metrics else {}
    if text is None:
        values = {
            "name": study, "question": "", "spec": to_json(spec, sort_keys=False), "created_at": now(),
            "updated_at": now(), "owner": user_name(), "host": host_name(),
        }  # fmt: skip
        connection.execute(insert(connection, ExperimentRow).values(**values))
    elif spec != before:
        listed = update(ExperimentRow).where(ExperimentRow.name == study)
        connection.execute(listed.values(spec=to_json(spec, sort_keys=False), updated_at=now()))


def _enter(connection: Connection, study: str, placed: Placed) -> Change:
    """Make a run the last run of a study, or give it its new label."""
    key = run_key(placed.fingerprint)
    own = (MemberRow.experiment == study) & (MemberRow.run_id == key)
    held = connection.execute(
        select(MemberRow.name, MemberRow.label, MemberRow.position).where(own)
    ).one_or_none()
    if held is not None and (held.name, held.label) == (placed.name, placed.label):
        return "same"
    last = connection.scalar(select(func.max(MemberRow.position)).where(MemberRow.experiment == study))
    connection.execute(delete(MemberRow).where(own))
    values = {
        "experiment": study, "run_id": key, "name": placed.name, "label": placed.label, "point": "{}",
        "needed": 0, "position": held.position if held is not None else (last or 0) + 1,
    }  # fmt: skip
    connection.execute(insert(connection, MemberRow).values(**values))
    return "new" if held is None else "changed"
