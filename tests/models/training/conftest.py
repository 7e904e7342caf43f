"""Compiled functions that the tests of training share."""

from typing import Any

import pytest

from jestlab.models.training import loop
from jestlab.models.training.step import Halves, build_halves, build_step


@pytest.fixture(scope="session", autouse=True)
def shared_steps():
    """Trace a training step once for all runs that differ in seed, data or evaluation alone."""
    made = {}

    def shared(config, reference, devices, steps=1):
        own = config.model_dump_json(exclude={"seed", "initialization", "data", "evaluation"})
        key = (own, repr(reference), devices.count, steps)
        if key not in made:
            made[key] = build_step(config, reference, devices, steps)
        return made[key]

    chooses: dict[str, Any] = {}
    learns: dict[str, Any] = {}

    def shared_halves(config, reference, device):
        apart = {"seed", "initialization", "data", "evaluation"}
        one = config.model_dump_json(exclude=apart) + repr(reference)
        other = config.model_dump_json(exclude={*apart, "selection", "schedule"}) + str(config.batch_size)
        if one not in chooses:
            chooses[one], learn = build_halves(config, reference, device)
            learns.setdefault(other, learn)
        return Halves(chooses[one], learns[other])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "build_step", shared)
        patch.setattr(loop, "build_halves", shared_halves)
        yield
