"""A store as the analysis sees it: a SQLite file with tables of the views' names and columns."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from jestlab.analysis.connection import SCHEMA
from jestlab.analysis.figures import Plot
from jestlab.analysis.frames import Frames
from jestlab.analysis.published.cell import PublishedCell
from jestlab.analysis.results import read as read_frames
from jestlab.platform.exchange.source_run import nested
from jestlab.platform.store.views import VIEWS

TYPES = {"label": "TEXT", "seed": "INTEGER", "step": "INTEGER", "value": "REAL", "host": "TEXT"}
"""Columns with a declared type, like those that the real views take from tables."""

UNIFORM = {
    "selection.rule": "uniform",
    "selection.filtering_ratio": 0.8,
    "selection.chunks": 16,
    "selection.criterion": "learnability",
    "schedule.batch_size": 64,
    "schedule.super_batch_size": None,
    "approximation.share": 0.0,
    "approximation.score": False,
    "approximation.method": "flexi",
    "loss": "sigmoid",
}
"""Config of a run with uniform sampling."""

BATCH = 64
METRICS = ("shapes/zero_shot", "shapes_retrieval/i2t_r1")


@dataclass
class StoredRun:
    """One run: an evaluation at each step, with the same value for every metric."""

    run: str
    scores: Sequence[float]  # at steps 1, 2, …
    label: str = ""
    seed: int = 0
    program: str = "train"
    state: str = "COMPLETED"
    reason: str = ""
    # Learner, scoring with selection (a tenth of it), reference scoring; None if nothing counts them.
    flops_per_step: tuple[float, float, float] | None = (3e9, 0.0, 0.0)
    priced: bool = True  # whether a plan knows the FLOPs
    reference_training_share: float | None = 0.0
    needed: int = 0
    metrics: Sequence[str] = METRICS
    total_steps: int | None = None  # by default the number of scores
    config: dict[str, Any] = field(default_factory=dict)  # keys may be dotted
    point: dict[str, Any] = field(default_factory=dict)
    counts: bool = True  # whether examples and FLOPs are known
    seconds_per_step: float | None = None
    chips: int = 1
    # Metric → value at each step, or step → value.
    logged: dict[str, Sequence[float | None] | dict[int, float]] = field(default_factory=dict)


@dataclass
class Store:
    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def read(self, experiment: str = "study") -> Frames:
        return read_frames(self.url, experiment)

    def copy(self, path: Path) -> Store:
        return Store(Path(shutil.copy(self.path, path)))

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(sql, parameters)

    def insert(self, view: str, **columns: Any) -> None:
        names, places = ", ".join(columns), ", ".join("?" * len(columns))
        self.execute(f"INSERT INTO {view} ({names}) VALUES ({places})", [*columns.values()])

    def publish(self, *cells: PublishedCell) -> None:
        for cell in cells:
            columns = {
                {"table": "table_name", "group": "group_name"}.get(k, k): v for k, v in vars(cell).items()
            }
            self.insert("v_published", **columns)

    def attempt(self, run: str, seed: int, number: int = 1, **columns: Any) -> None:
        """Record an attempt at a run of the study."""
        whose = {"experiment": "study", "label": run, "seed": seed, "fingerprint": f"{run}-{seed}"}
        self.insert("v_attempts", **whose, **{"number": number, "state": "COMPLETED"} | columns)

    def retract(self, label: str, reason: str, run: str = "") -> None:
        """Retract seed 0 of a run."""
        whose = {"experiment": "study", "run": run or label, "label": label, "fingerprint": f"{label}-0"}
        about = {"seed": 0, "reason": reason, "author": "Ada", "created_at": "2026-11-24"}
        self.insert("v_retractions", **whose, **about)

    def add(
        self,
        *runs: StoredRun,
        experiment: str = "study",
        question: str = "Is it faster?",
        spec: dict[str, Any] | None = None,
        scale: str | None = "smoke",
    ) -> Store:
        with contextlib.closing(sqlite3.connect(self.path)) as connection, connection:
            for position, run in enumerate(runs):
                _insert(connection, experiment, question, position, run)
        text = json.dumps(spec or {})
        self.insert("v_experiments", experiment=experiment, question=question, scale=scale, spec=text)
        return self


def _insert(
    connection: sqlite3.Connection, experiment: str, question: str, position: int, run: StoredRun
) -> None:
    label = run.label or run.run
    whose = (experiment, run.run, label, run.seed, f"{label}-{run.seed}")
    number = crc32(whose[-1].encode())
    total = run.total_steps or len(run.scores)

    def insert(view: str, *values: Any) -> None:
        names = [*VIEWS[view].columns][: len(values)]
        places = ", ".join("?" * len(values))
        connection.execute(f"INSERT INTO {view} ({', '.join(names)}) VALUES ({places})", values)

    insert(
        "v_runs", experiment, question, run.run, label, run.seed, position, whose[-1], number, run.program,
        run.state, run.reason, len(run.scores), total, json.dumps(run.point), json.dumps(nested(run.config)),
        f"runs/{label}", 1, None, None, "smoke", run.needed,
    )  # fmt: skip
    learner, scoring, reference = (total * flops for flops in run.flops_per_step or (0.0, 0.0, 0.0))
    selection, spent, share = 0.1 * scoring, learner + scoring, run.reference_training_share
    planned = (
        0.75 * learner, 0.25 * learner, 0.0, learner, scoring - selection, selection, reference, spent
    )  # fmt: skip
    is_priced = run.priced and run.flops_per_step is not None
    making = None if share is None else 3 * share
    insert("v_costs", *whose, *(flops if is_priced else None for flops in planned), making, 1, share)
    for step, score in enumerate(run.scores, start=1):
        final = int(run.state == "COMPLETED" and step == len(run.scores))
        until_then = None if run.flops_per_step is None else step * sum(run.flops_per_step[:2])
        for name in run.metrics:
            seconds = None if run.seconds_per_step is None else step * run.seconds_per_step
            hours = None if seconds is None else seconds * run.chips / 3600
            seen, flops = (step * BATCH, until_then) if run.counts else (None, None)
            evaluated = (*name.split("/"), name, step, score, seen, flops, seconds, hours, final)
            insert("v_evaluations", *whose, number, *evaluated)
    loss = [1.0 / step for step in range(1, len(run.scores) + 1)]
    for name, values in ({"loss": loss} | run.logged).items():
        for step, value in values.items() if isinstance(values, dict) else enumerate(values, start=1):
            insert("v_metrics", *whose, name, step, value)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An empty store, which tests copy."""
    path = tmp_path_factory.mktemp("empty") / "results.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        for name, view in VIEWS.items():
            typed = ", ".join(f"{column} {TYPES.get(column, '')}" for column in view.columns)
            connection.execute(f"CREATE TABLE {name} ({typed})")
        connection.execute(f"CREATE TABLE alembic_version AS SELECT '{SCHEMA}' AS version_num")
    return Store(path)


@pytest.fixture
def new_store(tmp_path: Path, empty_store: Store) -> Callable[[], Store]:
    """A function that makes an empty store, each time in another file."""
    return lambda: empty_store.copy(tmp_path / f"results-{len(list(tmp_path.iterdir()))}.db")


@pytest.fixture(scope="module")
def module_store(tmp_path_factory: pytest.TempPathFactory, empty_store: Store) -> Store:
    return empty_store.copy(tmp_path_factory.mktemp("module") / "results.db")


@pytest.fixture(scope="session")
def stored_run() -> type[StoredRun]:
    return StoredRun


@pytest.fixture(scope="session")
def stored_runs() -> Callable[..., list[StoredRun]]:
    """A function that returns one run of a name for each given curve, with seeds 0, 1, …"""
    return lambda run, *curves, **options: [
        StoredRun(run, scores, seed=seed, **options) for seed, scores in enumerate(curves)
    ]


@pytest.fixture
def read_runs(new_store: Callable[[], Store]) -> Callable[..., Frames]:
    """A function that records runs in a new store, and returns their results."""
    return lambda *runs, **options: new_store().add(*runs, **options).read()


@pytest.fixture(scope="session")
def finished_study(empty_store: Store) -> Store:
    """A reference, uniform, independent, and joint with two seeds each.

    Uniform ends at .4 (seed 0) and .5 (seed 1) after four steps. Joint is at .4 after 1.5 steps and at .5
    after 2 steps; each of its steps costs 8/3 of uniform's. Its share in the reference's training is 8 GFLOP.
    Seed 1 of independent never reaches uniform's final score.
    """
    scoring: dict[str, Any] = {"flops_per_step": (3e9, 5e9, 5e9), "reference_training_share": 8e9}
    return empty_store.copy(empty_store.path.with_name("study.db")).add(
        StoredRun("reference", [0.5, 0.7], seed=0, needed=1),
        StoredRun("reference", [0.5, 0.8], seed=1, needed=1),
        StoredRun("uniform", [0.1, 0.2, 0.3, 0.4], seed=0),
        StoredRun("uniform", [0.1, 0.2, 0.3, 0.5], seed=1),
        StoredRun("independent", [0.1, 0.4, 0.5, 0.5], seed=0, **scoring),
        StoredRun("independent", [0.1, 0.3, 0.4, 0.4], seed=1, **scoring),
        StoredRun("joint", [0.3, 0.5, 0.6, 0.6], seed=0, **scoring),
        StoredRun("joint", [0.3, 0.5, 0.6, 0.7], seed=1, **scoring),
    )


@pytest.fixture
def study(finished_study: Store, tmp_path: Path) -> Store:
    """A copy of the finished study, which a test may change."""
    return finished_study.copy(tmp_path / "study.db")


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the figures that are drawn; their files have nothing but the mark of what they show."""
    drawn: list[str] = []

    def mark(plot: Plot, suffixes: Sequence[str]) -> list[bytes]:
        drawn.append(plot.name)
        return [plot._mark.encode() for _ in suffixes]

    monkeypatch.setattr(Plot, "_drawn", mark)
    return drawn


@pytest.fixture(scope="session")
def results(finished_study: Store) -> Frames:
    return finished_study.read()
