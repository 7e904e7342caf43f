"""The best label of a seed, and claims about it."""

import math
import re

import pytest

from jestlab.analysis.claims.best import best_of
from jestlab.analysis.claims.verdicts import read
from jestlab.analysis.tables import table


@pytest.mark.parametrize(
    ("values", "sign", "best"),
    [
        ({"a": 1.0, "b": 3.0, "c": 2.0}, 1, "b"),
        ({"a": 1.0, "b": 3.0, "c": 2.0}, -1, "a"),
        ({"a": 1.0, "b": 2.0, "c": 2.0}, 1, "b"),  # the first of equal ones
        ({"b": 5.0}, -1, "b"),  # failed runs can't be chosen
        ({"a": -math.inf, "b": math.inf, "c": -9.0}, 1, "c"),  # nor diverged ones
        ({"a": math.inf, "b": math.nan, "c": math.inf}, -1, "a"),  # unless all are
        ({"a": math.inf, "c": math.inf}, -1, None),
        ({}, 1, None),
    ],
)
def test_the_best_label_is_chosen_by_the_goal(values, sign, best):
    assert best_of(values, ["a", "b", "c"], sign) == best


DEV, TEST = "dev/loss", "test/accuracy"
SPEC = {"metrics": {DEV: {"goal": "min"}, TEST: {"goal": "max"}}, "score": [TEST]}
RATES = (0.01, 0.1, 1.0)
CLAIM = {"statement": "s", "of": {"best": "deep", "by": DEV}, "above": "flat"}
SEEDS = 5


@pytest.fixture
def judged(new_store, stored_run):
    """A function that judges a claim about the best of three rates, by the losses of each seed.

    The score of a rate r and seed s is r + s / 100, that of the baseline is 0.3.
    """

    def judging(losses, states=None, spec=SPEC, until=False, **claim):
        runs = [stored_run("flat", [0.3], seed=seed, metrics=[TEST]) for seed in range(len(losses))]
        for seed, of_seed in enumerate(losses):
            for rate, loss in zip(RATES, of_seed, strict=True):
                score = rate + seed / 100
                run = stored_run(
                    "deep", [score], label=f"deep rate={rate}", seed=seed, metrics=[TEST],
                    point={"rate": rate},
                    state=(states or {}).get((rate, seed), "COMPLETED"),
                    logged={} if loss is None else {DEV: [loss]},
                )  # fmt: skip
                runs.append(run)
        rule = {"seeds": {"until": "decided", "at_least": 3}} if until else {}
        store = new_store().add(*runs, spec=spec | rule | {"claims": [CLAIM | claim]})
        (one,) = read(store.url, ["study"])
        return one, store

    return judging


def differences(one):
    return one.contrast.parts.groupby("seed")["difference"].apply(math.fsum).tolist()


def test_the_best_run_of_each_seed_counts_and_the_table_says_which(judged):
    losses = [(3.0, 2.0, 1.0), (3.0, 2.0, 1.0), (3.0, 1.0, 2.0), (3.0, 2.0, 1.0), (3.0, 2.0, 1.0)]
    one, store = judged(losses)
    expected = [0.7, 0.71, -0.18, 0.73, 0.74]
    assert differences(one) == pytest.approx(expected)
    assert one.contrast.difference.mean == pytest.approx(sum(expected) / SEEDS)
    assert (one.seeds, len(one.contrast.planned), len(one.contrast.members)) == (5, 5, 4)
    chosen = "deep rate=1.0 in 4 of 5, deep rate=0.1 in 1 of 5 seeds"
    assert one.contrast.choices == chosen
    assert f"| {chosen} " in table(store.url, "claims", ["study"]).markdown()
    weights = one.contrast.parts[one.contrast.parts["seed"] == 2].set_index("label")["weight"].to_dict()
    assert weights == {"deep rate=0.1": 1.0, "flat": -1.0}


def test_both_sides_can_be_tuned_and_named_by_labels(judged):
    best = {"best": ["deep rate=0.01", "deep rate=0.1"], "by": DEV}
    one, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, above=best)
    assert differences(one) == pytest.approx([0.9] * SEEDS)
    assert one.contrast.choices == "deep rate=1.0 in 5 of 5 seeds; deep rate=0.1 in 5 of 5 seeds"
    assert one.verdict == "holds"


def test_a_side_with_one_run_is_that_run(judged):
    one, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, of={"best": "deep rate=0.1", "by": DEV})
    other, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, of="deep rate=0.1")
    assert one.evidence == other.evidence


@pytest.mark.parametrize("until", [False, True])
def test_failed_runs_are_not_chosen_and_a_seed_without_any_is_against_both_verdicts(judged, until):
    failed = {(1.0, 1): "FAILED"} | {(rate, 2): "FAILED" for rate in RATES}
    one, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, failed, until=until)
    assert differences(one) == pytest.approx([0.7, -0.19, math.nan, 0.73, 0.74], nan_ok=True)
    assert (one.seeds, one.evidence.agree) == (5, 3)
    assert one.contrast.choices == "deep rate=1.0 in 3 of 5, deep rate=0.1 in 1 of 5 seeds"
    assert one.contrast.lost == f"best deep by {DEV} failed in 1 of 5 seeds"


def test_a_failed_run_in_each_seed_leaves_the_others(judged):
    failed = {(1.0, seed): "FAILED" for seed in range(SEEDS)}
    one, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, failed)
    assert (one.verdict, one.seeds) == ("does not hold", 5)


def test_a_diverged_run_is_the_worst(judged):
    one, _ = judged([(3.0, 2.0, math.inf)] * 4 + [(math.inf,) * 3])
    assert one.contrast.choices == "deep rate=0.1 in 4 of 5, deep rate=0.01 in 1 of 5 seeds"


def test_a_seed_counts_only_after_all_its_runs_have_ended(judged):
    one, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, {(0.01, 4): "RUNNING"})
    assert (one.seeds, len(one.contrast.planned)) == (4, 5)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"spec": {**SPEC, "metrics": {TEST: {"goal": "max"}}}}, "dev/loss has no goal"),
        (
            {"of": {"best": "deep", "by": TEST}},
            "test/accuracy is part of the score, which is reported. The best",
        ),
        ({"of": {"best": "deep", "by": "loss_spikes"}}, "best deep by loss_spikes has fewer than 50 points"),
    ],
)
def test_a_metric_that_can_not_choose_leaves_the_claim_undecided(judged, changed, reason):
    one, _ = judged([(3.0, 2.0, 1.0)] * SEEDS, **changed)
    assert (one.verdict, one.seeds) == ("undecided", 0)
    assert re.search(reason, one.reason), one.reason
