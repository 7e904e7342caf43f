"""Show the result of a launch: tables, verdicts of claims, paths of reports, and failed runs."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jestlab.analysis.metrics import Metric
from jestlab.platform import reports
from jestlab.platform.cli.naming import shell_name
from jestlab.platform.cli.options import same_lab_options
from jestlab.platform.cli.output import default_format, print_json, print_or_write, say
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.outcome import LaunchResult
from jestlab.platform.planning.plan import Plan
from jestlab.platform.render import (
    VERDICT_STYLES,
    TextTable,
    result_blocks,
    state_counts,
    styled,
    table,
)
from jestlab.platform.reports.update import Build
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.records import RunState


def _as_data(result: LaunchResult) -> dict[str, Any]:
    """Return the result of a launch as JSON data."""
    outcome, parts = result.outcome, result.plan.parts

    def study_data(plan: Plan) -> dict[str, Any]:
        files = map(str, result.made.files.get(plan.study.name, ()))
        return {
            "experiment": plan.study.name,
            "counts": _count_states(plan, result),
            "reports": list(files),
        }

    runs = [
        {
            "run": run.name,
            "label": run.label,
            "seed": run.seed,
            "fingerprint": run.fingerprint,
            "state": outcome.states[run.fingerprint],
            "reason": outcome.reasons.get(run.fingerprint),
        }
        for run in result.runs
    ]
    ended = {"exit_code": result.exit_code, "stopped": outcome.stopped, "runs": runs}
    return study_data(result.plan) | ended | ({"studies": list(map(study_data, parts))} if parts else {})


def answer_lines(lab: Lab, name: str) -> list[str]:
    """Return the answer of an experiment's page; empty without results."""
    from jestlab.analysis.report import read_answer

    return [*filter(None, read_answer(lab.store_url, name).lines())]


def show_result(lab: Lab, result: LaunchResult, as_json: bool) -> int:
    """Print the result of a launch as JSON, or its reports and helpful commands; return the exit code."""
    if as_json:
        print_json(_as_data(result))
    else:
        _show_text(lab, result)
    return result.exit_code


def show_submitted(result: LaunchResult) -> int:
    """Print how to follow a launch that continues in jobs; return 0 if it does."""
    outcome, study = result.outcome, result.plan.study.name
    name = f"{shell_name(study)}{same_lab_options()}"
    states = Counter(map(str, outcome.states.values()))
    commands = (f"see:  jestlab attach {name}", f"stop: jestlab cancel {name}")
    say((state_counts(states), *commands), fit=False)
    if outcome.interrupted:
        return 130
    return int(bool(outcome.stopped or {RunState.FAILED, RunState.SKIPPED} & {*outcome.states.values()}))


def _show_text(lab: Lab, result: LaunchResult) -> None:
    plan, outcome, name = result.plan, result.outcome, result.plan.study.name
    written, same = result.made.files.get(name, []), same_lab_options()
    if plan.parts:
        pages = {study: _html_page(files) for study, files in result.made.files.items()}
        rows = [
            (part.study.name, state_counts(_count_states(part, result)), pages.get(part.study.name) or "–")
            for part in plan.parts
        ]
        say(table(("study", "runs", "page"), rows))
    for path in written:
        if path.name == "claims.json":
            content = json.loads(path.read_text(encoding="utf-8"))
            say(["", claims_table(content["rows"], by_study=bool(plan.parts)), content["caption"]])
            say(f"claims:  jestlab table claims {shell_name(name)}{same}", fit=False)
    if written and not plan.parts:
        _show_tables(lab, plan.study, written)
        if (build := Build.read(lab.reports / name)) and build.answer:
            say(build.answer)
        say(f"reports: {written[0].parent}")
    if page := _html_page(written):
        say(f"page:    {page}")
    counts = Counter(map(str, outcome.states.values()))
    if counts[RunState.COMPLETED] < len(result.runs):
        say(state_counts(counts))
    if outcome.interrupted:
        say("interrupted: repeat the command to resume from the last checkpoints")
    failed = next((run for run in result.runs if outcome.states[run.fingerprint] == RunState.FAILED), None)
    if failed is not None:
        logs = f"jestlab logs {shell_name(name, failed.label, failed.seed)}{same}"
        say((f"see:     {logs}", "then:    fix the cause, and launch again"), fit=False)


def _show_tables(lab: Lab, study: StudySpec, written: Sequence[Path]) -> None:
    if default_format(None) == "text":
        for each in reports.tables_of(lab, study):
            say(["", *result_blocks(each, "in the reports"), ""])
    else:
        for path in written:
            if path.parent == lab.reports / study.name and path.suffix == ".md" and path.stem != "claims":
                print_or_write(None, f"\n{path.read_text(encoding='utf-8')}\n")


def _html_page(written: Sequence[Path]) -> str:
    return next((str(path) for path in written if path.name == "report.html"), "")


def _count_states(plan: Plan, result: LaunchResult) -> dict[str, int]:
    """Return state → number of runs of a plan, including runs that were not launched."""
    states = (result.outcome.states.get(run.fingerprint, run.state) for run in plan.runs)
    return dict(Counter(str(state) for state in states if state is not None))


def claims_table(rows: Sequence[Mapping[str, Any]], by_study: bool) -> TextTable:
    """Return a table of claims: mark of the verdict, study if `by_study`, statement, and difference.

    Args:
        rows: Rows of the report `claims.json`.
        by_study: Whether to add a column with the study.
    """
    from jestlab.analysis.tables.claims import MARKS, difference

    lines = []
    for row in rows:
        numbers = {key: math.nan if value is None else value for key, value in row.items()}
        metric = Metric(unit=row["unit"], digits=None if row["digits"] is None else int(row["digits"]))
        mark = styled(MARKS[row["verdict"]], VERDICT_STYLES[row["verdict"]])
        study = (row["study"],) if by_study else ()
        lines.append((mark, *study, " ".join(row["statement"].split()), difference(numbers, metric)))
    headers = [""] * (4 if by_study else 3)
    return table(headers, lines, right=(len(headers) - 1,))
