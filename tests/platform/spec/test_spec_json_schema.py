"""The JSON Schema of specs: it accepts every spec that loads, and rejects what editors should underline."""

import copy
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.spec import load
from jestlab.platform.spec.json_schema import spec_schema
from jestlab.platform.spec.keys import config_keys, spec_keys
from jestlab.platform.study_registry import study_names

SCHEMA = jsonschema.Draft7Validator(spec_schema())

COMMAND = {
    "name": "command",
    "program": "command",
    "base": {"command": "python x.py {lr}", "lr": 0.1},
    "runs": {"a": {}, "b": {"lr": 0.2}, "c": {"needs": ["d"]}, "d": None},
    "axes": [
        {"runs": "a, b", "cases": [{"lr": 1}, {"lr": 2}], "labels": {"lr": {"name": "η", "1": 0.5}}},
        {"runs": ["c"], "grid": {"optimizer": {"beta": [1, 2]}}},
    ],
    "seeds": {"until": "decided", "at_most": 5, "budget": {"hours": 2}},
    "claims": [
        {"statement": "s", "of": {"of": ["a"], "minus": "c"}, "near": "b", "within": 1, "measure": "x"},
        {"statement": "t", "of": {"best": "a", "by": "d/loss"}, "above": "b", "measure": "x"},
    ],
    "reports": [{"table": {"best": {"tuned": {"of": "a", "by": "d/loss"}}}}],
}
TRAIN = {
    "name": "train",
    "base": {
        "model.vision": {"width": 8, "pooling": "mean"},
        "data": {"train": {"noise.blank": 0.1}},
        "evaluation": {"extra": {"mine": {"function": "json:dumps"}}},
        "runtime.diagnostics.columns": ["noise", "label"],
    },
    "runs": {
        "reference": {"initialization": 1, "runtime": {"diagnostics": {"columns": {"1": "vague"}}}},
        "uniform": None,
        "joint": {"selection": {"rule": "joint", "reference": "reference"}, "label": 3},
        "script": {"program": "command", "command": ["true", "{x}"], "x": 3, "needs": {"from": "joint"}},
        "matched": {"match": {"flops": "uniform"}, "data.train": {"kind": "folder", "path": "x"}},
    },
    "axes": {"script": {"zip": {"x": [1, 2]}}},
    "seeds": 3,
    "resources": {"gpus": 1, "time": "4h", "retry_exit_codes": 3, "slurm": {"setup": ["a"]}},
    "record": {"packages": ["x"], "files": "y"},
    "family": "none",
    "score": "shapes/zero_shot",
    "metrics": {"loss": {"goal": "min", "digits": 2}},
    "figure": {"width": "3in", "title": False},
    "claims": [{"statement": "s", "of": "joint", "above": ["uniform"]}],
    "reports": [
        "curves",
        {"table": {"baseline": "uniform", "columns": "score"}},
        {"kind": "pareto", "over": "flops", "width": "3in"},
        {"against": {"x": "seed", "figure.height": "3in"}},
        {"json:dumps": {"options": {"a": 1}}},
    ],
}
SPECS = [
    COMMAND,
    TRAIN,
    {"name": "union", "studies": {"command": COMMAND, "train": TRAIN}, "family": {"error": 0.1}},
]
KEYS = sorted({part for key in (*spec_keys(), *config_keys()) for part in (key.path, *key.path.split("."))})
VALUES = [
    True,
    0,
    -1,
    2.0,
    "x",
    "joint",
    "none",
    "m:f",
    [],
    {},
    ["x"],
    [1],
    {"0": 1},
    {"x": 1},
    {"kind": "curves"},
]


def places(tree, path=()):
    """List the places of all values in a spec."""
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(place for key, below in children for place in places(below, (*path, key)))]


def changed(spec, chance):
    """Return a spec with one value replaced, removed, added, wrapped in a list, or moved to a dotted key."""
    *above, key = chance.choice(places(spec)[1:])
    parent = spec = copy.deepcopy(spec)
    for part in above:
        parent = parent[part]
    value, change = parent[key], chance.choice(("replace", "remove", "add", "wrap", "dot"))
    if change == "replace":
        parent[key] = chance.choice([None, *VALUES])
    elif change == "remove" and key != "name":
        del parent[key]
    elif change == "add" and isinstance(value, dict):
        value[chance.choice(KEYS)] = chance.choice(VALUES)
    elif change == "wrap":
        parent[key] = [value]
    elif change == "dot" and isinstance(value, dict) and isinstance(parent, dict):
        parent |= {f"{key}.{name}": below for name, below in parent.pop(key).items()}
    return spec


@pytest.mark.parametrize("name", study_names())
def test_registered_studies_are_valid(name):
    SCHEMA.validate(load(name).to_dict())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec["name"])
def test_valid_specs_in_all_their_forms_are_valid(spec):
    load(spec)
    SCHEMA.validate({key: value for key, value in spec.items() if key != "name"})  # the file names it


@given(st.sampled_from(SPECS), st.randoms(use_true_random=False), st.integers(1, 3))
def test_is_never_stricter_than_the_loader(spec, chance, changes):
    for _ in range(changes):
        spec = changed(spec, chance)
    try:
        load(spec)
    except UserError:
        return
    SCHEMA.validate(spec)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("sedes",), 3),
        (("seeds",), "3"),
        (("program",), "trian"),
        (("base", "modle"), {}),
        (("base", "model.vision.widht"), 8),
        (("base", "model.vision"), {"width": "8"}),
        (("runs", "joint", "selection", "rul"), "joint"),
        (("runs", "joint", "selection", "rule"), "jiont"),
        (("runs", "joint", "selection.chunks"), "two"),
        (("runs", "matched", "match", "flop"), "uniform"),
        (("resources", "gpu"), 1),
        (("metrics", "loss", "goal"), "maximum"),
        (("claims", 0, "abov"), "uniform"),
        (("reports", 0), "curvs"),
        (("reports", 0), {"curvs": {}}),
        (("reports", 1, "table", "base"), "uniform"),
        (("reports", 2, "over"), "flop"),
        (("axes", "script", "gird"), {}),
        (("axes",), [{"runs": ["script"], "gird": {}}]),
    ],
)
def test_rejects_misspelled_keys_and_wrong_values(place, value):
    spec = copy.deepcopy(TRAIN)
    parent: Any = spec
    for part in place[:-1]:
        parent = parent[part]
    parent[place[-1]] = value
    assert not SCHEMA.is_valid(spec)


def test_descriptions_and_choices_are_those_of_the_key_reference():
    schema = spec_schema()
    assert schema["properties"]["seeds"]["description"].startswith("Replicates of every run")
    assert "joint" in json.dumps(schema["$defs"]["Selection"]["properties"]["rule"]["anyOf"])
    assert len(json.dumps(schema)) < 210_000
