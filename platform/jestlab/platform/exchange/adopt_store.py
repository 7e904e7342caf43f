"""Read and write adopted runs in the store."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, delete, func, or_, select, update

from jestlab.analysis.metrics import Goal
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.source_run import Score, SourceRun, State
from jestlab.platform.planning.identity import folder_suffix
from jestlab.platform.store.annotations import valid_tags
from jestlab.platform.store.batches import as_number, write_points
from jestlab.platform.store.records import ADOPTED, RunState
from jestlab.platform.store.rows import insert, now, to_json, upsert
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    AttemptRow,
    CostRow,
    EvaluationRow,
    ExperimentRow,
    MetricRow,
    NoteRow,
    RunRow,
    TagRow,
    run_key,
)
from jestlab.platform.store.tables import MemberRow as Member
from jestlab.platform.whoami import host_name, user_name

Change = Literal["new", "changed", "same"]

_DIGEST_KEY = "adopted"
"""Key in the `versions` of a run's attempt; the value is `Placed.digest`."""

_REASONS: dict[State, str] = {
    "FAILED": "failed, according to its tool",
    "CANCELLED": "stopped, according to its tool",
    "RUNNING": "had not ended when it was adopted",
}
"""State in the other tool → reason for the state in the store."""


@dataclass(frozen=True)
class Placed:
    """A run and its place in a study. Runs that differ only in the seed have the same label.

    Attributes:
        run: As its tool recorded it, with text and metrics that a store can hold.
        path: The file or folder that contains the run.
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
        return RunState.CANCELLED if self.run.state == "RUNNING" else RunState(self.run.state)

    def digest(self) -> str:
        """Return a digest of everything that is stored about the run, except its place in studies."""
        about = [self.seed, self.scores, asdict(replace(self.run, left_out={}))]
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()


def score_names(store: Store, study: str) -> set[str]:
    """Return the names DATASET/METRIC of the scores in a study.

    Raises:
        UserError: The study is a union of other studies.
    """
    with store.reading() as connection:
        spec = connection.scalar(select(ExperimentRow.spec).where(ExperimentRow.name == study))
        if spec is not None and json.loads(spec).get("studies"):
            raise UserError(f"{study} is a union: adopt into one of its studies")
        query = select(EvaluationRow.dataset, EvaluationRow.metric).distinct()
        query = query.join(Member, Member.run_id == EvaluationRow.run_id).where(Member.experiment == study)
        return {f"{dataset}/{metric}" for dataset, metric in connection.execute(query)}


def seeds(
    connection: Connection, study: str, fingerprint: str, name: str, label: str
) -> tuple[int | None, set[int]]:
    """Return the stored seed of a run, None for a new run, and the seeds of other runs with the same label.

    The other runs are those of `study`, and of all other studies that contain the run.

    Raises:
        UserError: A run that isn't adopted already has this name or label.
    """
    key = run_key(fingerprint)
    mine = select(Member.experiment, Member.name, Member.label).where(Member.run_id == key)
    places = {row.experiment: (row.name, row.label) for row in connection.execute(mine)}
    places[study] = (name, label)
    has_name = [
        (Member.experiment == each) & (Member.name.in_(texts) | Member.label.in_(texts))
        for each, texts in places.items()
    ]
    others = connection.execute(
        select(Member.experiment, Member.label, RunRow.seed, RunRow.program)
        .join(RunRow, RunRow.id == Member.run_id)
        .where(Member.run_id != key, or_(*has_name))
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
    goal: Goal | None = None,
    may_move: bool = True,
) -> Change:
    """Write a run and its place in a study, in a write transaction; replace an earlier version of the run.

    Args:
        connection: In a write transaction.
        study: The study, which is created if it doesn't exist.
        placed: The run.
        author: Author of its tags and notes.
        goal: Goal of its scores in a study of only adopted runs.
        may_move: Whether an earlier version of the run may have another path.

    Raises:
        UserError: A different run of the same origin was read at another path.
    """
    key, digest = run_key(placed.fingerprint), placed.digest()
    before = connection.execute(
        select(AttemptRow.number, AttemptRow.versions, AttemptRow.handle).where(AttemptRow.run_id == key)
    ).one_or_none()
    is_same = before is not None and json.loads(before.versions or "{}").get(_DIGEST_KEY) == digest
    if before is not None and not is_same and before.handle not in (None, placed.path) and not may_move:
        raise UserError(
            f"{placed.run.origin} was adopted from {before.handle}, and differs there: give --source NAME, "
            "with the name in its origin if it is the same run, moved here"
        )
    if not is_same:
        # A retraction ends with a completed attempt of a higher number.
        _write_run(connection, key, placed, 1 if before is None else before.number + 1, digest)
        _annotate(connection, key, placed.run, author)
    _list_in_spec(connection, study, placed, goal)
    place_change = _add_member(connection, study, key, placed)
    return "changed" if place_change == "same" and not is_same else place_change


def _write_run(connection: Connection, key: int, placed: Placed, number: int, digest: str) -> None:
    """Insert or update a run with its only attempt, and replace its metrics, scores, and costs."""
    run, step = placed.run, placed.run.last_step
    state, reason = str(placed.state), _REASONS.get(run.state)
    folder = f"runs/adopted{folder_suffix(placed.fingerprint)}"  # contains no files
    began = run.began or run.ended or now()
    identity = {"id": key, "fingerprint": placed.fingerprint, "directory": folder, "created_at": now()}
    about = {
        "program": ADOPTED, "config": to_json(run.config), "seed": placed.seed, "state": state,
        "reason": reason, "step": step, "total_steps": step or None, "updated_at": now(), "failures": 0,
    }  # fmt: skip
    attempt = {
        "number": number, "state": state, "reason": reason, "executor": ADOPTED, "handle": placed.path,
        "claimed_at": began, "started_at": run.began, "heartbeat_at": run.ended or began,
        "ended_at": run.ended or began, "host": run.host, "device": run.device,
        "code_commit": run.git_commit, "log": f"{folder}/log.txt", "versions": to_json({_DIGEST_KEY: digest}),
    }  # fmt: skip
    scores = [
        score._asdict() | {"attempt": number, "value": as_number(score.value)} for score in placed.scores
    ]
    flops = [(score.step, score.flops_total) for score in placed.scores if score.flops_total is not None]
    # Other tools don't split FLOPs into parts: all count as the learner's.
    parts = {"learner": max(flops)[1], "scoring": 0.0, "reference_scoring": 0.0} if flops else {}
    costs = [{"component": name, "flops": value} for name, value in parts.items()]
    rows: dict[Any, list[dict[str, Any]]] = {AttemptRow: [attempt], EvaluationRow: scores, CostRow: costs}
    for table in (MetricRow, *reversed(rows)):
        connection.execute(delete(table).where(table.run_id == key))
    upsert(connection, RunRow, [identity | about], ["id"], [*about])
    for table, values in rows.items():
        upsert(connection, table, [{"run_id": key, **value} for value in values])
    for name, curve in run.metrics.items():
        write_points(connection, key, [(step, name, as_number(value)) for step, value in curve.items()])


def _annotate(connection: Connection, key: int, run: SourceRun, author: str) -> None:
    """Add the tags and the note that the stored run lacks; keep those that users of the store added."""
    about = {"run_id": key, "author": author, "created_at": now()}
    upsert(connection, TagRow, [about | {"name": name} for name in dict.fromkeys(valid_tags(run.tags))])
    same = select(NoteRow.id).where(NoteRow.run_id == key, NoteRow.text == run.notes)
    if run.notes and connection.execute(same).first() is None:
        upsert(connection, NoteRow, [about | {"text": run.notes}])


def _list_in_spec(connection: Connection, study: str, placed: Placed, goal: Goal | None) -> None:
    """Add a run to the spec of a study that has only adopted runs; with `goal`, also its scores.

    If the study doesn't exist, create it.
    """
    text = connection.scalar(select(ExperimentRow.spec).where(ExperimentRow.name == study))
    before: dict[str, Any] = {"name": study} if text is None else json.loads(text)
    if before.get("runs"):
        return
    spec = before | {"adopted": [*dict.fromkeys([*(before.get("adopted") or ()), placed.name])]}
    metrics = before.get("metrics") or {}
    if goal is not None:  # these come before the spec's patterns: the first match counts
        own = {score.name: {"goal": goal, **metrics.get(score.name, {})} for score in placed.scores}
        metrics = own | {name: each for name, each in metrics.items() if name not in own}
    spec |= {"metrics": metrics} if metrics else {}
    values = {"spec": to_json(spec, sort_keys=False), "updated_at": now()}
    if text is None:
        who = {"question": "", "created_at": now(), "owner": user_name(), "host": host_name()}
        connection.execute(insert(connection, ExperimentRow).values(name=study, **who, **values))
    elif spec != before:
        connection.execute(update(ExperimentRow).where(ExperimentRow.name == study).values(**values))


def _add_member(connection: Connection, study: str, key: int, placed: Placed) -> Change:
    """Add a run at the end of a study; update the name and label of a run that it already has."""
    names = {"name": placed.name, "label": placed.label}
    own = (Member.experiment == study) & (Member.run_id == key)
    existing = connection.execute(select(Member.name, Member.label).where(own)).mappings().one_or_none()
    if existing is not None:
        connection.execute(update(Member).where(own).values(**names))
        return "same" if dict(existing) == names else "changed"
    last = connection.scalar(select(func.max(Member.position)).where(Member.experiment == study))
    values = {"experiment": study, "run_id": key, "point": "{}", "needed": 0, "position": (last or 0) + 1}
    connection.execute(insert(connection, Member).values(**values, **names))
    return "new"
