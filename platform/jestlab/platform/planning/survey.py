"""Preview a launch: the plan of a study, compared with the store, priced, and explained.

Writes nothing, and doesn't require a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import deciding
from jestlab.platform.planning.cost import NO_CHIP, budgeted, to_do, total, wall_hours
from jestlab.platform.planning.matching import Timings
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Plan, totals
from jestlab.platform.planning.plan import plan as make_plan
from jestlab.platform.planning.reasons import RunReason, reasons_to_run
from jestlab.platform.planning.suitable import check_resources
from jestlab.platform.spec.expand import replaced_values
from jestlab.platform.spec.resources import LOCAL_PARALLEL, ExecutorName, runs_here
from jestlab.platform.spec.schema import StudySpec

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store


@dataclass(frozen=True)
class PlanCost:
    """Cost of the remaining runs of a plan. Resumed runs count in full.

    Attributes:
        runs: Number of remaining runs.
        flops: FLOPs of learner, scoring, and selection; None if unknown for any run.
        hours: Lower bound on the wall-clock hours; None if unknown for any run.
        chip_hours: Chip-hours on TPUs or a cluster's GPUs; None if unknown for any run, or if chips aren't
            counted, as on this machine.
        dollars: Cost at your prices; None if there are none.
    """

    runs: int
    flops: float | None
    hours: float | None
    chip_hours: float | None
    dollars: float | None


@dataclass(frozen=True)
class Survey:
    """Preview of a launch.

    Attributes:
        plan: The plan, with states and budgets.
        is_local: Whether the runs execute on this machine.
        executor: Executor on other machines; None for this machine, and if unknown.
        reasons: Fingerprint → why the run would run; empty unless requested.
        remarks: Warnings about existing results, or about the launch.
        claims_status: Status of the claims, if seeds are added until they are decided; None before the first
            launch, and if the number of seeds is fixed.
    """

    plan: Plan
    is_local: bool
    executor: ExecutorName | None
    reasons: Mapping[str, RunReason] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    claims_status: deciding.ClaimsStatus | None = None

    @property
    def parallel(self) -> int | None:
        """Number of runs at a time; None for all."""
        parallel = self.plan.study.resources.parallel
        return parallel or LOCAL_PARALLEL if self.is_local else parallel

    @property
    def cost(self) -> PlanCost:
        """Cost of the remaining runs."""
        runs = to_do(self.plan)
        amount = total(runs)
        is_known = not amount.unknown
        counts_chips = any(run.budget is not None and run.budget.chip != NO_CHIP for run in runs)
        return PlanCost(
            runs=len(runs),
            flops=totals(runs).total if all(run.price is not None for run in runs) else None,
            hours=wall_hours(runs, self.parallel) if is_known else None,
            chip_hours=amount.chip_hours if is_known and counts_chips else None,
            dollars=amount.dollars if is_known else None,
        )

    def explained(self) -> Iterator[tuple[str, RunReason]]:
        """Yield each run that would run, as "joint/0", with the reason."""
        runs = {run.fingerprint: run for run in self.plan.runs}
        for fingerprint, reason in self.reasons.items():
            yield f"{runs[fingerprint].label}/{runs[fingerprint].seed}", reason


def survey(lab: Lab, study: StudySpec, *, why: bool = False) -> Survey:
    """Preview a launch.

    Args:
        lab: Where the study would be launched; it may be empty.
        study: The study.
        why: Whether to explain for each run why it would run.

    Raises:
        UserError: The study can't be planned, or the store can't be read.
    """
    executor = study.resources.executor(default=Settings.find().on)
    is_local, reasons, remarks, status = runs_here(executor), {}, [*replaced_values(study)], None
    with open_readonly(lab) as store:
        timings = Timings.read(store, study)
        plan = make_plan(
            study, note_absent=True, placement="local" if is_local else "remote", timings=timings
        )
        is_default = is_local and study.resources.on is None  # `launch --on` may choose another executor
        check_resources(plan, None if is_default else executor)
        remarks += _refusal("a launch is refused: ", check_resources, plan, executor)
        check_names(plan, store.measured if store is not None else tuple)
        if deciding.has_open_seeds(study):
            plan = deciding.first_round(plan, store)
            if store is not None and store.members(study.name):
                status = deciding.claims_status(lab.store_url, study.name)
        if store is not None:
            plan = plan.with_states(store.states(plan.fingerprints))
        plan = budgeted(plan, store, executor)
        if why:
            reasons = reasons_to_run(plan, [] if store is None else store.finished())
        if store is not None:
            from jestlab.platform.planning.changes import changes
            from jestlab.platform.store.trust import check_names_available

            remarks += changes(store, study, plan.runs).lines(study.name)
            remarks += deciding.deviations(store, plan)
            remarks += _refusal("a launch is refused: ", check_names_available, store, plan.by_study)
    if executor == "local" and study.resources.gpus:
        from jestlab.platform.gpus import LocalGpus

        remarks += _refusal("", LocalGpus, study.resources)  # more than this machine has
    return Survey(plan, is_local, None if is_local else executor, reasons, remarks, status)


def _refusal(prefix: str, check: Callable[..., object], *arguments: Any) -> list[str]:
    """Run a check. Return its error message in a list; an empty list if the check passes."""
    try:
        check(*arguments)
    except UserError as error:
        return [f"{prefix}{error}"]
    return []


@contextmanager
def open_readonly(lab: Lab) -> Iterator[Store | None]:
    """Open the store of a lab for reading. Without a store, yield None and don't import SQLAlchemy."""
    if lab.store_is_missing:
        yield None
        return
    from jestlab.platform.store.store import Store

    store = Store.open_readonly(lab.store_url)
    with nullcontext() if store is None else closing(store):
        yield store
