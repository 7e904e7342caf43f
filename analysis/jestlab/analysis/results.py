"""`Snapshot`: a results store at one moment. Open it once, and pass it to everything that reads results:

    with opened("sqlite:///lab/results.db") as store:
        frames = store.frames("comparison")

A snapshot keeps all results of reads, so a second call costs nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from .colors import LabelColor, label_colors
from .connection import connect
from .errors import NotYet, RequestError
from .frames import Frames
from .metrics import Metrics
from .units import nearest

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection, CursorResult

_STUDY = "SELECT question, spec, origin FROM v_experiments WHERE experiment = :experiment"
_RUNS = """
    SELECT run, label, seed, position, fingerprint, run_id, program, state, reason, step, total_steps, needed,
        attempts, point, config, directory
    FROM v_runs WHERE experiment = :experiment"""
_LABELS = "SELECT run, label, point, position, needed FROM v_runs WHERE experiment = :experiment"
_EVALUATED = "SELECT DISTINCT dataset, metric FROM v_evaluations WHERE experiment = :experiment"
# A run may have several labels. NaN is stored as NULL.
_SCORES = """
    SELECT run_id, step, MAX(examples_seen), MAX(flops_total), MAX(seconds), MAX(chip_hours),
        COUNT(*) - COUNT(value){}
    FROM v_evaluations WHERE experiment = :experiment GROUP BY run_id, step"""
_SCORE = ", MAX(value) FILTER (WHERE dataset = :dataset{0} AND metric = :metric{0})"
_LARGEST = """
    SELECT name, MAX(ABS(value)) AS largest FROM v_evaluations
    WHERE experiment = :experiment AND ABS(value) <= 1.7976931348623157e308 GROUP BY name"""
_COSTS = "SELECT * FROM v_costs WHERE experiment = :experiment"
# Without patches and environments, which can be gigabytes for thousands of attempts.
_ATTEMPTS = """
    SELECT label, seed, fingerprint, number, state, reason, started_at, heartbeat_at, ended_at, first_step,
        exit_code, host, device, log, git_commit, COALESCE(LENGTH(git_patch), 0) AS changes, versions,
        code_commit, COALESCE(LENGTH(code_patch), 0) AS code_changes, sources, inputs
    FROM v_attempts WHERE experiment = :experiment"""
_METRICS = """
    SELECT label, seed, name, step, value
    FROM v_metrics WHERE experiment = :experiment AND name IN :names"""

_AMOUNTS = ("value", "_steps", "_flops", "_hours", "_dollars")
"""Endings of the names of numeric columns, which need a type even if all their values are NULL."""

T = TypeVar("T")
P = ParamSpec("P")


class Snapshot:
    """A results store at one moment, from `opened`. Results are read when they are first needed.

    Attributes:
        url: SQLAlchemy URL of the store, which may hold a password.
        connection: A read-only transaction, open until the snapshot is closed.
    """

    def __init__(self, url: str, connection: Connection) -> None:
        self.url = url
        self.connection = connection
        self._read: dict[Any, Any] = {}

    def once(self, read: Callable[..., T], *args: Any) -> T:
        """Call `read(snapshot, *args)`, or return what this call returned before. Exceptions aren't kept."""
        key = (read, *args)
        if key not in self._read:
            self._read[key] = read(self, *args)
        kept: T = self._read[key]
        return kept

    def select(self, sql: str, **parameters: Any) -> pd.DataFrame:
        """Read the rows of a SELECT into a frame, in any order, since databases sort text differently.

        Args:
            sql: The SELECT, with named parameters; `:names` is a list.
            parameters: Values of the parameters.
        """
        import pandas as pd

        result = self._execute(sql, parameters)
        names = list(result.keys())
        columns = list(zip(*result.fetchall(), strict=True)) or [()] * len(names)
        frame = pd.DataFrame(dict(zip(names, columns, strict=True)))
        return frame.astype({name: float for name in names if name.endswith(_AMOUNTS)})

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Read the rows of a SELECT as dictionaries, which are faster than a frame to use one by one."""
        result = self._execute(sql, parameters)
        names = list(result.keys())
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def _execute(self, sql: str, parameters: dict[str, Any]) -> CursorResult[Any]:
        from sqlalchemy import String, bindparam, text

        # PostgreSQL can't infer the type of an empty list.
        lists = [bindparam("names", expanding=True, type_=String)] if "names" in parameters else []
        return self.connection.execute(text(sql).bindparams(*lists), parameters)

    @cached_property
    def experiments(self) -> list[str]:
        """Names of all experiments, in alphabetical order."""
        return sorted(map(str, self.select("SELECT DISTINCT experiment FROM v_runs")["experiment"]))

    def check_known(self, experiment: str) -> None:
        """Raise a RequestError for an unknown experiment, with the nearest name."""
        known = self.rows(
            "SELECT 1 FROM v_runs WHERE experiment = :experiment LIMIT 1", experiment=experiment
        )
        if not known:
            near = nearest(experiment, self.experiments)
            raise RequestError(f"no experiment {experiment!r} in the results store: {near}")

    def frames(self, experiment: str) -> Frames:
        """Return the results of an experiment.

        Labels without an evaluation are left out if none can follow: their runs completed as dependencies of
        other runs (such as cached embeddings), or their program evaluates nothing.

        Raises:
            NotYet: Nothing of the experiment has been evaluated yet.
            RequestError: The experiment is unknown.
        """
        return self.once(_frames, experiment)

    def metrics(self, experiment: str, names: Sequence[str]) -> pd.DataFrame:
        """Return training metrics, such as the loss; without rows if none of them were logged.

        Returns:
            One row for each run, metric, and step: label, seed, name, step, value.
        """
        logged = self.select(_METRICS, experiment=experiment, names=list(names))
        return logged.sort_values(["label", "seed", "name", "step"], ignore_index=True)

    def colors(self, experiment: str) -> dict[str, LabelColor]:
        """Return the color of each label of an experiment, whether or not it has results."""
        rows = self.rows(_LABELS, experiment=experiment)
        rows.sort(key=lambda row: (row["position"], row["label"]))
        labels = ((row["run"], row["label"], row["point"], bool(row["needed"])) for row in rows)
        return label_colors(labels, self.study(experiment)[1])

    def study(self, experiment: str) -> tuple[str, dict[str, Any]]:
        """Return the question of an experiment, and the spec with which it was last launched."""
        for row in self.rows(_STUDY, experiment=experiment):
            return row["question"] or "", json.loads(row["spec"])
        return "", {}

    def imported_from(self, experiment: str) -> str | None:
        """Return the name of the archive that an experiment came from; None if it was launched here."""
        origins = (row["origin"] for row in self.rows(_STUDY, experiment=experiment))
        return next((str(json.loads(origin)["archive"]) for origin in origins if origin), None)


@contextmanager
def opened(store: str | Snapshot) -> Iterator[Snapshot]:
    """Open a store by its URL, or yield an open snapshot.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The store can't be read, or has another version.
    """
    if isinstance(store, Snapshot):
        yield store
    else:
        with connect(store) as connection:
            yield Snapshot(store, connection)


def opens_store(
    function: Callable[Concatenate[Snapshot, P], T],
) -> Callable[Concatenate[str | Snapshot, P], T]:
    """Let a function of a snapshot also accept the URL of a store, which is opened for the call."""

    @wraps(function)
    def opening(store: str | Snapshot, *args: P.args, **kwargs: P.kwargs) -> T:
        with opened(store) as snapshot:
            return function(snapshot, *args, **kwargs)

    return cast(Callable[Concatenate[str | Snapshot, P], T], opening)


@opens_store
def read(store: Snapshot, experiment: str) -> Frames:
    """Read the results of one experiment: see `Snapshot.frames`."""
    return store.frames(experiment)


@opens_store
def experiments(store: Snapshot) -> list[str]:
    """List the experiments in a store, in alphabetical order."""
    return store.experiments


def runs_of(store: Snapshot, experiment: str) -> pd.DataFrame:
    """Read the runs of an experiment in the order of the study; a run has a row for each label.

    The columns are those of `_RUNS`: point and config are JSON, directory is relative to the lab's root.
    """
    runs = store.select(_RUNS, experiment=experiment)
    return runs.sort_values(["position", "label", "seed"], ignore_index=True)


def metrics_of(store: Snapshot, experiment: str, programs: Iterable[str]) -> Metrics:
    """Return the meaning of an experiment's metrics: of its spec, of these programs, and by its scores."""
    metrics = Metrics.of_spec(store.study(experiment)[1], programs)
    rows = store.rows(_LARGEST, experiment=experiment)
    return metrics.rescaled({row["name"]: row["largest"] for row in rows})


def costs_of(store: Snapshot, experiment: str) -> pd.DataFrame:
    """Read the costs of an experiment's runs, with all columns of `v_costs`."""
    return store.select(_COSTS, experiment=experiment).sort_values(["label", "seed"], ignore_index=True)


def attempts_of(store: Snapshot, experiment: str) -> list[dict[str, Any]]:
    """Read the attempts at an experiment's runs, in any order; changes and code_changes count characters."""
    return store.rows(_ATTEMPTS, experiment=experiment)


def _frames(store: Snapshot, experiment: str) -> Frames:
    runs = store.once(runs_of, experiment)
    if runs.empty:
        store.check_known(experiment)
    costs = store.once(costs_of, experiment)
    configs = runs[["run", "label", "seed", "point", "config"]]
    scores = _scores(store, experiment, runs)
    columns = zip(*(runs[name] for name in ("run", "label", "point", "needed")), strict=True)
    runs = runs.drop(columns=["run_id", "attempts", "point", "config", "directory"])
    question, spec = store.study(experiment)
    colors = label_colors(columns, spec)
    metrics = metrics_of(store, experiment, runs["program"].unique())
    frames = Frames(experiment, question, runs, scores, costs, configs, spec, metrics, colors)
    if scores.empty:
        raise NotYet(f"experiment {experiment!r} has no evaluation yet: {frames.progress()}")
    # Some labels will never have an evaluation: their runs completed as dependencies of other runs, or their
    # program evaluates nothing.
    is_evaluated = runs["label"].isin(scores["label"].unique())
    is_needed = (runs["state"] == "COMPLETED") & (runs["needed"] > 0)
    evaluating = runs["program"].isin(runs.loc[is_evaluated, "program"].unique())
    labels = runs.loc[is_evaluated | (evaluating & ~is_needed), "label"].unique()
    runs, costs = (rows[rows["label"].isin(labels)] for rows in (runs, costs))
    return replace(frames, runs=runs.reset_index(drop=True), costs=costs.reset_index(drop=True))


def _scores(store: Snapshot, experiment: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Read all evaluations in the order of the runs: see `Frames.scores`."""
    import numpy as np
    import pandas as pd

    names = store.select(_EVALUATED, experiment=experiment).sort_values(["dataset", "metric"])
    columns = ["run_id", "step", "examples_seen", "flops_total", "seconds", "chip_hours", "diverged"]
    parameters, effort_columns = {"experiment": experiment}, len(columns)
    for i, (dataset, metric) in enumerate(names.itertuples(index=False)):
        parameters |= {f"dataset{i}": dataset, f"metric{i}": metric}
        columns.append(f"{dataset}/{metric}")
    sql = _SCORES.format("".join(_SCORE.format(i) for i in range(len(names))))
    types = np.dtype([("", int if name in ("run_id", "step") else float) for name in columns])
    # Converting one array is much faster than converting each column.
    scores = pd.DataFrame(np.fromiter(map(tuple, store._execute(sql, parameters)), types))
    scores.columns = pd.Index(columns)
    is_infinite = scores[columns[effort_columns:]].isin([math.inf, -math.inf]).any(axis=1)
    scores["diverged"] = (scores["diverged"] > 0) | is_infinite
    ordered = runs[["run_id", "fingerprint", "label", "seed", "state"]].assign(place=range(len(runs)))
    scores = ordered.merge(scores, on="run_id").sort_values(["place", "step"], ignore_index=True)
    last = scores["step"] == scores.groupby("place")["step"].transform("max")
    scores["final"] = last & (scores["state"] == "COMPLETED")
    return scores.drop(columns=["run_id", "state", "place"])
