"""The table of `jestlab plan`: a row for each label, part or run, with what it costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from jestlab.platform.cli.text import table

if TYPE_CHECKING:
    from jestlab.platform.plan import Plan, PlannedRun

_MOST_ROWS = 40  # labels; beyond it, one row for all points of a run, or for a whole part of a union
_COSTS = ("EXAMPLES", "LEARNER", "SCORING", "SELECTION", "REF. SCORING", "TOTAL")


def budget_headers(plan: Plan) -> tuple[str, ...]:
    """Columns of budgets, as far as there is anything to say."""
    budgets = [run.budget for run in plan.runs if run.budget is not None]
    if not any(budget.chip_hours for budget in budgets):
        return ()
    if plan.study.resources.tpu is None:
        return ("HOURS",)
    paid = any(budget.dollars is not None for budget in budgets)
    return ("BY PAPER", "CHIPS", "CHIP-HOURS", *(("$",) if paid else ()))


def groups(plan: Plan, headers: Sequence[str]) -> str:
    """A row for each label, or for each name where there are very many labels; of a union under each part."""
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
    columns = ("RUN", "RUNS", "TO DO", "NEEDS", *_COSTS, *headers)
    return table(columns, rows, right=(1, *range(4, len(columns))))


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
    to_do = _states(runs) if states else ""
    return (title, str(len(runs)), to_do, needs, *_costs(runs), *_budgets(runs, headers))


def few(labels: Sequence[str]) -> str:
    """The first of some labels, and how many more there are."""
    return ", ".join(labels[:2]) + (f" and {len(labels) - 2} more" if len(labels) > 2 else "")


def every_run(plan: Plan, headers: Sequence[str]) -> str:
    """A row for each run."""
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
    chips = max(run.budget.chips for run in runs if run.budget is not None)
    by_paper = sum(run.price.by_paper for run in runs if run.price is not None)
    cells = {"CHIPS": str(chips), "HOURS": hours, "CHIP-HOURS": hours}
    cells["BY PAPER"] = units.flops(by_paper) if by_paper else "–"
    return tuple(units.dollars(amount.dollars or 0.0) if name == "$" else cells[name] for name in headers)
