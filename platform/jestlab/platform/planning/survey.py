"""Preview a launch: the plan of a study, compared with the store, priced, and explained.

Writes nothing, and doesn't require a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import deciding
from jestlab.platform.planning.cost import NO_CHIP, budgeted, to_do, total, wall_hours
from jestlab.platform.planning.explain import RunReason, explain
from jestlab.platform.planning.matching import Timings
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Plan, totals
from jestlab.platform.planning.plan import plan as make_plan
from jestlab.platform.spec.resources import LOCAL_PARALLEL, ExecutorName, Resources, runs_here
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
        here: Whether runs go to this machine.
        place: Where runs go otherwise; None for this machine, and if unknown.
        reasons: Fingerprint → why the run would run; empty unless requested.
        remarks: Warnings about existing results, or about the launch.
        standing: State of a study that adds seeds until its claims are decided; None before its first launch,
            and if the number of seeds is fixed.
    """

    plan: Plan
    here: bool
    place: ExecutorName | None
    reasons: Mapping[str, RunReason] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    standing: deciding.ClaimsStatus | None = None

    @property
    def parallel(self) -> int | None:
        """Number of runs at a time; None for all."""
        parallel = self.plan.study.resources.parallel
        return parallel or LOCAL_PARALLEL if self.here else parallel

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
    place = study.resources.executor(default=Settings.find().on)
    store = _open_store(lab)
    try:
        is_here = runs_here(place)
        timings = Timings.read(store, study)
        plan = make_plan(study, note_absent=True, placement="local" if is_here else "remote", timings=timings)
        check_names(plan, store.measured if store is not None else tuple)
        standing = None
        if deciding.has_open_seeds(study):
            plan = deciding.first_round(plan, store)
            if store is not None and store.members(study.name):
                standing = deciding.claims_status(lab.store_url, study.name)
        if store is not None:
            plan = plan.with_states(store.states(plan.fingerprints))
        plan = budgeted(plan, store, place)
        reasons = explain(plan, store.finished() if store is not None else []) if why else {}
        remarks = [] if store is None else _remarks(store, plan)
        if place == "local" and study.resources.gpus:
            remarks += _missing_gpus(study.resources)
        return Survey(plan, is_here, None if is_here else place, reasons, remarks, standing)
    finally:
        if store is not None:
            store.close()


def _missing_gpus(resources: Resources) -> list[str]:
    """Report if each run requests more GPUs than this machine has: a local launch would be refused."""
    from jestlab.platform.gpus import LocalGpus

    try:
        LocalGpus(resources)
    except UserError as error:
        return [str(error)]
    return []


def _remarks(store: Store, plan: Plan) -> list[str]:
    """Report changed code and data, deviations from a registration, and names that are taken."""
    from jestlab.platform.planning.changes import changes
    from jestlab.platform.store.trust import check_names_available

    remarks = changes(store, plan.study, plan.runs).lines(plan.study.name)
    remarks += deciding.deviations(store, plan)
    try:
        check_names_available(store, plan.by_study)
    except UserError as error:
        remarks.append(f"a launch is refused: {error}")
    return remarks


def _open_store(lab: Lab) -> Store | None:
    """Open the lab's store, if there is one. Otherwise SQLAlchemy isn't imported."""
    if lab.store_is_missing:
        return None
    from jestlab.platform.store.store import Store

    return Store.open_readonly(lab.store_url)
