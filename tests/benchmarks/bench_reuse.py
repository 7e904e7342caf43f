"""What it saves to reuse the scoring pass for the gradient.

python tests/benchmarks/bench_reuse.py [--rounds 9]

The step with and without `runtime.reuse_scoring`, at three shapes, with XLA's count of its FLOPs and its
account of the memory.
"""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.benchmarks.bench_jest import median_ms, random_batch
from tests.benchmarks.support import parse_options, print_table

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.training.state import initial_state
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import initialize


def towers(width: int, depth: int, image_size: int, patch_size: int) -> dict[str, Any]:
    """Towers of one size, with 16 tokens of text."""
    tower = {"width": width, "depth": depth, "heads": width // 32, "mlp_dim": 4 * width, "pooling": "mean"}
    return {
        "vision": tower | {"image_size": image_size, "patch_size": patch_size},
        "text": tower | {"length": 16, "vocabulary_size": 1_000},
        "embedding_dim": width,
    }


SHAPES: dict[str, dict[str, Any]] = {
    "width 32, 16 px, b = 64, f = 0.8": {"model": towers(32, 1, 16, 4), "schedule": {"batch_size": 64}},
    "width 96, 32 px, b = 128, f = 0.5": {
        "model": towers(96, 3, 32, 8),
        "schedule": {"batch_size": 128},
        "selection": {"filtering_ratio": 0.5},
    },
    "width 192, 32 px, b = 64, f = 0.8": {"model": towers(192, 4, 32, 4), "schedule": {"batch_size": 64}},
}


def _next_step(states: list[Any], compiled: Any, batch: Any, scalars: Any) -> object:
    """Replace the state, which the step donates, by the next one."""
    states[0], metrics = compiled(states[0], batch, scalars)
    return metrics["loss"]


def measured(settings: dict[str, Any], rounds: int) -> list[str]:
    """The ms, GFLOP, and MB of a step, each without and with reuse."""
    selection = {"rule": "joint", "reference": "cache", **settings.get("selection", {})}
    calls: dict[str, Callable[[], object]] = {}
    gflop, mb = [], []
    for reuse in (False, True):
        runtime = {"reuse_scoring": reuse}
        config = TrainConfig.model_validate(settings | {"selection": selection, "runtime": runtime})
        batch, parameters = random_batch(config), initialize(config.model, jax.random.key(0))
        scalars = {name: parameters[name] for name in ("t", "b")}
        state = initial_state(config, parameters, jax.random.key(0))
        step: Any = build_step(config, None, Devices(jax.devices()[:1]))
        compiled = step.lower(state, batch, scalars).compile()
        memory = compiled.memory_analysis()
        gflop.append(1e-9 * float(compiled.cost_analysis()["flops"]))
        mb.append(1e-6 * (memory.argument_size_in_bytes + memory.temp_size_in_bytes))
        calls[f"reuse: {reuse}"] = partial(_next_step, [state], compiled, batch, scalars)
    ms = median_ms(calls, rounds).values()
    return [" → ".join(f"{figure:.4g}" for figure in pair) for pair in (ms, gflop, mb)]


def main() -> None:
    """Measure and print."""
    rounds = parse_options(__doc__, rounds=9).rounds
    rows = [(shape, *measured(settings, rounds)) for shape, settings in SHAPES.items()]
    print_table("without → with reuse, medians", ("shape", "step, ms", "GFLOP", "MB"), rows)


if __name__ == "__main__":
    main()
