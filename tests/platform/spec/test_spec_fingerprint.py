import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from jestlab.models.config import (
    DiagnoseConfig,
    EmbedConfig,
    Runtime,
    ScoreConfig,
    Selection,
    TrainConfig,
    TwoTowers,
    VisionTower,
    WeightsConfig,
)
from jestlab.platform.planning.identity import canonical_json, fingerprint
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.fields import fields_of
from jestlab.platform.spec.tree import flatten, nested, plain

SELECTING: dict[str, Any] = {"rule": "joint", "reference": "reference"}


def fingerprints(runs, **written):
    planned = plan(StudySpec.parse({"name": "s", "runs": runs, **written})).runs
    return {name: run.fingerprint for run in planned for name in (run.label, *(a.label for a in run.aliases))}


CONFIGS = {
    "train": TrainConfig(),
    "embed": EmbedConfig(reference="r"),
    "score": ScoreConfig(embeddings="e"),
    "diagnose": DiagnoseConfig.model_construct(learner="l"),  # not checked: its criterion needs a reference
    "weights": WeightsConfig(path="w"),
}

GOLDEN: dict[str, tuple[dict[str, Any], str]] = {
    "default": ({}, "ebe1d3e4677949f61696d1b9d9e4f3fb24d556b61daa737975a290504596eb29"),
    "reference": (
        {"data.filter": "similarity > 0.25", "schedule.examples_seen": 4_800},
        "bbd04676806f4159693d648901b3f98d9b933b67596a475388fe4a223da2ad8c",
    ),
    "joint": ({"selection": SELECTING}, "b0efe029d84a3cf5bb1e2636e94bc6d884bbc06786f25f075a820858f9357e1b"),
    "hard": (
        {"selection": {"rule": "independent", "criterion": "hard_learner", "filtering_ratio": 0.9}},
        "65c3c6f9ff2c0f2623242bf7b90ca814ad382fb7556655425a1aabc776dc7b3c",
    ),
    "folder": (
        {"data.train": {"kind": "folder", "path": "/anywhere", "digest": "0" * 64}},
        "62ef485f4e65f9d6c59009ee627e52b87d6806eb7a302265a757c48b52eb3dd9",
    ),
    "own": (
        {"program": "json:dumps", "rate": 0.1, "layers": [1, 2], "needs": {"teacher": "default"}},
        "b701dbbb7822aa1738373e3d64263dca01ae291bde6a1757c39f9e956b0cf68a",
    ),
}


def test_golden_fingerprints():
    """Known identities. If this fails, results of unchanged runs are no longer found: was that meant?"""
    found = fingerprints({name: run for name, (run, _) in GOLDEN.items()}, seeds=[3])
    assert found == {name: known for name, (_, known) in GOLDEN.items()}


@pytest.mark.parametrize("program", CONFIGS)
def test_defaults_are_those_of_the_version(program):
    """Identities leave defaults out, so a changed default must raise the `version` of the config.

    If this fails: add a new field to the file; for a changed default, raise the version and write a new file.
    """
    config = CONFIGS[program]
    required = {name for name, field in type(config).model_fields.items() if field.is_required()}
    defaults = flatten(config.model_dump(mode="json", exclude={"runtime", "code", *required}))
    recorded = Path(__file__).with_name(f"{program}_defaults_v{config.version}.json")
    assert defaults == json.loads(recorded.read_text())


def test_a_tower_beside_a_variant_may_be_an_instance():
    towers = TwoTowers(variant="S/16", vision=VisionTower(depth=3))
    assert towers == TwoTowers.model_validate({"variant": "S/16", "vision": {"depth": 3}})
    assert (towers.vision.width, towers.vision.depth) == (384, 3)


def test_canonical_json():
    value = {"b": [1, 1.0, 1e-07, 0.1, None, True], "a": {"é": "ü"}}
    assert canonical_json(value) == '{"a":{"é":"ü"},"b":[1,1.0,1e-07,0.1,null,true]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": float("nan")})


def test_each_part_matters_but_not_the_order_of_keys():
    parts: list[tuple[str, int, Any, dict[str, str]]] = [
        ("p", 1, {"x": 1}, {}), ("q", 1, {"x": 1}, {}), ("p", 2, {"x": 1}, {}), ("p", 1, {"x": 2}, {}),
        ("p", 1, {"x": 1}, {"a": "1"}), ("p", 1, {"x": math.nextafter(1.0, 2.0)}, {}),
    ]  # fmt: skip
    assert len({fingerprint(*each) for each in parts}) == len(parts)
    one = fingerprint("p", 1, {"x": 1, "y": 2}, {"a": "1", "b": "2"})
    assert one == fingerprint("p", 1, {"y": 2, "x": 1}, {"b": "2", "a": "1"})


# Fields that hold a plain value at their default, so that saying the default out loud can be tried on each.
DEFAULTS = {
    key: value
    for key, value in flatten(TrainConfig().model_dump(mode="json")).items()
    if key != "seed" and not key.startswith("data.")
}
EFFECTIVE = [
    ".".join(path)
    for path, field in fields_of(TrainConfig).walk()
    if any(each.get("type") in ("integer", "number") for each in field.alternatives)
    and path[0] in ("optimizer", "evaluation", "schedule")
    and path != ("schedule", "super_batch_size")
]


@given(st.sets(st.sampled_from(sorted(DEFAULTS)), max_size=6), st.booleans())
def test_writing_a_default_explicitly_changes_no_fingerprint(keys, dotted):
    spoken = {key: DEFAULTS[key] for key in keys}
    if not dotted:
        spoken = plain(spoken)
    assert fingerprints({"a": spoken}) == fingerprints({"a": {}})


@given(st.sampled_from(sorted(set(EFFECTIVE))), st.sampled_from([0.25, 0.5]))
def test_any_other_value_changes_the_fingerprint_wherever_it_is_written(key, share):
    base = fingerprints({"a": {}})["a"]
    value = DEFAULTS[key] + 1 if isinstance(DEFAULTS[key], int) else DEFAULTS[key] * share
    in_run = fingerprints({"a": {key: value}})["a"]
    in_base = fingerprints({"a": {}}, base=nested(key.split("."), value))["a"]
    on_axis = fingerprints({"a": {}}, axes=[{"runs": ["a"], "grid": {key: [value]}}])
    assert in_run == in_base == next(iter(on_axis.values())) != base


def test_a_new_field_with_a_default_changes_no_fingerprint():
    """Sections and configs may grow: what was trained before is still found."""

    class WiderSelection(Selection):
        smoothing: float = 0.5

    class Schedulers(BaseModel):
        kind: str = "cosine"

    class Wider(TrainConfig):
        selection: Selection = WiderSelection()
        schedulers: Schedulers = Schedulers()
        note: str | None = None

    config = {"selection": {"rule": "joint", "reference": "r", "filtering_ratio": 0.9}, "seed": 3}
    assert Wider.model_validate(config).identity() == TrainConfig.model_validate(config).identity()
    config["note"] = "x"
    assert Wider.model_validate(config).identity() != TrainConfig.model_validate({"seed": 3}).identity()


OTHER_RUNTIME = {
    "log_every_steps": 3, "checkpoint_every_steps": 3, "keep_checkpoints": 3, "keep_best": False,
    "microbatches": 2, "remat": "all", "scan_layers": True,
    "loader_threads": 3, "damaged_share": 0.5, "decoded_megabytes": 0,
    "diagnostics": {"every_steps": 7, "columns": ["similarity"]},
}  # fmt: skip


def test_names_notes_runtime_and_resources_are_not_part_of_it():
    runs = {"reference": {}, "joint": {"selection": SELECTING}}
    renamed = {"ref": {}, "jest++": {"selection": SELECTING | {"reference": "ref"}}}
    texts = {"question": "Another?", "paper": "Figure 9", "reports": ["curves"]}
    resources = {"parallel": 7, "threads": 3}
    one = fingerprints(runs)
    two = fingerprints(renamed, **texts, resources=resources, base={"runtime": OTHER_RUNTIME})
    assert [*one.values()] == [*two.values()]
    # Scoring cannot be reused in microbatches.
    assert one == fingerprints(runs, base={"runtime.reuse_scoring": True})
    assert {*OTHER_RUNTIME, "reuse_scoring"} == set(Runtime.model_fields)


SIZES: dict[str, Any] = {"width": 384, "depth": 12, "heads": 6, "mlp_dim": 1536}
VISION = {**SIZES, "patch_size": 16, "image_size": 256, "pooling": "map"}
TEXT = {**SIZES, "vocabulary_size": 32_000, "length": 64, "pooling": "last"}
S16 = {"vision": VISION, "text": TEXT, "embedding_dim": 384}
FILTERED = SELECTING | {"filtering_ratio": 0.75}
SAME: dict[str, tuple[Any, Any]] = {
    "a variant is its sizes": ({"model.variant": "S/16"}, {"model": S16}),
    "what is written beside a variant counts": (
        {"model": {"variant": "S/16", "vision": {"depth": 3}}},
        {"model": S16 | {"vision": VISION | {"depth": 3}}},
    ),
    "filtering nothing is plain training": ({"selection": FILTERED | {"filtering_ratio": 0.0}}, {}),
    "a share of nothing is plain training": ({"approximation": {"method": "patch_drop", "keep": 0.5}}, {}),
    "nothing is scored approximately where nothing is scored": ({"approximation.score": True}, {}),
    "twice the patch size is the default": (
        {"approximation": {"share": 0.5}},
        {"approximation": {"share": 0.5, "patch_size": 8}},
    ),
    "a super-batch and its ratio are a batch": (
        {"selection": FILTERED, "schedule.super_batch_size": 128},
        {"selection": FILTERED, "schedule.batch_size": 32},
    ),
    "uniform training with what is left of a super-batch": (
        {"selection.filtering_ratio": 0.5, "schedule.super_batch_size": 64},
        {"schedule.batch_size": 32},
    ),
}
FOLDER = {"kind": "folder", "path": "/x", "digest": "0" * 64}
OTHER: list[dict[str, Any]] = [
    {"approximation.share": 0.5},
    {"approximation": {"share": 0.5, "method": "patch_drop"}},
    {"approximation.score": True, "selection": SELECTING},
    {"loss": "softmax"},
    {"model.compute_dtype": "bfloat16"},
    {"selection": SELECTING, "schedule.super_batch_size": 321},  # does not follow from the ratio
    {"optimizer.clip_norm": None},
    {"optimizer.decay_parameters": ".*"},
    {"data.recaption": "similarity < 0.3", "data.train": FOLDER},
]


def test_two_ways_to_write_the_same_config_are_one_run():
    runs: dict[str, Any] = {"reference": {"seed": 9}}
    for number, (one, other) in enumerate(SAME.values()):
        runs |= {f"one{number}": one, f"other{number}": other}
    found = fingerprints(runs)
    assert [name for i, name in enumerate(SAME) if found[f"one{i}"] != found[f"other{i}"]] == []


def test_these_changes_make_another_run():
    runs = {f"run{i}": change for i, change in enumerate(OTHER)}
    found = fingerprints({"reference": {"seed": 9}, "plain": {}, "joint": {"selection": SELECTING}, **runs})
    assert len(set(found.values())) == len(found)
