"""The first page: the experiments of all labs, with the states of their runs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from jestlab.platform.serve.labs import Labs, Served
from jestlab.platform.serve.rendering import address, rendered, when
from jestlab.platform.store.annotations import tags_of_experiments
from jestlab.platform.store.records import ExperimentRow, RunState


def page(labs: Labs, request: Request) -> str:
    """Show all experiments, the last launched first."""
    return rendered(
        "experiments.html.j2", labs=labs, rows=_rows(labs), here="experiments", states=list(RunState)
    )


def live(labs: Labs, request: Request) -> dict[str, Any]:
    """Return what the page shows of each experiment that may have changed."""
    return {
        "rows": {
            row["key"]: {"counts": row["counts"], "total": row["total"], "launched": row["launched"]}
            for row in _rows(labs)
        }
    }


def _rows(labs: Labs) -> list[dict[str, Any]]:
    rows = [_row(labs, served, each, tags) for served in labs for each, tags in _of_lab(served)]
    return sorted(rows, key=lambda row: row["launched"], reverse=True)


def _of_lab(served: Served) -> list[tuple[ExperimentRow, list[str]]]:
    tags = tags_of_experiments(served.store)
    return [(row, tags.get(row.name, [])) for row in served.store.experiments()]


def _row(labs: Labs, served: Served, row: ExperimentRow, tags: list[str]) -> dict[str, Any]:
    lab = served.name if len(labs) > 1 else None
    return {
        "key": f"{served.name}/{row.name}",
        "lab": served.name,
        "name": row.name,
        "href": address("experiment", row.name, lab=lab),
        "question": row.question,
        "scale": row.scale,
        "counts": {state.value: row.counts[state] for state in RunState if row.counts.get(state)},
        "total": sum(row.counts.values()),
        "launched": when(row.updated_at),
        "imported_from": row.imported_from,
        "tags": tags,
    }
