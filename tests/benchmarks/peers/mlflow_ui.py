"""Runs for `bench_pages.py` in MLflow's SQLite store; prints the URL paths of its pages.

PYTHON mlflow_ui.py FOLDER RUNS METRICS STEPS
"""

import json
import sys
import time
from pathlib import Path

import mlflow
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient


def main() -> None:
    folder = Path(sys.argv[1])
    runs, metrics, steps = map(int, sys.argv[2:])
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    client = MlflowClient()
    experiment = client.create_experiment("large", artifact_location=str(folder / "artifacts"))
    began = int(1e3 * time.time())
    run = ""
    for n in range(runs):
        run = client.create_run(experiment, run_name=f"run-{n}").info.run_id
        points = [
            Metric("loss" if i == 0 else f"metric{i}", 5 / (s + 1) + n % 7, began + s, s)
            for i in range(metrics)
            for s in range(steps)
        ]
        params = [Param("rule", "joint"), Param("seed", str(n % 10)), Param("filtering_ratio", str(n / runs))]
        client.log_batch(run, params=params)
        for start in range(0, len(points), 1_000):  # it takes no more at a time
            client.log_batch(run, metrics=points[start : start + 1_000])
        client.set_terminated(run)
    path = f"/#/experiments/{experiment}/runs"
    print(json.dumps({"list": path, "run": f"{path}/{run}/model-metrics"}))


if __name__ == "__main__":
    main()
