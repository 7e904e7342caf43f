"""What `bench_store.py` measures, by MLflow on SQLite; run by it with a Python that has MLflow.

PYTHON mlflow_store.py FOLDER RUNS METRICS STEPS
"""

import json
import os
import sys
import time
from pathlib import Path
from statistics import median

os.environ["MLFLOW_ENABLE_ASYNC_LOGGING"] = "false"

import mlflow
from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

_ROUNDS = 5
_BATCH = 1_000  # MLflow takes no more at a time
_SINGLE_STEPS = 100


def median_ms(function):
    times = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * median(times)


def main() -> None:
    folder = Path(sys.argv[1])
    runs, metrics, steps = map(int, sys.argv[2:])
    path = folder / "mlflow.db"
    mlflow.set_tracking_uri(f"sqlite:///{path}")
    client = MlflowClient()
    experiment = client.create_experiment("bench", artifact_location=str(folder / "artifacts"))
    names = [f"metric{i}" for i in range(metrics)]
    made = [client.create_run(experiment).info.run_id for _ in range(runs)]
    before = path.stat().st_size
    start = time.perf_counter()
    for number, run in enumerate(made):
        points = [
            Metric(name, (number * 7 + i + step) % 101 / 100, 0, step)
            for step in range(steps)
            for i, name in enumerate(names)
        ]
        for first in range(0, len(points), _BATCH):
            client.log_batch(run, metrics=points[first : first + _BATCH])
    bulk = time.perf_counter() - start
    size = path.stat().st_size - before
    for number, run in enumerate(made):
        client.log_batch(run, params=[Param("seed", str(number % 3))])
        client.set_terminated(run)
    single = client.create_run(experiment).info.run_id
    with mlflow.start_run(run_id=single):
        start = time.perf_counter()
        for step in range(_SINGLE_STEPS):
            mlflow.log_metrics(dict.fromkeys(names, step / 100), step=step)
        stepwise = time.perf_counter() - start
    client.delete_run(single)
    top = {"filter_string": "params.seed = '1'", "order_by": ["metrics.metric0 DESC"], "max_results": 10}
    figures = {
        "version": mlflow.__version__,
        "bulk": runs * metrics * steps / bulk,
        "bytes": size / (runs * metrics * steps),
        "stepwise": _SINGLE_STEPS * metrics / stepwise,
        "final": median_ms(lambda: mlflow.search_runs([experiment], max_results=runs)),
        "curves": median_ms(lambda: [client.get_metric_history(run, "metric0") for run in made]),
        "top": median_ms(lambda: mlflow.search_runs([experiment], **top)),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
