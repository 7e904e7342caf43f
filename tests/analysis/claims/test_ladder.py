"""Claims about the exponent of a power law: the contrast of the sizes, and the verdicts."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jestlab.analysis.claims.ladder import weights_of
from jestlab.analysis.claims.verdicts import read
from jestlab.analysis.tables import table

sizes = st.lists(st.integers(1, 60).map(lambda n: 1.2**n), min_size=3, max_size=7, unique=True)
exponents = st.floats(0.05, 2.0)


@given(sizes, exponents, exponents, st.floats(-5.0, 5.0))
def test_the_contrast_has_the_sign_of_the_difference_of_exponents(x, claimed, true, offset):
    """Whatever the offset; the metric is to be minimized and improves with size."""
    weights, x = np.array(weights_of(x, claimed)), np.array(x)
    assert np.abs(weights).sum() == pytest.approx(2.0)
    assert weights @ (offset + x**-claimed) == pytest.approx(0.0, abs=1e-8)
    assume(abs(true - claimed) > 0.05)
    contrast = weights @ x**-true / (x**-true).max()
    assume(abs(contrast) > 1e-9)
    assert (contrast < 0) == (true > claimed)


@pytest.fixture
def stored_ladder(new_store, stored_run):
    """A function that stores runs over sizes, with errors 0.5 + size^-exponent, and claims about them."""

    def store(exponent, x=(10, 20, 40, 80), seeds=6, goal="min", **claim):
        generator = np.random.default_rng(1)
        sign = 1 if goal == "min" else -1
        runs = [
            stored_run(
                "jest", [0.9, 0.5 + sign * (size**-exponent + generator.normal(scale=1e-3))],
                label=f"jest size={size}", seed=seed, config={"size": size}, point={"size": size},
            )
            for size in x
            for seed in range(seeds)
        ]  # fmt: skip
        written = {"statement": "It scales", "of": "jest", "exponent_above": 0.5, "over": "size"} | claim
        metrics = {name: {"goal": goal} for name in runs[0].metrics}
        return new_store().add(*runs, spec={"claims": [written], "metrics": metrics}).url

    return store


@pytest.fixture
def ladder(stored_ladder):
    """A function that judges a claim about stored runs over sizes."""
    return lambda *args, **claim: read(stored_ladder(*args, **claim), ["study"])[0]


@pytest.mark.parametrize("goal", ["min", "max"])
def test_an_exponent_above_the_claimed_one_holds_and_one_below_does_not(ladder, goal):
    held, failed = ladder(0.8, goal=goal), ladder(0.3, goal=goal)
    assert (held.verdict, failed.verdict) == ("holds", "does not hold")
    assert held.seeds == 6
    assert held.contrast.parts.groupby("seed")["difference"].sum().tolist() == pytest.approx(
        [held.contrast.difference.mean] * 6, abs=0.01
    )
    assert held.claim.text({}) == "jest: exponent over size above 0.5, by score"


def test_too_few_sizes_or_none_decide_nothing(ladder):
    few, none = ladder(0.8, x=(10, 80)), ladder(0.8, over="width")
    assert (few.verdict, few.contrast.gap) == ("undecided", "size has 2 sizes: an exponent takes 3")
    assert (none.verdict, none.contrast.gap) == ("undecided", "jest size=10 has no number above 0 in width")


def test_the_notes_of_a_table_say_what_the_difference_is(stored_ladder):
    notes = table(stored_ladder(0.8), "claims", ["study"]).notes
    assert any("exponent has no other side: its difference is a weighted sum" in note for note in notes)


def test_a_training_metric_without_evaluations_is_tested_too(new_store, stored_run):
    runs = [
        stored_run(
            "jest", [], label=f"jest size={size}", seed=seed, config={"size": size}, point={"size": size},
            logged={"err": {1: size**-0.9 + seed * 1e-4}},
        )
        for size in (10, 20, 40)
        for seed in range(3)
    ]  # fmt: skip
    claim = {"statement": "It falls", "of": "jest", "exponent_above": 0.5, "over": "size", "measure": "err"}
    spec = {"claims": [claim], "metrics": {"err": {"goal": "min"}}}
    [judged] = read(new_store().add(*runs, spec=spec).url, ["study"])
    assert (judged.verdict, judged.contrast.gap) == ("holds", "")


def test_an_unknown_run_is_named_before_the_sizes_that_it_lacks(ladder):
    assert ladder(0.8, of="jets").contrast.gap == "unknown run: jets"
