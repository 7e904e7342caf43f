"""`jestlab plan`: what a launch would run, and what it costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jestlab.platform.cli.common import lab_options
from jestlab.platform.cli.spec_options import spec_options
from jestlab.platform.cli.text import missing, table

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
_MOST_ROWS = 40  # labels; beyond it, one row for all points of a run


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
    headers = _budget_headers(plan)
    yield _every_run(plan, headers) if every else _groups(plan, headers)
    yield ""
    yield _summary(plan)
    yield from _solved(plan)
    yield from missing(plan)
    if headers:
        yield from _on_this_machine(plan) if study.resources.tpu is None else _on_tpu(plan)
    if reasons:
        yield ""
        by_fingerprint = {run.fingerprint: run for run in plan.runs}
        yield from (f"{_full(by_fingerprint[f])}: {why}" for f, why in reasons.items())


def _full(run: PlannedRun) -> str:
    return f"{run.label} seed {run.seed}"


_COSTS = ("EXAMPLES", "LEARNER", "SCORING", "SELECTION", "REF. SCORING", "TOTAL")


def _budget_headers(plan: Plan) -> tuple[str, ...]:
    """Columns of budgets, as far as there is anything to say."""
    budgets = [run.budget for run in plan.runs if run.budget is not None]
    if not any(budget.chip_hours for budget in budgets):
        return ()
    if plan.study.resources.tpu is None:
        return ("HOURS",)
    return ("CHIP-HOURS", "$") if any(budget.dollars is not None for budget in budgets) else ("CHIP-HOURS",)


def _groups(plan: Plan, headers: Sequence[str]) -> str:
    """A row for each label, or for each name where there are very many labels."""
    by_label: dict[str, list[PlannedRun]] = {}
    by_name: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        by_label.setdefault(run.label, []).append(run)
        by_name.setdefault(run.name, []).append(run)
    names = {run.fingerprint: run.name for run in plan.runs}
    groups = by_label if len(by_label) <= _MOST_ROWS else by_name
    rows = []
    for title, runs in groups.items():
        points = len({run.label for run in runs})
        title = title if points == 1 else f"{title} × {points} points"
        also = dict.fromkeys(alias.label for run in runs for alias in run.aliases)
        needs = dict.fromkeys(names[fingerprint] for run in runs for fingerprint in run.needs.values())
        rows.append(
            (
                title + (f" (also {_few(list(also))})" if also else ""),
                str(len(runs)),
                _states(runs),
                ", ".join(needs) or "–",
                *_costs(runs),
                *_budgets(runs, headers),
            )
        )
    rows.append(("all", str(len(plan.runs)), "", "", *_costs(plan.runs), *_budgets(plan.runs, headers)))
    columns = ("RUN", "RUNS", "TO DO", "NEEDS", *_COSTS, *headers)
    return table(columns, rows, right=(1, *range(4, len(columns))))


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:2]) + (f" and {len(labels) - 2} more" if len(labels) > 2 else "")


def _every_run(plan: Plan, headers: Sequence[str]) -> str:
    rows = [
        (
            run.label,
            str(run.seed),
            run.fingerprint[:8],
            _state(run),
            *_costs([run]),
            *_budgets([run], headers),
        )
        for run in plan.runs
    ]
    columns = ("RUN", "SEED", "ID", "TO DO", *_COSTS, *headers)
    return table(columns, rows, right=(1, *range(4, len(columns))))


def _state(run: PlannedRun) -> str:
    return f"{run.action} ({run.state})" if run.state and run.action != "done" else str(run.action)


def _states(runs: Sequence[PlannedRun]) -> str:
    counts = Counter(_state(run) for run in runs)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _costs(runs: Sequence[PlannedRun]) -> tuple[str, ...]:
    """Cells of a row, summed over its runs; a dash for nothing, a question mark where no one knows."""
    from jestlab.analysis import units
    from jestlab.platform.plan import totals

    if all(run.price is None for run in runs):
        return ("?",) * len(_COSTS)
    price = totals(runs)
    cost = price.cost
    amounts = (cost.learner, cost.scoring, cost.selection, cost.reference_scoring, price.total)
    return (units.count(price.examples), *(units.flops(amount) if amount else "–" for amount in amounts))


def _budgets(runs: Sequence[PlannedRun], headers: Sequence[str]) -> tuple[str, ...]:
    """Cells of a row under the headers of budgets; as `_costs`."""
    from jestlab.analysis import units
    from jestlab.platform import budgets

    amount = budgets.total(runs)
    if amount.unknown == len(runs):
        return ("?",) * len(headers)
    hours = units.hours(amount.chip_hours) if amount.chip_hours else "–"
    return (hours, units.dollars(amount.dollars or 0.0))[: len(headers)]


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
    shared = sum(len(run.aliases) for run in plan.runs)
    saved = f" {shared} more point{'s' if shared != 1 else ''} of the study share them." if shared else ""
    unpriced = sum(run.price is None for run in plan.runs)
    unknown = f" The cost of {unpriced} is not known." if unpriced else ""
    count = f"{len(plan.runs)} run{'s' if len(plan.runs) != 1 else ''}"
    return f"{count}: {parts}.{saved}{unknown} TOTAL is learner + scoring + selection."


def _solved(plan: Plan) -> Iterator[str]:
    """Which runs see as many examples as fit another's budget."""
    solved = dict.fromkeys(f"{run.name} ({run.match})" for run in plan.runs if run.match is not None)
    if solved:
        yield f"EXAMPLES solved for by match: {', '.join(solved)}."


def _as_data(plan: Plan, reasons: Mapping[str, Why]) -> dict[str, Any]:
    from jestlab.platform import budgets
    from jestlab.platform.plan import Action, totals

    counts = Counter(run.action for run in plan.runs)
    return {
        "study": plan.study.name,
        "scale": plan.study.scale,
        "absent": [str(path) for path in plan.absent],
        "totals": {
            **{action.value: counts[action] for action in Action},
            **_price(totals(plan.runs)),
            "budget_to_do": asdict(budgets.total(budgets.to_do(plan))),
            "budget_done": asdict(budgets.total(budgets.done(plan))),
        },
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
                "price": _price(run.price) if run.price is not None else None,
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
