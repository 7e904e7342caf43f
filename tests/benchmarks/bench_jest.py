"""What each part of a JEST step costs.

python tests/benchmarks/bench_jest.py [--rounds 9] [--steps 40]

The fused step is compared with its parts, each compiled by itself. Then training on real shards shows the
share of a step that waits for data. On an accelerator, a B/16 is measured too.
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.support import interleave, parse_options, print_table, seconds_of

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.selection import select
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference
from jestlab.models.training.state import initial_state
from jestlab.models.training.step import build_step
from jestlab.models.training.tracker import Tracker
from jestlab.models.two_towers import TwoTowerModel, embed, initialize

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


def median_ms(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median ms of each call, with the computation that it starts."""

    def waited(call: Callable[[], object]) -> float:
        return seconds_of(lambda: jax.block_until_ready(call()))

    times = interleave({name: partial(waited, call) for name, call in calls.items()}, rounds)
    return {name: 1e3 * statistics.median(seconds) for name, seconds in times.items()}


def random_batch(config: TrainConfig) -> dict[str, np.ndarray]:
    """A super-batch with a reference's embeddings."""
    rng = np.random.default_rng(0)
    B, size = config.super_batch_size, config.model.vision.image_size
    z = rng.normal(size=(2, B, config.model.embedding_dim)).astype(np.float32)
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    return {
        "image": rng.integers(0, 256, (B, size, size, 3), np.uint8),
        "text": rng.integers(0, 1_000, (B, config.model.text.length), np.int32),
        "reference_image_embedding": z[0],
        "reference_text_embedding": z[1],
        "index": np.arange(B, dtype=np.uint32),
    }


def parts(settings: dict[str, Any], rounds: int) -> dict[str, float]:
    """The ms of the fused step, with a cached reference, and of its parts."""
    config = TrainConfig.model_validate(settings)
    plain = TrainConfig.model_validate(settings | {"selection": {}})
    devices = Devices(jax.devices()[:1])
    model = TwoTowerModel(config.model)
    b, batch = config.batch_size, random_batch(config)
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
    learner = scoring(parameters, placed["image"], placed["text"])
    reference = learner._replace(image=placed["reference_image_embedding"])

    def step(name: str, rows: dict[str, jax.Array], reference_parameters: Any) -> object:
        states[name], metrics = steps[name](states[name], rows, reference_parameters)
        return metrics

    def selection() -> object:
        key, chunks = jax.random.key(1), config.selection.chunks
        return select(key, learner, reference, batch_size=b, chunks=chunks).indices

    calls: dict[str, Callable[[], object]] = {
        "fused step": lambda: step("fused", placed, scalars),
        "scoring": lambda: scoring(parameters, placed["image"], placed["text"]),
        "selection": selection,
        "training": lambda: step("training", taken, None),
    }
    return median_ms(calls, rounds)


def waiting(steps: int) -> float:
    """Median share of a step that joint selection waits for data: real shards, decoded in one thread."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = SMALL | {
        "data": {"train": {"examples": 4_096, "image_size": 64}},
        "schedule": {"batch_size": 64, "examples_seen": 64 * steps},
        "evaluation": {"points": 1},
        "runtime": {"checkpoint_every_steps": 1_000},
    }
    uniform = settings | {"selection": {}, "schedule": {"batch_size": 64, "examples_seen": 64}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        common: dict[str, Any] = {
            "data_cache": folder / "data",
            "flops_per_example": 1.0,
            "tracker": Tracker(),  # the share of waiting is in the run's TensorBoard events
        }
        before = TrainConfig.model_validate(uniform)
        train(before, directory=folder / "reference", **common)
        reference = Reference(folder / "reference", before.model)
        train(TrainConfig.model_validate(settings), directory=folder / "joint", reference=reference, **common)
        events = EventAccumulator(str(folder / "joint/events"))
        events.Reload()
        shares = [event.value for event in events.Scalars("data_wait")]
    return float(statistics.median(shares[1:]))  # the first ten steps wait for the compiler


def main() -> None:
    """Measure and print."""
    options = parse_options(__doc__, rounds=9, steps=40)
    shapes = {"small": SMALL} | ({"B/16": B16} if jax.default_backend() != "cpu" else {})
    rows = []
    for shape, settings in shapes.items():
        found = parts(settings, options.rounds)
        fused = found["fused step"]
        found["the three parts, each compiled by itself"] = sum(found.values()) - fused
        rows += [(shape, part, f"{ms:.1f}", f"{ms / fused:.1%}") for part, ms in found.items()]
    rows.append(("small", "waiting for data", "", f"{waiting(options.steps):.1%}"))
    about = f"{jax.devices()[0].device_kind}; medians of {options.rounds} rounds"
    print_table(about, ("shape", "part", "ms", "share of the fused step"), rows)


if __name__ == "__main__":
    main()
