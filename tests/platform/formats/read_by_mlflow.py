"""Reads a file store by the real MLflow; another interpreter executes this, in whose environment that is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    """Print all runs as JSON, with all values of their metrics; a number is a text, since JSON has no NaN."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=Path(folder).absolute().as_uri())
    print(
        json.dumps(
            [_run(client, each, run) for each in client.search_experiments() for run in _runs(client, each)]
        )
    )


def _runs(client: Any, experiment: Any) -> list[Any]:
    found: list[Any] = client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"])
    return found


def _run(client: Any, experiment: Any, run: Any) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "about": dict(experiment.tags),
        "name": run.info.run_name,
        "status": run.info.status,
        "times": [run.info.start_time, run.info.end_time],
        "params": dict(run.data.params),
        "tags": dict(run.data.tags),
        "last": {name: repr(value) for name, value in run.data.metrics.items()},
        "metrics": {
            name: [
                [point.step, repr(point.value)] for point in client.get_metric_history(run.info.run_id, name)
            ]
            for name in run.data.metrics
        },
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
