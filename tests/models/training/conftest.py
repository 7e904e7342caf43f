"""Compiled functions that the tests of training share."""

from typing import Any

import pytest

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.training import loop
from jestlab.models.training.step import build_step

RUNTIME = ("log_every_steps", "checkpoint_every_steps", "keep_checkpoints", "keep_best", "loader_threads")
UNUSED: dict[str, Any] = {
    **dict.fromkeys(("seed", "initialization", "data", "evaluation"), True),
    "runtime": dict.fromkeys(RUNTIME, True),
}
"""Settings that no step depends on."""


@pytest.fixture(scope="session", autouse=True)
def shared_steps():
    """Trace a training step once for all runs that only differ in settings that it doesn't depend on."""
    steps: dict[Any, Any] = {}

    def shared(config, reference, devices, steps_per_call=1):
        key = (config.model_dump_json(exclude=UNUSED), repr(reference), devices.count, steps_per_call)
        if key not in steps:
            steps[key] = build_step(config, reference, devices, steps_per_call)
        return steps[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "build_step", shared)
        yield


@pytest.fixture(scope="session")
def web(tiny, data_cache):
    """The tiny web's folder."""
    config = TrainConfig.model_validate(tiny)
    return ensure_web(config.data.train, config.web_seed, data_cache)
