from typing import Any

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.spec import Study, cases, grid, zip_
from jestlab.platform.spec.expand import Member

TINY: dict[str, Any] = {"uniform": {}}


def config_of(member: Member) -> Any:
    return member.config


def labels(**written):
    study = Study.parse({"name": "s", "runs": TINY, **written})
    return [member.variant.label for member in study.members]


def test_a_grid_is_every_combination_with_the_last_key_varying_fastest():
    axes = [{"runs": ["uniform"], **grid({"optimizer.beta2": (0.9, 0.95), "schedule.batch_size": [32, 64]})}]
    assert labels(axes=axes) == [
        "uniform beta2=0.9 batch_size=32",
        "uniform beta2=0.9 batch_size=64",
        "uniform beta2=0.95 batch_size=32",
        "uniform beta2=0.95 batch_size=64",
    ]


def test_zip_pairs_values_by_position():
    axes = [{"runs": "uniform", **zip_({"optimizer.beta2": [0.9, 0.95], "schedule.batch_size": [32, 64]})}]
    assert labels(axes=axes) == ["uniform beta2=0.9 batch_size=32", "uniform beta2=0.95 batch_size=64"]


def test_cases_are_explicit_points():
    axes = [{"runs": ["uniform"], **cases({"optimizer.beta2": 0.9}, {"model": {"vision": {"width": 32}}})}]
    assert labels(axes=axes) == ["uniform beta2=0.9", "uniform width=32"]


def test_axes_of_the_same_run_multiply_and_leave_other_runs_alone():
    study = Study.parse(
        {
            "name": "s",
            "runs": {"a": {}, "b": {}, "c": {}},
            "axes": {
                ("a", "b"): [grid({"optimizer.beta2": (0.9, 0.95)}), grid({"optimizer.beta1": (0.8, 0.9)})],
                "b, c": grid({"schedule.batch_size": (32, 64, 128)}),
            },
            "seeds": 2,
        }
    )
    counts = {name: sum(m.variant.name == name for m in study.members) for name in study.runs}
    assert counts == {"a": 2 * 4, "b": 2 * 4 * 3, "c": 2 * 3}


def test_axis_values_override_run_and_base():
    study = Study.parse(
        {
            "name": "s",
            "base": {"optimizer.beta2": 0.5, "optimizer.beta1": 0.5, "optimizer.clip_norm": 0.5},
            "runs": {"a": {"optimizer": {"beta2": 0.6, "beta1": 0.6}}},
            "axes": {"a": grid({"optimizer.beta2": [0.7]})},
        }
    )
    optimizer = config_of(study.members[0]).optimizer
    assert (optimizer.beta2, optimizer.beta1, optimizer.clip_norm) == (0.7, 0.6, 0.5)


def test_labels_use_the_shortest_unambiguous_ending():
    axes = {
        "uniform": zip_({"model.vision.width": [32], "model.text.width": [16], "schedule.batch_size": [8]})
    }
    assert labels(axes=axes) == ["uniform vision.width=32 text.width=16 batch_size=8"]


def test_axis_values_may_be_names_of_runs():
    study = Study.parse(
        {
            "name": "s",
            "runs": {
                "weak": {"schedule.examples_seen": 64},
                "strong": {},
                "joint": {"selection": {"rule": "joint", "reference": "weak"}},
            },
            "axes": {"joint": grid({"selection.reference": ["weak", "strong"]})},
        }
    )
    needs = {
        m.variant.label: [study.members[i].variant.name for i in m.needs.values()] for m in study.members
    }
    assert needs == {
        "weak": [],
        "strong": [],
        "joint reference=weak": ["weak"],
        "joint reference=strong": ["strong"],
    }


def test_a_mapping_may_be_a_value_of_a_case():
    axes = {"uniform": cases({"data.train": {"kind": "folder", "path": "/d"}}, {"data.train.examples": 5})}
    study = Study.parse({"name": "s", "runs": TINY, "axes": axes})
    assert [config_of(m).data.train.kind for m in study.members] == ["folder", "shapes"]


def test_all_written_forms_of_axes_give_the_same_study():
    listed = [{"runs": ["a", "b"], "grid": {"optimizer.beta2": [0.9, 0.95]}}]
    in_python = {("a", "b"): {"grid": {"optimizer": {"beta2": (0.9, 0.95)}}}}
    in_yaml = {"a, b": {"grid": {"optimizer.beta2": [0.9, 0.95]}}}
    runs: dict[str, Any] = {"a": {}, "b": {}}
    first, *others = (
        Study.parse({"name": "s", "runs": runs, "axes": axes}) for axes in (listed, in_python, in_yaml)
    )
    assert all(other == first for other in others)


def test_an_unhashable_shape_is_an_error_like_any_other():
    with pytest.raises(UserError, match=r"axes.0.runs: must be names of runs"):
        Study.parse({"name": "s", "runs": TINY, "axes": [{"runs": [["uniform"]], "grid": {"x": [1]}}]})
