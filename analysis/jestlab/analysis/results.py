"""A results store at one moment: open it once, and pass it to everything that reads results.

with opened("sqlite:///lab/results.db") as store:
    frames = store.frames("comparison")
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from .connection import connect, frame
from .errors import NotYet, RequestError
from .frames import Frames
from .units import nearest

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

_SPEC = "SELECT spec FROM v_experiments WHERE experiment = :experiment"

_RUNS = """
    SELECT question, run, label, seed, position, fingerprint, run_id, program, state, reason, step,
        total_steps, needed, point, config
    FROM v_runs WHERE experiment = :experiment"""

_EVALUATED = """
    SELECT DISTINCT dataset, metric FROM v_evaluations WHERE experiment = :experiment"""

_EFFORTS = ("examples_seen", "flops_total", "seconds", "chip_hours")
# A run may have several labels. NaN is stored as NULL.
_SCORES = """
    SELECT run_id, step, MAX(CASE WHEN value IS NULL THEN 1 ELSE 0 END) AS diverged, {}
    FROM v_evaluations WHERE experiment = :experiment GROUP BY run_id, step"""

_COSTS = """
    SELECT label, seed, image_tower_flops, text_tower_flops, learner_flops, scoring_flops, selection_flops,
        reference_scoring_flops, total_flops,
        reference_training_flops, reference_training_share_flops
    FROM v_costs WHERE experiment = :experiment"""

_METRICS = """
    SELECT label, seed, name, step, value
    FROM v_metrics WHERE experiment = :experiment AND name IN :names"""

_DIAGNOSES = """
    SELECT question, run, label, seed, position, fingerprint, state, point, config
    FROM v_runs WHERE experiment = :experiment AND program = 'diagnose'"""

_MEASURED = """
    SELECT label, seed, name, step, value
    FROM v_metrics WHERE experiment = :experiment AND label = :label
        AND (name LIKE 'learnability%' OR name LIKE 'selected/%')"""

T = TypeVar("T")
P = ParamSpec("P")


class Snapshot:
    """A results store at one moment. Results are read when they are first needed, and each only once.

    Attributes:
        url: SQLAlchemy URL of the store, which may hold a password.
        connection: A read-only transaction, open until the snapshot is closed.
    """

    def __init__(self, url: str, connection: Connection) -> None:
        """Create it by `opened` instead."""
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
        """Read the rows of a SELECT, as `connection.frame`."""
        return frame(self.connection, sql, **parameters)

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Read the rows of a SELECT as dictionaries, which is faster than a frame if they are used singly."""
        from sqlalchemy import text

        return [dict(row) for row in self.connection.execute(text(sql), parameters).mappings()]

    @cached_property
    def experiments(self) -> list[str]:
        """Names of all experiments, in alphabetical order."""
        return sorted(map(str, self.select("SELECT DISTINCT experiment FROM v_runs")["experiment"]))

    def check_known(self, experiment: str) -> None:
        """Raise a RequestError for an unknown experiment, with the nearest name."""
        if experiment in self.experiments:
            return
        if not self.experiments:
            raise RequestError(f"the results store is empty: jestlab launch {experiment}")
        near = nearest(experiment, self.experiments)
        raise RequestError(f"no experiment {experiment!r} in the results store: {near}")

    def frames(self, experiment: str) -> Frames:
        """Return the results of an experiment.

        Labels are left out if all their runs completed for other runs and were never evaluated, such as
        cached embeddings.

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

    def diagnosis(self, experiment: str, run: str | None = None) -> Diagnosis:
        """Return the measurements of a `diagnose` run: a label or run, or the first that has completed.

        Raises:
            NotYet: No such run has completed.
            RequestError: The experiment or the run is unknown.
        """
        self.check_known(experiment)
        runs = self.select(_DIAGNOSES, experiment=experiment)
        runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
        if runs.empty:
            raise NotYet(f"experiment {experiment!r} has no run of the program diagnose")
        none, question = runs[:0], str(runs["question"].iloc[0] or "")
        frames = Frames(experiment, question, runs, none, none, runs, self.spec(experiment))
        completed = runs[runs["state"] == "COMPLETED"]
        first = frames.labels[0] if completed.empty else str(completed["label"].iloc[0])
        label = first if run is None else frames.label_of(run)
        completed = completed[completed["label"] == label]
        if completed.empty:
            raise NotYet(f"no seed of {label!r} of {experiment!r} has completed: {frames.progress()}")
        metrics = self.select(_MEASURED, experiment=experiment, label=label)
        metrics = metrics.sort_values(["label", "seed", "name", "step"], ignore_index=True)
        metrics = metrics[metrics["seed"].isin(completed["seed"])].astype({"value": float})
        return Diagnosis(question, label, json.loads(completed["config"].iloc[0]), metrics)

    def spec(self, experiment: str) -> dict[str, Any]:
        """Return the spec with which an experiment was last launched; empty if unknown."""
        specs = self.select(_SPEC, experiment=experiment)["spec"]
        return dict(json.loads(specs.iloc[0])) if len(specs) else {}

    def imported_from(self, experiment: str) -> str | None:
        """Return the name of the archive that an experiment came from; None if it was launched here."""
        rows = self.select("SELECT * FROM v_experiments WHERE experiment = :name", name=experiment)
        return next((str(json.loads(origin)["archive"]) for origin in rows["origin"].dropna()), None)


@dataclass(frozen=True)
class Diagnosis:
    """Metrics that the completed seeds of one `diagnose` run have logged.

    Attributes:
        question: The question of the experiment; may be empty.
        label: Label of the run.
        config: Config of the first seed.
        metrics: One row for each seed, metric, and step: label, seed, name, step, value.
    """

    question: str
    label: str
    config: dict[str, Any]
    metrics: pd.DataFrame


@contextmanager
def opened(store: str | Snapshot) -> Iterator[Snapshot]:
    """Open a store by its URL, or yield an open snapshot.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The store can't be read, or has another version.
    """
    if isinstance(store, Snapshot):
        yield store
        return
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


def _frames(store: Snapshot, experiment: str) -> Frames:
    runs = store.select(_RUNS, experiment=experiment)
    if runs.empty:
        store.check_known(experiment)
    scores = _scores(store, experiment)
    costs = store.select(_COSTS, experiment=experiment)
    # A column with only NULLs has no type.
    runs = runs.astype({"step": float, "total_steps": float})
    runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
    costs = costs.sort_values(["label", "seed"], ignore_index=True)
    costs = costs.astype({name: float for name in costs.columns if str(name).endswith("_flops")})
    question = runs.pop("question").iloc[0] or ""
    configs = runs[["run", "label", "seed", "point", "config"]]
    runs = runs.drop(columns=["point", "config"])
    spec = store.spec(experiment)
    frames = Frames(experiment, str(question), runs, _of_runs(scores, runs), costs, configs, spec)
    if scores.empty:
        raise NotYet(f"experiment {experiment!r} has no evaluation yet: {frames.progress()}")
    unevaluated = _never_evaluated(frames)
    return replace(frames, runs=_without(runs, unevaluated), costs=_without(costs, unevaluated))


def _scores(store: Snapshot, experiment: str) -> pd.DataFrame:
    """Read all evaluations, one row for each run and step: run_id, step, examples_seen, flops_total, seconds,
    chip_hours, diverged, and a column for each metric."""
    names = store.select(_EVALUATED, experiment=experiment).sort_values(["dataset", "metric"])
    columns, measures = [*_EFFORTS], [f"MAX({effort})" for effort in _EFFORTS]
    parameters: dict[str, str] = {}
    for i, (dataset, metric) in enumerate(names.itertuples(index=False)):
        columns.append(f"{dataset}/{metric}")
        measures.append(f"MAX(CASE WHEN dataset = :dataset{i} AND metric = :metric{i} THEN value END)")
        parameters |= {f"dataset{i}": dataset, f"metric{i}": metric}
    sql = _SCORES.format(", ".join(f"{measure} AS c{i}" for i, measure in enumerate(measures)))
    scores = store.select(sql, experiment=experiment, **parameters)
    scores = scores.rename(columns={f"c{i}": column for i, column in enumerate(columns)})
    scores = scores.astype(dict.fromkeys(columns, float))  # a column with only NULLs has no type
    is_infinite = scores[columns[len(_EFFORTS) :]].isin([math.inf, -math.inf]).any(axis=1)
    return scores.assign(diverged=(scores["diverged"] > 0) | is_infinite)


def _of_runs(scores: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the scores in the order of the runs, once for each label of a run."""
    whose = runs[["run_id", "fingerprint", "label", "seed", "state"]].assign(place=range(len(runs)))
    merged = whose.merge(scores, on="run_id").sort_values(["place", "step"], ignore_index=True)
    last = merged["step"] == merged.groupby("place")["step"].transform("max")
    merged.insert(5, "final", last & (merged["state"] == "COMPLETED"))
    return merged.drop(columns=["run_id", "state", "place"])


def _never_evaluated(frames: Frames) -> set[str]:
    """Return the labels that will never have an evaluation: all their runs completed for other runs without
    one, or their program has evaluated nothing while another program has."""
    runs, evaluated = frames.runs, set(frames.scores["label"].unique())
    programs = set(runs.loc[runs["label"].isin(evaluated), "program"])
    ended = (runs["state"] == "COMPLETED") & (runs["needed"] > 0)
    may = runs.loc[~ended & runs["program"].isin(programs), "label"]
    return set(frames.labels) - set(may) - evaluated


def _without(frame: pd.DataFrame, labels: set[str]) -> pd.DataFrame:
    return frame[~frame["label"].isin(labels)].reset_index(drop=True)
