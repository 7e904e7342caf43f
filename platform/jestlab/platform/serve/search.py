"""Pages over whole labs: search for runs, SQL with saved queries, and published results."""

from __future__ import annotations

import csv
import io
import itertools
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import aliased
from starlette.requests import Request
from starlette.responses import StreamingResponse

from jestlab.analysis import query
from jestlab.analysis.configs import parsed
from jestlab.analysis.files import csv_cell
from jestlab.analysis.published import stored
from jestlab.analysis.published.cell import order
from jestlab.platform.errors import StoreUnreachable, UserError, one_line_errors
from jestlab.platform.serve.labs import Labs, Served
from jestlab.platform.serve.rendering import render
from jestlab.platform.store.annotations import saved_queries
from jestlab.platform.store.rows import one_of
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import EvaluationRow, RunRow, run_key
from jestlab.platform.store.views import VIEWS
from jestlab.platform.words import listed

MOST_RUNS = 500
"""Maximum number of runs of a search."""

SCORE = "score"
"""Column with the last score of a run, which no view has."""

COLUMNS = ("state", SCORE, "ended_at")
"""Default columns of a search, after the name of the run."""

_NAME = ("fingerprint", "experiment", "label", "seed")
"""Columns of every search, which name the run."""

_TEXTS = (*_NAME, "state", "tags", "reason")
"""Columns that are searched for words."""

_CONDITION = re.compile(r"[=<>()']|\b(in|like|is|and|or|not)\b", re.IGNORECASE)
"""A search that contains this is a condition; others are words."""

_CONFIGS = 100
"""Number of runs whose config keys the page suggests, the newest."""

SQL_ROWS, SQL_BYTES, SQL_SECONDS = 1_000, 2 * 1024 * 1024, 20
"""Limits of a SQL query: rows, bytes of all rows and of one value, and time in the database."""

CSV_ROWS, CSV_BYTES = 100_000, 16 * 1024 * 1024
"""Limits of a SQL query whose result is downloaded."""

EXAMPLES = {
    "Runs by state": "SELECT experiment, state, COUNT(*) AS runs\nFROM v_runs\nGROUP BY 1, 2\nORDER BY 1, 2",
    "Final scores by label": (
        "SELECT experiment, label, name, COUNT(*) AS seeds, AVG(value) AS mean\nFROM v_evaluations\n"
        "WHERE final = 1\nGROUP BY 1, 2, 3\nORDER BY 1, 3, 5 DESC"
    ),
    "Time and FLOPs by label": (
        "SELECT experiment, label, SUM(actual_hours) AS hours, SUM(actual_flops) AS flops\nFROM v_costs\n"
        "GROUP BY 1, 2\nORDER BY 1, 2"
    ),
    "Latest failures": (
        "SELECT experiment, label, seed, number, host, ended_at, reason\nFROM v_attempts\n"
        "WHERE state = 'FAILED'\nORDER BY ended_at DESC\nLIMIT 20"
    ),
    "Machines and code of the latest attempts": (
        "SELECT experiment, label, seed, started_at, host, device, code_commit\nFROM v_attempts\n"
        "ORDER BY started_at DESC\nLIMIT 20"
    ),
}
"""Title → a query that every store can answer."""

_NAMED = re.compile(
    r'near "(.+?)"|no such (?:column|table|function): (\S+)|(?:column|relation|function) "?([\w.]+)'
)
"""The part of a query that an error of SQLite or PostgreSQL names."""


# ---- search for runs


def runs(labs: Labs, request: Request) -> str:
    """Search for runs by words, or by a condition with the syntax of `jestlab query --where`."""
    given = request.query_params
    where, sort = given.get("where", "").strip(), given.get("order", "").strip()
    columns = listed(given.get("columns", ""))
    words = [] if _CONDITION.search(where) else where.lower().split()
    found: list[dict[str, Any]] = []
    problem, names, keys = "", [*(columns or COLUMNS)], [*VIEWS["v_runs"].columns, SCORE, "tag"]
    chosen = labs.among(given.get("lab"))
    try:
        with one_line_errors():
            for served in chosen:
                keys += _keys(served.store)
                condition = None if words else where or None
                names, rows = _found(served, condition, words, columns or COLUMNS, listed(sort))
                found += [{"lab": served.name, **row} for row in rows]
    except StoreUnreachable:
        raise
    except UserError as error:
        problem = str(error)
    return render(
        "runs.html.j2", here="runs", where=where, words=words, order=sort, columns=", ".join(columns),
        names=names, found=found[:MOST_RUNS], more=len(found) > MOST_RUNS, problem=problem,
        several=len(labs) > 1, lab=given.get("lab"), keys=dict.fromkeys(keys),
    )  # fmt: skip


def _found(
    served: Served, condition: str | None, words: Sequence[str], columns: Sequence[str], sort: Sequence[str]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Search one lab.

    Returns:
        The columns, and the runs: column → value. There is one more run than the page shows if others exist.
    """
    read = [*(_TEXTS if words else _NAME), *(name for name in columns if name != SCORE)]
    most = None if words else MOST_RUNS + 1
    url = served.lab.store_url
    result = query.select(url, "runs", condition, read, sort or ["-started_at"], most)
    rows = [dict(zip(result.columns, values, strict=True)) for values in result.rows]
    if words:
        rows = [row for row in rows if all(word in _text(row) for word in words)][: MOST_RUNS + 1]
    names: dict[str, None] = {}
    for name in columns:
        section = name.removesuffix("*")
        names |= dict.fromkeys(
            [name] if section == name else [key for key in result.columns if key.startswith(section)]
        )
    if SCORE in names:
        scores = _last_scores(served.store, rows)
        rows = [row | {SCORE: scores.get(row["fingerprint"])} for row in rows]
    return [*names], rows


def _text(row: dict[str, Any]) -> str:
    """Return the text of a run that is searched for words."""
    name = "{experiment}/{label}/{seed}".format_map(row)
    return " ".join([name, *(str(row[column]) for column in _TEXTS if row[column] is not None)]).lower()


def _keys(store: Store) -> list[str]:
    """Return the config keys of the newest runs."""
    latest = select(RunRow.config).order_by(RunRow.created_at.desc()).limit(_CONFIGS)
    return [key for (config,) in store.rows(latest) if config for key in parsed(config)[1]]


def _last_scores(store: Store, rows: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the last score of each run, by fingerprint: the score of its experiment, as tables show it."""
    import pandas as pd

    from jestlab.analysis.frames import Frames

    later = aliased(EvaluationRow)
    last = select(func.max(later.step)).where(later.run_id == EvaluationRow.run_id).scalar_subquery()
    name = EvaluationRow.dataset + "/" + EvaluationRow.metric
    of_run = {run_key(row["fingerprint"]): row for row in rows}
    evaluated = (
        select(EvaluationRow.run_id, RunRow.program, name, EvaluationRow.value)
        .join(RunRow, RunRow.id == EvaluationRow.run_id)
        .where(one_of(EvaluationRow.run_id, of_run), EvaluationRow.step == last)
    )
    values: dict[str, dict[int, dict[str, Any]]] = defaultdict(lambda: defaultdict(dict))
    for run, program, metric, value in store.rows(evaluated):
        values[of_run[run]["experiment"]][run] |= {"program": program, metric: value}
    scores = {}
    none = pd.DataFrame()
    for experiment, found in values.items():
        table = pd.DataFrame(found.values(), dtype=object)
        numbers = table.drop(columns="program").astype(float)
        frames = Frames(experiment, "", table[["program"]], numbers, none, none, store.spec(experiment))
        for run, score in zip(found, numbers[frames.averaged].mean(axis=1, skipna=False), strict=True):
            if frames.averaged and score == score:  # not NaN
                scores[str(of_run[run]["fingerprint"])] = frames.score.text(score) + frames.score.suffix
    return scores


# ---- SQL


def sql(labs: Labs, request: Request) -> Any:
    """Show the result of the SQL query in the address, so that users can share it."""
    asked = request.query_params.get("q", "").strip()
    served = labs.among(request.query_params.get("lab"))[0]
    result, problem, seconds = None, "", 0.0
    if asked:
        start = time.monotonic()
        try:
            limits = query.Limits(SQL_ROWS, SQL_BYTES, SQL_SECONDS)
            result = query.ask(served.lab.store_url, asked, limits)
        except ValueError as error:
            problem = str(error).removeprefix("query: ")
        seconds = time.monotonic() - start
    return render(
        "sql.html.j2", here="sql", asked=asked, result=result, problem=problem, seconds=seconds,
        place=_place(asked, problem), views=VIEWS, labs=labs,
        served=served, saved=saved_queries(served.store), writes=labs.writes, examples=EXAMPLES,
    )  # fmt: skip


def sql_csv(labs: Labs, request: Request) -> StreamingResponse:
    """Return the result of the SQL query in the address as CSV; more rows than the limit are an error."""
    served = labs.among(request.query_params.get("lab"))[0]
    limits = query.Limits(CSV_ROWS, CSV_BYTES, SQL_SECONDS)
    result = query.ask(served.lab.store_url, request.query_params.get("q", ""), limits)
    if result.more:
        limit = f"{CSV_ROWS:,} rows or {CSV_BYTES // 2**20} MiB"
        raise UserError(f"the result has more than {limit}: use `jestlab query --output FILE.csv`")
    headers = {"content-disposition": 'attachment; filename="query.csv"'}
    return StreamingResponse(_csv_lines(result), media_type="text/csv", headers=headers)


def _csv_lines(result: query.Result) -> Iterator[str]:
    for row in itertools.chain([result.columns], result.rows):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(map(csv_cell, row))
        yield line.getvalue()


def _place(asked: str, problem: str) -> dict[str, Any] | None:
    """Find the part of a query that an error names: its line from 1, the texts around it, and its indices."""
    match = _NAMED.search(problem)
    named = next(filter(None, match.groups()), "") if match else ""
    if not named or (found := re.search(rf"(?<!\w){re.escape(named)}(?!\w)", asked, re.IGNORECASE)) is None:
        return None
    start, end = found.span()
    before, after = asked[:start].rpartition("\n")[2], asked[end:].partition("\n")[0]
    line = asked.count("\n", 0, start) + 1
    return {"line": line, "before": before, "at": found[0], "after": after, "start": start, "end": end}


# ---- published results


def published(labs: Labs, request: Request) -> str:
    """Show all published tables."""
    tables: list[dict[str, Any]] = []
    for served in labs.among(request.query_params.get("lab")):
        groups = itertools.groupby(stored(served.lab.store_url), key=lambda cell: (cell.source, cell.table))
        for (source, name), cells in groups:
            tables.append({"lab": served.name, "source": source, "name": name, **_matrix(list(cells))})
    return render("published.html.j2", here="published", tables=tables, several=len(labs) > 1)


def _matrix(cells: list[Any]) -> dict[str, Any]:
    """Arrange the cells of a published table: one row per position, one column per quantity."""
    rows: dict[int, dict[str, Any]] = {}
    for cell in cells:
        about = {"method": cell.method, "about": [cell.group, cell.variant, cell.data], "ours": cell.ours}
        rows.setdefault(cell.position, {**about, "cells": {}})["cells"][cell.quantity] = cell
    quantities = sorted({cell.quantity for cell in cells}, key=order)
    return {"quantities": quantities, "rows": [rows[position] for position in sorted(rows)]}
