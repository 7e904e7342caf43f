"""What one small run on this machine costs, part by part: seconds of CPU, of all its threads.

python tests/benchmarks/bench_run.py [--steps 150] [--rounds 3]

The run is the quickstart's `joint`: 320 candidates a step, compiled functions found in the cache, one thread
for XLA. It is measured as a fresh process that imports everything itself and as a fork of the launcher's
server, each with images that it decodes and with decoded images. CPU and not wall time, since runs go two at
a time; medians.
"""

import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import parse_options, print_table

from jestlab.models.training.tracker import Tracker
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import Job, JobKey
from jestlab.platform.launch.executors.forkserver import ForkServer
from jestlab.platform.launch.executors.local import LocalExecutor
from jestlab.platform.programs import imports_of

LOG_STEPS, EVALUATION_STEPS = 10, 30
PARTS = ("imports", "set-up", "first step", "each step", "evaluation, checkpoint", "whole run")


def cpu() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Marks(Tracker):
    """A tracker that notes the CPU time; `train` tells it of every tenth step before it evaluates."""

    def __init__(self) -> None:
        super().__init__()
        self.at_step: dict[int, float] = {}

    def progress(self, step: int, total_steps: int) -> None:
        """Note a step."""
        self.at_step[step] = cpu()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, in a process of its own, and write what each part took; given: folder, out, steps, megabytes."""
    folder, out, steps, megabytes = sys.argv[-4:] if arguments is None else arguments
    start = cpu() if arguments is not None else 0.0  # a fresh process pays for its start, a fork doesn't
    for module in imports_of("train"):
        importlib.import_module(module)
    imported = cpu()
    from jestlab.models.config import TrainConfig
    from jestlab.models.training.loop import train
    from jestlab.models.training.reference import Reference

    config = TrainConfig.model_validate(config_of("joint", int(steps), int(megabytes)))
    reference = Path(folder) / "reference"
    if not reference.exists():
        smaller = TrainConfig.model_validate(config_of("reference", 30, int(megabytes)))
        reference.mkdir()
        _train(train, smaller, reference, Path(folder), None)
    run = Path(tempfile.mkdtemp(dir=folder))
    marks = _train(train, config, run, Path(folder), Reference(reference, config.model)).at_step
    end = cpu()
    between = {
        step: (seconds - marks[step - LOG_STEPS]) for step, seconds in marks.items() if step >= 2 * LOG_STEPS
    }
    after_evaluation = {step for step in between if (step - LOG_STEPS) % EVALUATION_STEPS == 0}
    each = statistics.median(v for step, v in between.items() if step not in after_evaluation) / LOG_STEPS
    evaluations = [between[step] - LOG_STEPS * each for step in sorted(after_evaluation)]
    values = (
        imported - start,
        marks[0] - imported,
        marks[LOG_STEPS] - marks[0] - (LOG_STEPS - 1) * each,
        each,
        statistics.median(evaluations[1:]),  # the first one compiles
        end - start,
    )
    Path(out).write_text(json.dumps(dict(zip(PARTS, values, strict=True))))
    return 0


def config_of(name: str, steps: int, megabytes: int) -> dict[str, Any]:
    """The config of one of the quickstart's runs, as long as asked."""
    from jestlab.platform import spec
    from jestlab.platform.planning.plan import plan

    changes = {
        "schedule.examples_seen": 64 * steps,
        "evaluation.points": max(steps // EVALUATION_STEPS, 1),
        "runtime.log_every_steps": LOG_STEPS,
        "runtime.checkpoint_every_steps": 10_000,
        "runtime.decoded_megabytes": megabytes,
        "data.train.seed": 0,
    }
    overrides = ["seeds=1", *(f"base.{key}={value}" for key, value in changes.items())]
    [run] = [run for run in plan(spec.load("quickstart", overrides=overrides)).runs if run.name == name]
    return run.config


def _train(train: Any, config: Any, directory: Path, folder: Path, reference: Any) -> Marks:
    marks = Marks()
    train(
        config,
        directory=directory,
        data_cache=folder / "data",
        flops_per_example=1.0,
        tracker=marks,
        reference=reference,
    )
    return marks


def measure(folder: Path, steps: int, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds by part, of each way to run; rounds are interleaved, after a run that is not counted."""
    here = Path(__file__).parent
    environment = {**os.environ, **LocalExecutor(Lab.find(folder / "lab")).environment()}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(here), os.environ.get("PYTHONPATH")]))
    log = folder / "log.txt"
    server = ForkServer(environment, log)
    found: dict[str, list[dict[str, float]]] = {}

    def fresh(arguments: Sequence[str]) -> None:
        with log.open("ab") as output:
            command = [sys.executable, __file__, "--measure", *arguments]
            subprocess.run(command, check=True, env=environment, stdout=output, stderr=output)

    def forked(arguments: Sequence[str]) -> None:
        marks = JobKey("0" * 32, "0" * 64, 1, "0" * 32)
        job = Job("run", "run", arguments, {}, log, marks, imports=(*imports_of("train"), "bench_run"))
        if server.start(job).wait() != 0:
            raise SystemExit(log.read_text()[-2_000:])

    out = folder / "out.json"
    fresh([str(folder), str(out), str(steps), "256"])  # compiles, makes and decodes the data
    for _ in range(rounds):
        for way, start in (("fresh process", fresh), ("forked", forked)):
            for megabytes in (0, 256):
                start([str(folder), str(out), str(steps), str(megabytes)])
                name = f"{way}, images {'decoded before' if megabytes else 'decoded each time'}"
                found.setdefault(name, []).append(json.loads(out.read_text()))
    return {
        name: {part: statistics.median(one[part] for one in values) for part in PARTS}
        for name, values in found.items()
    }


def show() -> None:
    """Measure and print."""
    options = parse_options(__doc__, steps=150, rounds=3)
    with tempfile.TemporaryDirectory() as name:
        figures = measure(Path(name), options.steps, options.rounds)
    rows = [(way, *(f"{parts[part]:.3g}" for part in PARTS)) for way, parts in figures.items()]
    print_table(f"seconds of CPU, {options.steps} steps", ("run", *PARTS), rows)


if __name__ == "__main__":
    if "--measure" in sys.argv:
        sys.exit(main())
    show()
elif __name__ == "bench_run":  # imported by the server: this is what its forks do
    from jestlab.platform import worker

    worker.main = main
