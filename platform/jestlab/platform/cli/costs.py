"""`jestlab costs`: what an example costs in each run of a study, part by part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from jestlab.analysis.costs import CONVENTIONS, EXECUTED, SCOPES, Scope
from jestlab.platform.cli.spec_options import spec_options
from jestlab.platform.cli.text import missing, table
from jestlab.platform.errors import UserError

if TYPE_CHECKING:
    from jestlab.platform.ledger import Entry, Ledger
    from jestlab.platform.spec.schema import Study

_EPILOG = """\b
Examples:
  jestlab costs quickstart
  jestlab costs quickstart --plot figures
  jestlab costs quickstart --scope reference_training --baseline uniform
"""
_PARTS = ("IMAGE", "TEXT", "LOSS", "SCORING", "SELECTION", "REF. SCORING")


@click.command("costs", epilog=_EPILOG)
@spec_options
@click.option("--baseline", metavar="RUN", help="Whose FLOPs are the budget [first that is no reference].")
@click.option("--scope", type=click.Choice(SCOPES), default="scoring", show_default=True,
              help="What counts in equal budgets; each holds the ones before it.")  # fmt: skip
@click.option("--plot", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Draw what a step of IID, JEST and Flexi-JEST costs, with the sizes of SPEC.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in FLOPs.")
def command(study: Study, baseline: str | None, scope: Scope, folder: Path | None, as_json: bool) -> None:
    """Show what an example seen costs in each run of SPEC, by both conventions, over uniform sampling.

    counted: what the code executes. paper: the JEST paper's formulas, in which the scoring pass is reused,
    and loss and selection cost nothing. `jestlab plan` has the cost of whole runs.

    --plot writes PNG, SVG and PDF for each convention, after the sizes of the first run of SPEC that chooses
    its batches, one with an approximate pass first.
    """
    from jestlab.platform.ledger import ledger
    from jestlab.platform.plan import plan

    planned = plan(study, absent="note")
    found = ledger(planned, baseline, scope)
    paths = [] if folder is None else _draw(study, found, folder)
    if as_json:
        click.echo(json.dumps(_as_data(study, found) | {"plots": paths}, ensure_ascii=False))
    else:
        click.echo("\n".join([*_lines(found), *missing(planned), *paths]))


def _draw(study: Study, found: Ledger, folder: Path) -> list[str]:
    """Draw what a step of each method costs, by each convention; the paths."""
    from jestlab.analysis.figures import method_costs

    step = found.selecting
    if step is None:
        raise UserError(
            f"study {study.name}: no run chooses its batches, so there is nothing to draw: leave out --plot"
        )
    try:
        return [
            str(path) for convention in CONVENTIONS for path in method_costs(step, convention).save(folder)
        ]
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from error


def _lines(found: Ledger) -> Iterator[str]:
    from jestlab.analysis import units

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
        f"EQUAL BUDGET: so many examples cost as much as all that {found.baseline} sees, "
        f"in scope {found.scope}."
    )
    needing = [entry for entry in found.entries if entry.shared_by is not None]
    if needing:
        yield ""
        yield from _references(needing)
    if found.left_out:
        yield f"Not priced by the example: {', '.join(found.left_out)}."


def _references(entries: list[Entry]) -> Iterator[str]:
    """What runs need, and what of that falls to each."""
    from jestlab.analysis import units

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
    yield "REF. TRAINING is all that a run needs, shared within this study: a lone run pays all of it."


def _multiple(value: float) -> str:
    return "–" if value == 0 else f"{value:.3f}" if value >= 0.0005 else "<0.001"


def _as_data(study: Study, found: Ledger) -> dict[str, Any]:
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
