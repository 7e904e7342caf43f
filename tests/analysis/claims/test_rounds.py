"""Rounds of a study that runs until its claims are decided: the next seeds, and their cost."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims import Claim, Family, Side, Study, Until
from jestlab.analysis.claims.contrast import Contrast
from jestlab.analysis.claims.judged import Judged, Judging
from jestlab.analysis.claims.rounds import Hours, next_round
from jestlab.analysis.metrics import Metric
from jestlab.analysis.names import Names
from jestlab.analysis.results import opened


def until_hours(limit):
    """Return the rule of a study with a budget."""
    return Until.model_validate({"until": "decided", "budget": limit and {"hours": limit}})


def judged(differences, *, of="a", above="b", claims=1, until=None, spent=False, near=None):
    """Return a claim with its verdict: that the differences are above 0, or near it."""
    until = until or until_hours(None)
    claim = Claim(statement=f"{of} > {above}", of=Side(of=of), above=Side(of=above))
    judging = Judging(Family(error=0.05), claims, until)
    seeds = range(len(differences))
    contrast = Contrast(
        experiment="study", study=Study({}, ""), claim=claim, names=Names({}, ()), runs={},
        members=(of, above), chosen={}, planned=seeds, completed=seeds, seeds=seeds, weights={}, values={},
        differences=differences, relation="above" if near is None else "near", metric=Metric("max"),
        problem="", gaps=(), lacking=(),
    )  # fmt: skip
    return Judged(
        contrast,
        judging,
        judging.evidence(judging.sample(differences, contrast.relation, near or 0.0)),
        spent=spent,
    )


def test_a_round_goes_to_the_earliest_decision_and_halfway_if_that_is_unlikely():
    """Of 55 claims, which 11 seeds decide at the earliest; a study begins with `at_least` seeds."""
    assert next_round([judged([])], Hours()).seeds == {("study", "a"): 3, ("study", "b"): 3}
    rounds, n = [], 3
    while (each := judged([1.0] * n, claims=55)).verdict != "holds":
        n = next_round([each], Hours()).seeds["study", "a"]
        rounds.append(n)
    assert rounds == [11]
    unlikely = judged([1.0, -0.9, 1.0, -0.8], claims=8)
    assert (unlikely.is_open, unlikely.evidence.forecast.earliest) == (True, 17)
    assert next_round([unlikely], Hours()).seeds["study", "a"] == 10


@given(
    st.lists(st.sampled_from([-2.0, 0.0, 2.0]), min_size=3, max_size=23),
    st.sampled_from([1, 8, 55]),
    st.sampled_from([None, 1.0]),
)
def test_no_claim_is_decided_before_the_end_of_its_round(differences, claims, near):
    """So no run is wasted on a claim that was decided within its round."""
    each = judged(differences, claims=claims, near=near)
    round_ = next_round([each], Hours())
    if not each.is_open:
        assert round_.seeds == {}
        return
    end = round_.seeds["study", "a"]
    assert each.seeds < end <= 24
    for value in (-2.0, 0.0, 2.0):
        further = differences + [value] * (end - 1 - each.seeds)
        assert judged(further, claims=claims, near=near).verdict == "undecided"


CLEAR, UNCLEAR, MIXED = [1.0] * 4, [1.0, 1.0, -1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0]
DECIDED, FUTILE = [1.0] * 5, [1.0, -1.0] * 6
HOURS = {"a": 0.1, "b": 0.1, "c": 1.0, "d": 0.1}


@pytest.mark.parametrize(
    ("claims", "spent", "limit", "seeds", "chosen", "left_out"),
    [
        ({"a": DECIDED, "c": FUTILE}, 0.0, None, {}, "", ""),
        ({"a": DECIDED, "c": FUTILE, "d": CLEAR}, 0.0, None, {"d": 5, "b": 5}, "d", ""),
        ({"a": CLEAR[:3], "c": CLEAR}, 0.0, None, {"a": 5, "b": 5, "c": 5}, "ac", ""),  # a run counts once
        ({"a": CLEAR, "c": UNCLEAR}, 0.0, None, {"a": 5, "b": 5}, "a", ""),  # clear claims are decided first
        ({"a": DECIDED, "c": UNCLEAR}, 0.0, None, {"c": 9, "b": 9}, "c", ""),
        # The most likely decision per hour is first.
        ({"c": CLEAR, "a": CLEAR, "d": MIXED}, 0.5, 10.0, {"a": 5, "b": 5, "c": 5, "d": 5}, "acd", ""),
        ({"c": CLEAR, "a": CLEAR, "d": MIXED}, 0.5, 1.3, {"a": 5, "b": 5, "d": 5}, "ad", "c"),
        ({"c": CLEAR, "a": CLEAR, "d": MIXED}, 0.5, 0.5, {}, "", "acd"),
        # Each of two claims fits into the 0.25 hours left, but both together don't.
        ({"a": CLEAR, "d": CLEAR}, 0.5, 0.75, {"a": 5, "b": 5}, "a", "d"),
        ({"a": CLEAR, "d": CLEAR}, 0.5, 0.81, {"a": 5, "b": 5, "d": 5}, "ad", ""),
        # Cheaper claims continue if the budget is too small for the clear one.
        ({"c": CLEAR, "d": UNCLEAR[:5]}, 0.5, 1.0, {"d": 6, "b": 6}, "d", "c"),
    ],
)
def test_the_claims_of_a_round(claims, spent, limit, seeds, chosen, left_out):
    until = until_hours(limit)
    found = next_round(
        [judged(values, of=name, until=until) for name, values in claims.items()], Hours(spent, HOURS)
    )
    assert found.seeds == {("study", name): count for name, count in seeds.items()}
    named = ["".join(each.claim.of.of[0] for each in which) for which in (found.claims, found.left_out)]
    assert (sorted(named[0]) if limit is None else [*named[0]], sorted(named[1])) == ([*chosen], [*left_out])


def test_runs_one_more_seed_if_the_whole_step_is_too_expensive():
    each = judged(CLEAR, of="a", claims=55, until=until_hours(2.0))  # seven seeds from a decision
    for spent, seeds in ((0.1, 11), (1.75, 5), (1.85, None)):
        found = next_round([each], Hours(spent, HOURS))
        assert (found.seeds.get(("study", "a")), found.left_out) == (seeds, () if seeds else (each,))


def test_hours_are_summed_over_runs_and_averaged_over_completed_seeds(new_store, stored_run):
    runs = {("a", 0): 1.0, ("a", 1): 2.0, ("b", 0): 0.5, ("again", 0): 1.0, ("study/d", 0): 4.0}
    store = new_store().add(
        *(
            stored_run(name, [0.1], seed=seed, state="FAILED" if name == "b" else "COMPLETED")
            for name, seed in runs
        )
    )
    with opened(store.url) as snapshot:
        assert Hours.load(snapshot, "study") == Hours()
    for (name, seed), hours in runs.items():
        store.execute("UPDATE v_costs SET actual_hours = ? WHERE label = ? AND seed = ?", (hours, name, seed))
    store.execute("UPDATE v_costs SET fingerprint = 'a-0' WHERE label = 'again'")  # the same run
    with opened(store.url) as snapshot:
        found = Hours.load(snapshot, "study")
    assert found == Hours(7.5, {"a": 1.5, "again": 1.0, "study/d": 4.0})
    assert [found.of_label(("study", name)) for name in ("a", "b", "d")] == [1.5, 0.0, 4.0]
    assert found.of_seed(judged([], of="a", above="d")) == 5.5


def test_a_claim_reports_why_no_more_seeds_are_run():
    each = judged([1.0] * 4)
    for differences, spent, stopped in (
        ([1.0] * 4, False, "continues"),
        ([1.0] * 4, True, "budget spent"),
        ([1.0] * 5, True, "decided"),
        ([1.0, -1.0] * 12, False, "24 seeds, the maximum"),
        (FUTILE, False, "out of reach (under 5% chance of a decision by 24 seeds)"),
        ([1.0, -1.0], False, "continues"),  # it has too few seeds to be out of reach
    ):
        assert judged(differences, spent=spent).stopped == stopped
    fixed = replace(each, judging=replace(each.judging, until=None))
    assert (fixed.is_open, fixed.stopped) == (False, "4 seeds planned")
    alone = replace(fixed, contrast=replace(fixed.contrast, planned=[0]))
    assert alone.stopped == "one seed planned"
