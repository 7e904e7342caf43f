"""Steps and a whole run on the devices that this process is given; results as JSON.

    python -m tests.models.support.steps_on_devices compare OUT
    python -m tests.models.support.steps_on_devices {all,train,stop} OUT FOLDER DATA

* compare: a step on one device and on all of them;
* all: steps of all configs, and a run on the data that `prepare` made;
* train: the run alone; stop: its second process stops it after 3 steps.
"""

import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from jax._src import compiler, distributed
from jax.experimental.multihost_utils import process_allgather
from tests.models import conftest
from tests.models.support import collectives, own_code
from tests.models.support.parameters import random_parameters
from tests.models.support.recorder import Recorder

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_benchmark, ensure_web
from jestlab.models.data.tokenizer import ensure_tokenizer
from jestlab.models.devices import Devices
from jestlab.models.processes import initialize_processes
from jestlab.models.selection import scores
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference
from jestlab.models.training.state import TrainState, initial_state
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import TwoTowerModel, initialize

TINY: dict[str, Any] = {
    "model": {
        "vision": {"width": 16, "depth": 1, "heads": 2, "image_size": 16, "patch_size": 4, "pooling": "map"},
        "text": {"width": 16, "depth": 1, "heads": 2, "length": 24, "pooling": "last", "vocabulary_size": 80},
        "embedding_dim": 16,
    },
    "schedule": {"batch_size": 32, "examples_seen": 32 * 20},
    "optimizer": {"warmup_percent": 0},
    "seed": 5,
}
# With a small gain rounding decides nothing: the noise of two candidates is hardly ever as near as that.
JOINT = {"rule": "joint", "filtering_ratio": 0.5, "chunks": 3, "gain": 1.0, "reference": "r"}
_SECTIONS: dict[str, Any] = {
    "softmax": {
        "loss": "softmax",
        "selection": JOINT,
        "approximation": {"method": "patch_drop", "keep": 0.5, "share": 0.25},
    },
    "flexi": {
        "selection": JOINT,
        "approximation": {"score": True, "share": 0.5},
        "runtime": {"microbatches": 2, "diagnostics": {"every_steps": 2}},
    },
    "own": {
        "loss": f"{own_code.MODULE}:decoupled",
        "selection": JOINT | {"rule": f"{own_code.MODULE}:halves", "criterion": f"{own_code.MODULE}:clipped"},
        "runtime": {"diagnostics": {"every_steps": 2}},
    },
    "concepts": {"selection": {"rule": "concept_diversity", "concepts": ["label"], "filtering_ratio": 0.5}},
    "both": {
        "loss": "distilled",
        "selection": JOINT | {"rule": f"{own_code.MODULE}:most_named", "concepts": ["label"]},
        "approximation": {"score": True, "share": 0.5},
        "runtime": {"microbatches": 2},
    },
    "compared": {"loss": "drrho", "selection": {"reference": "r"}},
}
CONFIGS = {name: TrainConfig.model_validate(TINY | sections) for name, sections in _SECTIONS.items()}
LAYER = {"architecture": f"{own_code.MODULE}:Layer", "options": {"hidden": 24}}
SMALLEST: dict[str, Any] = TINY | {
    "model": TINY["model"] | {tower: TINY["model"][tower] | LAYER for tower in ("vision", "text")},
    "selection": JOINT,
    "runtime": {"diagnostics": {"every_steps": 1}},
}
"""Its towers are the fastest to compile."""


def batch_of(config: TrainConfig, step: int) -> dict[str, Any]:
    rng = np.random.default_rng(step)
    B, size = config.super_batch_size, config.model.vision.image_size
    batch = {
        "image": rng.integers(0, 256, (B, size, size, 3), np.uint8),
        "text": rng.integers(0, 80, (B, config.model.text.length), np.int32),
        "index": rng.integers(0, 1_000, B, np.uint32),
    }
    if config.selection.concepts:
        batch["concepts"] = np.sort(rng.integers(-1, 9, (B, 3), np.int32), axis=1)[:, ::-1].copy()
    return batch


def assert_metrics_like(found, expected):
    """Assert the same metrics of a step, except for rounding, and the same selection."""
    assert found.keys() == expected.keys()
    assert found.get("selected") == expected.get("selected")
    for metric in found.keys() - {"selected"}:
        # A score is a difference of two losses, and as exact as they are, however near to zero it comes.
        smallest = expected["loss"] * 1e-5 if metric.startswith("score") else 0.0
        assert found[metric] == pytest.approx(expected[metric], rel=2e-5, abs=smallest, nan_ok=True), metric


def start_of(config: TrainConfig) -> TrainState:
    """The state before the first step."""
    return initial_state(config, random_parameters(config.model), jax.random.key(config.seed))


def devices_for(config: TrainConfig) -> Devices:
    return Devices.for_sizes(config.super_batch_size, config.batch_size, config.approximate_size)


def messages_of(config: TrainConfig) -> list[tuple[str, str, bool]]:
    """Pairs of messages of a step, and whether one waits for the other."""
    devices = devices_for(config)
    state = devices.replicate(start_of(config))
    batch = devices.split({name: x[devices.rows(len(x))] for name, x in batch_of(config, 0).items()})
    step: Any = build_step(config, TwoTowerModel(config.model), devices)
    return collectives.messages(step.lower(state, batch, state.parameters).compile().as_text())


def steps(config: TrainConfig, count: int = 3, devices: Devices | None = None):
    """Metrics of some steps, and the parameters after them."""
    devices = devices or devices_for(config)
    rows = devices.rows(config.super_batch_size)
    reference = devices.replicate(random_parameters(config.model, 9)) if config.needs_reference else None
    step = build_step(config, TwoTowerModel(config.model), devices)
    state = devices.replicate(start_of(config))
    history = []
    for number in range(count):
        batch = {name: x[rows] for name, x in batch_of(config, number).items()}
        state, metrics = step(state, devices.split(batch), reference)
        # Scores are split by rows over the processes.
        gathered = {name: process_allgather(value, tiled=True) for name, value in metrics.items()}
        history.append({name: np.asarray(value).tolist() for name, value in gathered.items()})
    after = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), state.parameters)
    return history, after


class StoppedBySignal(Recorder):
    """SIGTERM asks to stop; the process sends it to itself after three steps."""

    def __init__(self):
        super().__init__()
        self.stops, self.questions = False, 0
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "stops", True))

    def stop_requested(self) -> bool:
        if self.questions == 3:  # it is asked once before each step
            signal.raise_signal(signal.SIGTERM)
        self.questions += 1
        return self.stops


RUN = TrainConfig.model_validate(
    TINY
    | {
        "data": conftest.TINY["data"],
        "schedule": {"batch_size": 16, "examples_seen": 16 * 12},
        "evaluation": {"points": 2, "shots": 2, "shot_seeds": 1},
        "runtime": {"log_every_steps": 1, "checkpoint_every_steps": 4, "diagnostics": {"every_steps": 1}},
        "selection": JOINT,
    }
)


def prepare(folder: Path) -> None:
    """Make the data that `trained` reads, and an untrained reference."""
    web = ensure_web(RUN, folder / "data")
    ensure_benchmark(RUN.data.benchmark, folder / "data")
    save_parameters(folder / "reference/checkpoints", initialize(RUN.model, jax.random.key(9)))
    tokenizer = ensure_tokenizer(web, RUN.model.text.vocabulary_size)
    (folder / "reference/tokenizer.model").write_bytes(tokenizer.model)


def trained(folder: Path, data: Path, *, stops: bool = False) -> dict[str, Any]:
    """Return metrics and scores of a short run with joint selection."""
    recorder = StoppedBySignal() if stops and jax.process_index() == 1 else Recorder()
    done = train(
        RUN,
        directory=folder / "joint",
        data_cache=data / "data",
        flops_per_example=1.0,
        tracker=recorder,
        reference=Reference(data / "reference", RUN.model),
    )
    return {"done": done, "metrics": recorder.metrics, "scores": recorder.scores}


def keep_what_is_compiled() -> None:
    """Let every process write to JAX's compilation cache, not only the first.

    On CPUs the others don't find what the first has written, and compile for a minute: longer than the first
    one, which has found everything, waits for them.
    """
    first = SimpleNamespace(process_id=0, client=distributed.global_state.client)
    setattr(compiler, "distributed", SimpleNamespace(global_state=first))  # noqa: B010


def main() -> None:
    what, out, *folders = sys.argv[1], *map(Path, sys.argv[2:])
    initialize_processes()
    keep_what_is_compiled()
    results: dict[str, Any] = {}
    if what == "compare":
        scores.BLOCK_LOGITS = 100  # several blocks
        config = TrainConfig.model_validate(SMALLEST)
        results["alone"] = steps(config, 1, Devices(jax.devices()[:1]))[0]
        results |= {"together": steps(config, 1)[0], "messages": messages_of(config)}
    else:
        results["run"] = trained(*folders, stops=what == "stop")
    if what == "all":
        scores.BLOCK_LOGITS = 15  # several blocks, even on eight devices
        results |= {name: steps(config)[0] for name, config in CONFIGS.items()}
        if jax.local_device_count() == 8:
            results["messages"] = [pair for config in CONFIGS.values() for pair in messages_of(config)]
    if jax.process_index() == 0:
        out.write_text(json.dumps({"devices": jax.device_count(), "results": results}))


if __name__ == "__main__":
    main()
