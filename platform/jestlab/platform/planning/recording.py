"""Record planned studies, their runs, and the dependencies of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, select, update

from jestlab.platform.errors import UserError
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED, LIVE, RunState
from jestlab.platform.store.rows import chunks, execute_many, insert, now, to_json, upsert
from jestlab.platform.store.tables import Attempt, Budget, Cost, Experiment, Member, Need, Run, run_key
from jestlab.platform.whoami import host_name, user_name

_BUDGET = ("chip", "chips", "chip_hours", "dollars")


class Place(NamedTuple):
    """A name and label of a run in its study, with its values on the axes."""

    name: str
    label: str
    point: Mapping[str, Any]


@dataclass(frozen=True)
class RunToRecord:
    """A planned run.

    Attributes:
        needs: Role → fingerprint of each run that it depends on.
        places: Where it appears in the study.
        flops: Component → planned FLOPs; empty if unknown.
        budget: The columns of `Budget`; None if unknown.
    """

    fingerprint: str
    seed: int
    directory: str
    program: str
    config: Mapping[str, Any]
    needs: Mapping[str, str]
    places: Sequence[Place]
    flops: Mapping[str, float]
    budget: Mapping[str, Any] | None

    @property
    def key(self) -> int:
        """Key of the run in the store."""
        return run_key(self.fingerprint)


@dataclass(frozen=True)
class StudyToRecord:
    """A planned study.

    Attributes:
        spec: The resolved study.
        needed: Names of runs that others refer to.
        later: Fingerprints of runs that are left to later rounds.
        parts: For a union, its studies.
    """

    name: str
    question: str
    paper: str | None
    scale: str | None
    spec: Mapping[str, Any]
    runs: Sequence[RunToRecord]
    needed: Collection[str]
    later: Collection[str]
    parts: Sequence[StudyToRecord]


def record(connection: Connection, study: StudyToRecord) -> None:
    """`Store.record` inside a write transaction."""
    one_at_a_time(connection, RECORDING)
    _record_experiment(connection, study)
    _record_runs(connection, study.runs)
    members = [
        {
            "experiment": study.name,
            "run_id": run.key,
            "name": place.name,
            "label": place.label,
            "point": to_json(place.point),
            "needed": int(place.name in study.needed),
            "position": position,
        }
        for position, run in enumerate(study.runs)
        for place in run.places
    ]
    needs = [
        {"run_id": run.key, "role": role, "needs_id": run_key(needed)}
        for run in study.runs
        for role, needed in run.needs.items()
    ]
    kept = [*map(run_key, study.later), *_keep_adopted(connection, study)]
    connection.execute(delete(Member).where(Member.experiment == study.name, Member.run_id.not_in(kept)))
    execute_many(connection, insert(connection, Member), members)
    execute_many(connection, insert(connection, Need).on_conflict_do_nothing(), needs)
    _record_costs(connection, study.runs)
    for part in study.parts:
        record(connection, part)


def _record_experiment(connection: Connection, study: StudyToRecord) -> None:
    values = {
        "question": study.question,
        "paper": study.paper,
        "scale": study.scale,
        "spec": to_json(study.spec, sort_keys=False),  # the order of runs and parts matters
        "updated_at": now(),
        "origin": None,  # a launched study is no longer an imported one
        "owner": user_name(),
        "host": host_name(),
    }
    statement = insert(connection, Experiment).values(name=study.name, created_at=now(), **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))


def _keep_adopted(connection: Connection, study: StudyToRecord) -> list[int]:
    """Move the adopted runs of a study after the planned ones; return their keys.

    Raises:
        UserError: A planned run has the name of an adopted one.
    """
    adopted = connection.execute(
        select(Member.run_id, Member.name, Member.label, Member.position)
        .join(Run, Run.id == Member.run_id)
        .where(Member.experiment == study.name, Run.program == ADOPTED)
        .order_by(Member.position, Member.label)
    ).all()
    taken = {text for run in study.runs for place in run.places for text in (place.name, place.label)}
    if names := sorted({one.name for one in adopted} & taken):
        raise UserError(
            f"{study.name}: {names[0]!r} is the name of an adopted run: rename the run of the spec, or "
            "adopt the other one again with another --label"
        )
    for position, one in enumerate(adopted, start=len(study.runs)):
        if one.position != position:
            place = (Member.experiment == study.name) & (Member.run_id == one.run_id)
            connection.execute(update(Member).where(place).values(position=position))
    return [one.run_id for one in adopted]


def _record_runs(connection: Connection, runs: Sequence[RunToRecord]) -> None:
    """Insert new runs, and reopen those that ended early."""
    known = {
        row.fingerprint: row
        for chunk in chunks(run.key for run in runs)
        for row in connection.execute(
            select(Run.fingerprint, Run.state, Run.program, Run.config, Run.stop_reason)
            .where(Run.id.in_(chunk))
            .order_by(Run.id)
            .with_for_update(key_share=True)  # so that none starts or completes meanwhile
        )
    }
    held = set(connection.scalars(select(Attempt.run_id).where(Attempt.state.in_(LIVE))))
    created, reopened, kept = [], [], []
    for run in runs:
        before, config = known.get(run.fingerprint), to_json(run.config)
        if before is not None and (before.state == RunState.COMPLETED or run.key in held):
            # Values that aren't part of the identity, such as paths, may have changed.
            if (before.program, before.config, before.stop_reason) != (run.program, config, None):
                kept.append({"key": run.key, "program": run.program, "config": config})
            continue
        needed = (known.get(fingerprint) for fingerprint in run.needs.values())
        ready = all(need is not None and need.state == RunState.COMPLETED for need in needed)
        state = str(RunState.PENDING if ready else RunState.BLOCKED)
        values = {"program": run.program, "config": config, "state": state}
        if before is not None:
            reopened.append({"key": run.key, **values})
            continue
        identity = {"id": run.key, "fingerprint": run.fingerprint, "seed": run.seed}
        times = {"created_at": now(), "updated_at": now()}
        created.append(identity | values | times | {"directory": run.directory, "step": 0, "failures": 0})
    execute_many(connection, insert(connection, Run), created)
    names = ("program", "config", "state")
    table: Any = Run.__table__
    change = update(table).where(table.c.id == bindparam("key")).values(stop_reason=None)
    reopen = change.values(**{name: bindparam(name) for name in names}, reason=None, failures=0)
    execute_many(connection, reopen, reopened)
    execute_many(connection, change.values(**{name: bindparam(name) for name in names[:2]}), kept)


def _record_costs(connection: Connection, runs: Sequence[RunToRecord]) -> None:
    """Write planned costs, and the budgets of runs that have not completed."""
    costs = [
        {"run_id": run.key, "component": component, "flops": flops}
        for run in runs
        for component, flops in run.flops.items()
    ]
    upsert(connection, Cost, costs, ["run_id", "component"], ["flops"])
    unfinished: set[int] = set()
    for chunk in chunks(run.key for run in runs):
        query = select(Run.id).where(Run.id.in_(chunk), Run.state != RunState.COMPLETED)
        unfinished.update(connection.scalars(query))
        connection.execute(delete(Budget).where(Budget.run_id.in_(query)))
    budgets = [
        {"run_id": run.key} | {name: run.budget[name] for name in _BUDGET}
        for run in runs
        if run.budget is not None and run.key in unfinished
    ]
    upsert(connection, Budget, budgets, ["run_id"], _BUDGET)
