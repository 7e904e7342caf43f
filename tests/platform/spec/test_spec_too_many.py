"""A study with too many runs is rejected before its runs are listed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import SpecError
from jestlab.platform.spec.axes import AxisSpec, count, span
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.schema import StudySpec

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
