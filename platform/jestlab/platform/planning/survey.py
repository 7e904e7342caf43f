"""Look a study over before it is launched: its plan, compared with the store, priced and explained.

Writes nothing, and does not need a store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning.cost import budgeted
from jestlab.platform.planning.explain import Explanation, explain
from jestlab.platform.planning.names import check as check_names
from jestlab.platform.planning.plan import Plan
from jestlab.platform.planning.plan import plan as make_plan
from jestlab.platform.planning.timings import Timings
from jestlab.platform.programs import Where
from jestlab.platform.spec.resources import ExecutorName
from jestlab.platform.spec.schema import Study

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store


@dataclass(frozen=True)
class Survey:
    """What is to be known of a study before it is launched.

    Attributes:
        plan: Its plan, compared with the store and with what each run is expected to occupy.
        place: Where runs go; None where nothing says it.
        reasons: Fingerprint → why the run would run; empty if nobody asked.
        remarks: What speaks against results that are there, or against a launch.
    """

    plan: Plan
    place: ExecutorName | None
    reasons: Mapping[str, Explanation] = field(default_factory=dict)
    remarks: Sequence[str] = ()


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
        where: Where = "here" if place == "local" else "elsewhere"
        plan = make_plan(study, absent="note", where=where, timings=timings)
        check_names(plan, store.measured if store is not None else tuple)
        if store is not None:
            plan = plan.with_states(store.states(plan.fingerprints))
        plan = budgeted(plan, store, local=place == "local")
        reasons = explain(plan, store.finished() if store is not None else []) if why else {}
        return Survey(plan, place, reasons, [] if store is None else _remarks(store, plan))
    finally:
        if store is not None:
            store.close()


def _remarks(store: Store, plan: Plan) -> list[str]:
    """Say which results were made by other code, data or versions, and whether the study's name is taken."""
    from jestlab.platform.planning.changes import changes
    from jestlab.platform.store.taken import refuse_taken

    remarks = changes(store, plan.study, plan.runs).lines(plan.study.name)
    try:
        refuse_taken(store, plan.by_study)
    except UserError as error:
        remarks.append(f"a launch is refused: {error}")
    return remarks


def _store(lab: Lab) -> Store | None:
    """Open the lab's store, if there is one; where there is none, SQLAlchemy is not even imported."""
    prefix = "sqlite:///"
    if lab.store_url.startswith(prefix) and not Path(lab.store_url.removeprefix(prefix)).exists():
        return None
    from jestlab.platform.store.store import Store

    return Store.open_readonly(lab.store_url)
