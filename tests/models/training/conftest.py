"""Compiled functions that the tests of training share."""

import copy
import functools
from typing import Any

import jax
import numpy as np
import pytest
from tests.models.support import own_code

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.images import decode
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tokenizer import Tokenizer, ensure_tokenizer
from jestlab.models.training import loop
from jestlab.models.training.checkpoints import load_parameters, save_parameters
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import TwoTowerModel, embed, initialize

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
    return ensure_web(TrainConfig.model_validate(tiny), data_cache)


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


@pytest.fixture(scope="session")
def embedded(web):
    """A function that embeds examples by the model of a run, from the files on disk."""
    source = ShardIndex.load(web)

    def embedded(run, examples, captions=None):
        towers, folder = run
        images = np.stack([decode(file, towers.vision.image_size) for file in source.images(examples)])
        tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
        tokens = tokenizer(captions or source.captions(examples), towers.text.length)
        parameters = load_parameters(folder / "checkpoints", towers)
        return jax.jit(functools.partial(embed, TwoTowerModel(towers)))(parameters, images, tokens)

    return embedded
