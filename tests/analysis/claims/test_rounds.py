"""Rounds of a study that runs until its claims are decided: the next seeds, and their cost."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims import Claim, Family, Side, Until
from jestlab.analysis.claims.evidence import any_look
from jestlab.analysis.claims.judged import Judged, Judging
from jestlab.analysis.claims.rounds import Hours, ahead, next_round
from jestlab.analysis.metrics import Metric


def until_hours(limit):
    """Return the rule of a study with a budget."""
    return Until.model_validate({"until": "decided", "budget": limit and {"hours": limit}})


def judged(differences, *, of="a", above="b", claims=1, until=None, spent=False, near=None):
    """Return a claim with its verdict: that the differences are above 0, or near it."""
    import pandas as pd

    until = until or until_hours(None)
    claim = Claim(statement=f"{of} > {above}", of=Side(of=of), above=Side(of=above))
    judging = Judging(Family(), claims, until)
    found = any_look(
        differences, "above" if near is None else "near", near or 0.0, judging.error, until.at_most
    )
    return Judged(
        experiment="study", scale="", claim=claim, judging=judging, evidence=found, verdict=found.verdict,
        difference=0.0, low=math.nan, high=math.nan, seeds=found.seeds, planned=found.seeds, spent=spent,
        metric=Metric("max"), parts=pd.DataFrame(), labels=(of, above),
    )  # fmt: skip


def labels(round_):
    return [[each.claim.statement[0] for each in claims] for claims in (round_.claims, round_.left_out)]


def test_a_round_goes_halfway_to_the_earliest_decision():
    """Of 55 claims, which 11 seeds decide at the earliest; a study begins with `at_least` seeds."""
    assert next_round([judged([])]).seeds == {("study", "a"): 3, ("study", "b"): 3}
    rounds, n = [], 3
    while (each := judged([1.0] * n, claims=55)).verdict != "holds":
        n = next_round([each]).seeds["study", "a"]
        rounds.append(n)
    assert rounds == [7, 9, 10, 11]


@given(
    st.lists(st.sampled_from([-2.0, 0.0, 2.0]), min_size=3, max_size=23),
    st.sampled_from([1, 8, 55]),
    st.sampled_from([None, 1.0]),
)
def test_no_claim_is_decided_before_the_end_of_its_round(differences, claims, near):
    """So no run is wasted on a claim that was decided within its round."""
    each = judged(differences, claims=claims, near=near)
    round_ = next_round([each])
    if not each.is_open:
        assert round_.is_last
        return
    end = round_.seeds["study", "a"]
    assert each.seeds < end <= 24
    for value in (-2.0, 0.0, 2.0):
        further = differences + [value] * (end - 1 - each.seeds)
        assert judged(further, claims=claims, near=near).verdict == "undecided"


def test_decided_and_futile_claims_take_no_more_seeds():
    decided, futile = judged([1.0] * 5), judged([1.0, -1.0] * 6, of="c")
    assert (decided.verdict, futile.is_futile) == ("holds", True)
    assert next_round([decided, futile]).is_last
    open_ = judged([1.0] * 4, of="d")
    found = next_round([decided, futile, open_])
    assert found.seeds == {("study", "d"): 5, ("study", "b"): 5}


def test_a_run_of_several_claims_has_the_most_seeds_that_any_needs():
    found = next_round([judged([1.0] * 3), judged([1.0] * 4, of="c")])
    assert found.seeds == {("study", "a"): 4, ("study", "b"): 5, ("study", "c"): 5}
    assert len(found.claims) == 2


def test_clear_claims_are_decided_before_unclear_ones_take_seeds():
    clear, unclear = judged([1.0] * 4), judged([1.0, 1.0, -1.0, 1.0, 1.0, 1.0], of="c")
    assert next_round([clear, unclear]).seeds == {("study", "a"): 5, ("study", "b"): 5}
    assert next_round([judged([1.0] * 5), unclear]).seeds["study", "c"] == 7


def test_cheaper_claims_go_on_where_the_budget_is_too_small_for_the_clear_one():
    until = until_hours(1.0)
    clear = judged([1.0] * 4, above="costly", until=until)
    unclear = judged([1.0, 1.0, -1.0, 1.0, 1.0, 1.0], of="c", until=until)
    found = next_round([clear, unclear], Hours(0.5, {"a": 0.1, "b": 0.1, "c": 0.1, "costly": 1.0}))
    assert (found.left_out, found.claims) == ((clear,), (unclear,))
    assert not found.is_last


class TestBudget:
    hours = Hours(spent=0.5, by_label={"a": 0.1, "b": 0.1, "c": 1.0, "d": 0.1})

    def claims(self, limit):
        until = until_hours(limit)
        return [
            judged([1.0] * 4, of="c", until=until),
            judged([1.0] * 4, of="a", until=until),
            judged([1.0, -1.0, 1.0, 1.0], of="d", until=until),
        ]

    def test_the_most_likely_decision_per_hour_is_first(self):
        assert labels(next_round(self.claims(10.0), self.hours)) == [["a", "c", "d"], []]

    def test_leaves_out_what_does_not_fit(self):
        found = next_round(self.claims(1.3), self.hours)
        assert labels(found)[1] == ["c"]
        assert ("study", "c") not in found.seeds

    def test_runs_one_more_seed_where_the_whole_way_is_too_expensive(self):
        each = judged([1.0] * 4, of="a", claims=55, until=until_hours(1.0))  # seven seeds from a decision
        assert next_round([each], Hours(0.1, self.hours.by_label)).seeds["study", "a"] == 7
        assert next_round([each], Hours(0.75, self.hours.by_label)).seeds["study", "a"] == 5
        assert next_round([each], Hours(0.85, self.hours.by_label)).left_out == (each,)

    def test_without_a_budget_all_claims_go_on(self):
        assert len(next_round(self.claims(None), self.hours).claims) == 3
        assert next_round(self.claims(0.5), self.hours).is_last


def test_a_claim_reports_why_no_more_seeds_are_run():
    each = judged([1.0] * 4)
    assert (each.stopped, judged([1.0] * 4, spent=True).stopped) == ("continues", "budget spent")
    assert judged([1.0] * 5, spent=True).stopped == "decided"
    assert judged([1.0, -1.0] * 12).stopped == "24 seeds, the maximum"
    assert judged([1.0, -1.0] * 6).stopped == "out of reach (under 5% chance of a decision by 24 seeds)"
    fixed = replace(each, judging=replace(each.judging, until=None))
    assert (fixed.is_open, fixed.stopped) == (False, "4 seeds planned")
    assert replace(fixed, planned=1).stopped == "one seed planned"


def test_the_expected_cost_counts_each_run_once():
    claims = [judged([1.0] * 4), judged([1.0] * 4, of="c")]
    found = ahead(claims, Hours(1.0, {"a": 0.1, "b": 0.2, "c": 0.1}))
    more = claims[0].evidence.forecast.expected - 4
    assert found.claims == 2
    assert found.runs == pytest.approx(3 * more)
    assert found.hours == pytest.approx(0.4 * more)
    assert found.decided == pytest.approx(2 * claims[0].evidence.forecast.decided)
    assert math.isnan(ahead(claims, Hours()).hours)
