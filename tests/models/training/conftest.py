"""Compiled functions that the tests of training share."""

import copy
from typing import Any

import jax
import pytest
from tests.models.support import own_code

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.tokenizer import ensure_tokenizer
from jestlab.models.training import loop
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import initialize

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

    def shared(config, reference, devices):
        key = (config.model_dump_json(exclude=UNUSED), repr(reference), devices.count)
        if key not in steps:
            steps[key] = build_step(config, reference, devices)
        return steps[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "build_step", shared)
        yield


@pytest.fixture(scope="session")
def web(tiny, data_cache):
    """The tiny web's folder."""
    config = TrainConfig.model_validate(tiny)
    return ensure_web(config.data.train, config.web_seed, data_cache)


@pytest.fixture(scope="session")
def untrained_run(tiny, web, tmp_path_factory):
    """A maker of towers, fast to compile, and the folder of a completed run with them."""

    def make(seed, vocabulary, image_size, length, **parameters):
        tree = copy.deepcopy(tiny["model"])
        layer = {"architecture": f"{own_code.MODULE}:Layer"}
        tree["vision"] |= layer | {"image_size": image_size}
        tree["text"] |= layer | {"length": length}
        towers = TrainConfig.model_validate({**tiny, "model": tree}).model
        folder = tmp_path_factory.mktemp("untrained")
        save_parameters(folder / "checkpoints", initialize(towers, jax.random.key(seed)) | parameters)
        (folder / "tokenizer.model").write_bytes(ensure_tokenizer(web, vocabulary).model)
        return towers, folder

    return make
