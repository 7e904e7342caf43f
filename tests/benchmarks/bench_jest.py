"""What a JEST step spends where: `python tests/benchmarks/bench_jest.py --json`.

The fused step against its parts, each compiled by itself, in one process, in rounds that take turns; and the
share of a step that training spends waiting for data, on real shards. Nothing here passes or fails: figures
go into BENCHMARKS.md with their device and date.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.selection import select
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.training.tracker import NullTracker
from jestlab.models.two_towers import Embeddings, TwoTowerModel, embed, initialize

ROUNDS = 9
TOWER = {"width": 192, "depth": 4, "heads": 3}
SMALL: dict[str, Any] = {
    "model": {
        "vision": {**TOWER, "image_size": 32, "patch_size": 8},
        "text": {**TOWER, "length": 16, "vocabulary_size": 1_000},
        "embedding_dim": 192,
    },
    "schedule": {"batch_size": 64},
    "selection": {"rule": "joint", "reference": "reference"},
}
"""32 px images in patches of 8, width 192, depth 4; b = 64 from B = 320 in 16 chunks."""

B16: dict[str, Any] = {
    "model": {"variant": "B/16", "compute_dtype": "bfloat16"},
    "schedule": {"batch_size": 256},
    "selection": {"rule": "joint", "reference": "reference"},
    "runtime": {"microbatches": 2},
}
"""On an accelerator: b = 256 from B = 1,280."""


def interleaved(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each call, taking turns, after one round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            if number:
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def parts(settings: dict[str, Any]) -> dict[str, float]:
    """Seconds of the fused step, with a cached reference, and of its parts."""
    config = TrainConfig.model_validate(settings)
    plain = TrainConfig.model_validate(settings | {"selection": {}})
    devices = Devices(jax.devices()[:1])
    model = TwoTowerModel(config.model)
    rng = np.random.default_rng(0)
    B, b, size = config.super_batch_size, config.batch_size, config.model.vision.image_size
    z = rng.normal(size=(2, B, config.model.embedding_dim)).astype(np.float32)
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    batch = {
        "image": rng.integers(0, 256, (B, size, size, 3), np.uint8),
        "text": rng.integers(0, 1_000, (B, config.model.text.length), np.int32),
        "reference_image_embedding": z[0],
        "reference_text_embedding": z[1],
        "index": np.arange(B, dtype=np.uint32),
    }
    placed = devices.split(batch)
    taken = devices.split({name: batch[name][:b] for name in ("image", "text")})
    parameters = initialize(config.model, jax.random.key(0))
    scalars = devices.replicate({name: np.asarray(parameters[name]) for name in ("t", "b")})
    states = {
        name: devices.replicate(initial_state(of, parameters, jax.random.key(0)))
        for name, of in (("fused", config), ("training", plain))
    }
    steps = {"fused": build_step(config, None, devices), "training": build_step(plain, None, devices)}
    scoring = jax.jit(lambda p, image, text: embed(model, p, image, text))

    def selecting(learner: Embeddings, reference: Embeddings, key: jax.Array) -> jax.Array:
        return select(key, learner, reference, batch_size=b, chunks=config.selection.chunks).indices

    learner = scoring(parameters, placed["image"], placed["text"])
    reference = learner._replace(image=placed["reference_image_embedding"])

    def step(name: str, rows: dict[str, jax.Array], reference_parameters: Any) -> object:
        states[name], metrics = steps[name](states[name], rows, reference_parameters)
        return metrics

    return interleaved(
        {
            "fused step": lambda: step("fused", placed, scalars),
            "scoring": lambda: scoring(parameters, placed["image"], placed["text"]),
            "selection": lambda: selecting(learner, reference, jax.random.key(1)),
            "training": lambda: step("training", taken, None),
        }
    )


def waiting() -> float:
    """Median share of a step that joint selection waits for data: real shards, decoded in one thread."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = SMALL | {
        "data": {"train": {"examples": 4_096, "image_size": 64}},
        "schedule": {"batch_size": 64, "examples_seen": 64 * 40},
        "evaluation": {"points": 1},
        "runtime": {"checkpoint_every_steps": 1_000},
    }
    uniform = settings | {"selection": {}, "schedule": {"batch_size": 64, "examples_seen": 64}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common: dict[str, Any] = {
            "data_cache": folder / "data",
            "flops_per_example": 1.0,
            "tracker": NullTracker(),  # the share of waiting is in the run's TensorBoard events
        }
        before = TrainConfig.model_validate(uniform)
        train(before, directory=folder / "reference", **common)
        found = Reference(folder / "reference", before.model)
        train(TrainConfig.model_validate(settings), directory=folder / "joint", reference=found, **common)
        events = EventAccumulator(str(folder / "joint/events"))
        events.Reload()
        shares = [event.value for event in events.Scalars("data_wait")]
    return float(statistics.median(shares[1:]))  # the first ten steps wait for the compiler


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    shapes = {"small": SMALL} | ({"B/16": B16} if jax.default_backend() != "cpu" else {})
    seconds = {name: parts(settings) for name, settings in shapes.items()}
    waited = waiting()
    if as_json:
        print(json.dumps({"seconds": seconds, "data_wait": waited}, indent=2))
        return
    print(f"{jax.devices()[0].device_kind}, {time.strftime('%Y-%m-%d')}; medians of {ROUNDS} rounds\n")
    print("| shape | part | ms | share of the fused step |\n|---|---|---|---|")
    for shape, found in seconds.items():
        for part, value in found.items():
            print(f"| {shape} | {part} | {1e3 * value:.1f} | {value / found['fused step']:.1%} |")
        whole = sum(found.values()) - found["fused step"]
        print(
            f"| {shape} | scoring + selection + training | {1e3 * whole:.1f} | "
            f"{whole / found['fused step']:.1%} |"
        )
    print(f"| small | waiting for data | | {waited:.1%} |")


if __name__ == "__main__":
    main()
