"""Record plans in the store: studies, their runs, and the dependencies of runs."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from jestlab.analysis.costs import EXECUTED
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED, LIVE, RunState
from jestlab.platform.store.rows import execute_many, insert, now, to_json, upsert
from jestlab.platform.store.store import Store, of_runs
from jestlab.platform.store.tables import (
    AttemptRow,
    BudgetRow,
    CostRow,
    ExperimentRow,
    MemberRow,
    NeedRow,
    RunRow,
    run_key,
)
from jestlab.platform.whoami import host_name, user_name

_BUDGET = ("chip", "chips", "chip_hours", "dollars")


def record(store: Store, plan: Plan, *, reopens: bool = True) -> None:
    """Record a plan in one transaction: experiment, runs, dependencies, members, planned costs and budgets.

    Each part of a union is also recorded as an experiment. Completed runs, and runs with an attempt that
    hasn't ended, keep their state. Other runs become PENDING, or BLOCKED while a dependency hasn't completed;
    unless `reopens`, only new runs do.
    Runs that are left to later rounds remain members.
    """
    with store.writing() as connection:
        one_at_a_time(connection, RECORDING)
        _record(connection, plan, reopens)


def _record(connection: Connection, plan: Plan, reopens: bool) -> None:
    name = plan.study.name
    _record_experiment(connection, plan.study)
    _record_runs(connection, plan.runs, reopens)
    members = [
        {
            "experiment": name,
            "run_id": run_key(run.fingerprint),
            "name": place.name,
            "label": place.label,
            "point": to_json(place.point),
            "needed": int(place.name in plan.needed),
            "position": position,
        }
        for position, run in enumerate(plan.runs)
        for place in run.places
    ]
    needs = [
        {"run_id": run_key(run.fingerprint), "role": role, "needs_id": run_key(needed)}
        for run in plan.runs
        for role, needed in run.needs.items()
    ]
    kept = [*map(run_key, plan.later), *_keep_adopted(connection, plan)]
    connection.execute(delete(MemberRow).where(MemberRow.experiment == name, MemberRow.run_id.not_in(kept)))
    execute_many(connection, insert(connection, MemberRow), members)
    execute_many(connection, insert(connection, NeedRow).on_conflict_do_nothing(), needs)
    _record_costs(connection, plan.runs)
    for part in plan.parts:
        _record(connection, part, reopens)


def _record_experiment(connection: Connection, study: StudySpec) -> None:
    values = {
        "question": study.question,
        "paper": study.paper,
        "scale": study.scale,
        "spec": to_json(study.to_dict(), sort_keys=False),  # the order of runs and parts matters
        "updated_at": now(),
        "origin": None,  # a launched study is no longer an imported one
        "owner": user_name(),
        "host": host_name(),
    }
    statement = insert(connection, ExperimentRow).values(name=study.name, created_at=now(), **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))


def _keep_adopted(connection: Connection, plan: Plan) -> list[int]:
    """Move the adopted runs of a study after the planned ones; return their keys.

    Raises:
        UserError: A planned run has the name of an adopted one.
    """
    adopted = connection.execute(
        select(MemberRow.run_id, MemberRow.name, MemberRow.label, MemberRow.position)
        .join(RunRow, RunRow.id == MemberRow.run_id)
        .where(MemberRow.experiment == plan.study.name, RunRow.program == ADOPTED)
        .order_by(MemberRow.position, MemberRow.label, RunRow.seed)
    ).all()
    taken = {text for run in plan.runs for place in run.places for text in (place.name, place.label)}
    if names := sorted({one.name for one in adopted} & taken):
        raise UserError(
            f"{plan.study.name}: {names[0]!r} is the name of an adopted run: rename the run of the spec, or "
            "adopt the other one again with another --label"
        )
    for position, one in enumerate(adopted, start=len(plan.runs)):
        if one.position != position:
            place = (MemberRow.experiment == plan.study.name) & (MemberRow.run_id == one.run_id)
            connection.execute(update(MemberRow).where(place).values(position=position))
    return [one.run_id for one in adopted]


def _record_runs(connection: Connection, runs: Sequence[PlannedRun], reopens: bool) -> None:
    """Insert new runs, and make runs that ended without completing ready to run again."""
    known = {
        row.fingerprint: row
        for row in connection.execute(
            select(RunRow.fingerprint, RunRow.state, RunRow.program, RunRow.config, RunRow.stop_reason)
            .where(of_runs(run.fingerprint for run in runs))
            .order_by(RunRow.id)
            .with_for_update(key_share=True)  # so that none starts or completes meanwhile
        )
    }
    held = set(connection.scalars(select(AttemptRow.run_id).where(AttemptRow.state.in_(LIVE))))
    opened, kept = [], []
    for run in runs:
        key = run_key(run.fingerprint)
        before, values = known.get(run.fingerprint), {"program": run.program, "config": to_json(run.config)}
        if before is not None and not reopens:
            continue
        if before is not None and (before.state == RunState.COMPLETED or key in held):
            # Values that aren't part of the identity, such as paths, may have changed.
            if (before.program, before.config, before.stop_reason) != (*values.values(), None):
                kept.append({"key": key, **values})
            continue
        needed = (known.get(fingerprint) for fingerprint in run.needs.values())
        ready = all(need is not None and need.state == RunState.COMPLETED for need in needed)
        state = str(RunState.PENDING if ready else RunState.BLOCKED)
        identity = {"id": key, "fingerprint": run.fingerprint, "seed": run.seed, "directory": run.directory}
        times = {"created_at": now(), "updated_at": now()}
        start = {"state": state, "reason": None, "stop_reason": None, "step": 0, "failures": 0}
        opened.append(identity | values | times | start)
    changed = ("program", "config", "state", "reason", "stop_reason", "failures", "updated_at")
    upsert(connection, RunRow, opened, ["id"], changed)
    table: Any = RunRow.__table__
    change = update(table).where(table.c.id == bindparam("key")).values(stop_reason=None)
    change = change.values(program=bindparam("program"), config=bindparam("config"))
    execute_many(connection, change, kept)


def _record_costs(connection: Connection, runs: Sequence[PlannedRun]) -> None:
    """Write planned costs, and the budgets of runs that have not completed."""
    costs = [
        {"run_id": run_key(run.fingerprint), "component": name, "flops": getattr(run.price.cost, name)}
        for run in runs
        if run.price is not None
        for name in EXECUTED
    ]
    upsert(connection, CostRow, costs, ["run_id", "component"], ["flops"])
    query = select(RunRow.id).where(
        of_runs(run.fingerprint for run in runs), RunRow.state != RunState.COMPLETED
    )
    unfinished = set(connection.scalars(query))
    connection.execute(delete(BudgetRow).where(BudgetRow.run_id.in_(query)))
    budgets = [
        {"run_id": run_key(run.fingerprint)} | {name: getattr(run.budget, name) for name in _BUDGET}
        for run in runs
        if run.budget is not None and run_key(run.fingerprint) in unfinished
    ]
    upsert(connection, BudgetRow, budgets, ["run_id"], _BUDGET)
