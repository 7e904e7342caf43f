"""Record in the store what a launch plans, with its runs and their dependencies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, delete, select, update

from jestlab.analysis.costs import EXECUTED
from jestlab.platform.errors import UserError
from jestlab.platform.store.engine import RECORDING, one_at_a_time
from jestlab.platform.store.records import ADOPTED, LIVE, RunState
from jestlab.platform.store.tables import (
    Attempt,
    Budget,
    Cost,
    Experiment,
    Member,
    Need,
    Run,
    chunks,
    execute_many,
    insert,
    now,
    run_key,
    to_json,
    upsert,
)
from jestlab.platform.whoami import host_name, user_name

if TYPE_CHECKING:
    from jestlab.platform.planning.plan import Alias, Plan, PlannedRun


_REOPENED = ("program", "config", "state", "reason", "failures", "updated_at")
_NEW = ("fingerprint", "seed", "directory")
_BUDGET = ("chip", "chips", "chip_hours", "dollars")


def record(connection: Connection, plan: Plan) -> str:
    """`Store.record` inside a write transaction."""
    one_at_a_time(connection, RECORDING)
    experiment = _record_experiment(connection, plan)
    _record_runs(connection, plan.runs)
    members = [
        {
            "experiment": experiment,
            "run_id": run_key(run.fingerprint),
            "name": place.name,
            "label": place.label,
            "point": to_json(place.point),
            "needed": int(place.name in plan.needed),
            "position": position,
        }
        for position, run in enumerate(plan.runs)
        for place in _places(run)
    ]
    needs = [
        {"run_id": run_key(run.fingerprint), "role": role, "needs_id": run_key(needed)}
        for run in plan.runs
        for role, needed in run.needs.items()
    ]
    later = {run_key(fingerprint) for fingerprint in plan.later}
    kept = [*later, *_keep_adopted(connection, experiment, plan)]
    connection.execute(delete(Member).where(Member.experiment == experiment, Member.run_id.not_in(kept)))
    execute_many(connection, insert(connection, Member), members)
    execute_many(connection, insert(connection, Need).on_conflict_do_nothing(), needs)
    _record_costs(connection, plan.runs)
    _record_budgets(connection, plan.runs)
    for part in plan.parts:
        record(connection, part)
    return experiment


def _keep_adopted(connection: Connection, experiment: str, plan: Plan) -> list[int]:
    """Move the adopted runs of a study behind those of its plan; return their ids.

    Raises:
        UserError: A run of the plan has the name of one of them.
    """
    adopted = connection.execute(
        select(Member.run_id, Member.name, Member.label, Member.position)
        .join(Run, Run.id == Member.run_id)
        .where(Member.experiment == experiment, Run.program == ADOPTED)
        .order_by(Member.position, Member.label)
    ).all()
    taken = {text for run in plan.runs for place in _places(run) for text in (place.name, place.label)}
    if names := sorted({one.name for one in adopted} & taken):
        raise UserError(
            f"{plan.study.name}: {names[0]!r} is the name of an adopted run: rename the run of the "
            "spec, or adopt the other one again with another --label"
        )
    for position, one in enumerate(adopted, start=len(plan.runs)):
        if one.position != position:
            its = (Member.experiment == experiment) & (Member.run_id == one.run_id)
            connection.execute(update(Member).where(its).values(position=position))
    return [one.run_id for one in adopted]


def _places(run: PlannedRun) -> tuple[PlannedRun | Alias, ...]:
    """Return where a run stands in the study: under its own name, and under every alias."""
    return (run, *run.aliases)


def _record_experiment(connection: Connection, plan: Plan) -> str:
    study = plan.study
    values = {
        "question": study.question,
        "paper": study.paper,
        "scale": study.scale,
        "spec": to_json(study.to_dict(), sort_keys=False),  # the order of runs and parts is theirs
        "updated_at": now(),
        "origin": None,  # whoever launches a study makes it their own
        "owner": user_name(),
        "host": host_name(),
    }
    statement = insert(connection, Experiment).values(name=study.name, created_at=now(), **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_=values))
    return study.name


def _record_runs(connection: Connection, runs: Sequence[PlannedRun]) -> None:
    """Insert or reopen runs."""
    fingerprints = [run.fingerprint for run in runs]
    known = {
        row.fingerprint: row
        for chunk in chunks(fingerprints)
        for row in connection.execute(
            select(Run.fingerprint, Run.id, Run.state, Run.program, Run.config, Run.stop_reason)
            .where(Run.fingerprint.in_(chunk))
            .order_by(Run.id)
            .with_for_update(key_share=True)  # so that none starts or completes meanwhile
        )
    }
    held = set(connection.scalars(select(Attempt.run_id).where(Attempt.state.in_(LIVE))))
    time, fresh, reopened, kept = now(), [], [], []
    for run in runs:
        before = known.get(run.fingerprint)
        if before is not None and (before.state == RunState.COMPLETED or before.id in held):
            # The data and the user's program may have moved.
            new = (run.program, to_json(run.config))
            if (before.program, before.config, before.stop_reason) != (*new, None):
                kept.append({"its_id": before.id, "program": new[0], "config": new[1]})
            continue
        needed = (known.get(fingerprint) for fingerprint in run.needs.values())
        ready = all(need is not None and need.state == RunState.COMPLETED for need in needed)
        values = {
            # What is not part of the identity may differ from the last launch's, or an archive's.
            "program": run.program,
            "config": to_json(run.config),
            "state": str(RunState.PENDING if ready else RunState.BLOCKED),
            "reason": None,
            "failures": 0,
            "updated_at": time,
        }
        if before is not None:
            reopened.append({"its_id": before.id, **values})
            continue
        new_values = {name: getattr(run, name) for name in _NEW}
        fresh.append(values | new_values | {"id": run_key(run.fingerprint), "step": 0, "created_at": time})
    execute_many(connection, insert(connection, Run), fresh)
    changed: dict[str, Any] = {name: bindparam(name) for name in _REOPENED}
    moved = {name: changed[name] for name in ("program", "config")}
    table: Any = Run.__table__
    of_run = update(table).where(table.c.id == bindparam("its_id"))
    execute_many(connection, of_run.values(**changed, stop_reason=None), reopened)
    execute_many(connection, of_run.values(**moved, stop_reason=None), kept)


def _record_costs(connection: Connection, runs: Sequence[PlannedRun]) -> None:
    """Write what runs are planned to cost."""
    rows = [
        {
            "run_id": run_key(run.fingerprint),
            "component": component,
            "flops": getattr(run.price.cost, component),
        }
        for run in runs
        if run.price is not None
        for component in EXECUTED
    ]
    upsert(connection, Cost, rows, ["run_id", "component"], ["flops"])


def _record_budgets(connection: Connection, runs: Sequence[PlannedRun]) -> None:
    """Write what runs are expected to occupy; the budgets of completed runs stay."""
    open_ids: set[int] = set()
    for chunk in chunks(run_key(run.fingerprint) for run in runs):
        still_open = select(Run.id).where(Run.id.in_(chunk), Run.state != RunState.COMPLETED)
        open_ids.update(connection.scalars(still_open))
        connection.execute(delete(Budget).where(Budget.run_id.in_(still_open)))
    rows = [
        {"run_id": run_key(run.fingerprint)} | {name: getattr(run.budget, name) for name in _BUDGET}
        for run in runs
        if run.budget is not None and run_key(run.fingerprint) in open_ids
    ]
    upsert(connection, Budget, rows, ["run_id"], _BUDGET)
