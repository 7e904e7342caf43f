import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.config import TrainConfig
from jestlab.platform.errors import SpecError
from jestlab.platform.spec.fields import fields_of, merge
from jestlab.platform.spec.tree import flatten, nested, plain

NAMES = st.sampled_from(["a", "b", "c", "kind_of", "x1"])
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.none() | st.booleans() | NUMBERS | st.text(max_size=4)
TREES = st.recursive(
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=3),
    lambda below: st.dictionaries(NAMES, below | VALUES, min_size=1, max_size=3),
    max_leaves=8,
)


@st.composite
def written(draw, trees=TREES):
    """A tree, and another way to write it: some of its nesting as dotted keys."""
    tree = draw(trees)

    def write(section):
        out = {}
        for key, value in section.items():
            if not isinstance(value, dict):
                out[key] = value
            elif draw(st.booleans()):
                out |= {f"{key}.{below}": item for below, item in write(value).items()}
            else:
                out[key] = write(value)
        return dict(draw(st.permutations(list(out.items()))))

    return tree, write(tree)


@given(written())
def test_dotted_and_nested_keys_mean_the_same(pair):
    tree, other = pair
    assert plain(other) == tree
    assert plain(plain(other)) == tree
    assert plain(flatten(tree)) == tree


@given(TREES, TREES)
def test_merging_keeps_all_of_the_upper_tree_and_the_rest_of_the_lower(beneath, above):
    before = json.dumps([beneath, above])
    merged = merge(beneath, above)
    assert flatten(merged).items() >= {k: v for k, v in flatten(above).items() if v != {}}.items()
    kept = {
        key: value
        for key, value in flatten(beneath).items()
        if not any((key + ".").startswith(k + ".") or (k + ".").startswith(key + ".") for k in flatten(above))
    }
    assert flatten(merged).items() >= kept.items()
    assert set(flatten(merged)) == set(kept) | set(flatten(above))
    assert json.dumps([beneath, above]) == before


@given(TREES)
def test_merging_a_tree_with_itself_or_nothing_changes_nothing(tree):
    assert merge(tree, tree) == merge(tree, {}) == merge({}, tree) == tree


FOLDER = {"kind": "folder", "path": "/d"}


def test_a_mapping_of_another_kind_replaces_and_one_of_the_same_kind_merges():
    shapes = {"data": {"train": {"kind": "shapes", "examples": 10}, "filter": "x > 1"}}
    merged = merge(shapes, plain({"data.train": FOLDER}))
    assert merged == {"data": {"train": FOLDER, "filter": "x > 1"}}
    merged = merge({"o": {"kind": "adam", "rate": 1}}, {"o": {"kind": "adam", "beta": 2}})
    assert merged == {"o": {"kind": "adam", "rate": 1, "beta": 2}}


def test_a_missing_kind_is_the_schemas_default():
    beneath = nested(("data", "train", "examples"), 10)
    for above, expected in (
        (FOLDER, FOLDER),
        ({"kind": "shapes", "shard_size": 5}, {"examples": 10, "kind": "shapes", "shard_size": 5}),
    ):
        merged = merge(beneath, nested(("data", "train"), above), fields_of(TrainConfig))
        assert merged == nested(("data", "train"), expected)


INVALID = [
    ({"a": 1, "a.b": 2}, "a: is given twice in one mapping, nested and dotted"),
    ({"a.b": 1, "a": {"b": 2}}, "a.b: is given twice in one mapping, nested and dotted"),
    ({"a": {"x": 1}, "a.b.c": {"d": 1}, "a.b": {"c.d": 2}}, "a.b.c.d: is given twice"),
    ({"a..b": 1}, "invalid key 'a..b'"),
    ({"": 1}, "invalid key ''"),
    ({3: 1}, "the key 3 is a whole number: put it in quotes"),
    ({"a": [1, {2}]}, "a.1: must be plain data (string, number, list, mapping), not a set"),
    ({"a": {"b": float("nan")}}, "a.b: must be a finite number, not nan"),
]


@pytest.mark.parametrize(("value", "message"), INVALID)
def test_rejects_values_that_are_not_plain_data(value, message):
    with pytest.raises(SpecError, match=re.escape(message)):
        plain(value)
