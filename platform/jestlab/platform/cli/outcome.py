"""What is printed when runs have ended: tables, verdicts, paths, and what went wrong."""

from __future__ import annotations

import json
import math
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.analysis.metrics import Metric
from jestlab.analysis.tables.claims import MARKS, difference
from jestlab.platform import reports
from jestlab.platform.cli.options import same_lab_options
from jestlab.platform.cli.output import say, table
from jestlab.platform.launch.controller import Outcome
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.store.records import RunState

_SHORTEST = 16  # to which a statement is cut: a narrower terminal wraps the line


def outcome_data(
    plan: Plan, runs: Sequence[PlannedRun], outcome: Outcome, made: reports.Made, exit_code: int
) -> dict[str, Any]:
    """Describe the outcome of the runs that were launched of a plan, for a program."""
    data: dict[str, Any] = {
        "experiment": plan.study.name,
        "exit_code": exit_code,
        "stopped": outcome.stopped,
        "counts": dict(Counter(outcome.states.values())),
        "runs": [
            {
                "run": run.name,
                "label": run.label,
                "seed": run.seed,
                "fingerprint": run.fingerprint,
                "state": outcome.states[run.fingerprint],
                "reason": outcome.reasons.get(run.fingerprint),
            }
            for run in runs
        ],
        "reports": list(map(str, made.files.get(plan.study.name, []))),
    }
    if plan.parts:
        data["studies"] = [
            {
                "experiment": part.study.name,
                "counts": _counts(part, outcome),
                "reports": list(map(str, made.files.get(part.study.name, []))),
            }
            for part in plan.parts
        ]
    return data


def show_outcome(plan: Plan, runs: Sequence[PlannedRun], outcome: Outcome, made: reports.Made) -> None:
    """Print tables, paths, and what went wrong with the runs that were launched of a plan."""
    study = plan.study
    if plan.parts:
        _show_parts(plan, outcome, made)
    else:
        _show_reports(study.name, made.files.get(study.name, []))
    counts = Counter(outcome.states.values())
    if counts[RunState.COMPLETED] < len(runs):
        say(_states({str(state): count for state, count in counts.items()}))
    if outcome.interrupted:
        say("interrupted: the same command resumes from the last checkpoints")
    failed = next((run for run in runs if outcome.states[run.fingerprint] == RunState.FAILED), None)
    if failed is not None:
        same = same_lab_options()
        say(f"see: jestlab logs {study.name} {shlex.quote(failed.label)} --seed {failed.seed}{same}")
        if outcome.stopped is None:
            say(f"then: jestlab retry {study.name}{same}")


def _show_reports(study: str, written: Sequence[Path]) -> None:
    """Print the tables of one study, and the paths of its other reports."""
    _show_claims(written, study)
    for path in written:
        if path.suffix == ".md" and path.stem != "claims":
            say("\n" + path.read_text(encoding="utf-8"))
    if written:
        say(f"reports: {written[0].parent}")
    for path in written:
        if path.suffix == ".png" and path.parent == written[0].parent:
            say(f"plot:    {path}")
    if (page := _page(written)) is not None:
        say(f"page:    {page}")


def _show_parts(plan: Plan, outcome: Outcome, made: reports.Made) -> None:
    """Print a line for each part of a union, the verdicts on its claims, and the path of its own page."""
    rows = [
        (
            part.study.name,
            _states(_counts(part, outcome)),
            str(_page(made.files.get(part.study.name, [])) or "–"),
        )
        for part in plan.parts
    ]
    say(table(("STUDY", "RUNS", "PAGE"), rows))
    own = made.files.get(plan.study.name, [])
    has_claims = _show_claims(own, plan.study.name, by_study=True)
    if (page := _page(own)) is not None:
        say(("" if has_claims else "\n") + f"page:    {page}")


def _page(written: Sequence[Path]) -> Path | None:
    return next((path for path in written if path.name == "report.html"), None)


def _states(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _counts(plan: Plan, outcome: Outcome) -> dict[str, int]:
    """Count the runs of a plan by state; those that were not launched are in their state of before."""
    states = (outcome.states.get(run.fingerprint, run.state) for run in plan.runs)
    return dict(Counter(str(state) for state in states if state is not None))


def _show_claims(written: Sequence[Path], experiment: str, by_study: bool = False) -> bool:
    """Print the claims among an experiment's reports with their verdicts; return whether there are any."""
    path = next((path for path in written if path.name == "claims.json"), None)
    if path is None:
        return False
    content = json.loads(path.read_text(encoding="utf-8"))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None  # a pipe gets it all
    say("\n" + "\n".join(claim_lines(content["rows"], by_study, width)))
    say(content["caption"])
    say(f"claims:  jestlab table claims {shlex.quote(experiment)}{same_lab_options()}")
    return True


def _difference(row: Mapping[str, Any]) -> str:
    """Write the difference of a claim as the table of claims does."""
    digits = None if math.isnan(row["digits"]) else int(row["digits"])
    return difference(dict(row), Metric(unit=row["unit"], digits=digits))


def claim_lines(rows: Sequence[Mapping[str, Any]], by_study: bool, width: int | None) -> list[str]:
    """Write a line for each claim: the sign of its verdict, its study, its statement, and by how much.

    Args:
        rows: Of the table of claims, as its JSON has them.
        by_study: Whether to name the study.
        width: Columns that a line may take, for which statements are shortened; None for any number.
    """
    widest = max((len(row["study"]) for row in rows), default=0)
    parts = [
        (
            f"{MARKS[row['verdict']]} " + (f"{row['study']:{widest}}  " if by_study else ""),
            " ".join(row["statement"].split()),
            "  " + _difference({key: math.nan if value is None else value for key, value in row.items()}),
        )
        for row in rows
    ]
    natural = max((sum(map(len, part)) for part in parts), default=0)
    total = natural if width is None else min(natural, width)
    lines = []
    for head, statement, end in parts:
        room = total - len(head) - len(end)
        if len(statement) > max(room, _SHORTEST):
            statement = f"{statement[: max(room, _SHORTEST) - 1].rstrip()}…"
        lines.append(head + statement.ljust(room) + end)
    return lines
