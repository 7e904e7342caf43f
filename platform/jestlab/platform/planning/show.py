"""Show a plan as text, as a table, and as data."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from jestlab.analysis import units
from jestlab.analysis.claims import Family, Until
from jestlab.analysis.costs import EXECUTED
from jestlab.platform.lab.settings import Settings
from jestlab.platform.planning import memory
from jestlab.platform.planning.cost import NO_CHIP, done, to_do, total, utilization, wall_hours
from jestlab.platform.planning.plan import Action, Plan, PlannedRun, totals, waiting_lines
from jestlab.platform.planning.survey import Survey
from jestlab.platform.programs import Price
from jestlab.platform.render import Block, styled, table
from jestlab.platform.words import counted, few

_MAX_ROWS = 40  # with more labels, each run name has one row, or each part of a union
_COSTS = ("examples", "learner", "scoring", "selection", "ref. scoring", "total")
_DROPPED_FIRST = (
    *("selection", "ref. scoring", "id", "by paper", "scoring", "learner", "chips", "needs", "examples"),
    *("$", "chip-hours", "time", "total"),
)
"""Columns that narrow terminals leave out, the least important one first."""


def blocks(survey: Survey, row_per_run: bool = False) -> Iterator[Block]:
    """Yield a plan as blocks of text for a terminal; with `row_per_run`, each run has a row."""
    columns, rows, right = grid(survey.plan, row_per_run)
    name, question = headline(survey.plan)
    yield styled(name, "bold") + f": {question}"
    yield ""
    yield table(columns, rows, right, {name: rank for rank, name in enumerate(_DROPPED_FIRST)})
    yield ""
    yield from sentences(survey)
    if survey.reasons:
        yield ""
        yield from (f"{run}: {reason}" for run, reason in survey.explained())
    yield from survey.remarks


def headline(plan: Plan) -> tuple[str, str]:
    """Return the title and the question of a plan's study."""
    study = plan.study
    return f"{study.name}{f' ({study.scale})' if study.scale else ''}", study.question


# ---- sentences


def sentences(survey: Survey) -> Iterator[str]:
    """Yield the sentences below the table of a plan."""
    plan = survey.plan
    yield _summary(plan)
    if matched := dict.fromkeys(f"{run.name} ({run.match})" for run in plan.runs if run.match is not None):
        yield f"Examples solved for by match: {few(list(matched))}."
    yield from waiting_lines(plan)
    yield from _power(survey)
    yield from absent_data(plan)
    yield from (f"{folder}: left out: {files}" for folder, files in plan.left_out.items() if files)
    yield from memory.lines(plan, local=survey.is_local)
    yield from _hours(survey)


def _summary(plan: Plan) -> str:
    if not plan.runs and plan.study.adopted:
        return f"The study has only imported runs: {few(plan.study.adopted)}."
    counts = Counter(run.action for run in plan.runs)
    actions = f"{counts[Action.DONE]} done, {counts[Action.RESUME]} to resume, {counts[Action.RUN]} to run"
    parts = [f"{counted(len(plan.runs), 'run')}: {actions}."]
    if shared := 0 if plan.parts else sum(len(run.aliases) for run in plan.runs):
        parts.append(f"{counted(shared, 'more point')} of the study share them.")
    if unpriced := sum(run.price is None for run in plan.runs):
        parts.append(f"The cost of {counted(unpriced, 'run')} in FLOPs is unknown.")
    if unpriced < len(plan.runs):
        by_paper = (
            "; “by paper” is the same total by the paper's formulas, which reuse the scoring pass for the "
            "gradient and count nothing else"
        )
        on_tpu = plan.study.resources.tpu is not None
        parts.append(f"The total is learner + scoring + selection{by_paper if on_tpu else ''}.")
    return " ".join(parts)


def absent_data(plan: Plan) -> list[str]:
    """Return a line that lists the missing data and weights of a plan; an empty list if all exist."""
    if not plan.absent:
        return []
    here = Path.cwd()
    shown = {path: path.relative_to(here) if path.is_relative_to(here) else path for path in plan.absent}
    names = (f"{shown[path]}{'/' if type_ == 'folder' else ''}" for path, type_ in plan.absent.items())
    counts = (counted(count, type_) for type_, count in Counter(plan.absent.values()).items())
    return [
        f"not found: {', '.join(names)} ({', '.join(counts)}): until they exist, runs are identified by "
        "these paths and can't be launched"
    ]


def _hours(survey: Survey) -> Iterator[str]:
    """Yield the remaining hours, if they are known, and the basis of the estimate."""
    plan, resources = survey.plan, survey.plan.study.resources
    runs, completed, amount = to_do(plan), done(plan), total(to_do(plan))
    if resources.slice is not None and _budget_headers(plan):
        settings, chip = Settings.find(), resources.slice.type
        longest = max((run.budget.hours for run in runs if run.budget is not None), default=0.0)
        left = f"{_chip_hours(runs)} on {resources.slice}, the longest run {units.duration(longest)}"
        yield f"To do: {left if runs else 'nothing'}." + (
            f" Done: {_chip_hours(completed)}." if completed else ""
        )
        price = settings.prices.get(chip.name)
        paid = f" and {units.dollars(price)} per chip-hour" if price is not None else ""
        yield (
            "Chip-hours cover learner, scoring, selection, and ref. scoring, assuming "
            f"{utilization(settings, chip.name):.0%} of a {chip.name}'s {chip.peak_flops / 1e12:g} "
            f"TFLOP/s{paid}."
        )
    elif _budget_headers(plan) and runs:
        unknown = f", and {amount.unknown} of unknown length," if amount.unknown else ""
        earlier = {run.program: run.budget.by_runs for run in runs if run.budget is not None}
        hours = units.duration(wall_hours(runs, survey.parallel))
        yield (
            f"To do: about {hours}{unknown} on {survey.executor or 'this machine'} with "
            f"{survey.parallel or 'all'} at a time, estimated from "
            f"{counted(sum(earlier.values()), 'earlier run')}."
        )


def _chip_hours(runs: Sequence[PlannedRun]) -> str:
    amount = total(runs)
    unknown = f", and {amount.unknown} of unknown cost," if amount.unknown else ""
    paid = f" ({units.dollars(amount.dollars)})" if amount.dollars is not None else ""
    return f"{units.hours(amount.chip_hours)} chip-hours{paid}{unknown}"


# ---- sentences about the power of seeds

_EFFECTS = (1, 2, 3)  # standard deviations between the sides of a claim
_BY_EFFECT = "{} if the sides differ by 1 standard deviation, {} by 2, {} by 3"


def _power(survey: Survey) -> Iterator[str]:
    """Yield the power of the claims, given the number of seeds; nothing if the study has no claims."""
    study = survey.plan.study
    whole = (study, *study.studies.values())
    parts = [part for part in whole if part.claims]
    for part in whole:
        if isinstance(part.seeds, Until) and not part.claims:
            yield f"{part.name} has no claims to decide, so it has {part.seeds.at_least} seeds."
    claims = sum(len(part.claims) for part in parts)
    if not claims:
        return
    from jestlab.analysis.claims.evidence import power  # imports NumPy

    family = study.family
    level = family.level(claims, claims // 2)
    # The number of seeds of imported runs can't be changed.
    fixed = [part for part in parts if part.runs and not isinstance(part.seeds, Until)]
    if single := sum(len(part.claims) for part in fixed if len(part.replicates) < 2):
        yield f"{counted(single, 'claim')} cannot be decided with one seed: add --set seeds=3."
    half = ", half of which are decided" if family.has_rate(claims) else ""
    among = f" (one of {claims}{half})" if level < family.bound(claims) else ""
    for seeds in sorted({len(part.replicates) for part in fixed} - {1} if family.test is None else ()):
        chances = [_percent(float(power(effect, seeds, level))) for effect in _EFFECTS]
        yield (
            f"With {seeds} seeds, the chance to decide a claim{among} is {_BY_EFFECT.format(*chances)}; "
            "--decide adds seeds until all claims are decided."
        )
    if rules := [part.seeds for part in parts if isinstance(part.seeds, Until)]:
        if survey.claims_status is not None:
            yield f"So far {survey.claims_status}."
        else:
            yield _until_decided(rules, level, family, among)


def _until_decided(rules: list[Until], level: float, family: Family, among: str) -> str:
    """Describe the expected number of seeds of a study that runs until its claims are decided."""
    from jestlab.analysis.claims.evidence import planned  # imports NumPy

    least, most = min(rule.at_least for rule in rules), max(rule.at_most for rule in rules)
    most = min(most, family.most_seeds)
    looks = (planned(effect, level, most, family.test) for effect in _EFFECTS)
    expected = [f"{each.expected:.0f} seeds (decided in {_percent(each.decided)})" for each in looks]
    average = _BY_EFFECT.format(*expected)
    return f"From {least} to {most} seeds, until decided: for a claim{among}, on average {average}."


def _percent(chance: float) -> str:
    return "under 1%" if chance < 0.01 else "over 99%" if chance > 0.99 else f"{chance:.0%}"


# ---- table

Grid = tuple[Sequence[str], list[Sequence[str]], Sequence[int]]
"""Columns, rows of cells, and the indices of right-aligned columns."""


def grid(plan: Plan, row_per_run: bool = False) -> Grid:
    """Lay out the table of a plan, with columns of costs and budgets only if any is known.

    Args:
        plan: A plan with prices.
        row_per_run: Whether each run has a row. Otherwise each label has one; with many labels, each run
            name, or each part of a union.
    """
    amounts = (*(_COSTS if any(run.price for run in plan.runs) else ()), *_budget_headers(plan))
    if row_per_run:
        columns = ("run", "seed", "id", "to do")
        rows = [((run.label, str(run.seed), run.fingerprint[:8], _state(run)), [run]) for run in plan.runs]
    else:
        columns = ("run", "runs", "to do", "needs")
        rows = [*_groups(plan), (("all", str(len(plan.runs)), "", ""), [*plan.runs])]
    cells: list[Sequence[str]] = [(*first, *_amounts(runs, amounts)) for first, runs in rows]
    return (*columns, *amounts), cells, (1, *range(4, 4 + len(amounts)))


_Group = tuple[tuple[str, str, str, str], list[PlannedRun]]
"""The first cells of a row, and its runs."""


def _groups(plan: Plan) -> Iterator[_Group]:
    if not plan.parts:
        yield from _label_groups(plan)
    labels = sum(len({run.label for run in part.runs}) for part in plan.parts)
    for part in plan.parts:
        yield (part.study.name, str(len(part.runs)), _states(part.runs), ""), [*part.runs]
        if labels <= _MAX_ROWS:
            yield from _label_groups(part, "  ")


def _label_groups(plan: Plan, indent: str = "") -> Iterator[_Group]:
    by_label, by_name = defaultdict(list), defaultdict(list)
    for run in plan.runs:
        by_label[run.label].append(run)
        by_name[run.name].append(run)
    names = {run.fingerprint: run.name for run in plan.runs}
    for title, runs in (by_label if len(by_label) <= _MAX_ROWS else by_name).items():
        points = len({run.label for run in runs})
        aliases = dict.fromkeys(alias.label for run in runs for alias in run.aliases)
        needs = dict.fromkeys(names[fingerprint] for run in runs for fingerprint in run.needs.values())
        title += f" × {points} points" if points > 1 else ""
        title += f" (also {few(list(aliases))})" if aliases else ""
        yield (indent + title, str(len(runs)), _states(runs), ", ".join(needs) or "–"), runs


def _budget_headers(plan: Plan) -> tuple[str, ...]:
    known = [run.budget for run in plan.runs if run.budget is not None]
    if not any(budget.chip_hours for budget in known):
        return ()
    if all(budget.chip == NO_CHIP for budget in known):
        return ("time",)
    if plan.study.resources.tpu is None:
        return ("chips", "chip-hours")
    paid = any(budget.dollars is not None for budget in known)
    return ("by paper", "chips", "chip-hours", *(("$",) if paid else ()))


def _state(run: PlannedRun) -> str:
    return f"{run.action} ({run.state})" if run.state and run.action is not Action.DONE else str(run.action)


def _states(runs: Sequence[PlannedRun]) -> str:
    counts = Counter(map(_state, runs))
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _amounts(runs: Sequence[PlannedRun], columns: Sequence[str]) -> Iterator[str]:
    """Yield the summed costs and budgets of runs; a dash for 0, a question mark for unknown."""
    price, amount = totals(runs), total(runs)
    hours, known = amount.chip_hours, bool(amount.chip_hours)
    cells = {
        "examples": units.count(price.examples),
        "chips": str(max((run.budget.chips for run in runs if run.budget), default=0)),
        "time": units.duration(hours) if known else "–",
        "chip-hours": units.hours(hours) if known else "–",
        "$": units.dollars(amount.dollars or 0.0),
    }
    flops = {
        "learner": price.cost.learner,
        "scoring": price.cost.scoring,
        "selection": price.cost.selection,
        "ref. scoring": price.cost.reference_scoring,
        "total": price.total,
        "by paper": sum(run.price.by_paper for run in runs if run.price),
    }
    cells |= {column: units.flops(count) if count else "–" for column, count in flops.items()}
    unpriced, unbudgeted = (not any(run.price for run in runs)), amount.unknown == len(runs)
    for column in columns:
        yield "?" if (unpriced if column in _COSTS else unbudgeted) else cells[column]


# ---- data

_RUN_FIELDS = (
    *("label", "seed", "point", "fingerprint", "program", "needs", "match", "state", "action", "directory"),
)


def as_data(survey: Survey) -> dict[str, Any]:
    """Return a plan as plain data for JSON."""
    plan, reasons, estimates = survey.plan, survey.reasons, memory.estimates(survey.plan)
    parts = [
        {
            "study": part.study.name,
            "runs": len(part.runs),
            "labels": list(dict.fromkeys(run.label for run in part.runs)),
            "totals": _totals(part),
        }
        for part in plan.parts
    ]
    return {
        "study": plan.study.name,
        "scale": plan.study.scale,
        "absent": [str(path) for path in plan.absent],
        "left_out": {str(folder): files for folder, files in plan.left_out.items()},
        "totals": _totals(plan),
        **({"studies": parts} if parts else {}),
        "runs": [
            {
                "run": run.name,
                **{name: getattr(run, name) for name in _RUN_FIELDS},
                "also": [alias.label for alias in run.aliases],
                "price": _price(run.price) | {"paper_flops": run.price.by_paper} if run.price else None,
                "memory": estimates.get(run.fingerprint),
                "budget": {**asdict(run.budget), "hours": run.budget.hours} if run.budget else None,
                "why": asdict(reasons[run.fingerprint]) if run.fingerprint in reasons else None,
            }
            for run in plan.runs
        ],
        "waiting": [asdict(member) for member in plan.waiting],
        "remarks": list(survey.remarks),
    }


_RUN_COLUMNS = ("run", "label", "seed", "fingerprint", "program", "action", "state")
_COST_COLUMNS = ("learner", "scoring", "selection", "reference_scoring", "total")
_BUDGET_COLUMNS = ("chips", "hours", "chip_hours", "dollars")


def frame_rows(survey: Survey) -> Iterator[dict[str, Any]]:
    """Yield each run as a row of a data frame."""
    for run in as_data(survey)["runs"]:
        price, budget = run["price"] or {}, run["budget"] or {}
        yield {
            **{column: run[column] for column in _RUN_COLUMNS},
            **{name: price.get(name) for name in ("examples", *(f"{part}_flops" for part in _COST_COLUMNS))},
            **{column: budget.get(column) for column in _BUDGET_COLUMNS},
            **({"why": str(survey.reasons.get(run["fingerprint"], ""))} if survey.reasons else {}),
        }


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
