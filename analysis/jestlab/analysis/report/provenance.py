"""Where every number of a table is from, in a form that a page can carry for thousands of cells.

The same as `explain.Origins.explain` says of one cell, with what cells share said once: numbers by row and
column, attempts by run, differences of config by row. The page puts them together when a cell is opened.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..explain import Attempt, Origins, in_print, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from ..rendering import Column, Table


def of_table(table: Table, origins: Origins) -> dict[str, Any]:
    """What the cells of a table open.

    Args:
        table: With its parts.
        origins: Of the experiments that its runs stand in.

    Returns:
        Plain JSON: columns (key → header, formula, inputs, compares), rows (key → runs by fingerprint,
        seeds, texts of what each contributes by column or input, baseline, differences) and published (row →
        column → what was printed, in lines). Of rows that are not called as their runs are, labels, too.
    """
    parts = table.parts
    columns = {
        column.key: {
            "header": f"{column.group} {column.header}".strip(),
            "formula": column.formula,
            "inputs": list(column.inputs),
            "compares": column.compares,
        }
        for column in table.columns
    }
    if parts is None:
        return {"columns": columns, "rows": {}, "published": _published(table)}
    # The first column names the rows.
    names = [name for name in dict.fromkeys(_named(table.columns[1:])) if name in parts]
    texts = {name: _texts(parts[name]) for name in names}
    places = {str(row): at for row, at in parts.groupby("row", sort=False).indices.items()}
    runs = list(zip(parts["experiment"].map(str), parts["fingerprint"].map(str), strict=True))
    seeds = [int(seed) for seed in parts["seed"]]
    labels = [str(label) for label in parts["label"]]
    rows = {}
    for row, at in places.items():
        baseline = table.baselines.get(row)
        rows[row] = {
            **({"labels": [labels[i] for i in at]} if any(labels[i] != row for i in at) else {}),
            "runs": [runs[i][1] for i in at],
            "seeds": [seeds[i] for i in at],
            "values": {name: [texts[name][i] for i in at] for name in names},
            "baseline": baseline,
            "differences": None
            if baseline is None
            else _differences(
                origins, runs[at[0]], runs[places[baseline][0]] if baseline in places else None
            ),
        }
    return {"columns": columns, "rows": rows, "published": _published(table)}


def _published(table: Table) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    if table.published is not None:
        for said in table.published.to_dict("records"):
            found.setdefault(str(said["row"]), {})[str(said["column"])] = in_print(said)
    return found


def of_runs(tables: Iterable[Table], origins: Origins) -> dict[str, Any]:
    """What is known of the runs behind tables: fingerprint → its name, state, step, folder and attempts.

    Args:
        tables: With their parts.
        origins: Of the experiments that the runs stand in.
    """
    found: dict[str, Any] = {}
    for table in tables:
        if table.parts is None:
            continue
        for experiment, fingerprint in _pairs(table.parts):
            if fingerprint in found:
                continue
            run = origins.run(fingerprint, experiment)
            found[fingerprint] = {
                "name": f"{experiment}/{run['run']}/{run['seed']}",
                "state": f"{run['state']} at step {int(run['step']):,}",
                "directory": str(run["directory"]),
                "attempts": [_told(attempt) for attempt in origins.attempts(fingerprint)],
            }
    return found


def _told(attempt: Attempt) -> list[str]:
    """One go at a run: number, how it ended, where, by what code, from when to when, its log."""
    why = (attempt.reason or "").strip()
    return [
        str(attempt.number),
        f"{attempt.state}: {why.splitlines()[0]}" if why else attempt.state,
        ", ".join(part for part in (attempt.host, attempt.device) if part) or "—",
        (attempt.git_commit or "—")[:12] + (" with changes" if attempt.patched else ""),
        attempt.started_at or "—",
        attempt.ended_at or "—",
        attempt.log or "—",
    ]


def _texts(values: pd.Series[Any]) -> list[str]:
    known = values.astype(float).tolist()  # None becomes NaN
    return [number(value if math.isfinite(value) else None) for value in known]


def _named(columns: Iterable[Column]) -> Iterable[str]:
    for column in columns:
        yield column.key
        yield from column.inputs


def _pairs(parts: pd.DataFrame) -> list[tuple[str, str]]:
    pairs = parts[["experiment", "fingerprint"]].drop_duplicates()
    return [(str(experiment), str(fingerprint)) for experiment, fingerprint in pairs.itertuples(index=False)]


def _differences(origins: Origins, one: tuple[str, str], other: tuple[str, str] | None) -> list[list[str]]:
    """Config key, what the one run has, what the other has."""
    if other is None:
        return []
    return [
        [key, "—" if ours is None else ours, "—" if theirs is None else theirs]
        for key, (theirs, ours) in origins.between(other, one).items()
    ]
