"""`jestlab plan`: what a launch would run, and what it costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.plan_rows import budget_headers, every_run, few, groups
from jestlab.platform.cli.spec_options import spec_options
from jestlab.platform.cli.text import missing

if TYPE_CHECKING:
    from jestlab.platform.lab import Lab
    from jestlab.platform.plan import Plan, PlannedRun
    from jestlab.platform.programs import Price
    from jestlab.platform.spec.schema import Study
    from jestlab.platform.store.store import Store
    from jestlab.platform.why import Why

_EPILOG = """\b
Example:
  jestlab plan quickstart
  jestlab plan quickstart --set runs.joint.selection.filtering_ratio=0.9 --why
"""


@click.command("plan", epilog=_EPILOG)
@spec_options
@click.option("--why", is_flag=True, help="Say of every run why it would run.")
@click.option("--all", "every", is_flag=True, help="A row for every run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@lab_options
def command(study: Study, why: bool, every: bool, as_json: bool, lab: Lab) -> None:
    """Show what launching SPEC would run, what it costs, and what is done. Writes nothing.

    Costs are in FLOPs; for a study on TPUs in chip-hours too, and in dollars by the prices in your settings;
    on this machine in hours, once runs of the same program have completed here.
    """
    from jestlab.platform.budgets import budgeted
    from jestlab.platform.plan import plan

    planned = plan(study, absent="note")
    reasons: Mapping[str, Why] = {}
    store = _store(lab)
    if store is not None:
        planned = planned.with_states(store.states(planned.fingerprints))
    planned = budgeted(planned, store, local=study.resources.tpu is None)
    if why:
        from jestlab.platform.why import explain

        reasons = explain(planned, store.finished() if store is not None else [])
    if as_json:
        click.echo(json.dumps(_as_data(planned, reasons), ensure_ascii=False))
    else:
        click.echo("\n".join(_lines(planned, reasons, every)))


def _store(lab: Lab) -> Store | None:
    """The lab's store, if there is one; SQLAlchemy is not even imported where there is none."""
    from pathlib import Path

    prefix = "sqlite:///"
    if lab.store_url.startswith(prefix) and not Path(lab.store_url.removeprefix(prefix)).exists():
        return None
    from jestlab.platform.store.store import Store

    return Store.open_readonly(lab.store_url)


def _lines(plan: Plan, reasons: Mapping[str, Why], every: bool) -> Iterator[str]:
    study = plan.study
    yield (
        f"{study.name} ({study.scale}): {study.question}"
        if study.scale
        else f"{study.name}: {study.question}"
    )
    yield ""
    headers = budget_headers(plan)
    yield every_run(plan, headers) if every else groups(plan, headers)
    yield ""
    yield _summary(plan)
    yield from _sharing(plan)
    yield from _solved(plan)
    yield from _undecidable(plan.study)
    yield from missing(plan)
    if headers:
        yield from _on_this_machine(plan) if study.resources.tpu is None else _on_tpu(plan)
    if reasons:
        yield ""
        by_fingerprint = {run.fingerprint: run for run in plan.runs}
        yield from (f"{_full(by_fingerprint[f])}: {why}" for f, why in reasons.items())


def _full(run: PlannedRun) -> str:
    return f"{run.label} seed {run.seed}"


def _on_tpu(plan: Plan) -> Iterator[str]:
    """What is to do and what is done, and what was assumed."""
    from jestlab.analysis import units
    from jestlab.platform import budgets, tpu
    from jestlab.platform.settings import Settings

    slice_, settings = tpu.parse(str(plan.study.resources.tpu)), Settings.find()
    chip = slice_.type
    runs = budgets.to_do(plan)
    longest = max((run.budget.hours for run in runs if run.budget is not None), default=0.0)
    to_do = f"{_amount(runs)} on {slice_}, the longest run {units.duration(longest)}" if runs else "nothing"
    completed = budgets.done(plan)
    yield f"To do: {to_do}." + (f" Done: {_amount(completed)}." if completed else "")
    price = settings.prices.get(chip.name)
    paid = f", and {units.dollars(price)} a chip-hour" if price is not None else ""
    yield (
        "CHIP-HOURS are learner, scoring, selection and ref. scoring at "
        f"{budgets.utilisation(settings, chip.name):.0%} of a {chip.name}'s {chip.peak_flops / 1e12:g} "
        f"TFLOP/s, which is an assumption{paid}."
    )


def _amount(runs: Sequence[PlannedRun]) -> str:
    from jestlab.analysis import units
    from jestlab.platform import budgets

    amount = budgets.total(runs)
    unknown = f", and {amount.unknown} of unknown cost," if amount.unknown else ""
    paid = f" ({units.dollars(amount.dollars)})" if amount.dollars is not None else ""
    return f"{units.hours(amount.chip_hours)} chip-hours{paid}{unknown}"


def _on_this_machine(plan: Plan) -> Iterator[str]:
    """How long the rest takes, and how anyone can know."""
    from jestlab.analysis import units
    from jestlab.platform import budgets
    from jestlab.platform.spec.resources import LOCAL_PARALLEL

    runs = budgets.to_do(plan)
    if not runs:
        return
    parallel = plan.study.resources.parallel or LOCAL_PARALLEL
    unknown = budgets.total(runs).unknown
    rest = f", and {unknown} of unknown length," if unknown else ""
    earlier = sum({run.program: run.budget.by_runs for run in runs if run.budget is not None}.values())
    by = f"{earlier} earlier run{'s' if earlier != 1 else ''}"
    hours = budgets.wall_hours(runs, parallel)
    yield f"To do: about {units.duration(hours)}{rest} on this machine with {parallel} at a time, by {by}."


def _summary(plan: Plan) -> str:
    from jestlab.platform.plan import Action

    counts = Counter(run.action for run in plan.runs)
    parts = f"{counts[Action.DONE]} done, {counts[Action.RESUME]} to resume, {counts[Action.RUN]} to run"
    shared = 0 if plan.parts else sum(len(run.aliases) for run in plan.runs)
    saved = f" {shared} more point{'s' if shared != 1 else ''} of the study share them." if shared else ""
    unpriced = sum(run.price is None for run in plan.runs)
    unknown = f" The cost of {unpriced} is not known." if unpriced else ""
    count = f"{len(plan.runs)} run{'s' if len(plan.runs) != 1 else ''}"
    total = "TOTAL is learner + scoring + selection"
    if plan.study.resources.tpu is not None:
        total += (
            "; BY PAPER is the same by the paper's formulas, where the pass that scores is kept for the "
            "gradient and nothing else is counted"
        )
    return f"{count}: {parts}.{saved}{unknown} {total}."


def _sharing(plan: Plan) -> Iterator[str]:
    """What the parts of a union save by sharing runs."""
    from jestlab.analysis import units

    if not plan.parts:
        return
    saved = _saved(plan)
    count = saved["runs"]
    amounts = [units.flops(saved["total_flops"])] if saved["total_flops"] else []
    if saved["chip_hours"]:
        what = "hours" if plan.study.resources.tpu is None else "chip-hours"
        amounts.append(f"{units.hours(saved['chip_hours'])} {what}")
    yield (
        f"{len(plan.runs)} runs; the studies by themselves would be {len(plan.runs) + count}: sharing saves "
        f"{count} run{'s' if count != 1 else ''}" + (f" ({', '.join(amounts)})." if amounts else ".")
    )


def _saved(plan: Plan) -> dict[str, Any]:
    """What the parts of a union would run besides, each by itself: runs, FLOPs, chip-hours."""
    from jestlab.platform import budgets
    from jestlab.platform.plan import totals

    alone = [run for part in plan.parts for run in part.runs]
    return {
        "runs": len(alone) - len(plan.runs),
        "total_flops": totals(alone).total - totals(plan.runs).total,
        "chip_hours": budgets.total(alone).chip_hours - budgets.total(plan.runs).chip_hours,
    }


def _undecidable(study: Study) -> Iterator[str]:
    """That claims stay undecided where a single seed is planned: an interval takes two."""
    single = [part for part in (study, *study.studies.values()) if part.claims and len(part.seeds) < 2]
    count = sum(len(part.claims) for part in single)
    if count:
        claims = f"{count} claim{'s' if count != 1 else ''}"
        yield f"One seed decides none of its {claims}: with --set seeds=3 they get intervals and verdicts."


def _solved(plan: Plan) -> Iterator[str]:
    """Which runs see as many examples as fit another's budget."""
    solved = dict.fromkeys(f"{run.name} ({run.match})" for run in plan.runs if run.match is not None)
    if solved:
        yield f"EXAMPLES solved for by match: {few(list(solved))}."


def _as_data(plan: Plan, reasons: Mapping[str, Why]) -> dict[str, Any]:
    return {
        "study": plan.study.name,
        "scale": plan.study.scale,
        "absent": [str(path) for path in plan.absent],
        "totals": _totals(plan),
        **({"studies": list(map(_part, plan.parts)), "sharing_saves": _saved(plan)} if plan.parts else {}),
        "runs": [
            {
                "run": run.name,
                "label": run.label,
                "seed": run.seed,
                "point": run.point,
                "fingerprint": run.fingerprint,
                "program": run.program,
                "needs": run.needs,
                "match": run.match,
                "price": _price(run.price) | {"paper_flops": run.price.by_paper}
                if run.price is not None
                else None,
                "budget": {**asdict(run.budget), "hours": run.budget.hours} if run.budget else None,
                "state": run.state,
                "action": run.action,
                "also": [alias.label for alias in run.aliases],
                "directory": run.directory,
                "why": _why(reasons.get(run.fingerprint)),
            }
            for run in plan.runs
        ],
    }


def _part(plan: Plan) -> dict[str, Any]:
    """One part of a union; its runs stand among the union's."""
    labels = list(dict.fromkeys(run.label for run in plan.runs))
    return {"study": plan.study.name, "runs": len(plan.runs), "labels": labels, "totals": _totals(plan)}


def _totals(plan: Plan) -> dict[str, Any]:
    from jestlab.platform import budgets
    from jestlab.platform.plan import Action, totals

    counts = Counter(run.action for run in plan.runs)
    return {
        **{action.value: counts[action] for action in Action},
        **_price(totals(plan.runs)),
        "budget_to_do": asdict(budgets.total(budgets.to_do(plan))),
        "budget_done": asdict(budgets.total(budgets.done(plan))),
    }


def _price(price: Price) -> dict[str, float]:
    from jestlab.analysis.costs import EXECUTED

    return {
        "examples": price.examples,
        **{f"{component}_flops": getattr(price.cost, component) for component in EXECUTED},
        "learner_flops": price.cost.learner,
        "total_flops": price.total,
    }


def _why(why: Why | None) -> dict[str, Any] | None:
    if why is None:
        return None
    fields = {d.path: {"before": d.before, "now": d.now} for d in why.differences}
    return {"reason": why.reason, "nearest": why.nearest, "differences": fields}
