"""`jestlab costs`: what an example costs in each run of a study, part by part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from jestlab.analysis import units
from jestlab.analysis.costs import CONVENTIONS, EXECUTED, SCOPES, Scope
from jestlab.platform.cli.options import baseline_option, examples, json_option, spec_options
from jestlab.platform.cli.output import absent_data, show, table
from jestlab.platform.errors import UserError
from jestlab.platform.planning.cost import CostBreakdown, Entry, cost_breakdown
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.schema import Study

_EPILOG = examples(
    "costs quickstart",
    "costs quickstart --plot figures",
    "costs quickstart --scope reference_training --baseline uniform",
)
_PARTS = ("IMAGE", "TEXT", "LOSS", "SCORING", "SELECTION", "REF. SCORING")


@click.command("costs", epilog=_EPILOG)
@spec_options
@baseline_option()
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="Which FLOPs count in equal budgets; each scope includes the ones before it.")  # fmt: skip
@click.option("--plot", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Draw what a step of IID, JEST and Flexi-JEST costs at the sizes of SPEC.")  # fmt: skip
@json_option("Print JSON, in FLOPs.")
def command(study: Study, baseline: str | None, scope: Scope, folder: Path | None, as_json: bool) -> None:
    """Show what one example costs in each run of SPEC, relative to uniform sampling, by two conventions.

    counted: what the code executes. paper: the JEST paper's formulas, in which the scoring pass is reused and
    loss and selection are free. `jestlab plan` shows the cost of whole runs.

    --plot writes PNG, SVG and PDF for each convention, at the sizes of the first run of SPEC that selects its
    batches; a run with an approximate pass is preferred.
    """
    planned = plan(study, absent="note")
    found = cost_breakdown(planned, baseline, scope)
    paths = [] if folder is None else _draw(study, found, folder)
    show(
        as_json,
        _as_data(study, found) | {"plots": paths},
        "\n".join([*_lines(found), *absent_data(planned), *paths]),
    )


def _draw(study: Study, found: CostBreakdown, folder: Path) -> list[str]:
    """Draw what a step of each method costs, by each convention; return the paths."""
    from jestlab.analysis.figures import method_costs  # here, because it imports NumPy

    step = found.selecting
    if step is None:
        raise UserError(
            f"study {study.name}: no run selects its batches, so there is nothing to draw: leave out --plot"
        )
    try:
        return [
            str(path) for convention in CONVENTIONS for path in method_costs(step, convention).save(folder)
        ]
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


def _lines(found: CostBreakdown) -> Iterator[str]:
    yield "Cost of one example seen, as a multiple of uniform sampling's with the same towers:"
    yield ""
    rows = []
    for entry in found.entries:
        for convention in CONVENTIONS:
            cost = entry.by[convention]
            whole = entry.step.iid.cost(convention).total()
            examples = entry.matching[convention]
            rows.append(
                (
                    entry.label if convention == CONVENTIONS[0] else "",
                    convention,
                    *(_multiple(getattr(cost, component) / whole) for component in EXECUTED),
                    f"{entry.relative[convention]:.2f}",
                    units.flops(cost.total("reference_scoring")),
                    "none" if examples is None else units.count(examples),
                )
            )
    columns = ("RUN", "BY", *_PARTS, "ALL", "FLOPs", "EQUAL BUDGET")
    yield table(columns, rows, right=range(2, len(columns)))
    yield ""
    yield (
        f"EQUAL BUDGET: the number of examples that cost as much as all of {found.baseline}'s, "
        f"in scope {found.scope}."
    )
    needing = [entry for entry in found.entries if entry.shared_by is not None]
    if needing:
        yield ""
        yield from _references(needing)
    if found.left_out:
        yield f"Not priced by the example: {', '.join(found.left_out)}."


def _references(entries: list[Entry]) -> Iterator[str]:
    """List the cost of the references that runs need, and the share of each run in it."""
    rows = [
        (
            entry.label,
            units.flops(entry.cost.total("reference_scoring")),
            units.flops(entry.reference_training) if entry.reference_training else "–",
            str(entry.shared_by),
            units.flops(entry.cost.reference_training) if entry.cost.reference_training else "–",
            units.flops(entry.cost.total("reference_training")),
        )
        for entry in entries
    ]
    columns = ("RUN", "ITSELF", "REF. TRAINING", "SHARED BY", "SHARE", "WITH SHARE")
    yield table(columns, rows, right=range(1, len(columns)))
    yield ""
    yield "REF. TRAINING is shared by the runs of this study that need it; a single run would pay all of it."


def _multiple(value: float) -> str:
    return "–" if value == 0 else f"{value:.3f}" if value >= 0.0005 else "<0.001"


def _as_data(study: Study, found: CostBreakdown) -> dict[str, Any]:
    return {
        "study": study.name,
        "scale": study.scale,
        "baseline": found.baseline,
        "scope": found.scope,
        "runs": [
            {
                "label": entry.label,
                "seeds": entry.seeds,
                "examples": entry.examples,
                "step": asdict(entry.step),
                "per_example": {
                    convention: {
                        **{f"{part}_flops": getattr(entry.by[convention], part) for part in EXECUTED},
                        "total_flops": entry.by[convention].total("reference_scoring"),
                        "relative": entry.relative[convention],
                        "equal_budget_examples": entry.matching[convention],
                    }
                    for convention in CONVENTIONS
                },
                "executed_flops": entry.cost.total("reference_scoring"),
                "reference_training_flops": entry.reference_training,
                "reference_shared_by": entry.shared_by,
                "reference_training_share_flops": entry.cost.reference_training,
            }
            for entry in found.entries
        ],
        "left_out": list(found.left_out),
    }
