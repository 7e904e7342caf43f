"""The memory of a step that `jestlab plan` estimates for one accelerator, and what JAX needed at its peak."""

from typing import Any

from tests.benchmarks.gpu.part import InJax, Part, Row

from jestlab.models.config import TrainConfig
from jestlab.platform.planning.memory import estimate_of

S16: dict[str, Any] = {
    "model": {"variant": "S/16", "compute_dtype": "bfloat16"},
    "schedule": {"batch_size": 64},
    "selection": {"rule": "joint", "reference": "cache"},
}
CASES: dict[str, dict[str, Any]] = {
    "S/16, b = 64": S16,
    "S/16, b = 64, 4 microbatches": S16 | {"runtime": {"microbatches": 4}},
    "B/16, b = 128, 2 microbatches": S16
    | {
        "model": {"variant": "B/16", "compute_dtype": "bfloat16"},
        "schedule": {"batch_size": 128},
        "runtime": {"microbatches": 2},
    },
}
TOY_TOWER = {"width": 32, "depth": 1, "heads": 1, "pooling": "mean"}
TOY: dict[str, Any] = S16 | {
    "model": {"vision": TOY_TOWER, "text": TOY_TOWER, "embedding_dim": 32, "compute_dtype": "bfloat16"},
    "schedule": {"batch_size": 16},
}


def measured(on: InJax, settings: dict[str, Any]) -> Row:
    """Take two steps and compare."""
    import jax
    from tests.benchmarks.bench_jest import random_batch

    from jestlab.models.devices import Devices
    from jestlab.models.training.state import initial_state
    from jestlab.models.training.step import build_step
    from jestlab.models.two_towers import initialize

    config = TrainConfig.model_validate(settings)
    devices = Devices(jax.devices()[:1])
    parameters = initialize(config.model, jax.random.key(0))
    scalars = devices.replicate({name: parameters[name] for name in ("t", "b")})
    state = devices.replicate(initial_state(config, parameters, jax.random.key(0)))
    del parameters
    batch, step = devices.split(random_batch(config)), build_step(config, None, devices)
    for _ in range(2):
        state, metrics = step(state, batch, scalars)
    jax.block_until_ready(metrics)
    estimate, peak = estimate_of(config, [], 1), on.peak_mb()
    assert estimate is not None
    mb = estimate["device"] / 1e6
    return {"estimate, MB": mb, "peak MB": peak, "estimate / peak": None if peak is None else mb / peak}


def main() -> None:
    """Measure one case."""
    part = Part(__doc__)
    on, name = InJax(part.toy), part.case[0]
    settings = TOY if part.toy else CASES[name]
    part.measure({"run": name}, lambda: measured(on, settings), memory_may_lack=True)
    part.end()


if __name__ == "__main__":
    main()
