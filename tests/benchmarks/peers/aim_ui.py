"""Runs for `bench_pages.py` in a repository of Aim; prints the URL paths of its pages.

PYTHON aim_ui.py FOLDER RUNS METRICS STEPS
"""

import json
import sys

import aim


def main() -> None:
    folder = sys.argv[1]
    runs, metrics, steps = map(int, sys.argv[2:])
    last = ""
    for n in range(runs):
        run = aim.Run(repo=folder, experiment="large", system_tracking_interval=None, log_system_params=False)
        run.name = f"run-{n}"
        run["hparams"] = {"rule": "joint", "seed": n % 10, "filtering_ratio": n / runs}
        for s in range(steps):
            for i in range(metrics):
                run.track(5 / (s + 1) + n % 7, name="loss" if i == 0 else f"metric{i}", step=s)
        last = run.hash
        run.close()
    print(json.dumps({"list": "/runs", "run": f"/runs/{last}/metrics"}))


if __name__ == "__main__":
    main()
