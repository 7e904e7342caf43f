"""Results of one experiment as pandas frames, read from the store's views and never written.

Only the views are known here, so a database URL is all that is needed, on any machine.
"""

from __future__ import annotations

import difflib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import URL, Connection, Engine

_RUNS = """
    SELECT question, run, label, seed, position, fingerprint, program, state, reason, step, total_steps,
        needed
    FROM v_runs WHERE experiment = :experiment"""

_EVALUATIONS = """
    SELECT label, seed, dataset, metric, name, step, value, examples_seen, flops_total, final
    FROM v_evaluations WHERE experiment = :experiment"""

_COSTS = """
    SELECT label, seed, learner_flops, scoring_flops, selection_flops, reference_scoring_flops, total_flops,
        reference_training_share_flops
    FROM v_costs WHERE experiment = :experiment"""

_METRICS = """
    SELECT label, seed, name, step, value
    FROM v_metrics WHERE experiment = :experiment AND name IN :names"""

_DIAGNOSES = """
    SELECT question, run, label, seed, position, fingerprint, state, config
    FROM v_runs WHERE experiment = :experiment AND program = 'diagnose'"""

_MEASURED = """
    SELECT label, seed, name, step, value
    FROM v_metrics WHERE experiment = :experiment AND label = :label
        AND (name LIKE 'learnability%' OR name LIKE 'selected/%')"""

_ORDER = ("position", "label", "seed", "name", "step")
"""What rows are sorted by, as far as there are such columns."""

_RECALL = re.compile(r"(?<=/)(i2t|t2i)_r\d+$")
"""Recall at some rank in a retrieval direction, such as `coco/i2t_r5`."""


@dataclass(frozen=True)
class Frames:
    """What the store holds about one experiment, at one moment.

    Attributes:
        experiment: Its name.
        question: What it asks; empty if it does not say.
        runs: One row a run: run, label, seed, position, fingerprint, state, reason, step, total_steps,
            needed (1 where others refer to it); in the order of the study.
        evaluations: One row a run, step and metric: label, seed, dataset, metric, name (dataset/metric),
            step, value, examples_seen, flops_total (learner, scoring and selection until then), final (0 or
            1).
        costs: One row a run, FLOPs planned for the whole of it: label, seed, learner_flops, scoring_flops,
            selection_flops, reference_scoring_flops, total_flops (learner, scoring and selection),
            reference_training_share_flops.
    """

    experiment: str
    question: str
    runs: pd.DataFrame
    evaluations: pd.DataFrame
    costs: pd.DataFrame

    @cached_property
    def labels(self) -> list[str]:
        """Labels in the order of the study."""
        return list(dict.fromkeys(self.runs["label"]))

    @cached_property
    def reference_labels(self) -> list[str]:
        """Labels of the runs that other runs of the study need: they stand apart from competitors."""
        return list(dict.fromkeys(self.runs.loc[self.runs["needed"] > 0, "label"]))

    def apart_from(self, baseline: str) -> list[str]:
        """References that do not compete: all but the baseline, which is compared with even if it is one."""
        return [label for label in self.reference_labels if label != baseline]

    @cached_property
    def competitors(self) -> list[str]:
        """Labels of all other runs, in the order of the study."""
        apart = set(self.reference_labels)
        return [label for label in self.labels if label not in apart]

    @cached_property
    def metrics(self) -> list[str]:
        """Names (dataset/metric) of the headline evaluations, in alphabetical order.

        The score is their mean, and tables show them. Recall at a further rank is none where there is recall
        at 1, such as `coco/i2t_r5` beside `coco/i2t_r1`: it would count one ability twice. It stays in
        `evaluations`. Every other name, whatever program gave it, is a headline.
        """
        names = set(self.evaluations["name"])
        return sorted(name for name in names if _RECALL.sub(r"\1_r1", name) not in names - {name})

    @cached_property
    def scores_are_shares(self) -> bool:
        """Whether all evaluations lie in 0…1, so that they are shown in percent."""
        return bool(self.evaluations["value"].dropna().between(0, 1).all())

    def label_of(self, name: str) -> str:
        """The label that a user means by `name`: a label itself, or a run that has only one.

        Raises:
            ValueError: If there is no such label or run, or the run has several labels.
        """
        if name in self.labels:
            return name
        of_run = list(dict.fromkeys(self.runs.loc[self.runs["run"] == name, "label"]))
        if len(of_run) == 1:
            return str(of_run[0])
        if of_run:
            raise ValueError(
                f"run {name!r} of {self.experiment!r} has several points: name one of {_some(of_run)}"
            )
        known = [*self.labels, *self.runs["run"]]
        raise ValueError(f"experiment {self.experiment!r} has no run {name!r}: {_nearest(name, known)}")

    def baseline(self, name: str | None = None) -> str:
        """The label to compare with: that of `name`, or else the first competitor of the study."""
        return self.label_of(name) if name is not None else (self.competitors or self.labels)[0]

    def progress(self) -> str:
        """How many runs are in which state: "3 RUNNING, 9 PENDING"."""
        states = self.runs.drop_duplicates("fingerprint")["state"]  # a run may stand under several labels
        return ", ".join(f"{count} {state}" for state, count in states.value_counts().items())


def experiments(url: str) -> list[str]:
    """Names of the experiments in a store, in alphabetical order.

    Args:
        url: SQLAlchemy URL of the store.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store.
    """
    with connect(url) as connection:
        return _experiments(connection)


def read(url: str, experiment: str) -> Frames:
    """Everything about one experiment, in one snapshot: workers may go on writing meanwhile.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.

    Returns:
        Its runs, evaluations and costs, without the labels that are complete and were never evaluated: what
        they made, such as cached embeddings, is for other runs.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store, it is empty, it does not know the experiment, or
            nothing of it has been evaluated yet.
    """
    with connect(url) as connection:
        runs = _frame(connection, _RUNS, experiment=experiment)
        if runs.empty:
            raise ValueError(_unknown(experiment, _experiments(connection)))
        evaluations = _frame(connection, _EVALUATIONS, experiment=experiment)
        costs = _frame(connection, _COSTS, experiment=experiment)
    # A column of NULLs alone says nothing of its type.
    runs = runs.astype({"step": float, "total_steps": float})
    evaluations = evaluations.astype({"value": float, "examples_seen": float, "flops_total": float})
    costs = costs.astype({name: float for name in costs.columns if str(name).endswith("_flops")})
    question = runs.pop("question").iloc[0] or ""
    frames = Frames(experiment, str(question), runs, evaluations, costs)
    if evaluations.empty:
        raise ValueError(f"experiment {experiment!r} has no evaluation yet: {frames.progress()}")
    silent = _silent(frames)
    return replace(frames, runs=_without(runs, silent), costs=_without(costs, silent))


def _silent(frames: Frames) -> set[str]:
    """Labels that have nothing to compare and never will: all seeds completed, none evaluated; or of a
    program by which nothing has been evaluated, where another one has."""
    runs, evaluated = frames.runs, set(frames.evaluations["label"])
    programs = set(runs.loc[runs["label"].isin(evaluated), "program"])
    may = runs.loc[(runs["state"] != "COMPLETED") & runs["program"].isin(programs), "label"]
    return set(frames.labels) - set(may) - evaluated


def _without(frame: pd.DataFrame, labels: set[str]) -> pd.DataFrame:
    return frame[~frame["label"].isin(labels)].reset_index(drop=True)


def metrics(url: str, experiment: str, names: Sequence[str]) -> pd.DataFrame:
    """Training metrics over steps, such as the loss.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
        names: Metrics to read, such as "loss".

    Returns:
        One row a run, metric and step: label, seed, name, step, value.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: As `read`, or if the experiment has logged none of the metrics.
    """
    with connect(url) as connection:
        known = _experiments(connection)
        if experiment not in known:
            raise ValueError(_unknown(experiment, known))
        frame = _frame(connection, _METRICS, experiment=experiment, names=list(names))
    if frame.empty:
        raise ValueError(f"experiment {experiment!r} has logged none of {_some(names)}")
    return frame


@dataclass(frozen=True)
class Diagnosis:
    """What the completed seeds of one `diagnose` run have logged.

    Attributes:
        question: What the experiment asks; empty if it does not say.
        label: Of the run.
        config: Of its first seed.
        metrics: One row a seed, metric and step: label, seed, name, step, value.
    """

    question: str
    label: str
    config: dict[str, Any]
    metrics: pd.DataFrame


def diagnosed(url: str, experiment: str) -> list[str]:
    """Labels of an experiment's `diagnose` runs that have completed, in the order of the study.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store.
    """
    with connect(url) as connection:
        runs = _frame(connection, _DIAGNOSES, experiment=experiment)
    return list(dict.fromkeys(runs.loc[runs["state"] == "COMPLETED", "label"]))


def diagnosis(url: str, experiment: str, run: str | None = None) -> Diagnosis:
    """What one `diagnose` run has measured.

    Args:
        url: SQLAlchemy URL of the store.
        experiment: Its name.
        run: Its label or name; None: the study's first that has completed.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there is no results store, it does not know the experiment, or no such run of
            it has completed.
    """
    with connect(url) as connection:
        known = _experiments(connection)
        if experiment not in known:
            raise ValueError(_unknown(experiment, known))
        runs = _frame(connection, _DIAGNOSES, experiment=experiment)
        if runs.empty:
            raise ValueError(f"experiment {experiment!r} has no run of the program diagnose")
        frames = Frames(experiment, str(runs["question"].iloc[0] or ""), runs, runs[:0], runs[:0])
        completed = runs[runs["state"] == "COMPLETED"]
        first = frames.labels[0] if completed.empty else str(completed["label"].iloc[0])
        label = first if run is None else frames.label_of(run)
        completed = completed[completed["label"] == label]
        if completed.empty:
            raise ValueError(f"no seed of {label!r} of {experiment!r} has completed: {frames.progress()}")
        metrics = _frame(connection, _MEASURED, experiment=experiment, label=label)
    metrics = metrics[metrics["seed"].isin(completed["seed"])].astype({"value": float})
    return Diagnosis(frames.question, label, json.loads(completed["config"].iloc[0]), metrics)


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """A transaction that only reads, and sees one moment; a SQLite file that is not there is not created.

    Args:
        url: SQLAlchemy URL of the store; `postgresql://` and `postgres://` need no driver's name.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If what is there cannot be read. The message holds no password.
    """
    from sqlalchemy.exc import DatabaseError

    address = _address(url)
    engine = _sqlite(address) if address.get_backend_name() == "sqlite" else _server(address)
    try:
        with engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                # sqlite3 opens no transaction for a SELECT by itself: without one, each sees another moment.
                connection.exec_driver_sql("BEGIN")
            yield connection
    except DatabaseError as error:
        shown = address.render_as_string(hide_password=True)
        said = " ".join(str(error.orig).split())
        raise ValueError(f"cannot read results from {shown}: {said}") from error
    finally:
        engine.dispose()


def _address(url: str) -> URL:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        address = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        hidden = re.sub(r":[^:]*@", ":***@", url)
        raise ValueError(f"store {hidden!r} is no database URL: write sqlite:///path/to/results.db") from None
    if address.drivername in ("postgres", "postgresql"):
        address = address.set(drivername="postgresql+psycopg")
    # A password may also be an option of the driver; as part of the address it is hidden in messages.
    if "password" in address.query:
        address = address.set(password=str(address.query["password"])).difference_update_query(["password"])
    return address


def _sqlite(address: URL) -> Engine:
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    path = Path(address.database or "")
    if not path.is_file():
        raise FileNotFoundError(f"no results store at {path}: launch an experiment first, or name its lab")
    return create_engine("sqlite://", creator=lambda: _open_sqlite(path), poolclass=NullPool)


def _server(address: URL) -> Engine:
    """On PostgreSQL a transaction sees one moment and cannot write; every statement is a cursor's query, so
    that none can end the transaction."""
    from sqlalchemy import create_engine
    from sqlalchemy.pool import NullPool

    engine = create_engine(address, poolclass=NullPool)
    if engine.dialect.name != "postgresql":
        return engine
    return engine.execution_options(
        isolation_level="REPEATABLE READ", postgresql_readonly=True, stream_results=True
    )


def _open_sqlite(path: Path) -> sqlite3.Connection:
    """Open for reading alone.

    NOTE: footgun. `mode=ro` on a database in WAL mode leaves -wal and -shm files behind, which a read-only
    connection may make but not remove; `query_only` forbids writing just as well and leaves nothing.
    """
    connection = sqlite3.connect(f"file:{quote(str(path))}?mode=rw", uri=True)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _frame(connection: Connection, sql: str, **parameters: Any) -> pd.DataFrame:
    import pandas as pd
    from sqlalchemy import bindparam, text

    statement = text(sql)
    if "names" in parameters:
        statement = statement.bindparams(bindparam("names", expanding=True))
    result = connection.execute(statement, parameters)
    frame = pd.DataFrame.from_records(result.fetchall(), columns=list(result.keys()))
    # Not by ORDER BY: databases, and locales of one database, sort text in many ways.
    keys = [name for name in _ORDER if name in frame.columns]
    return frame.sort_values(keys, ignore_index=True) if keys else frame


def _experiments(connection: Connection) -> list[str]:
    names = _frame(connection, "SELECT DISTINCT experiment FROM v_runs")["experiment"]
    return sorted(str(name) for name in names)


def _unknown(experiment: str, known: Sequence[str]) -> str:
    if not known:
        return f"the results store is empty: jestlab launch {experiment}"
    return f"no experiment {experiment!r} in the results store: {_nearest(experiment, known)}"


def _nearest(name: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {matches[0]!r}?" if matches else f"it has {_some(names)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
