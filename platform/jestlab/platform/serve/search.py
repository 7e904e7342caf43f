"""Pages over whole labs: search for runs, and SQL with saved queries."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from sqlalchemy import bindparam, text
from starlette.requests import Request
from starlette.responses import Response

from jestlab.analysis import query
from jestlab.analysis.files import rows_to_csv
from jestlab.analysis.frames import Frames
from jestlab.platform.errors import StoreUnreachable, UserError, one_line_errors
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import duration, render
from jestlab.platform.store.annotations import saved_queries
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import run_key
from jestlab.platform.store.views import VIEWS

MOST_RUNS = 500
"""Maximum number of runs of a search in each lab, the latest."""

_LAST = text(
    "SELECT fingerprint, program, dataset || '/' || metric, value FROM evaluation "
    "JOIN run ON run.id = evaluation.run_id WHERE run_id IN :runs AND evaluation.step = "
    "(SELECT MAX(later.step) FROM evaluation AS later WHERE later.run_id = run.id)"
).bindparams(bindparam("runs", expanding=True))
_LAST_COLUMNS = ["fingerprint", "program", "name", "value"]

_COLUMNS = ("fingerprint", "experiment", "label", "seed", "state", "ended_at")

_CONDITION = re.compile(r"[=<>()']|\b(in|like|is|and|or|not)\b", re.IGNORECASE)
"""A search that contains this is a condition; others are words."""

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
}
"""Title → a query that every store can answer."""


# ---- search for runs


def runs(labs: Labs, request: Request) -> str:
    """Search for runs by words, or by a condition with the syntax of `jestlab query --where`."""
    where, lab = request.query_params.get("where", "").strip(), request.query_params.get("lab")
    words = [] if _CONDITION.search(where) else where.split()
    condition = None if words else where or None
    found: list[dict[str, Any]] = []
    problem, more = "", False
    try:
        with one_line_errors():
            for served in labs.among(lab):
                url, latest = served.lab.store_url, ["-started_at"]
                result = query.select(url, "runs", condition, _COLUMNS, latest, MOST_RUNS + 1, words=words)
                rows = [dict(zip(_COLUMNS, row, strict=True)) for row in result.rows[:MOST_RUNS]]
                scores = last_scores(served.store, rows)
                for row in rows:
                    score = scores.get((row["experiment"], row["fingerprint"]), "")
                    found.append(row | {"lab": served.name, "score": score})
                more |= len(result.rows) > MOST_RUNS
    except StoreUnreachable:
        raise
    except UserError as error:
        problem = str(error)
    return render(
        "runs.html.j2", here="runs", where=where, words=words, found=found, more=more, problem=problem,
        several=len(labs) > 1, lab=lab,
    )  # fmt: skip


def last_scores(store: Store, rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """Return the last scores of runs, by experiment and fingerprint, as the tables of each show them."""
    runs = pd.DataFrame(rows, columns=["experiment", "fingerprint"]).drop_duplicates()
    keys = [*map(run_key, runs["fingerprint"])]
    last = pd.DataFrame(map(tuple, store.rows(_LAST.bindparams(runs=keys))), columns=_LAST_COLUMNS)
    scores, none = {}, pd.DataFrame()
    for experiment, found in runs.merge(last).groupby("experiment"):
        values = found.pivot(index="fingerprint", columns="name", values="value").astype(float)
        name = str(experiment)
        metrics = store.metrics(name, found["program"].unique())
        frames = Frames(name, "", found, values, none, none, store.spec(name), metrics)
        means = values[frames.averaged].mean(axis=1, skipna=False).dropna()
        for run, score in means.items():
            scores[name, str(run)] = frames.score.text(score) + frames.score.suffix
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
    took = duration(seconds) if seconds >= 1 else f"{1000 * seconds:.0f} ms"
    return render(
        "sql.html.j2", here="sql", asked=asked, result=result, problem=problem, took=took,
        views=VIEWS, labs=labs, served=served, saved=saved_queries(served.store), writes=labs.writes,
        examples=EXAMPLES,
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
