"""Verdicts: properties of any results, tables of Student's t, and results from stores."""

import json
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims import Claim, Family, Study
from jestlab.analysis.claims.contrast import contrast_of
from jestlab.analysis.claims.judged import count_verdicts
from jestlab.analysis.claims.measures import Measures
from jestlab.analysis.claims.verdicts import judge, read
from jestlab.analysis.tables import table

# Sixteenths and small powers of two: sums and differences of them are exact.
numbers = st.integers(-64, 64).map(lambda n: n / 16)


@st.composite
def results(draw):
    """Three runs with the same number of seeds."""
    count = draw(st.integers(2, 6))
    return {name: draw(st.lists(numbers, min_size=count, max_size=count)) for name in ("a", "b", "c")}


def judged(found, states=None, **claim):
    """Return the verdict on a claim about a logged training metric."""
    seeds = [(label, seed, value) for label, values in found.items() for seed, value in enumerate(values)]
    runs = pd.DataFrame(
        {
            "run": label, "label": label, "seed": seed, "fingerprint": f"{label}-{seed}",
            "retracted": "", "state": (states or {}).get((label, seed), "COMPLETED"),
        }
        for label, seed, _ in seeds
    )  # fmt: skip
    logged = pd.DataFrame(
        {"label": label, "seed": seed, "name": "m", "step": step, "value": value}
        for label, seed, last in seeds
        for step, value in enumerate((0.0, last), start=1)
    )
    written = Claim.model_validate({"statement": "it is so", "measure": "m"} | claim)
    study, measures = Study({}, "smoke"), Measures(None, None, logged)
    return judge([contrast_of(written, "study", study, runs, measures)], Family())[0]


@given(results(), numbers, st.sampled_from(["above", "below", "near"]))
def test_a_change_of_both_sides_changes_nothing(found, constant, comparison):
    claim = {"of": "a", comparison: "b", "within": 1.0}
    moved = {name: [value + constant for value in values] for name, values in found.items()}
    minus = {"of": {"of": "a", "minus": "c"}, comparison: {"of": "b", "minus": "c"}, "within": 1.0}
    one = judged(found, **claim)
    for other in (judged(moved, **claim), judged(found, **minus)):
        assert (one.verdict, one.contrast.difference) == (other.verdict, other.contrast.difference)


def test_an_undecided_claim_reports_the_chance_that_more_seeds_decide_it():
    found = {"a": [0.0, 1.0, 2.0], "b": [0.0, 0.0, 0.0]}
    one = judged(found, of="a", above="b", unless="of the weather")
    chance = f"{one.evidence.forecast.decided:.0%}"
    ahead = f"the chance of a decision by 24 seeds, with --decide, is {chance}"
    assert (one.verdict, 0.4 < one.evidence.forecast.decided < 0.8) == ("undecided", True)
    assert one.reason == f"currently points to the claim; {ahead}"
    other = judged(found, of="a", below="b", unless="of the weather")
    assert other.reason == f"currently points against the claim; {ahead}; of the weather"
    near = judged(found, of="a", near="b", within=2.0)  # as far from 2 as from 0
    assert (near.verdict, 0.5 < near.evidence.forecast.decided < 0.95) == ("undecided", True)
    alike = judged({"a": [-1.0, 0.0, 1.0], "b": [0.0, 0.0, 0.0]}, of="a", above="b")
    assert alike.evidence.forecast.decided < 0.5


@given(results(), st.sampled_from(["a", "b"]), st.data())
def test_only_seeds_of_both_sides_count(found, label, data):
    count = len(found["a"])
    gone = data.draw(st.sets(st.integers(0, count - 1)))
    left = [seed for seed in range(count) if seed not in gone]
    states = {(label, seed): "RUNNING" if seed % 2 else "PREEMPTED" for seed in gone}
    one = judged(found, states, of="a", above="b")
    assert (one.seeds, len(one.contrast.planned)) == (len(left), count)
    if len(left) > 1:
        kept = {name: [values[seed] for seed in left] for name, values in found.items()}
        assert one.verdict == judged(kept, of="a", above="b").verdict
    else:
        assert one.verdict == ("undecided" if left else "not run")
    lacks = f"{label} has not completed in {len(gone)} of {count} seeds"
    assert one.contrast.gap.startswith(lacks) == bool(gone)


def test_names_at_most_four_runs_that_have_not_completed():
    found = {label: [0.0, 1.0] for label in "abcdef"}
    gap = "; ".join(f"{label} failed in 1 of 2 seeds" for label in "abcd")
    for labels, more in (("abcd", ""), ("abcde", " …")):
        failed = {(label, 0): "FAILED" for label in labels}
        assert judged(found, failed, of=list("abcde"), above="f").contrast.gap == gap + more


@given(results(), st.sampled_from(["above", "below", "near"]))
def test_the_parts_add_up_to_the_difference(found, comparison):
    one = judged(
        found, of={"of": ["a", "b"], "minus": "c"}, within=1.0, **{comparison: {"of": "b", "minus": "a"}}
    )
    by_seed = one.contrast.parts.groupby("seed")["difference"].sum()
    assert by_seed.mean() == pytest.approx(one.contrast.difference.mean, abs=1e-9)
    assert set(one.contrast.parts["label"]) == {"a", "b", "c"}


JOINT = {"statement": "Joint learns more", "of": "joint", "above": "uniform", "source": "Figure 3"}


@pytest.fixture
def stored(new_store, stored_run):
    """A function that stores runs with two seeds each, and judges claims about them.

    It takes name → scores, the claims, and for each name further options of its runs, perhaps by seed.
    """

    def judge_claims(curves, claims, **options):
        runs = [
            stored_run(name, scores, seed=seed, **(own(seed) if callable(own) else own))
            for name, scores in curves.items()
            for own in [options.get(name, {})]
            for seed in (0, 1)
        ]
        return read(new_store().add(*runs, spec={"claims": claims}).url, ["study"])

    return judge_claims


def claiming(study, *claims, **spec):
    text = json.dumps({"claims": claims} | spec)
    study.execute("UPDATE v_experiments SET spec = ? WHERE experiment = 'study'", [text])
    return read(study.url, ["study"])


def by_measure(*measures, of="a", above="b"):
    return [{"statement": name, "of": of, "above": above, "measure": name} for name in measures]


def test_the_score_is_the_one_of_tables(study):
    shown = table(study.url, "summary", ["study"], baseline="uniform").frame.set_index("row")
    claims = [JOINT, JOINT | {"of": "independent", "statement": "Its seeds differ"}]
    for one, verdict in zip(claiming(study, *claims), ("holds", "undecided"), strict=True):
        expected = shown.loc[one.contrast.members[0], ["delta_mean", "delta_low", "delta_high"]]
        assert one.contrast.difference[:3] == pytest.approx([*expected])
        assert (one.verdict, one.seeds, one.contrast.metric.in_percent) == (verdict, 2, True)


def test_scores_at_equal_flops_are_interpolated_where_the_cheapest_run_ends(study):
    """Uniform ends after 12 GFLOP, joint's steps cost 8 with scoring: it is halfway between .3 and .5."""
    claim = JOINT | {"measure": "score_at_flops"}
    (one,) = claiming(study, claim)
    values = one.contrast.parts.set_index(["label", "seed"])["value"].to_dict()
    assert values == pytest.approx(
        {("joint", 0): 0.4, ("joint", 1): 0.4, ("uniform", 0): 0.4, ("uniform", 1): 0.5}
    )
    # By the learner's FLOPs alone, which the study's reports count, both end after 12.
    (one,) = claiming(study, claim, reports=[{"kind": "pareto", "scope": "learner"}])
    assert one.contrast.parts.set_index(["label", "seed"])["value"]["joint", 1] == pytest.approx(0.7)


def test_a_curve_that_starts_later_is_not_extrapolated(stored):
    runs = {"cheap": {"flops_per_step": (1e9, 0, 0)}, "costly": {"flops_per_step": (5e9, 0, 0)}}
    claims = by_measure("score_at_flops", of="costly", above="cheap")
    (one,) = stored({"cheap": [0.1, 0.2], "costly": [0.5, 0.6]}, claims, **runs)
    assert (one.verdict, one.seeds) == ("undecided", 0)
    assert one.contrast.gap == "costly has no evaluation early enough for score_at_flops"


def test_scores_after_a_share_of_the_examples_are_interpolated(stored):
    """Of scores .1, .3, .5, .7 at 1/4, 2/4, 3/4, 4/4 of the examples that at 5/8 is .4."""
    measures = ("score_after_0.625", "score_after_1", "score_after_0.3", "score_after_.1", "score_after_2")
    sides = [{"of": "joint", "measure": measure} for measure in measures]
    claims = [{"statement": side["measure"], "of": side, "above": "uniform"} for side in sides]
    curves = {"joint": [0.1, 0.3, 0.5, 0.7], "uniform": [0.1, 0.2, 0.3, 0.35]}
    sooner, end, early, too_soon, no_share = stored(curves, claims)
    assert [each.contrast.difference.mean for each in (sooner, end, early)] == pytest.approx(
        [0.05, 0.35, -0.21]
    )
    assert (sooner.claim.unit, sooner.contrast.metric.in_percent, sooner.verdict) == ("score", True, "holds")
    assert too_soon.seeds == 0
    assert too_soon.contrast.gap == "joint has no evaluation early enough for score_after_.1"
    assert no_share.contrast.gap == "joint has no value of score_after_2"


def test_evaluations_metrics_and_spikes(stored):
    calm = [1.0 + 0.01 * (step % 3) for step in range(60)]
    spiky = [5.0 if step in (20, 21, 40) else value for step, value in enumerate(calm)]
    zero_shot, metric, spikes = stored(
        {"a": [0.1, 0.4], "b": [0.1, 0.3]},
        by_measure("shapes/zero_shot", "score_sub_batch", "loss_spikes"),
        a=lambda seed: {"logged": {"loss": spiky, "score_sub_batch": [9.0, 2.0 + seed / 10]}},
        b=lambda seed: {"logged": {"loss": calm, "score_sub_batch": [9.0, 2.5 + seed / 10]}},
    )
    assert (zero_shot.contrast.difference.mean, metric.contrast.difference.mean) == pytest.approx((0.1, -0.5))
    assert (zero_shot.contrast.metric.in_percent, metric.contrast.metric.in_percent) == (True, False)
    assert (metric.verdict, spikes.verdict) == ("does not hold", "holds")
    assert list(spikes.contrast.parts["value"]) == [2.0, 2.0, 0.0, 0.0]  # 20 and 21 are one


def test_training_metrics_decide_without_any_evaluation(stored):
    options: dict[str, Any] = {
        name: {"metrics": (), "logged": {"m": [value]}} for name, value in (("a", 2.0), ("b", 1.0))
    }
    metric, score = stored({"a": [0.1], "b": [0.1]}, by_measure("m", "score"), **options)
    assert (metric.verdict, metric.contrast.difference.mean, len(metric.contrast.planned)) == (
        "holds",
        1.0,
        2,
    )
    assert (score.verdict, score.contrast.gap) == ("undecided", "nothing has been evaluated")


def test_a_gap_names_the_run_without_a_value(stored):
    gaps = {
        "score": "diagnosis has no value of score",
        "score_at_flops": "diagnosis has no evaluation early enough for score_at_flops",
        "shapes/zero_shot": "diagnosis has no value of shapes/zero_shot",
        "loss": "diagnosis has no value of loss",
        "loss_spikes": "a has fewer than 50 points of the loss",
    }
    claims = by_measure(*gaps, above="diagnosis")
    without: dict[str, Any] = {"metrics": (), "logged": {"loss": []}}
    found = stored({"a": [0.1, 0.4], "diagnosis": [0.0]}, claims, diagnosis=without)
    assert [claim.contrast.gap for claim in found] == [*gaps.values()]


def test_a_run_may_be_compared_with_itself_by_another_measure(stored):
    by = {rule: {"of": "a", "measure": f"learnability/{rule}"} for rule in ("joint", "gibbs", "gibs")}
    claims = [
        {"statement": "more", "of": by["joint"], "above": by["gibbs"]},
        {"statement": "as much", "of": by["joint"], "near": by["gibbs"], "within": 1.0},
        {"statement": "misspelt", "of": by["joint"], "above": by["gibs"]},
        {"statement": "unlike", "of": {"of": "a", "measure": "loss"}, "above": "a"},
        {"statement": "unclear", "of": {"of": "a", "measure": "loss"}, "better_than": "a"},
    ]
    logged = {"learnability/joint": ([9.0, 2.0], [9.0, 3.0]), "learnability/gibbs": ([0.0, 2.5], [0.0, 3.6])}
    more, much, misspelt, unlike, unclear = stored(
        {"a": [0.1, 0.4]},
        claims,
        a=lambda seed: {"logged": {"loss": [3.0, 2.0]} | {name: by[seed] for name, by in logged.items()}},
    )
    assert more.contrast.difference.mean == much.contrast.difference.mean == pytest.approx(-0.55)
    assert more.claim.unit == "learnability"
    assert more.claim.text({}) == "a (learnability/joint) above a (learnability/gibbs)"
    assert more.contrast.metric.goal is None and not more.contrast.metric.in_percent
    assert sorted(more.contrast.parts["difference"]) == pytest.approx([-3.6, -2.5, 2.0, 3.0])
    assert more.contrast.parts.groupby("seed")["difference"].sum().to_dict() == pytest.approx(
        {0: -0.5, 1: -0.6}
    )
    assert (more.verdict, much.verdict) == ("undecided", "undecided")  # two seeds: t(1) = −11 > −31.8
    assert (much.seeds, misspelt.seeds) == (2, 0)
    assert misspelt.contrast.gap == "a has no value of learnability/gibs"
    assert unlike.claim.unit == "loss − score"
    assert unlike.contrast.difference.mean == pytest.approx(1.6)
    assert not unlike.contrast.metric.in_percent
    assert (unclear.verdict, unclear.contrast.gap) == ("undecided", "loss and score: no common goal and unit")
    assert unclear.seeds == 0


def test_a_run_means_all_its_points_and_a_list_the_mean(new_store, stored_runs):
    sides = ("joint", ["joint f=0.4", "joint f=0.6"], "joint f=0.6")
    claims = [{"statement": str(side), "of": side, "above": "uniform"} for side in sides]
    store = new_store().add(
        *stored_runs("joint", [0.4], [0.41], label="joint f=0.4"),
        *stored_runs("joint", [0.6], [0.61], label="joint f=0.6"),
        *stored_runs("uniform", [0.3], [0.3]),
        spec={"claims": claims},
    )
    by_name, by_labels, of_one = read(store.url, ["study"])
    assert by_name.contrast.difference.mean == by_labels.contrast.difference.mean == pytest.approx(0.205)
    assert of_one.contrast.difference.mean == pytest.approx(0.305)


def test_reports_runs_that_have_not_completed(study):
    study.execute("UPDATE v_runs SET state = 'FAILED' WHERE run = 'joint'")
    study.execute("UPDATE v_runs SET state = 'RUNNING' WHERE run = 'independent' AND seed = 1")
    expected = {
        "joint": ("not run", 0, "joint failed in 2 of 2 seeds"),
        "independent": ("undecided", 1, "independent has not completed in 1 of 2 seeds"),
        "jiont": ("not run", 0, "unknown run: jiont"),
        "reference": ("holds", 2, ""),
    }
    claims = [JOINT | {"statement": name, "of": name, "unless": "few runs"} for name in expected]
    found = claiming(study, *claims)
    for each, wanted in zip(found, expected.values(), strict=True):
        assert (each.verdict, each.seeds, each.contrast.gap) == wanted and each.reason.startswith(
            each.contrast.gap
        )
    assert count_verdicts(found) == "At scale smoke, 4 claims: 1 holds, 1 undecided, 2 not run."


def test_runs_without_a_common_seed_are_not_compared(new_store, stored_run):
    runs = [stored_run(name, [0.1], seed=seed) for seed, name in enumerate(("joint", "uniform"))]
    (found,) = read(new_store().add(*runs, spec={"claims": [JOINT]}).url, ["study"])
    assert (found.verdict, len(found.contrast.planned), found.contrast.gap) == (
        "not run",
        0,
        "the runs have no seed in common",
    )


def test_a_sequence_that_nothing_can_decide_is_out_of_reach(new_store, stored_run):
    runs = [stored_run(name, [0.1], seed=seed, logged={"m": [1.0]}) for name in "ab" for seed in range(5)]
    claim = {"statement": "unclear", "of": "a", "better_than": "b", "measure": "m"}
    spec = {"claims": [claim], "seeds": {"until": "decided"}}
    (found,) = read(new_store().add(*runs, spec=spec).url, ["study"])
    assert (found.verdict, found.seeds, found.contrast.gap) == ("undecided", 0, "m: no common goal and unit")
    assert not found.is_open and found.stopped.startswith("out of reach")


def test_a_study_without_a_scale_names_none(new_store, stored_run):
    """Also in a store with a study that has one, where the missing scale is read as NaN."""
    runs = [
        stored_run(run, [end], seed=seed, logged={"m": [end]})
        for run, end in (("joint", 0.5), ("uniform", 0.25))
        for seed in range(2)
    ]
    store = new_store().add(*runs, spec={"claims": [JOINT | {"measure": "m"}]}, scale=None)
    store.add(*runs, experiment="other", spec={"claims": [JOINT]})
    raw, score = (table(store.url, "claims", [name]) for name in ("study", "other"))
    assert (raw.caption, score.caption) == ("1 claim: holds.", "At scale smoke, 1 claim: holds.")
    assert ["points" in " ".join(each.notes) for each in (raw, score)] == [False, True]
