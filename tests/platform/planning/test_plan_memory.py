"""What runs occupy: the formulas against what XLA allocates, and what a plan says of runs that do not fit."""

import json
import math
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import labs_support as labs
import pytest

from jestlab.models.config import EmbedConfig, TrainConfig, TwoTowers
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.two_towers import initialize
from jestlab.models.weights.layout import parameter_shapes
from jestlab.platform.planning import memory as planning
from jestlab.platform.planning.memory import AvailableMemory, available, lines
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import MemoryEstimate, memory
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.tree import plain

QUICKSTART = {
    "model.vision": {"width": 64, "depth": 2, "mlp_dim": 128, "pooling": "mean"},
    "model.text": {"width": 64, "mlp_dim": 128, "pooling": "mean"},
    "model.embedding_dim": 64,
}
LARGER = {
    "model.vision": {"image_size": 32, "patch_size": 4, "width": 96, "depth": 2, "heads": 3},
    "model.text": {"width": 96, "depth": 2, "heads": 3, "length": 16},
    "model.embedding_dim": 96,
    "schedule.batch_size": 128,
}
B16 = {"model": {"variant": "B/16", "compute_dtype": "bfloat16"}, "schedule.batch_size": 32_768}
CACHED = {"selection": {"rule": "joint", "reference": "cache"}}


def config(*parts):
    return TrainConfig.model_validate(plain({key: value for part in parts for key, value in part.items()}))


def allocated(its):
    """Return the bytes that XLA allocates for one step: arguments and temporaries."""
    batch, size = its.super_batch_size, its.model.vision.image_size
    parameters = jax.eval_shape(lambda key: initialize(its.model, key), jax.random.key(0))
    state = jax.eval_shape(lambda p, key: initial_state(its, p, key), parameters, jax.random.key(0))
    examples = {
        "image": jax.ShapeDtypeStruct((batch, size, size, 3), jnp.uint8),
        "text": jax.ShapeDtypeStruct((batch, its.model.text.length), jnp.int32),
    }
    scalars = None
    if its.selects:
        z = jax.ShapeDtypeStruct((batch, its.model.embedding_dim), jnp.float32)
        examples |= {"index": jax.ShapeDtypeStruct((batch,), jnp.uint32)}
        examples |= {"reference_image_embedding": z, "reference_text_embedding": z}
        scalars = {name: parameters[name] for name in "tb"}
    step: Any = build_step(its, None)
    found = step.lower(state, examples, scalars).compile().memory_analysis()
    return found.argument_size_in_bytes + found.temp_size_in_bytes


def estimated(*given: Any) -> MemoryEstimate:
    found = memory.of_training(*given)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((QUICKSTART, CACHED), id="joint"),
        pytest.param((LARGER,), id="larger", marks=pytest.mark.full),
        pytest.param((LARGER, {"runtime.microbatches": 4}), id="in microbatches", marks=pytest.mark.full),
        pytest.param(
            (LARGER, CACHED, {"runtime.reuse_scoring": True}), id="scoring reused", marks=pytest.mark.full
        ),
    ],
)
def test_the_estimate_is_what_xla_allocates_within_a_third(parts):
    its = config(*parts)
    estimate = estimated(its, {"selection.reference": EmbedConfig(reference="r")})
    assert estimate.device == pytest.approx(allocated(its), rel=0.34)


@pytest.mark.parametrize(
    ("runtime", "gigabytes"),
    [({}, 36.6), ({"runtime.microbatches": 4}, 12.9), ({"runtime.remat": "all"}, 7.3)],
)
def test_the_estimate_is_what_the_tpu_compiler_allocates_within_a_sixth(runtime, gigabytes):
    """Arguments and temporaries on a device of a v5e 16×16, as BENCHMARKS.md has them."""
    joint = {"selection": {"rule": "joint", "reference": "cache", "chunks": 16}}
    its = config(B16, joint, runtime)
    estimate = estimated(its, {"selection.reference": EmbedConfig(reference="r")}, 256)
    assert estimate.device == pytest.approx(gigabytes * 1e9, rel=1 / 6)


def test_parameters_are_counted_as_they_are():
    for model in (
        {"variant": "L/16", "vision": {"pooling": "mean"}, "embedding_dim": 512},
        {"vision": {"width": 48, "depth": 3}, "text": {"mlp_dim": 100}},
    ):
        towers = TwoTowers.model_validate(model)
        assert memory.parameters(towers) == sum(math.prod(s) for s in parameter_shapes(towers).values())


def test_every_builtin_program_has_an_estimate():
    study = StudySpec.parse(
        {
            "name": "s",
            "base": {"data.train.examples": 4096},
            "runs": {
                "reference": {},
                "cache": {"program": "embed", "reference": "reference"},
                "joint": {"selection": {"rule": "joint", "reference": "cache"}},
                "look": {"program": "diagnose", "learner": "joint", "reference": "cache"},
                "other": {"program": "command", "command": ["true"]},
            },
        }
    )
    estimates = {run.name: run.memory for run in plan(study).runs}
    assert estimates.pop("other") is None
    for estimate in estimates.values():
        assert estimate is not None
        assert 0 < estimate.device < estimate.total < 2e9


GB = 1e9


def described(estimates, available):
    """Lines of a plan whose runs have these estimates."""
    study = StudySpec.parse({"name": "s", "runs": {"a": {}}, "seeds": len(estimates)})
    runs = [replace(run, memory=memory) for run, memory in zip(plan(study).runs, estimates, strict=True)]
    return list(lines(runs, available))


CHIP = AvailableMemory(16 * GB, "of a v5e chip")


@pytest.mark.parametrize(
    ("gigabytes", "available", "advice"),
    [
        ([(1, 2, 0, 1)] * 3, AvailableMemory(16 * GB, "here", 2), None),
        ([(1, 30, 1, 1)], AvailableMemory(24 * GB, "here"),
         "a needs about 33 GB of the 24 GB here: lower the batch size"),
        ([(0, 30, 0, 1)], AvailableMemory(24 * GB, "here"), "use a machine with more memory"),
        ([(30, 2, 1, 1)], CHIP,
         "a needs about 33 GB of the 16 GB of a v5e chip: choose a smaller model: every chip holds all"),
        ([(1, 2, 0, 1)] * 8, AvailableMemory(16 * GB, "here", 8),
         "8 runs at a time need about 32 GB of the 16 GB here: launch with --parallel 4"),
        ([(1, 9, 1, 1)], AvailableMemory(16 * GB, "here", 1, 8 * GB),
         "a needs about 12 GB of the 8.0 GB of resources.memory_gb: raise that above 12 GB"),
    ],
    ids=["fits", "batches", "no batches", "parameters", "parallel runs", "limit of the study"],
)  # fmt: skip
def test_a_plan_describes_its_memory_with_a_remedy(gigabytes, available, advice):
    estimates = [MemoryEstimate(*(amount * GB for amount in given)) for given in gigabytes]
    first, *rest = described(estimates, available)
    assert first.startswith("MEMORY: about ") and "for the largest run (a)" in first
    assert len(rest) == (advice is not None) and (advice is None or advice in rest[0])
    assert described([None], available) == []


def test_the_room_is_this_machines_or_a_chips():
    here = available(Resources(parallel=3, memory_gb=2.0), local=True)
    assert here is not None
    assert (here.parallel, here.per_run, here.where) == (3, 2e9, "here")
    assert 0 < here.bytes == planning.machine_bytes()
    chip = available(Resources(tpu="v6e-2x2"), local=False)
    assert chip is not None
    assert (chip.bytes, chip.where, chip.parallel) == (32e9, "of a v6e chip", 1)
    assert available(Resources(), local=False) is None


def test_a_container_may_have_less_than_the_machine(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(planning, "_CGROUP", limit)
    whole = planning.machine_bytes()
    limit.write_text("max\n")
    assert planning.machine_bytes() == whole
    limit.write_text("1000000\n")
    assert planning.machine_bytes() == 1e6


def test_the_verb_says_it_and_json_has_the_bytes(root, tmp_path, monkeypatch):
    # The products of all images and captions take 52 GB, in however many parts.
    monkeypatch.setattr(planning, "machine_bytes", lambda: 100 * GB)
    (tmp_path / "s.yaml").write_text(
        "base: {data.train.examples: 100000, runtime.decoded_megabytes: 0}\n"
        "runs: {small: {}, large: {schedule.batch_size: 65536, model.vision.depth: 40}}\n"
    )
    text = labs.here("plan", tmp_path / "s.yaml", root=root).stdout
    assert "MEMORY: about " in text and "for the largest run (large)" in text
    assert "large needs about " in text and "lower the batch size" in text
    assert "small needs" not in text
    data = json.loads(labs.here("plan", tmp_path / "s.yaml", "--json", root=root).stdout)
    small, large = (run["memory"] for run in data["runs"])
    assert small["total"] == sum(small[part] for part in ("state", "work", "batches", "process"))
    assert large["device"] > 100 * small["device"]
