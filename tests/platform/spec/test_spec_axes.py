"""Axes, their points, and the limit on the number of runs."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import SpecError
from jestlab.platform.spec import StudySpec, cases, grid, zip_
from jestlab.platform.spec.axes import AxisSpec, count, span
from jestlab.platform.spec.expand import expand


def expanded(axes, runs=None, **written) -> list[Any]:
    return [*expand(StudySpec.parse({"name": "s", "runs": runs or {"a": {}}, "axes": axes, **written}))]


B1, B2, SIZE = "optimizer.beta1", "optimizer.beta2", "schedule.batch_size"


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (grid({B2: (0.9, 0.95), SIZE: [32, 64]}),
         ["beta2=0.9 batch_size=32", "beta2=0.9 batch_size=64", "beta2=0.95 batch_size=32",
          "beta2=0.95 batch_size=64"]),
        (zip_({B2: [0.9, 0.95], SIZE: [32, 64]}), ["beta2=0.9 batch_size=32", "beta2=0.95 batch_size=64"]),
        (cases({B2: 0.9}, {"model": {"vision": {"width": 32}}}), ["beta2=0.9", "width=32"]),
        # The shortest unambiguous ending names a key.
        (zip_({"model.vision.width": [32], "model.text.width": [16], SIZE: [8]}),
         ["vision.width=32 text.width=16 batch_size=8"]),
    ],
)  # fmt: skip
def test_kinds_of_axes_and_their_labels(axis, labels):
    assert [member.variant.label for member in expanded({"a": axis})] == [f"a {label}" for label in labels]


def test_axes_of_the_same_run_multiply_and_leave_other_runs_alone():
    axes = {("a", "b"): [grid({B2: (0.9, 0.95)}), grid({B1: (0.8, 0.9)})], "b, c": grid({SIZE: (3, 6, 9)})}
    members = expanded(axes, {"a": {}, "b": {}, "c": {}}, seeds=2)
    assert Counter(member.variant.name for member in members) == {"a": 2 * 4, "b": 2 * 4 * 3, "c": 2 * 3}


def test_axis_values_override_run_and_base():
    base = {B2: 0.5, B1: 0.5, "optimizer.clip_norm": 0.5}
    [member] = expanded({"a": grid({B2: [0.7]})}, {"a": {B1: 0.6, B2: 0.6}}, base=base)
    optimizer = member.config.optimizer
    assert (optimizer.beta2, optimizer.beta1, optimizer.clip_norm) == (0.7, 0.6, 0.5)


def test_axis_values_may_be_names_of_runs():
    joint = {"selection": {"rule": "joint", "reference": "weak"}}
    runs = {"weak": {"schedule.examples_seen": 64}, "strong": {}, "joint": joint}
    members = expanded({"joint": grid({"selection.reference": ["weak", "strong"]})}, runs)
    needs = {m.variant.label: [members[i].variant.name for i in m.needs.values()] for m in members}
    assert needs == {
        "weak": [], "strong": [], "joint reference=weak": ["weak"], "joint reference=strong": ["strong"],
    }  # fmt: skip


def test_a_mapping_may_be_a_value_of_a_case():
    axis = cases({"data.train": {"kind": "folder", "path": "/d"}}, {"data.train.examples": 5})
    assert [member.config.data.train.kind for member in expanded({"a": axis})] == ["folder", "shapes"]


def toys(axes=(), **written):
    runs: dict[str, Any] = {"one": {}, "two": {}}
    return expanded([{"runs": [run], "grid": grid} for run, grid in axes], runs, program="command",
                    base={"command": "true"}, **written)  # fmt: skip


def test_rejects_too_many_runs_before_listing_them(monkeypatch):
    with pytest.raises(SpecError, match=r"^axes: .*1,000,000,000,001 runs.*JESTLAB_MAX_RUNS[^\n]*$"):
        toys([("two", {f"key{n}": list(range(10)) for n in range(12)})])
    with pytest.raises(SpecError, match="1,250,010 runs"):
        toys([("one", {f"key{n}": list(range(50))}) for n in range(3)], seeds=10)
    monkeypatch.setattr("jestlab.platform.spec.expand.MOST_RUNS", 5)
    with pytest.raises(SpecError, match=r"^seeds: .*6 runs, more than 5.*JESTLAB_MAX_RUNS=6"):
        toys(seeds=3)
    monkeypatch.setenv("JESTLAB_MAX_RUNS", "6")
    assert len(toys(seeds=3)) == 6
    monkeypatch.setenv("JESTLAB_MAX_RUNS", "many")
    with pytest.raises(SpecError, match=r"JESTLAB_MAX_RUNS.*whole number.*'many'"):
        toys(seeds=3)


KEYS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(), min_size=1, max_size=3), min_size=1)


@given(st.lists(KEYS, max_size=3), st.integers(1, 3))
def test_counting_is_listing(grids, cases):
    axes = [
        AxisSpec(runs=("one",), grid={f"{n}{key}": tuple(values) for key, values in grid.items()})
        for n, grid in enumerate(grids)
    ]
    axes.append(AxisSpec(runs=("one",), cases=tuple({"case": n} for n in range(cases))))
    axes.append(AxisSpec(runs=("one",), zip={"x": (1, 2), "y": (3, 4)}))
    axes.append(AxisSpec(runs=("two",), grid={"x": (1, 2)}))
    assert count(axes, "one") == len(span(axes, "one"))
    assert count(axes, "three") == len(span(axes, "three")) == 1
