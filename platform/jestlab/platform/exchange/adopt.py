"""Take runs that other tools have recorded into the store, each once, as runs of an experiment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import Connection, delete, func, select, update
from sqlalchemy.orm import aliased

from jestlab.platform.errors import UserError
from jestlab.platform.planning.identity import folder_end
from jestlab.platform.store.annotations import valid_tags
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED as PROGRAM
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import execute_many, insert, now, to_json, write_points
from jestlab.platform.store.spool import as_number
from jestlab.platform.store.tables import (
    Attempt,
    Cost,
    Evaluation,
    Experiment,
    Member,
    Metric,
    MetricName,
    Note,
    Run,
    Tag,
    run_key,
)
from jestlab.platform.whoami import host_name, user_name

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from jestlab.analysis.metrics import Goal
    from jestlab.platform.store.store import Store

Change = Literal["new", "changed", "same"]
"""What taking a run in has changed."""

_DIGEST = "what was adopted"
"""Where the digest of what was adopted stands, among the versions of what an attempt was made by."""

_BATCH = 50_000  # points that are in memory as rows at once


class Score(NamedTuple):
    """A score on a dataset at a step; NaN is a score, and efforts are None where they are unknown."""

    dataset: str
    metric: str
    step: int
    value: float
    examples_seen: int | None = None
    flops_total: float | None = None
    seconds: float | None = None

    @property
    def name(self) -> str:
        """Name of the evaluation: dataset/metric."""
        return f"{self.dataset}/{self.metric}"


@dataclass(frozen=True)
class AdoptedRun:
    """A run as it goes into the store.

    Attributes:
        fingerprint: That of its origin.
        origin: Where it came from.
        path: File or folder that it was read from.
        name: Name of the run in the experiment.
        label: The name, marked as adopted; alike for its seeds.
        seed: Replicate.
        config: With its origin.
        state: How it ended.
        reason: Why, if it did not complete.
        metrics: Name → steps, int64 (N,), and values, float64 (N,).
        scores: What was evaluated.
        began: When it began, UTC.
        ended: When it ended, UTC.
        host: The machine.
        device: The accelerator.
        commit: Of its code.
        tags: Its tags.
        note: Free text about it.
        left_out: What of it was not taken, in words → the number of values; not stored.
    """

    fingerprint: str
    origin: str
    path: str
    name: str
    label: str
    seed: int
    config: Mapping[str, Any]
    state: RunState
    reason: str | None = None
    metrics: Mapping[str, tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]] = field(default_factory=dict)
    scores: Sequence[Score] = ()
    began: datetime | None = None
    ended: datetime | None = None
    host: str | None = None
    device: str | None = None
    commit: str | None = None
    tags: Sequence[str] = ()
    note: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def last_step(self) -> int:
        """The last step of which anything is known."""
        steps = [int(steps[-1]) for steps, _ in self.metrics.values() if len(steps)]
        return max([*steps, *(score.step for score in self.scores)], default=0)

    def digest(self) -> str:
        """Return a digest of all that is stored of the run itself, whatever studies it belongs to."""
        found = hashlib.sha256()
        about = [self.seed, self.config, self.state, self.reason, self.began, self.ended, self.host]
        about += [self.device, self.commit, [*self.tags], self.note]
        about.append([score._asdict() for score in self.scores])
        found.update(json.dumps(about, sort_keys=True, default=str).encode())
        for name in sorted(self.metrics):
            steps, values = self.metrics[name]
            for part in (name.encode(), steps.tobytes(), values.tobytes()):
                found.update(len(part).to_bytes(8, "little") + part)
        return found.hexdigest()


class PlaceTaken(UserError):
    """Another run has a run's label and seed, in some study; `places` are all that others have."""

    def __init__(self, run: AdoptedRun, places: Mapping[tuple[str, int], str]) -> None:
        self.places = places
        super().__init__(f"another run is {run.label}/{run.seed}: adopt it again")


@dataclass(frozen=True)
class Known:
    """What a store holds of a study before runs are adopted into it.

    Attributes:
        own: Names and labels of its own runs.
        places: Label and seed of each adopted run of it → fingerprint.
        seeds: Fingerprint of each adopted run, of whatever study → its seed.
        evaluations: Names (dataset/metric) of what its runs were evaluated on.
    """

    own: Collection[str]
    places: Mapping[tuple[str, int], str]
    seeds: Mapping[str, int]
    evaluations: Collection[str]


def known(store: Store, experiment: str) -> Known:
    """Read what a store holds of a study.

    Raises:
        UserError: The study is a union: its runs are those of its parts.
    """
    with store.reading() as connection:
        row = connection.execute(select(Experiment.spec).where(Experiment.name == experiment)).one_or_none()
        if row is not None and json.loads(row.spec).get("studies"):
            raise UserError(f"{experiment} is a union: adopt into one of its studies")
        mine = select(Member.name, Member.label, Run.fingerprint, Run.seed, Run.program).join(
            Run, Run.id == Member.run_id
        )
        members = connection.execute(mine.where(Member.experiment == experiment)).all() if row else []
        seeds = select(Run.fingerprint, Run.seed).where(Run.program == PROGRAM)
        evaluated = (
            select(Evaluation.dataset, Evaluation.metric)
            .join(Member, Member.run_id == Evaluation.run_id)
            .where(Member.experiment == experiment)
            .distinct()
        )
        own = [one for one in members if one.program != PROGRAM]
        return Known(
            own={text for one in own for text in (one.name, one.label)},
            places={(one.label, one.seed): one.fingerprint for one in members if one.program == PROGRAM},
            seeds=dict(connection.execute(seeds).tuples().all()),
            evaluations={f"{dataset}/{metric}" for dataset, metric in connection.execute(evaluated)},
        )


def adopt(
    store: Store,
    experiment: str,
    run: AdoptedRun,
    *,
    author: str,
    moved: bool = False,
    goal: Goal | None = None,
) -> Change:
    """Take one run in, all or nothing; one that was taken in before is replaced if it has changed.

    Args:
        store: The store.
        experiment: Name of the experiment that it becomes a run of; one of adopted runs alone is made if
            there is none.
        run: The run.
        author: In whose name its tags and its note are written.
        moved: Whether it may replace a run of this origin that was read from another place.
        goal: Whether more or less of its scores is better; for an experiment of adopted runs alone, since the
            spec of another one says that.

    Raises:
        UserError: A run of this origin was read from another place, and says something else; or the study has
            a run of its own of this name.
        PlaceTaken: Another run has its label and seed.
    """
    digest = run.digest()
    with store.writing() as connection:
        one_at_a_time(connection, RECORDING)
        before = _before(connection, run.fingerprint)
        is_same = before is not None and before.digest == digest
        if before is not None and not is_same and not moved and before.path not in (None, run.path):
            # Runs of the other kinds have names of their own, wherever they are.
            named = run.origin.startswith(("csv:", "parquet:", "tensorboard:"))
            other = "give this one a name of its own with --source NAME, or " if named else ""
            raise UserError(
                f"{run.origin} was adopted from {before.path}, where it says something else: {other}"
                "add --moved if it is the same, continued"
            )
        run_id = run_key(run.fingerprint)
        if not is_same:
            _write(connection, run, before, digest)
            _annotate(connection, run_id, run, author)
        _record_experiment(connection, experiment, run, goal)
        entered = _enter(connection, experiment, run_id, run)
        _check_place(connection, run_id, run)
    return "changed" if entered == "same" and not is_same else entered


def _check_place(connection: Connection, run_id: int, run: AdoptedRun) -> None:
    """Check that no other run has a run's label and seed, in any study that it is in."""
    mine, other = aliased(Member), aliased(Member)
    texts = (mine.name, mine.label)
    query = select(other.label == mine.label, Run.seed, Run.fingerprint, Run.program).where(
        mine.run_id == run_id, other.run_id != run_id, other.experiment == mine.experiment,
        other.name.in_(texts) | other.label.in_(texts), Run.id == other.run_id,
    )  # fmt: skip
    rows = connection.execute(query).all()
    if any(row.program != PROGRAM for row in rows):
        raise UserError(f"a study of {run.origin} has a run {run.name!r} of its own: give another --label")
    places = {(run.label, row.seed): row.fingerprint for row in rows if row[0]}
    if (run.label, run.seed) in places:
        raise PlaceTaken(run, places)


@dataclass(frozen=True)
class _Before:
    """A run that was taken in before: the number of its attempt, its digest, where it was read."""

    number: int
    digest: str | None
    path: str | None


def _before(connection: Connection, fingerprint: str) -> _Before | None:
    row = connection.execute(
        select(Attempt.number, Attempt.versions, Attempt.handle)
        .select_from(Run)
        .outerjoin(Attempt, Attempt.run_id == Run.id)
        .where(Run.fingerprint == fingerprint)
        .order_by(Attempt.number.desc())
        .limit(1)
    ).one_or_none()
    if row is None:
        return None
    digest = json.loads(row.versions or "{}").get(_DIGEST)
    return _Before(row.number or 0, digest, row.handle)


def _record_experiment(connection: Connection, name: str, run: AdoptedRun, goal: Goal | None) -> None:
    """Find an experiment, or make one of adopted runs alone, whose spec lists them and their scores."""
    known = connection.scalar(select(Experiment.spec).where(Experiment.name == name))
    if known is not None:
        before = json.loads(known)
        spec = before if before.get("runs") else _listing(before, run, goal)
        if spec != before:
            listed = update(Experiment).where(Experiment.name == name)
            connection.execute(listed.values(spec=to_json(spec, sort_keys=False), updated_at=now()))
        return
    values = {
        "name": name, "question": "",
        "spec": to_json(_listing({"name": name}, run, goal), sort_keys=False),
        "created_at": now(), "updated_at": now(), "owner": user_name(), "host": host_name(),
    }  # fmt: skip
    connection.execute(insert(connection, Experiment).values(**values))


def _listing(spec: Mapping[str, Any], run: AdoptedRun, goal: Goal | None) -> dict[str, Any]:
    """Add a run, and what its scores mean if somebody says that, to a spec that has no runs of its own."""
    adopted, metrics = spec.get("adopted") or (), spec.get("metrics") or {}
    found = {**spec, "adopted": [*dict.fromkeys([*adopted, run.name])]}
    if goal is not None:
        names = dict.fromkeys(score.name for score in run.scores)
        own = {name: {"goal": goal, **metrics.get(name, {})} for name in names}
        metrics = {**own, **{name: each for name, each in metrics.items() if name not in own}}
    return found | {"metrics": metrics} if metrics else found


def _write(connection: Connection, run: AdoptedRun, before: _Before | None, digest: str) -> None:
    """Write a run with all that is known of it."""
    run_id = run_key(run.fingerprint)
    step = run.last_step
    values = {
        "program": PROGRAM, "config": to_json(run.config), "seed": run.seed, "state": str(run.state),
        "reason": run.reason, "step": step, "total_steps": step or None, "updated_at": now(), "failures": 0,
    }  # fmt: skip
    if before is None:
        new = {"id": run_id, "fingerprint": run.fingerprint, "directory": _folder(run)}
        connection.execute(insert(connection, Run).values(**values, **new, created_at=now()))
    else:
        for table in (Metric, Evaluation, Cost, Attempt):
            connection.execute(delete(table).where(table.run_id == run_id))
        connection.execute(update(Run).where(Run.id == run_id).values(**values))
    _record(connection, run, run_id, _attempt(connection, run, run_id, before, digest))


def _folder(run: AdoptedRun) -> str:
    """Name the folder that a run would have: nothing is in it, unless somebody puts something there."""
    return f"runs/adopted{folder_end(run.fingerprint)}"


def _attempt(
    connection: Connection, run: AdoptedRun, run_id: int, before: _Before | None, digest: str
) -> int:
    """Write the one attempt of a run: a new number says that it was made anew, so a retraction ends."""
    began = run.began or run.ended or now()
    values: dict[str, Any] = {
        "run_id": run_id, "number": before.number + 1 if before is not None else 1, "state": str(run.state),
        "reason": run.reason, "executor": PROGRAM, "handle": run.path, "claimed_at": began,
        "started_at": run.began, "heartbeat_at": run.ended or began, "ended_at": run.ended or began,
        "host": run.host, "device": run.device, "code_commit": run.commit, "log": f"{_folder(run)}/log.txt",
        "versions": to_json({_DIGEST: digest}), "first_step": 0, "chips": 0,
    }  # fmt: skip
    connection.execute(insert(connection, Attempt).values(**values))
    return int(values["number"])


def _record(connection: Connection, run: AdoptedRun, run_id: int, attempt: int) -> None:
    """Write the points of a run, its scores, and what it cost."""
    names = [{"name": name} for name in run.metrics]
    execute_many(connection, insert(connection, MetricName).on_conflict_do_nothing(), names)
    ids = dict(connection.execute(select(MetricName.name, MetricName.id)).tuples().all())
    for name, (steps, values) in run.metrics.items():
        for start in range(0, len(steps), _BATCH):
            part = slice(start, start + _BATCH)
            points = zip(steps[part].tolist(), values[part].tolist(), strict=True)
            rows = [(ids[name], step, as_number(value)) for step, value in points]
            write_points(connection, run_id, rows)
    of_run = {"run_id": run_id, "attempt": attempt}
    scores = [of_run | score._asdict() | {"value": as_number(score.value)} for score in run.scores]
    execute_many(connection, insert(connection, Evaluation), scores)
    spent = [(score.step, score.flops_total) for score in run.scores if score.flops_total is not None]
    if spent:  # nobody knows the parts of it: all counts as the learner's
        parts = {"learner": max(spent)[1], "scoring": 0.0, "reference_scoring": 0.0}
        costs = [{"run_id": run_id, "component": name, "flops": flops} for name, flops in parts.items()]
        execute_many(connection, insert(connection, Cost), costs)


def _annotate(connection: Connection, run_id: int, run: AdoptedRun, author: str) -> None:
    """Write the tags and the note that a run does not have yet; what somebody added here stays."""
    about = {"run_id": run_id, "author": author, "created_at": now()}
    tags = [about | {"name": name} for name in dict.fromkeys(valid_tags(run.tags))]
    execute_many(connection, insert(connection, Tag).on_conflict_do_nothing(), tags)
    same = select(Note.id).where(Note.run_id == run_id, Note.text == run.note)
    if run.note and connection.execute(same).first() is None:
        connection.execute(insert(connection, Note).values(**about, text=run.note))


def _enter(connection: Connection, experiment: str, run_id: int, run: AdoptedRun) -> Change:
    """Make a run one of an experiment's, behind those that are there, or give it its new label; return what
    that changed."""
    own = (Member.experiment == experiment) & (Member.run_id == run_id)
    held = connection.execute(select(Member.name, Member.label, Member.position).where(own)).one_or_none()
    if held is not None and (held.name, held.label) == (run.name, run.label):
        return "same"
    last = select(func.max(Member.position)).where(Member.experiment == experiment)
    place = held.position if held is not None else (connection.scalar(last) or 0) + 1
    connection.execute(delete(Member).where(own))
    values = {
        "experiment": experiment, "run_id": run_id, "name": run.name, "label": run.label,
        "point": "{}", "needed": 0, "position": place,
    }  # fmt: skip
    connection.execute(insert(connection, Member).values(**values))
    return "new" if held is None else "changed"
