"""Programs for tests of launching: no JAX, well under a second, killable at any step."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from jestlab.platform.programs.context import Interrupted, RunContext


def loop(config: dict[str, Any], context: RunContext) -> None:
    """A training loop in miniature: a number that depends on all steps before, saved now and then.

    Config: `steps`; `pause` seconds a step, `hurry`, a file from whose existence on there is no pause;
    `save_every` steps; `fail_at` a step, by exception; `gate`, a file that it waits for at its last step.
    """
    total, saved = config["steps"], context.directory / "state.json"
    if saved.exists():
        step, value = json.loads(saved.read_text())
    else:
        needed = [json.loads((need.directory / "state.json").read_text()) for need in context.needs.values()]
        step, value = 0, 1.0 + config["seed"] + sum(its_value for _, its_value in needed)
    with (context.directory / "starts.txt").open("a") as starts:
        starts.write(f"{os.getpid()} {step}\n")
    context.progress(step, total)
    while step < total:
        if context.stop_requested():
            _save(context, saved, step, value)
            raise Interrupted
        step += 1
        value = (value * 1.7 + 0.3) % 5.0
        if not ("hurry" in config and Path(config["hurry"]).exists()):
            time.sleep(config.get("pause", 0.0))
        while step == total and "gate" in config and not Path(config["gate"]).exists():
            time.sleep(0.05)
        if step == config.get("fail_at"):
            raise FloatingPointError(f"diverged at step {step}")
        context.log(step, {"loss": value, "examples_seen": 64 * step})
        context.progress(step, total)
        if step % config.get("save_every", 5) == 0:
            _save(context, saved, step, value)
    _save(context, saved, step, value)
    context.evaluation(total, 64 * total, 1e6 * total, {"toy/score": value / 5.0, "toy/other": value / 10.0})


def _save(context: RunContext, path: Path, step: int, value: float) -> None:
    context.flush()
    path.with_suffix(".new").write_text(json.dumps([step, value]))
    path.with_suffix(".new").replace(path)
    context.saved()


def draw(config: dict[str, Any], context: RunContext) -> None:
    """Measure a number drawn from a normal distribution, which run and seed decide.

    Config: `mean`, `spread`, and `salt`, by which runs draw differently; `pause` seconds; `fail_seeds`, which
    fail.
    """
    with (context.directory / "starts.txt").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    time.sleep(config.get("pause", 0.0))
    if config["seed"] in config.get("fail_seeds", ()):
        raise RuntimeError("this seed fails")
    noise = random.Random(f"{config.get('salt')} {config['seed']}").gauss(0.0, config["spread"])
    context.evaluation(1, 64, 1e6, {"toy/score": config["mean"] + noise})


def vanish(config: dict[str, Any], context: RunContext) -> None:
    print("about to vanish", flush=True)
    os._exit(config["code"])


def quitter(config: dict[str, Any], context: RunContext) -> None:
    raise Interrupted


def stubborn(config: dict[str, Any], context: RunContext) -> None:
    """Ignore every request to stop, with a child that ignores them too."""
    child = (
        "import pathlib, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    )
    subprocess.Popen([sys.executable, "-c", child, str(context.directory / "deaf")])
    while True:
        time.sleep(0.05)


def environment(config: dict[str, Any], context: RunContext) -> None:
    (context.directory / "environment.json").write_text(
        json.dumps({"env": dict(os.environ), "stdin": sys.stdin.read(), "cwd": str(Path.cwd())})
    )
