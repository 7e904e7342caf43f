"""Pages over whole labs: search for runs, SQL with saved queries, and published results."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import aliased
from starlette.requests import Request
from starlette.responses import Response

from jestlab.analysis import query
from jestlab.analysis.configs import parsed
from jestlab.analysis.files import rows_to_csv
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
"""Maximum number of runs of a search in each lab."""

SCORE = "score"
"""Column with the last score of a run, which no view has."""

COLUMNS = ("state", SCORE, "ended_at")
"""Default columns of a search, after the name of the run."""

_NAME = ("fingerprint", "experiment", "label", "seed")
"""Columns of every search, which name the run."""

_CONDITION = re.compile(r"[=<>()']|\b(in|like|is|and|or|not)\b", re.IGNORECASE)
"""A search that contains this is a condition; others are words."""

_CONFIGS = 100
"""Number of runs whose config keys the page suggests, the newest."""

READING = query.Limits(1_000, 2 * 1024 * 1024, 20)
"""Limits of a SQL query: rows, bytes of all rows and of one value, and seconds in the database."""

DOWNLOADING = query.Limits(100_000, 16 * 1024 * 1024, 20)
"""Limits of a SQL query whose result is downloaded."""

EXAMPLES = {
    "Runs by state": "SELECT experiment, state, COUNT(*) AS runs\nFROM v_runs\nGROUP BY 1, 2",
    "Final scores by label": "SELECT experiment, label, name, COUNT(*) AS seeds, AVG(value) AS mean\n"
    "FROM v_evaluations\nWHERE final = 1\nGROUP BY 1, 2, 3\nORDER BY 1, 3, 5 DESC",
    "Time and FLOPs by label": "SELECT experiment, label, SUM(actual_hours) AS hours,\n"
    "    SUM(actual_flops) AS flops\nFROM v_costs\nGROUP BY 1, 2",
    "Latest failures": "SELECT experiment, label, seed, number, host, ended_at, reason\n"
    "FROM v_attempts\nWHERE state = 'FAILED'\nORDER BY ended_at DESC\nLIMIT 20",
    "Latest attempts": "SELECT experiment, label, seed, started_at, host, device, code_commit\n"
    "FROM v_attempts\nORDER BY started_at DESC\nLIMIT 20",
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
    words = [] if _CONDITION.search(where) else where.split()
    names, keys = columns or [*COLUMNS], [*VIEWS["v_runs"].columns, SCORE, "tag"]
    found: list[dict[str, Any]] = []
    problem, more = "", False
    try:
        with one_line_errors():
            for served in labs.among(given.get("lab")):
                keys += _keys(served.store)
                condition = None if words else where or None
                names, rows = _found(served, condition, words, columns or COLUMNS, listed(sort))
                found += rows[:MOST_RUNS]
                more |= len(rows) > MOST_RUNS
    except StoreUnreachable:
        raise
    except UserError as error:
        problem = str(error)
    return render(
        "runs.html.j2", here="runs", where=where, words=words, order=sort, columns=", ".join(columns),
        names=names, found=found, more=more, problem=problem,
        several=len(labs) > 1, lab=given.get("lab"), keys=dict.fromkeys(keys),
    )  # fmt: skip


def _found(
    served: Served, condition: str | None, words: Sequence[str], columns: Sequence[str], sort: Sequence[str]
) -> tuple[list[str], list[dict[str, Any]]]:
    """Search one lab.

    Returns:
        The columns, and the runs: column → value. There is one more run than the page shows if others exist.
    """
    result = query.select(
        served.lab.store_url, "runs", condition, [*(name for name in columns if name != SCORE), *_NAME],
        sort or ["-started_at"], MOST_RUNS + 1, words=words,
    )  # fmt: skip
    names = [name for name in result.columns if name in columns or name not in _NAME]
    rows = [dict(zip(result.columns, row, strict=True)) | {"lab": served.name} for row in result.rows]
    if SCORE in columns:
        names.insert(columns.index(SCORE), SCORE)
        scores = _last_scores(served.store, rows)
        rows = [row | {SCORE: scores.get((row["experiment"], row["fingerprint"]))} for row in rows]
    return names, rows


def _keys(store: Store) -> list[str]:
    """Return the config keys of the newest runs."""
    latest = select(RunRow.config).order_by(RunRow.created_at.desc()).limit(_CONFIGS)
    return [key for (config,) in store.rows(latest) if config for key in parsed(config)[1]]


def _last_scores(store: Store, rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """Return the last scores of runs, by experiment and fingerprint, as the tables of each show them."""
    import pandas as pd

    from jestlab.analysis.frames import Frames

    later = aliased(EvaluationRow)
    last = select(func.max(later.step)).where(later.run_id == EvaluationRow.run_id).scalar_subquery()
    name = EvaluationRow.dataset + "/" + EvaluationRow.metric
    evaluated = (
        select(RunRow.fingerprint, RunRow.program, name, EvaluationRow.value)
        .join(RunRow, RunRow.id == EvaluationRow.run_id)
        .where(one_of(EvaluationRow.run_id, {run_key(row["fingerprint"]) for row in rows}))
        .where(EvaluationRow.step == last)
    )
    table = pd.DataFrame([*store.rows(evaluated)], columns=["run", "program", "metric", "value"])
    scores, none = {}, pd.DataFrame()
    for experiment in {row["experiment"] for row in rows}:
        members = {row["fingerprint"] for row in rows if row["experiment"] == experiment}
        found = table[table["run"].isin(members)]
        values = found.groupby(["run", "metric"])["value"].last().unstack().astype(float)
        frames = Frames(experiment, "", found[["program"]], values, none, none, store.spec(experiment))
        if frames.averaged:
            means = values[frames.averaged].mean(axis=1, skipna=False).dropna()
            for run, score in means.items():
                scores[experiment, str(run)] = frames.score.text(score) + frames.score.suffix
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
            result = query.ask(served.lab.store_url, asked, READING)
        except ValueError as error:
            problem = str(error).removeprefix("query: ")
        seconds = time.monotonic() - start
    return render(
        "sql.html.j2", here="sql", asked=asked, result=result, problem=problem, seconds=seconds,
        place=_place(asked, problem), views=VIEWS, labs=labs,
        served=served, saved=saved_queries(served.store), writes=labs.writes, examples=EXAMPLES,
    )  # fmt: skip


def sql_csv(labs: Labs, request: Request) -> Response:
    """Return the result of the SQL query in the address as CSV; more rows than the limit are an error."""
    served = labs.among(request.query_params.get("lab"))[0]
    result = query.ask(served.lab.store_url, request.query_params.get("q", ""), DOWNLOADING)
    if result.more:
        limit = f"{DOWNLOADING.rows:,} rows or {DOWNLOADING.most_bytes // 2**20} MiB"
        raise UserError(f"the result has more than {limit}: use `jestlab query --output FILE.csv`")
    headers = {"content-disposition": 'attachment; filename="query.csv"'}
    return Response(rows_to_csv(result.columns, result.rows), media_type="text/csv", headers=headers)


def _place(asked: str, problem: str) -> dict[str, Any] | None:
    """Find the part of a query that an error names: its line from 1, and the texts of the line around it."""
    named = _NAMED.search(problem)
    part = named and re.search(
        rf"(?<!\w){re.escape(named[named.lastindex or 0])}(?!\w)", asked, re.IGNORECASE
    )
    if not part:
        return None
    before, after = asked[: part.start()], asked[part.end() :]
    return {
        "line": before.count("\n") + 1, "before": before.rpartition("\n")[2], "at": part[0],
        "after": after.partition("\n")[0],
    }  # fmt: skip


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
