"""What it saves to reuse the scoring pass for the gradient: `python tests/benchmarks/bench_reuse.py --json`.

The step with and without `runtime.reuse_scoring`, in one process, in rounds that take turns, at three shapes;
with XLA's count of its FLOPs and its account of the memory. Nothing here passes or fails: figures go into
BENCHMARKS.md with their device and date.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_jest import interleaved

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.two_towers import initialize


def towers(width: int, depth: int, image_size: int, patch_size: int, length: int) -> dict[str, Any]:
    tower = {"width": width, "depth": depth, "heads": width // 32, "mlp_dim": 4 * width, "pooling": "mean"}
    return {
        "vision": tower | {"image_size": image_size, "patch_size": patch_size},
        "text": tower | {"length": length, "vocabulary_size": 1_000},
        "embedding_dim": width,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "width 32, 16 px, b = 64, f = 0.8": {
        "model": towers(32, 1, 16, 4, 16),
        "schedule": {"batch_size": 64},
    },
    "width 96, 32 px, b = 128, f = 0.5": {
        "model": towers(96, 3, 32, 8, 16),
        "schedule": {"batch_size": 128},
        "selection": {"filtering_ratio": 0.5},
    },
    "width 192, 32 px, b = 64, f = 0.8": {
        "model": towers(192, 4, 32, 4, 16),
        "schedule": {"batch_size": 64},
    },
}


def measured(settings: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds, FLOPs and bytes of a step, without and with reuse."""
    selection = {"rule": "joint", "reference": "cache", **settings.get("selection", {})}
    devices = Devices(jax.devices()[:1])
    calls, found = {}, {}
    for reuse in (False, True):
        runtime = {"reuse_scoring": reuse}
        config = TrainConfig.model_validate(settings | {"selection": selection, "runtime": runtime})
        batch, parameters = batch_of(config), initialize(config.model, jax.random.key(0))
        scalars = {name: parameters[name] for name in ("t", "b")}
        state = initial_state(config, parameters, jax.random.key(0))
        step: Any = build_step(config, None, devices)
        compiled = step.lower(state, batch, scalars).compile()
        memory = compiled.memory_analysis()
        name = "reused" if reuse else "computed again"
        found[name] = {
            "flops": float(compiled.cost_analysis()["flops"]),
            "bytes": float(memory.argument_size_in_bytes + memory.temp_size_in_bytes),
        }
        held = [state]

        def call(
            held: list[Any] = held, compiled: Any = compiled, batch: Any = batch, scalars: Any = scalars
        ) -> object:
            held[0], metrics = compiled(held[0], batch, scalars)
            return metrics["loss"]

        calls[name] = call
    for name, seconds in interleaved(calls).items():
        found[name]["seconds"] = seconds
    return found


def batch_of(config: TrainConfig) -> dict[str, np.ndarray]:
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    asked = parser.parse_args()
    results = {name: measured(settings) for name, settings in SHAPES.items()}
    if asked.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'shape':36} {'step, ms':>18} {'GFLOP':>16} {'MB':>16}")
    for name, found in results.items():
        before, after = found["computed again"], found["reused"]
        cells = [
            f"{before[key] * by:.4g} → {after[key] * by:.4g}"
            for key, by in (("seconds", 1e3), ("flops", 1e-9), ("bytes", 1e-6))
        ]
        print(f"{name:36} {cells[0]:>18} {cells[1]:>16} {cells[2]:>16}")


if __name__ == "__main__":
    main()
