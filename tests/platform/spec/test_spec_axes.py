"""Axes, their points, and the limit on the number of runs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import SpecError
from jestlab.platform.spec import StudySpec, cases, grid, zip_
from jestlab.platform.spec.axes import AxisSpec, count, span
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.variants import Replicate

TINY: dict[str, Any] = {"uniform": {}}


def config_of(member: Replicate) -> Any:
    return member.config


def labels(**written):
    study = StudySpec.parse({"name": "s", "runs": TINY, **written})
    return [member.variant.label for member in expand(study)]


def test_grids_are_every_combination_with_the_last_key_varying_fastest():
    axes = [{"runs": ["uniform"], **grid({"optimizer.beta2": (0.9, 0.95), "schedule.batch_size": [32, 64]})}]
    assert labels(axes=axes) == [
        f"uniform beta2={beta2} batch_size={size}" for beta2 in (0.9, 0.95) for size in (32, 64)
    ]


def test_zip_pairs_values_by_position_and_cases_are_explicit_points():
    axes = [{"runs": "uniform", **zip_({"optimizer.beta2": [0.9, 0.95], "schedule.batch_size": [32, 64]})}]
    assert labels(axes=axes) == ["uniform beta2=0.9 batch_size=32", "uniform beta2=0.95 batch_size=64"]
    axes = [{"runs": ["uniform"], **cases({"optimizer.beta2": 0.9}, {"model": {"vision": {"width": 32}}})}]
    assert labels(axes=axes) == ["uniform beta2=0.9", "uniform width=32"]


def test_axes_of_the_same_run_multiply_and_leave_other_runs_alone():
    axes = {
        ("a", "b"): [grid({"optimizer.beta2": (0.9, 0.95)}), grid({"optimizer.beta1": (0.8, 0.9)})],
        "b, c": grid({"schedule.batch_size": (32, 64, 128)}),
    }
    study = StudySpec.parse({"name": "s", "runs": {"a": {}, "b": {}, "c": {}}, "axes": axes, "seeds": 2})
    counts = {name: sum(m.variant.name == name for m in expand(study)) for name in study.runs}
    assert counts == {"a": 2 * 4, "b": 2 * 4 * 3, "c": 2 * 3}


def test_axis_values_override_run_and_base():
    base = {"optimizer.beta2": 0.5, "optimizer.beta1": 0.5, "optimizer.clip_norm": 0.5}
    runs = {"a": {"optimizer": {"beta2": 0.6, "beta1": 0.6}}}
    axes = {"a": grid({"optimizer.beta2": [0.7]})}
    study = StudySpec.parse({"name": "s", "base": base, "runs": runs, "axes": axes})
    optimizer = config_of(expand(study)[0]).optimizer
    assert (optimizer.beta2, optimizer.beta1, optimizer.clip_norm) == (0.7, 0.6, 0.5)


def test_labels_use_the_shortest_unambiguous_ending():
    values = {"model.vision.width": [32], "model.text.width": [16], "schedule.batch_size": [8]}
    axes = {"uniform": zip_(values)}
    assert labels(axes=axes) == ["uniform vision.width=32 text.width=16 batch_size=8"]


def test_axis_values_may_be_names_of_runs():
    joint = {"selection": {"rule": "joint", "reference": "weak"}}
    runs = {"weak": {"schedule.examples_seen": 64}, "strong": {}, "joint": joint}
    axes = {"joint": grid({"selection.reference": ["weak", "strong"]})}
    members = expand(StudySpec.parse({"name": "s", "runs": runs, "axes": axes}))
    needs = {m.variant.label: [members[i].variant.name for i in m.needs.values()] for m in members}
    assert needs == {
        "weak": [], "strong": [], "joint reference=weak": ["weak"], "joint reference=strong": ["strong"],
    }  # fmt: skip


def test_a_mapping_may_be_a_value_of_a_case():
    axes = {"uniform": cases({"data.train": {"kind": "folder", "path": "/d"}}, {"data.train.examples": 5})}
    study = StudySpec.parse({"name": "s", "runs": TINY, "axes": axes})
    assert [config_of(m).data.train.kind for m in expand(study)] == ["folder", "shapes"]


TOY = {"name": "toy", "program": "toy_programs:loop", "runs": {"one": {}, "two": {}}}


def test_rejects_too_many_runs_before_listing_them():
    axis = {"runs": ["two"], "grid": {f"key{n}": list(range(10)) for n in range(12)}}
    study = StudySpec.parse(TOY | {"axes": [axis]})
    with pytest.raises(SpecError, match=r"^axes: .*1,000,000,000,001 runs.*JESTLAB_MAX_RUNS[^\n]*$"):
        expand(study)
    axes = [{"runs": ["one"], "grid": {f"key{n}": list(range(50))}} for n in range(3)]
    with pytest.raises(SpecError, match="1,250,010 runs"):
        expand(StudySpec.parse(TOY | {"axes": axes, "seeds": 10}))


def test_the_limit_can_be_raised(monkeypatch):
    study = StudySpec.parse(TOY | {"seeds": 3})
    monkeypatch.setattr("jestlab.platform.spec.expand.MOST_RUNS", 5)
    with pytest.raises(SpecError, match=r"6 runs, more than 5.*JESTLAB_MAX_RUNS=6"):
        expand(study)
    monkeypatch.setenv("JESTLAB_MAX_RUNS", "6")
    assert len(expand(StudySpec.parse(TOY | {"seeds": 3}))) == 6
    monkeypatch.setenv("JESTLAB_MAX_RUNS", "many")
    with pytest.raises(SpecError, match=r"JESTLAB_MAX_RUNS.*whole number.*'many'"):
        expand(StudySpec.parse(TOY | {"seeds": 3}))


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
