"""What a study mentions is there: somebody measures its metrics, and a run has the keys it compares by."""

import copy
from typing import Any

import labs_support as labs
import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.planning.names import check, check_first
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.schema import StudySpec

MIN = {"goal": "min"}
METRICS = {"wiki/perplexity": MIN, "wiki/accuracy": {"goal": "max", "unit": "percent"}}
OWN: dict[str, Any] = {
    "name": "own",
    "program": "command",
    "base": {"command": ["true"], "lr": 0.1, "nested": {"depth": 3}},
    "runs": {"slow": {}, "fast": {"lr": 0.5}},
    "metrics": METRICS,
    "score": ["wiki/perplexity"],
}
COUNTING = {"base": OWN["base"] | {"runtime": {"diagnostics": {"columns": ["kind"]}}}}
NOWHERE = "is neither declared nor recorded"
DECLARE = "declare the metric, metrics: {tree/height: {goal: max}} or {goal: min}"
NO_MEAN = (
    "wiki/perplexity (min, raw), wiki/accuracy (max, percent) have no mean, since their goals or units differ"
)
TRAINED: dict[str, Any] = {"name": "trained", "runs": {"uniform": {}}, "base": {"evaluation.shots": 5}}
COMPARED = TRAINED | {"runs": {"fast": {}, "slow": {}}}


def claiming(**claim):
    return {"claims": [{"statement": "x", "of": "fast", "above": "slow"} | claim]}


def better(**claim):
    return {"claims": [{"statement": "x", "of": "fast", "better_than": "slow"} | claim]}


def tuned(by, **claim):
    return claiming(of={"best": ["slow", "fast"], "by": by}, **claim)


def with_row(by):
    return reporting(table={"best": {"tuned": {"of": ["slow", "fast"], "by": by}}, "rows": ["tuned"]})


def reporting(**report):
    return {"reports": [report]}


def checked(written, recorded=()):
    check(plan(StudySpec.parse(copy.deepcopy(written))), lambda: recorded)


def refused(written, recorded=()):
    with pytest.raises(UserError) as caught:
        checked(written, recorded)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "place", "message"),
    [
        ({"score": ["wiki/acuracy"]}, "score.0", f"'wiki/acuracy' {NOWHERE}: did you mean 'wiki/accuracy'?"),
        ({"score": ["tree/height"]}, "score.0", f"'tree/height' {NOWHERE}: {DECLARE}"),
        ({"score": ["wiki/perplexity", "wiki/accuracy"]}, "score", NO_MEAN),
        ({"score": ["wiki/accuracy"] * 2}, "score", "wiki/accuracy would count more than once: name each"),
        (reporting(pareto={"score": ["wiki/accuracy"] * 2}), "reports.0.score", "wiki/accuracy would count"),
        ({"score": None, "reports": ["pareto"]}, "score", NO_MEAN),
        ({"score": None} | claiming(), "score", NO_MEAN),
        (claiming(measure="wiki/perlex"), "claims.0.measure", f"'wiki/perlex' {NOWHERE}: did you mean"),
        (claiming(of={"of": "fast", "measure": "los"}), "claims.0.measure", f"'los' {NOWHERE}"),
        (claiming(measure="loss_spikes"), "claims.0.measure", f"'loss' {NOWHERE}"),
        (reporting(pareto={"score": "wiki/acc"}), "reports.0.score.0", f"'wiki/acc' {NOWHERE}: did you mean"),
        (reporting(pareto={"score": ["wiki/perplexity", "wiki/accuracy"]}), "reports.0.score", NO_MEAN),
        (reporting(optimizer_spikes={"metric": "wiki/loss"}), "reports.0.metric.0", f"'wiki/loss' {NOWHERE}"),
        (reporting(against={"x": "nested.depht"}), "reports.0.x",
         "no run has 'nested.depht' in its config: did you mean 'nested.depth'?"),
        (reporting(against={"x": "lr", "by": ["rl"]}), "reports.0.by.0", "no run has 'rl' in its config"),
        (reporting(table={"name": "scaling", "x": "rl"}), "reports.0.x", "no run has 'rl' in its config"),
        (reporting(against={"x": "lr", "split": "rl"}), "reports.0.split", "no run has 'rl' in its config"),
        (reporting(composition={"x": "knd"}), "reports.0.x", "no run counts selected examples by 'knd': "),
        (TRAINED | {"score": ["shapes/10_shot"]}, "score.0", f"'shapes/10_shot' {NOWHERE}"),
        (TRAINED | {"score": ["shpaes/zero_shot"]}, "score.0",
         f"'shpaes/zero_shot' {NOWHERE}: did you mean 'shapes/zero_shot'?"),
        (COMPARED | claiming(measure="lost"), "claims.0.measure", f"'lost' {NOWHERE}"),
        (COMPARED | better(measure="temperature"), "claims.0.better_than",
         "temperature has no goal: declare it, metrics: {temperature: {goal: max}} or {goal: min}; or use"),
        (tuned("wiki/acc"), "claims.0.of.by", f"'wiki/acc' {NOWHERE}: did you mean"),
        (COMPARED | tuned("temperature"), "claims.0.of.by", "temperature has no goal"),
        (tuned("wiki/perplexity"), "claims.0.of.by", "wiki/perplexity is part of the score"),
        (with_row("wiki/acc"), "reports.0.best.tuned.by", f"'wiki/acc' {NOWHERE}: did you mean"),
        (with_row("wiki/perplexity"), "reports.0.best.tuned.by", "wiki/perplexity is part of the score"),
        ({"name": "both", "studies": {"own": OWN, "bad": OWN | {"name": "bad", "score": ["a/b"]}}},
         "studies.bad.score.0", f"'a/b' {NOWHERE}"),
    ],
)  # fmt: skip
def test_a_name_that_is_nobodys_is_refused_with_the_nearest(changes, place, message):
    written = changes if "name" in changes else OWN | changes
    assert refused(written).startswith(f"{place}: {message}")


def test_an_exponent_has_no_direction_to_state_instead_of_a_goal():
    claim = {"statement": "x", "of": "fast", "exponent_above": 1.0, "over": "training.steps"}
    text = refused(COMPARED | {"claims": [claim | {"measure": "temperature"}]})
    assert text.startswith("claims.0.of: temperature has no goal")
    assert text.endswith("{goal: min}")


@pytest.mark.parametrize(
    ("sizes", "problem"),
    [([1, 2], "size has 2 sizes"), (["a", "b", "c"], "fast size=a has no number above 0")],
)
def test_an_exponent_takes_three_sizes(sizes, problem):
    claim = {"statement": "x", "of": "fast", "exponent_above": 1.0, "over": "size"}
    written = OWN | {"claims": [claim]}
    axes = {"axes": [{"runs": ["fast"], "grid": {"size": sizes}}]}
    text = refused(written | axes)
    assert text.startswith(f"claims.0.over: {problem}")
    checked(written | {"axes": [{"runs": ["fast"], "grid": {"size": [1, 2, 4]}}]})


@pytest.mark.parametrize(
    "written",
    [
        OWN,
        OWN | {"score": None, "reports": ["table", {"pareto": {"score": "wiki/accuracy"}}]},
        OWN | {"score": ["wiki/accuracy"]} | reporting(against={"x": "nested.depth", "by": ["lr"]}),
        OWN | {"metrics": {"*/perplexity": MIN, "train_*": MIN}} | claiming(measure="train_loss"),
        OWN | claiming(measure="score_after_0.5"),
        OWN | COUNTING | reporting(composition={"x": "kind"}),
        OWN | better(),
        OWN | better(measure="wiki/accuracy"),
        OWN | tuned("wiki/perplexity", measure="wiki/accuracy"),
        OWN | tuned("wiki/accuracy"),
        OWN | with_row("wiki/accuracy"),
        OWN | better(measure="loss_spikes") | {"metrics": METRICS | {"loss": MIN}},
        TRAINED | {"score": ["shapes/5_shot", "shapes_retrieval/i2t_r5"]},  # of its benchmark
        COMPARED | better(),
        COMPARED | claiming(measure="loss"),
    ],
    ids=range(15),
)
def test_what_is_declared_is_accepted(written):
    check(plan(StudySpec.parse(copy.deepcopy(written))), recorded=lambda: pytest.fail("not needed"))


def test_what_is_recorded_is_accepted_and_has_no_goal():
    old = OWN | {"metrics": None, "score": ["wiki/height"]}
    checked(old | claiming(measure="height"), {"wiki/height", "height"})
    assert refused(old | claiming(measure="height"), {"wiki/height"}).startswith("claims.0.measure: ")
    assert refused(old | better(), {"wiki/height"}).startswith("claims.0.better_than: score has no goal")


def test_plan_and_launch_check_names(tmp_path):
    spec = labs.write_study(tmp_path, score=["toy/scroe"], metrics={"toy/score": {"goal": "max"}})
    for verb in ("plan", "launch"):
        ended = labs.here(verb, spec, root=tmp_path / "lab")
        assert ended.returncode == 1
        assert f"score.0: 'toy/scroe' {NOWHERE}: did you mean 'toy/score'?" in ended.stderr
    assert not (tmp_path / "lab").exists()


def test_the_first_evaluation_has_the_names_that_the_study_needs():
    spec = OWN | {"score": ["wiki/accuracy"]}
    for reported in (["wiki/accuracy"], ["wiki/perplexity"], ["wiki/accuracy", "tree/height"]):
        check_first("own", spec, "command", reported)
    with pytest.raises(UserError) as error:
        check_first("own", spec, "command", ["wiki/acuracy", "tree/height"])
    assert str(error.value).startswith(
        "the first evaluation reports wiki/acuracy, tree/height, which own doesn't declare, but not "
        "wiki/accuracy, which its score.0 requires (did you mean 'wiki/acuracy'?): "
    )
