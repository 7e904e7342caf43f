"""A plan as text, as a table, and as data: what a launch would run, and what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jestlab.analysis import units
from jestlab.analysis.costs import EXECUTED
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning.cost import NO_CHIP, done, to_do, total, utilization, wall_hours
from jestlab.platform.planning.explain import Explanation
from jestlab.platform.planning.memory import lines as memory_lines
from jestlab.platform.planning.memory import room
from jestlab.platform.planning.plan import Action, Plan, PlannedRun, totals, waiting_lines
from jestlab.platform.planning.power import lines as power_lines
from jestlab.platform.planning.survey import Survey
from jestlab.platform.programs import MemoryEstimate, Price
from jestlab.platform.render import Block, render, styled, table
from jestlab.platform.spec.resources import CLUSTERS, ExecutorName, parse_slice
from jestlab.platform.words import counted, few

_MOST_ROWS = 40  # labels; beyond it, one row for all points of a run, or for a whole part of a union
_COSTS = ("EXAMPLES", "LEARNER", "SCORING", "SELECTION", "REF. SCORING", "TOTAL")
_IMPORTANCE = {
    "TOTAL": 90,
    "HOURS": 85,
    "CHIP-HOURS": 85,
    "$": 80,
    "EXAMPLES": 75,
    "NEEDS": 70,
    "CHIPS": 60,
    "LEARNER": 50,
    "SCORING": 45,
    "BY PAPER": 40,
    "ID": 40,
    "REF. SCORING": 35,
    "SELECTION": 30,
}
"""Columns that a narrow terminal leaves out, the least first."""


def text(found: Survey, every: bool = False) -> str:
    """Write a plan as plain text; with `every`, a row for each run."""
    return render([*blocks(found, every), *found.remarks])


def blocks(found: Survey, every: bool = False) -> Iterator[Block]:
    """Write a plan as blocks of text for a terminal; with `every`, a row for each run."""
    columns, rows, right = grid(found.plan, every)
    name, question = headline(found.plan)
    yield styled(name, "bold") + f": {question}"
    yield ""
    yield table(columns, rows, right, _IMPORTANCE)
    yield ""
    yield from sentences(found)
    if found.reasons:
        yield ""
        yield from (f"{run}: {why}" for run, why in found.explained())


def headline(plan: Plan) -> tuple[str, str]:
    """Write which study is planned, and what it asks."""
    study = plan.study
    return f"{study.name}{f' ({study.scale})' if study.scale else ''}", study.question


def sentences(found: Survey) -> Iterator[str]:
    """Write what there is to say below the table of a plan."""
    plan, study = found.plan, found.plan.study
    yield _summary(plan)
    yield from _sharing(plan)
    yield from _solved(plan)
    yield from waiting_lines(plan)
    yield from power_lines(found)
    yield from absent_data(plan)
    yield from (f"{folder}: left out: {what}" for folder, what in plan.left_out.items() if what)
    if there := room(study.resources, local=found.here):
        yield from memory_lines(to_do(plan), there)
    if _budget_headers(plan):
        yield from _by_earlier_runs(found) if study.resources.tpu is None else _on_tpu(plan)
    elif study.resources.tpu is None and found.place is not None:
        yield from _unknown_hours(plan, found.place)


def absent_data(plan: Plan) -> list[str]:
    """Name the data and weights of a plan that do not exist yet, in one line; none where all exist."""
    if not plan.absent:
        return []
    here = Path.cwd()
    names = [
        str(path.relative_to(here) if path.is_relative_to(here) else path) + ("/" if what == "folder" else "")
        for path, what in plan.absent.items()
    ]
    counts = ", ".join(counted(count, what) for what, count in Counter(plan.absent.values()).items())
    return [
        f"not found: {', '.join(names)} ({counts}): until they exist, runs are identified by these paths and "
        "cannot be launched"
    ]


# ---- files


def _on_tpu(plan: Plan) -> Iterator[str]:
    """Write what is to do and what is done in chip-hours, and what was assumed."""
    slice_, settings = parse_slice(str(plan.study.resources.tpu)), Settings.find()
    chip = slice_.type
    runs = to_do(plan)
    longest = max((run.budget.hours for run in runs if run.budget is not None), default=0.0)
    amount = f"{_amount(runs)} on {slice_}, the longest run {units.duration(longest)}" if runs else "nothing"
    completed = done(plan)
    yield f"To do: {amount}." + (f" Done: {_amount(completed)}." if completed else "")
    price = settings.prices.get(chip.name)
    paid = f" and {units.dollars(price)} per chip-hour" if price is not None else ""
    yield (
        "CHIP-HOURS cover learner, scoring, selection and ref. scoring, assuming "
        f"{utilization(settings, chip.name):.0%} of a {chip.name}'s {chip.peak_flops / 1e12:g} "
        f"TFLOP/s{paid}."
    )


def _amount(runs: Sequence[PlannedRun]) -> str:
    amount = total(runs)
    unknown = f", and {amount.unknown} of unknown cost," if amount.unknown else ""
    paid = f" ({units.dollars(amount.dollars)})" if amount.dollars is not None else ""
    return f"{units.hours(amount.chip_hours)} chip-hours{paid}{unknown}"


def _by_earlier_runs(found: Survey) -> Iterator[str]:
    """Write how long the rest takes here or in another place, and how many earlier runs tell."""
    runs = to_do(found.plan)
    if not runs:
        return
    where = found.place or "this machine"
    unknown = total(runs).unknown
    rest = f", and {unknown} of unknown length," if unknown else ""
    earlier = sum({run.program: run.budget.by_runs for run in runs if run.budget is not None}.values())
    hours = wall_hours(runs, found.parallel)
    yield (
        f"To do: about {units.duration(hours)}{rest} on {where} with {found.parallel or 'all'} at a time, "
        f"estimated from {counted(earlier, 'earlier run')}."
    )


def _unknown_hours(plan: Plan, place: ExecutorName) -> Iterator[str]:
    """Write why nobody knows how long runs take on a cluster without TPUs."""
    if place == "vertex":
        yield "HOURS are unknown: vertex requires a TPU slice: --set resources.tpu=v5e-2x4, or another one"
        return
    programs = dict.fromkeys(run.program for run in to_do(plan) if run.price is not None)
    if programs:
        on = plan.study.resources.machines
        machines = f" with {on}" if place in CLUSTERS and on.chips else ""
        tpu = "; with TPUs say which: --set resources.tpu=v5e-16x16" if place == "kubernetes" else ""
        yield (
            f"HOURS are unknown until runs of {few(list(programs))} have completed on {place}{machines}{tpu}."
        )


def _summary(plan: Plan) -> str:
    if not plan.runs and plan.study.adopted:
        return f"It has no runs of its own; adopted ones: {few(plan.study.adopted)}."
    counts = Counter(run.action for run in plan.runs)
    parts = f"{counts[Action.DONE]} done, {counts[Action.RESUME]} to resume, {counts[Action.RUN]} to run"
    shared = 0 if plan.parts else sum(len(run.aliases) for run in plan.runs)
    saved = f" {counted(shared, 'more point')} of the study share them." if shared else ""
    unpriced = sum(run.price is None for run in plan.runs)
    unknown = f" The cost of {counted(unpriced, 'run')} in FLOPs is unknown." if unpriced else ""
    meaning = "TOTAL is learner + scoring + selection"
    if plan.study.resources.tpu is not None:
        meaning += (
            "; BY PAPER is the same by the paper's formulas, in which the scoring pass is reused for the "
            "gradient and nothing else counts"
        )
    told = f" {meaning}." if unpriced < len(plan.runs) else ""
    return f"{counted(len(plan.runs), 'run')}: {parts}.{saved}{unknown}{told}"


def _sharing(plan: Plan) -> Iterator[str]:
    """Write what the parts of a union save by sharing runs."""
    if not plan.parts:
        return
    saved = _saved(plan)
    count = saved["runs"]
    amounts = [units.flops(saved["total_flops"])] if saved["total_flops"] else []
    if saved["chip_hours"]:
        what = "hours" if _budget_headers(plan) == ("HOURS",) else "chip-hours"
        amounts.append(f"{units.hours(saved['chip_hours'])} {what}")
    yield (
        f"Launched separately, the studies would have {len(plan.runs) + count} runs: sharing saves "
        f"{counted(count, 'run')}" + (f" ({', '.join(amounts)})." if amounts else ".")
    )


def _saved(plan: Plan) -> dict[str, Any]:
    """Calculate what sharing saves the parts of a union: runs, FLOPs, chip-hours."""
    alone = [run for part in plan.parts for run in part.runs]
    return {
        "runs": len(alone) - len(plan.runs),
        "total_flops": totals(alone).total - totals(plan.runs).total,
        "chip_hours": total(alone).chip_hours - total(plan.runs).chip_hours,
    }


def _solved(plan: Plan) -> Iterator[str]:
    """Name the runs whose number of examples is solved for, to fit another's budget."""
    solved = dict.fromkeys(f"{run.name} ({run.match})" for run in plan.runs if run.match is not None)
    if solved:
        yield f"EXAMPLES solved for by match: {few(list(solved))}."


def _budget_headers(plan: Plan) -> tuple[str, ...]:
    """Choose the columns of budgets for which there is something to say."""
    known = [run.budget for run in plan.runs if run.budget is not None]
    if not any(budget.chip_hours for budget in known):
        return ()
    if all(budget.chip == NO_CHIP for budget in known):
        return ("HOURS",)
    if plan.study.resources.tpu is None:
        return ("CHIPS", "CHIP-HOURS")
    paid = any(budget.dollars is not None for budget in known)
    return ("BY PAPER", "CHIPS", "CHIP-HOURS", *(("$",) if paid else ()))


Grid = tuple[Sequence[str], list[Sequence[str]], Sequence[int]]
"""Columns, rows of cells, and which columns are aligned to the right."""


def grid(plan: Plan, every: bool = False) -> Grid:
    """Lay out the table of a plan: the columns of costs and of budgets only where any is known.

    Args:
        plan: Priced.
        every: Whether each run has a row; otherwise each label has, or each name where there are very many
            labels, in a union by part.
    """
    headers = _budget_headers(plan)
    first = ("RUN", "SEED", "ID", "TO DO") if every else ("RUN", "RUNS", "TO DO", "NEEDS")
    rows = _every_run(plan, headers) if every else _groups(plan, headers)
    costs = _COSTS if any(run.price is not None for run in plan.runs) else ()
    columns = (*first, *costs, *headers)
    gone = len(_COSTS) - len(costs)
    kept: list[Sequence[str]] = [(*row[:4], *row[4 + gone :]) for row in rows]
    return columns, kept, (1, *range(4, len(columns)))


def _groups(plan: Plan, headers: Sequence[str]) -> list[tuple[str, ...]]:
    rows = []
    if plan.parts:
        labels = sum(len({run.label for run in part.runs}) for part in plan.parts)
        for part in plan.parts:
            rows.append(_row(part.study.name, part.runs, "", headers))
            if labels <= _MOST_ROWS:
                rows += [(f"  {title}", *cells) for title, *cells in _rows(part, headers)]
    else:
        rows += _rows(plan, headers)
    rows.append(_row("all", plan.runs, "", headers, states=False))
    return rows


def _rows(plan: Plan, headers: Sequence[str]) -> Iterator[tuple[str, ...]]:
    by_label: dict[str, list[PlannedRun]] = {}
    by_name: dict[str, list[PlannedRun]] = {}
    for run in plan.runs:
        by_label.setdefault(run.label, []).append(run)
        by_name.setdefault(run.name, []).append(run)
    names = {run.fingerprint: run.name for run in plan.runs}
    groups = by_label if len(by_label) <= _MOST_ROWS else by_name
    for title, runs in groups.items():
        points = len({run.label for run in runs})
        title = title if points == 1 else f"{title} × {points} points"
        also = dict.fromkeys(alias.label for run in runs for alias in run.aliases)
        needs = dict.fromkeys(names[fingerprint] for run in runs for fingerprint in run.needs.values())
        title += f" (also {few(list(also))})" if also else ""
        yield _row(title, runs, ", ".join(needs) or "–", headers)


def _row(
    title: str, runs: Sequence[PlannedRun], needs: str, headers: Sequence[str], *, states: bool = True
) -> tuple[str, ...]:
    waiting = _states(runs) if states else ""
    return (title, str(len(runs)), waiting, needs, *_costs(runs), *_budgets(runs, headers))


def _every_run(plan: Plan, headers: Sequence[str]) -> list[tuple[str, ...]]:
    return [
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


def _state(run: PlannedRun) -> str:
    return f"{run.action} ({run.state})" if run.state and run.action != "done" else str(run.action)


def _states(runs: Sequence[PlannedRun]) -> str:
    counts = Counter(_state(run) for run in runs)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _costs(runs: Sequence[PlannedRun]) -> tuple[str, ...]:
    """Write the cells of a row, summed over its runs; a dash for nothing, a question mark for unknown."""
    if all(run.price is None for run in runs):
        return ("?",) * len(_COSTS)
    price = totals(runs)
    cost = price.cost
    amounts = (cost.learner, cost.scoring, cost.selection, cost.reference_scoring, price.total)
    return (units.count(price.examples), *(units.flops(amount) if amount else "–" for amount in amounts))


def _budgets(runs: Sequence[PlannedRun], headers: Sequence[str]) -> tuple[str, ...]:
    """Write the cells of a row under the headers of budgets, as `_costs` does."""
    amount = total(runs)
    if amount.unknown == len(runs):
        return ("?",) * len(headers)
    hours = units.hours(amount.chip_hours) if amount.chip_hours else "–"
    chips = max(run.budget.chips for run in runs if run.budget is not None)
    by_paper = sum(run.price.by_paper for run in runs if run.price is not None)
    cells = {"CHIPS": str(chips), "HOURS": hours, "CHIP-HOURS": hours}
    cells["BY PAPER"] = units.flops(by_paper) if by_paper else "–"
    return tuple(units.dollars(amount.dollars or 0.0) if name == "$" else cells[name] for name in headers)


def as_data(plan: Plan, reasons: Mapping[str, Explanation]) -> dict[str, Any]:
    """Return a plan as data for JSON."""
    return {
        "study": plan.study.name,
        "scale": plan.study.scale,
        "absent": [str(path) for path in plan.absent],
        "left_out": {str(folder): what for folder, what in plan.left_out.items()},
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
                "memory": _memory(run.memory),
                "budget": {**asdict(run.budget), "hours": run.budget.hours} if run.budget else None,
                "state": run.state,
                "action": run.action,
                "also": [alias.label for alias in run.aliases],
                "directory": run.directory,
                "why": _why(reasons.get(run.fingerprint)),
            }
            for run in plan.runs
        ],
        "waiting": [asdict(its) for its in plan.waiting],
    }


def _part(plan: Plan) -> dict[str, Any]:
    """Describe one part of a union; its runs are among the union's."""
    labels = list(dict.fromkeys(run.label for run in plan.runs))
    return {"study": plan.study.name, "runs": len(plan.runs), "labels": labels, "totals": _totals(plan)}


def _totals(plan: Plan) -> dict[str, Any]:
    counts = Counter(run.action for run in plan.runs)
    return {
        **{action.value: counts[action] for action in Action},
        **_price(totals(plan.runs)),
        "budget_to_do": asdict(total(to_do(plan))),
        "budget_done": asdict(total(done(plan))),
    }


def _price(price: Price) -> dict[str, float]:
    return {
        "examples": price.examples,
        **{f"{component}_flops": getattr(price.cost, component) for component in EXECUTED},
        "learner_flops": price.cost.learner,
        "total_flops": price.total,
    }


def _memory(memory: MemoryEstimate | None) -> dict[str, float] | None:
    """Describe what a run occupies, in bytes."""
    names = ("state", "work", "batches", "process", "device", "total")
    return None if memory is None else {name: getattr(memory, name) for name in names}


def _why(why: Explanation | None) -> dict[str, Any] | None:
    if why is None:
        return None
    fields = {d.path: {"before": d.before, "now": d.now} for d in why.differences}
    return {"reason": why.reason, "nearest": why.nearest, "differences": fields}
