"""What is printed when runs have ended: tables, verdicts, paths, and what went wrong."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from jestlab.analysis.metrics import Metric
from jestlab.analysis.tables.claims import MARKS, difference
from jestlab.platform import reports
from jestlab.platform.cli import result_tables
from jestlab.platform.cli.naming import pasted
from jestlab.platform.cli.options import same_lab_options
from jestlab.platform.cli.output import default_format, print_or_write, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.controller import Outcome
from jestlab.platform.planning.plan import Plan, PlannedRun
from jestlab.platform.render import Table, in_state, styled, table
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.records import RunState

_VERDICTS = {"holds": "green", "does not hold": "red"}


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


def show_outcome(
    lab: Lab, plan: Plan, runs: Sequence[PlannedRun], outcome: Outcome, made: reports.Made
) -> None:
    """Print tables, paths, and what went wrong with the runs that were launched of a plan."""
    study = plan.study
    if plan.parts:
        _show_parts(plan, outcome, made)
    else:
        _show_reports(lab, study, made.files.get(study.name, []))
    counts = Counter(outcome.states.values())
    if counts[RunState.COMPLETED] < len(runs):
        say(_states({str(state): count for state, count in counts.items()}))
    if outcome.interrupted:
        say("interrupted: the same command resumes from the last checkpoints")
    failed = next((run for run in runs if outcome.states[run.fingerprint] == RunState.FAILED), None)
    if failed is not None:
        same = same_lab_options()
        say(f"see: jestlab logs {pasted(study.name, failed.label, failed.seed)}{same}", fit=False)
        if outcome.stopped is None:
            say(f"then: jestlab retry {pasted(study.name)}{same}", fit=False)


def _show_reports(lab: Lab, study: Study, written: Sequence[Path]) -> None:
    """Print the tables of one study, and the paths of its other reports."""
    _show_claims(written, study.name)
    if written and default_format(None) == "text":
        for table_ in reports.tables_of(lab, study):
            say(["", *result_tables.blocks(table_), ""])
    else:
        for path in written:
            if path.suffix == ".md" and path.stem != "claims":
                print_or_write(None, f"\n{path.read_text(encoding='utf-8')}\n")
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


def _states(counts: Mapping[str, int]) -> Text:
    return Text(", ").join(in_state(f"{count} {name}", name) for name, count in sorted(counts.items()))


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
    say()
    say(claims_table(content["rows"], by_study))
    say(content["caption"])
    say(f"claims:  jestlab table claims {pasted(experiment)}{same_lab_options()}", fit=False)
    return True


def _difference(row: Mapping[str, Any]) -> str:
    """Write the difference of a claim as the table of claims does."""
    digits = None if math.isnan(row["digits"]) else int(row["digits"])
    return difference(dict(row), Metric(unit=row["unit"], digits=digits))


def claims_table(rows: Sequence[Mapping[str, Any]], by_study: bool) -> Table:
    """Make a table of claims: the sign of each one's verdict, its study, its statement, and by how much.

    Args:
        rows: Of the table of claims, as its JSON has them.
        by_study: Whether to name the study.
    """
    lines = [
        (
            styled(MARKS[row["verdict"]], _VERDICTS.get(row["verdict"], "")),
            *((row["study"],) if by_study else ()),
            " ".join(row["statement"].split()),
            _difference({key: math.nan if value is None else value for key, value in row.items()}),
        )
        for row in rows
    ]
    count = 4 if by_study else 3
    return table([""] * count, lines, right=(count - 1,))
