"""Look a study over before it is launched: its plan, compared with the store, priced and explained.

Writes nothing, and does not need a store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import deciding, registering
from jestlab.platform.planning.cost import NO_CHIP, budgeted, to_do, total, wall_hours
from jestlab.platform.planning.explain import Explanation, explain
from jestlab.platform.planning.matching import Timings
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Plan, totals
from jestlab.platform.planning.plan import plan as make_plan
from jestlab.platform.programs import Placement
from jestlab.platform.spec.resources import LOCAL_PARALLEL, ExecutorName, Resources, runs_here
from jestlab.platform.spec.schema import Study

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store


@dataclass(frozen=True)
class Cost:
    """What the runs of a plan that are still to do take together, each counted from its start.

    Attributes:
        runs: How many they are.
        flops: Of learner, scoring and selection; None where it is unknown of any run.
        hours: At least so many of wall-clock time; None where it is unknown of any run.
        chip_hours: On TPUs or a cluster's GPUs; None where it is unknown of any run, and where chips are not
            counted, as on this machine.
        dollars: By your own prices; None where there are none.
    """

    runs: int
    flops: float | None
    hours: float | None
    chip_hours: float | None
    dollars: float | None


@dataclass(frozen=True)
class Survey:
    """What is to be known of a study before it is launched.

    Attributes:
        plan: Its plan, compared with the store and with what each run is expected to occupy.
        here: Whether runs go to this machine.
        place: Where else they go; None for this machine, and where nothing says it.
        reasons: Fingerprint → why the run would run; empty if nobody asked.
        remarks: What speaks against results that are there, or against a launch.
        standing: Where a study stands that goes on until its claims are decided; None before it is launched,
            and where the number of seeds is fixed.
    """

    plan: Plan
    here: bool
    place: ExecutorName | None
    reasons: Mapping[str, Explanation] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    standing: deciding.ClaimsStatus | None = None

    @property
    def parallel(self) -> int | None:
        """Runs at a time; None for all of them."""
        asked = self.plan.study.resources.parallel
        return asked or LOCAL_PARALLEL if self.here else asked

    @property
    def cost(self) -> Cost:
        """What the runs take that are still to do."""
        runs = to_do(self.plan)
        amount = total(runs)
        known = not amount.unknown
        counts_chips = any(run.budget is not None and run.budget.chip != NO_CHIP for run in runs)
        return Cost(
            runs=len(runs),
            flops=totals(runs).total if all(run.price is not None for run in runs) else None,
            hours=wall_hours(runs, self.parallel) if known else None,
            chip_hours=amount.chip_hours if known and counts_chips else None,
            dollars=amount.dollars if known else None,
        )

    def explained(self) -> Iterator[tuple[str, Explanation]]:
        """Yield each run that would run, as "joint/0", and why."""
        runs = {run.fingerprint: run for run in self.plan.runs}
        for fingerprint, reason in self.reasons.items():
            yield f"{runs[fingerprint].label}/{runs[fingerprint].seed}", reason

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield what is known of each run, as one row of a frame."""
        for run in self.plan.runs:
            price, budget = run.price, run.budget
            amounts = {} if price is None else {key: getattr(price.cost, key) for key in _AMOUNTS}
            yield {
                "run": run.name,
                "label": run.label,
                "seed": run.seed,
                "fingerprint": run.fingerprint,
                "program": run.program,
                "action": str(run.action),
                "state": None if run.state is None else str(run.state),
                "examples": None if price is None else price.examples,
                **{f"{key}_flops": amounts.get(key) for key in _AMOUNTS},
                "total_flops": None if price is None else price.total,
                "chips": None if budget is None else budget.chips,
                "hours": None if budget is None else budget.hours,
                "chip_hours": None if budget is None else budget.chip_hours,
                "dollars": None if budget is None else budget.dollars,
                **({"why": str(self.reasons.get(run.fingerprint, ""))} if self.reasons else {}),
            }


_AMOUNTS = ("learner", "scoring", "selection", "reference_scoring")


def survey(lab: Lab, study: Study, *, why: bool = False) -> Survey:
    """Look a study over.

    Args:
        lab: Where it would be launched; there may be nothing yet.
        study: The study.
        why: Whether to explain for each run why it would run.

    Raises:
        UserError: The study cannot be planned, or the store cannot be read.
    """
    place = study.resources.executor(default=Settings.find().on)
    store = _store(lab)
    try:
        timings = Timings.read(store, study)
        is_here = runs_here(place)
        placement: Placement = "local" if is_here else "remote"
        plan = make_plan(study, note_absent=True, placement=placement, timings=timings)
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
    """Say which results were made by other code, data or versions, and whether the study's name is taken."""
    from jestlab.platform.planning.changes import changes
    from jestlab.platform.store.taken import refuse_taken

    remarks = changes(store, plan.study, plan.runs).lines(plan.study.name)
    remarks += registering.remarks(store, plan)
    try:
        refuse_taken(store, plan.by_study)
    except UserError as error:
        remarks.append(f"a launch is refused: {error}")
    return remarks


def _store(lab: Lab) -> Store | None:
    """Open the lab's store, if there is one; where there is none, SQLAlchemy is not even imported."""
    if lab.store_is_missing:
        return None
    from jestlab.platform.store.store import Store

    return Store.open_readonly(lab.store_url)
