"""Memory of runs: the rule compared with what XLA allocates, and the sentences of a plan."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import labs_support as labs
import pytest

from jestlab.models.config import TrainConfig
from jestlab.models.training.state import initial_state
from jestlab.models.training.step import build_step
from jestlab.models.two_towers import initialize
from jestlab.platform.planning import memory
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.tree import plain

GB = 1e9
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


def estimated(its, chips=0):
    found = memory.estimate_of(its, [], chips)
    assert found is not None
    return found["device"]


@pytest.mark.parametrize(
    "parts",
    [
        (QUICKSTART, CACHED),
        pytest.param((LARGER,), marks=pytest.mark.full),
        pytest.param((LARGER, {"runtime.microbatches": 4}), marks=pytest.mark.full),
    ],
)
def test_the_estimate_is_what_xla_allocates_within_a_third(parts):
    its = config(*parts)
    assert estimated(its) == pytest.approx(allocated(its), rel=0.34)


@pytest.mark.parametrize(
    ("runtime", "gigabytes"),
    [({}, 36.6), ({"runtime.microbatches": 4}, 12.9), ({"runtime.remat": "all"}, 7.3)],
)
def test_the_estimate_is_what_the_tpu_compiler_allocates_within_a_sixth(runtime, gigabytes):
    """Arguments and temporaries on a device of a v5e 16×16, as BENCHMARKS.md has them."""
    its = config(B16, {"selection": CACHED["selection"] | {"chunks": 16}}, runtime)
    assert estimated(its, 256) == pytest.approx(gigabytes * GB, rel=1 / 6)


def test_runs_of_towers_have_an_estimate():
    runs = {
        "reference": {},
        "cache": {"program": "embed", "reference": "reference"},
        "joint": CACHED,
        "look": {"program": "diagnose", "learner": "joint", "reference": "cache"},
        "other": {"program": "command", "command": ["true"]},
    }
    planned = plan(StudySpec.parse({"name": "s", "base": {"data.train.examples": 4096}, "runs": runs}))
    names = {run.fingerprint: run.name for run in planned.runs}
    estimates = {names[run]: estimate for run, estimate in memory.estimates(planned).items()}
    assert set(estimates) == {"reference", "cache", "joint", "look"}
    assert all(0 < estimate["device"] < estimate["total"] < 2e9 for estimate in estimates.values())
    assert estimates["cache"]["state"] == estimates["reference"]["state"] / 4


@pytest.mark.parametrize(
    ("gigabytes", "resources", "machine", "advice"),
    [
        ([2, 1, 1], {"parallel": 2}, 16, None),
        ([30], {}, 24, "r0 would not fit into 24 GB: lower the batch size"),
        ([30, 2], {"tpu": "v5e-1x1"}, 1, "r0 would not fit into 16 GB"),
        ([9], {"memory_gb": 8.0, "parallel": 1}, 16, "r0 would not fit into 8.0 GB"),
        ([3] * 8, {"parallel": 8}, 16, "8 runs at a time would not fit into 16 GB: launch with --parallel 4"),
    ],
)
def test_a_plan_describes_its_memory_with_a_remedy(gigabytes, resources, machine, advice, monkeypatch):
    runs = {f"r{i}": {"initialization": i} for i in range(len(gigabytes))}
    planned = plan(StudySpec.parse({"name": "s", "runs": runs, "resources": resources}))
    sizes = dict(zip(planned.fingerprints, gigabytes, strict=True))
    found = {run: {"device": size * GB, "total": size * GB + GB} for run, size in sizes.items()}
    monkeypatch.setattr(memory, "estimates", lambda _: found)
    monkeypatch.setattr(memory, "machine_bytes", lambda: machine * GB)
    first, *rest = memory.lines(planned, local="tpu" not in resources)
    assert first.startswith("Memory: about ") and "for the largest run (r0)" in first
    assert len(rest) == (advice is not None) and (advice is None or advice in rest[0])


def test_a_container_may_have_less_than_the_machine(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUP", limit)
    whole = memory.machine_bytes()
    limit.write_text("max\n")
    assert memory.machine_bytes() == whole
    limit.write_text("1000000\n")
    assert memory.machine_bytes() == 1e6


def test_the_verb_says_it_and_json_has_the_bytes(root, tmp_path, monkeypatch):
    # The products of all images and captions take 52 GB, in however many parts.
    monkeypatch.setattr(memory, "machine_bytes", lambda: 100 * GB)
    (tmp_path / "s.yaml").write_text(
        "base: {data.train.examples: 100000}\n"
        "runs: {small: {}, large: {schedule.batch_size: 65536, model.vision.depth: 40}}\n"
    )
    text = labs.here("plan", tmp_path / "s.yaml", root=root).stdout
    assert "for the largest run (large)" in text and "\nlarge would not fit" in text
    data = json.loads(labs.here("plan", tmp_path / "s.yaml", "--json", root=root).stdout)
    small, large = (run["memory"]["device"] for run in data["runs"])
    assert large > 100 * small and data["runs"][0]["memory"]["total"] == small + GB
