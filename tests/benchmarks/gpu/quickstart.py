"""Losses of `jestlab launch quickstart --scale mini` with one seed, until the time is over."""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu.part import Part

JESTLAB = [sys.executable, "-c", "import sys; from jestlab.platform.cli import main; sys.exit(main())"]
TO_STOP, TO_READ = 20.0, 15.0
"""Seconds for the runs to stop at a checkpoint, and for the losses to be read."""

TOY_SETTINGS = ("base.schedule.examples_seen=640", "runs.reference.schedule.examples_seen=640")
TOY = [word for setting in (*TOY_SETTINGS, "base.evaluation.points=1") for word in ("--set", setting)]
LOSSES = "SELECT label, step, value FROM v_metrics WHERE name = 'loss' ORDER BY label, step"
RUNS = "SELECT label, state, step, total_steps FROM v_runs ORDER BY position"
SCORES = "SELECT label, name, value FROM v_evaluations ORDER BY label, name, step"


def launch(lab: Path, seconds: float, options: Sequence[str]) -> str:
    """Launch until all runs are completed or time is over.

    Returns:
        "completed", or "stopped after … s".

    Raises:
        RuntimeError: The launch failed; the message has its last line.
    """
    command = [*JESTLAB, "launch", "quickstart", "--set", "seeds=1", "--no-reports", "--root", str(lab)]
    with (lab / "launch.txt").open("w+", encoding="utf-8") as log:
        launcher = subprocess.Popen([*command, *options], stdout=log, stderr=log)
        end = "completed"
        try:
            code = launcher.wait(seconds)
        except subprocess.TimeoutExpired:
            end = f"stopped after {seconds:.0f} s"
            launcher.send_signal(signal.SIGINT)  # all runs stop, each at a checkpoint
            try:
                code = launcher.wait(TO_STOP)
            except subprocess.TimeoutExpired:
                subprocess.run(
                    [*JESTLAB, "cancel", "quickstart", "--now", "--root", str(lab)], timeout=TO_READ
                )
                launcher.kill()
                code = launcher.wait()
        log.seek(0)
        text = log.read()
    print(text, file=sys.stderr)
    if code != (0 if end == "completed" else 130):
        raise RuntimeError(f"the launch exited with {code}: {' '.join(text.splitlines()[-1:])}")
    return end


def query(lab: Path, sql: str) -> list[dict[str, Any]]:
    """Return the rows of a query."""
    answer = subprocess.run(
        [*JESTLAB, "query", sql, "--json", "--root", str(lab)], check=True, capture_output=True, text=True
    )
    rows: list[dict[str, Any]] = json.loads(answer.stdout)
    return rows


def main() -> None:
    """Launch, and append a row for each run."""
    part = Part(__doc__)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        lab = Path(name)
        left = part.seconds - TO_STOP - TO_READ
        names = {"launch": "quickstart, " + ("smoke, toy" if part.toy else "mini")}

        def launched() -> dict[str, Any]:
            end = launch(lab, left, TOY if part.toy else ("--scale", "mini"))
            return {"end": end, "seconds": time.monotonic() - start}

        part.measure(names, launched)
        part.measure({}, lambda: report(part, lab))
    part.end()


def report(part: Part, lab: Path) -> dict[str, Any]:
    """Append a row for each run: steps, loss curve, and last scores.

    Returns:
        The number of losses of all runs.

    Raises:
        RuntimeError: No run recorded a loss.
    """
    runs, losses, scores = (query(lab, sql) for sql in (RUNS, LOSSES, SCORES))
    for run in runs:
        curve = [[row["step"], row["value"]] for row in losses if row["label"] == run["label"]]
        part.row(
            run=run["label"],
            state=run["state"],
            steps=f"{run['step'] or 0:,} of {run['total_steps'] or 0:,}",
            **{"first loss": curve[0][1], "last loss": curve[-1][1]} if curve else {},
            losses=curve,
            scores={row["name"]: row["value"] for row in scores if row["label"] == run["label"]},
        )
    if not losses:
        raise RuntimeError("no run reached a step whose loss is recorded")
    return {"losses recorded": len(losses)}


if __name__ == "__main__":
    main()
