"""`match`: solve for the number of examples that costs as much as another run."""

import pytest
import yaml

from jestlab.analysis.costs import Cost, Step
from jestlab.analysis.flops import Forward
from jestlab.platform.planning.matching import examples_within as examples
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import Price
from jestlab.platform.spec import StudySpec

JOINT = {"selection": {"rule": "joint", "reference": "reference"}}
FLEXI = JOINT | {"approximation": {"score": True, "share": 0.5}}
RUNS = {"reference": {}, "jest": JOINT, "flexi": {**FLEXI, "match": {"flops": "jest"}}}


def planned(runs, **written):
    base = {"schedule": {"batch_size": 64, "examples_seen": 64_000}}
    return plan(StudySpec.parse({"name": "s", "base": base, "runs": runs, **written})).runs


def named(runs, name):
    return [run for run in runs if run.name == name]


@pytest.mark.parametrize(
    ("kind", "cost"),
    [("flops", lambda price: price.total), ("learner_flops", lambda price: price.cost.learner)],
)
def test_the_matching_run_costs_the_same_to_half_a_step(kind, cost):
    runs = planned(RUNS | {"flexi": {**FLEXI, "match": {kind: "jest"}}})
    [jest], [flexi] = named(runs, "jest"), named(runs, "flexi")
    a_step = cost(flexi.price) / flexi.price.examples * 64
    assert abs(cost(flexi.price) - cost(jest.price)) <= a_step / 2
    assert (flexi.match, jest.match) == (f"{kind}: jest", None)
    # It is the same run as one with these examples written out.
    seen = flexi.config["schedule"]["examples_seen"]
    assert flexi.price.examples == seen != 64_000
    by_hand = planned(RUNS | {"flexi": FLEXI | {"schedule.examples_seen": seen}})
    assert named(by_hand, "flexi")[0].fingerprint == flexi.fingerprint


def test_a_match_means_the_run_at_the_same_point_and_is_not_a_dependency():
    ratios = [0.5, 0.8]
    axes = {"jest, flexi": {"grid": {"selection.filtering_ratio": ratios}}}
    whole = plan(StudySpec.parse({"name": "s", "runs": RUNS, "axes": axes, "seeds": 2}))
    for run in named(whole.runs, "flexi"):
        [jest] = [r for r in named(whole.runs, "jest") if (r.point, r.seed) == (run.point, run.seed)]
        assert run.price.total == pytest.approx(jest.price.total, rel=0.02)
        assert list(run.needs) == ["selection.reference"]
    assert len({run.price.examples for run in named(whole.runs, "flexi")}) == 2
    assert whole.needed == {"reference"}


def test_the_papers_quarter_cost_gives_the_papers_budgets():
    """For λ in 0, .25, .5, .75, .95 the paper trains on 3, 3.69, 4.8, 6.86 and 10.43 billion examples."""
    budget = Price(Cost(image_tower=3.0) * 3e9, examples=3_000_000_000)
    for share, expected in {0.25: 3.69e9, 0.5: 4.8e9, 0.75: 6.86e9, 0.95: 10.43e9}.items():
        step = Step(Forward(1.0, 0.0), 64, 64, approximate=Forward(0.25, 0.0), approximate_share=share)
        seen = examples(Price(step.cost(), 1, step), budget, "learner")
        assert seen == pytest.approx(expected, rel=1e-3)
        assert seen == pytest.approx(3e9 / (1 - share + share * 0.25), abs=64)


ERRORS = """
{match: {flops: jst}} => runs.flexi.match: no run 'jst': did you mean 'jest'
{match: {flops: jest, learner_flops: jest}} => runs.flexi.match: must be one of flops, learner_flops
{match: jest} => runs.flexi.match: must be a mapping, not 'jest'
{match: {flops: 3}} => runs.flexi.match.flops: must be a valid string, not 3
{match: {flops: flexi}} => runs.flexi.match: 'flexi' has a match itself
{match: {flops: matching}} => runs.flexi.match: 'matching' has a match itself: name 'jest' instead
{match: {flops: jest}, schedule.examples_seen: 9}
=> runs.flexi.schedule.examples_seen: conflicts with runs.flexi.match, which solves for it: drop one
{match: {flops: jest}, axis: {grid: {schedule.examples_seen: [640, 1280]}}}
=> axes.1.grid.schedule.examples_seen: conflicts with runs.flexi.
{match: {flops: jest}, axis: {cases: [{schedule.examples_seen: 640}]}}
=> axes.1.cases.0.schedule.examples_seen: conflicts with runs.flexi.
{program: 'json:dumps', match: {flops: jest}}
=> runs.flexi.match: json:dumps has no examples_seen to solve for
{match: {flops: own}} => runs.flexi.match: the cost of that run is unknown
{match: {flops: wide}} => runs.flexi.match: 'wide' is 2 runs
{match: {flops: needing}} => runs.flexi.match: dependencies form a cycle: flexi → needing → flexi
{match: {flops: tiny}, schedule.batch_size: 4096} => runs.flexi.match: the budget of
"""


def test_rejects_invalid_matches(check_errors):
    others = {
        "own": {"program": "json:dumps"},
        "tiny": {"schedule.examples_seen": 64},
        "wide": {"optimizer.beta1": 0.5},
        "matching": {"match": {"flops": "jest"}},
    }
    axes = [{"runs": ["wide"], "grid": {"optimizer.beta2": [0.5, 0.6]}}]

    def attempt(text):
        flexi = yaml.safe_load(text)
        more = [{"runs": "flexi", **flexi.pop("axis")}] if "axis" in flexi else []
        needing = {"needing": {"needs": ["flexi"]}} if "needing" in text else {}
        return planned(others | RUNS | {"flexi": flexi} | needing, axes=axes + more)

    check_errors(ERRORS, attempt, "")
