"""A SQLite store of one experiment with very many runs, written without launching anything."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import insert, text

from jestlab.platform.store import schema
from jestlab.platform.store.engine import create_file, writable
from jestlab.platform.store.tables import (
    AttemptRow,
    Base,
    CostRow,
    EvaluationRow,
    ExperimentRow,
    LauncherRow,
    MemberRow,
    MetricNameRow,
    RunRow,
    run_key,
)

NAME = "big"
SEEDS = 10
SPIKE = 137
"""A step at which every metric has a spike, which a thinned curve has to show."""

VERSIONS = json.dumps({"jax": "0.4.30", "numpy": "1.26.4"})


def now() -> datetime:
    """The time as the store keeps it."""
    return datetime.now(UTC).replace(tzinfo=None)


def labels(runs: int) -> list[str]:
    """The experiment's labels, of ten seeds each."""
    joint = (f"joint filtering_ratio={i / runs:.5f}" for i in range(1, math.ceil(runs / SEEDS)))
    return ["uniform", *joint]


def fingerprint(number: int) -> str:
    """The fingerprint of a run, which are numbered from 1."""
    return f"{number:08x}{number:056x}"


def key(number: int) -> int:
    """The key of a run in the store."""
    return run_key(fingerprint(number))


def add_points(connection: Any, steps: int) -> None:
    """Add points of every metric to every run, in the order of the primary key, which is the fastest."""
    connection.execute(
        text(
            "WITH RECURSIVE step(s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM step WHERE s < :last) "
            "INSERT INTO metric (run_id, name_id, step, value) "
            "SELECT run.id, metric_name.id, s, CASE WHEN s = :spike THEN 1000.0 ELSE 5.0 / s + "
            "0.001 * ((s * 7919 + run.seed) % 100) END "
            "FROM run CROSS JOIN metric_name CROSS JOIN step"
        ),
        {"last": steps, "spike": SPIKE},
    )


def fill(
    path: Path,
    runs: int,
    steps: int,
    *,
    metrics: Sequence[str],
    scores: Sequence[tuple[str, str]],
    evaluation_steps: Sequence[int],
    config: dict[str, Any] | None = None,
    running: int = 0,
) -> str:
    """Make a store and return its URL.

    Args:
        path: Where its file will be.
        runs: How many runs it has.
        steps: Each run has so many points of each metric.
        metrics: Names of metrics.
        scores: Dataset and metric of each evaluation.
        evaluation_steps: When runs are evaluated.
        config: Settings that runs have besides the usual ones.
        running: How many runs haven't ended, the first ones.
    """
    url = f"sqlite:///{path}"
    create_file(path)
    engine = writable(url)
    schema.ensure(engine, create=True)
    began, names = now() - timedelta(hours=2), labels(runs)
    numbered = [(n + 1, names[n // SEEDS], n % SEEDS) for n in range(runs)]
    whole = {"created_at": began, "updated_at": began}
    settings: dict[str, Any] = {
        "selection": {"rule": "joint", "filtering_ratio": 0.8, "chunks": 16},
        "model": {"vision": {"width": 64, "depth": 2}, "text": {"width": 64}},
        "schedule": {"examples_seen": 64 * steps, "batch_size": 64},
        **(config or {}),
    }
    spec = json.dumps({"name": NAME, "runs": {"uniform": {}}})
    alive = now() + timedelta(hours=1)
    rows: list[tuple[type[Base], list[dict[str, Any]]]] = [
        (ExperimentRow, [{"name": NAME, "question": "Does it scale?", "spec": spec, **whole}]),
        (LauncherRow, [{"name": "elsewhere:1:1", "heartbeat_at": alive}]),
        (MetricNameRow, [{"id": i, "name": name} for i, name in enumerate(metrics, start=1)]),
        (
            RunRow,
            [
                {
                    "id": key(n), "fingerprint": fingerprint(n), "program": "train", "seed": seed,
                    "directory": f"runs/{n}", "config": json.dumps(settings | {"label": label, "seed": seed}),
                    "state": "RUNNING" if n <= running else "COMPLETED", "step": steps,
                    "total_steps": 2 * steps if n <= running else steps, **whole,
                }
                for n, label, seed in numbered
            ],
        ),
        (
            MemberRow,
            [
                {
                    "experiment": NAME, "run_id": key(n), "name": label.split()[0], "label": label,
                    "point": "{}", "needed": 0, "position": n,
                }
                for n, label, _ in numbered
            ],
        ),
        (
            AttemptRow,
            [
                {
                    "id": n, "run_id": key(n), "number": 1, "launcher": "elsewhere:1:1",
                    "executor": "kubernetes", "state": "RUNNING" if n <= running else "COMPLETED",
                    "log": "log", "claimed_at": began, "started_at": began, "heartbeat_at": alive,
                    "lease_seconds": 9e4, "host": "here",
                    "ended_at": None if n <= running else began + timedelta(hours=1), "device": "cpu",
                    "exit_code": None if n <= running else 0, "git_commit": "0" * 40, "versions": VERSIONS,
                }
                for n, _, _ in numbered
            ],
        ),
        (
            CostRow,
            [
                {"run_id": key(n), "component": component, "flops": flops}
                for n, label, _ in numbered
                for component, flops in (("image_tower", 3e11), ("scoring", 5e11 * (label != "uniform")))
            ],
        ),
        (
            EvaluationRow,
            [
                {
                    "run_id": key(n), "dataset": dataset, "metric": metric, "step": step, "attempt": 1,
                    "value": (0.4 + (n * 7_919 % 1_000) / 5_000) * (1 - 2 ** (-20 * step / steps)),
                    "examples_seen": 64 * step, "flops_total": step * (3e9 if label == "uniform" else 8e9),
                    "seconds": step / 10,
                }
                for n, label, _ in numbered
                for dataset, metric in scores
                for step in evaluation_steps
            ],
        ),
    ]  # fmt: skip
    with engine.begin() as connection:
        for table, values in rows:
            connection.execute(insert(table), values)
        add_points(connection, steps)
    engine.dispose()
    return url
