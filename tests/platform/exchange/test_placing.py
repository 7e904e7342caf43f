"""The labels, seeds, scores, and costs of imported runs in a study."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.exchange.adopt import Known
from jestlab.platform.exchange.efforts import Effort
from jestlab.platform.exchange.placing import Placing, Rules, parse_score
from jestlab.platform.exchange.source_run import Curve, FoundRun
from jestlab.platform.planning.identity import is_true, of_origin
from jestlab.platform.store.records import RunState

TEXTS = st.text(st.characters(), max_size=1_000)
NOTHING = Known((), {}, {}, ())


def found(origin: str = "wandb:lab/jest/a", **parts) -> FoundRun:
    given = {
        "name": "one",
        "config": {"lr": 0.5, "model": {"width": 64}},
        "metrics": {"loss": Curve.of([0, 10, 20], [3, 2, 1]), "eval/top1": Curve.of([10, 20], [0.25, 0.5])},
        "state": "COMPLETED",
    }
    return FoundRun(origin, **given | parts)


def placed(run: FoundRun, known: Known = NOTHING, kind: str = "wandb", **rules):
    return Placing(kind, Rules(**rules), known, "/here").place(run)


def test_labels_are_marked_with_their_source():
    run = placed(found())
    assert (run.name, run.label, run.seed) == ("one", "one (wandb)", 0)
    assert run.config == {"lr": 0.5, "model": {"width": 64}, "adopted_from": "wandb:lab/jest/a"}
    assert is_true(run.fingerprint, "adopted", run.config, {})
    assert not is_true(run.fingerprint, "adopted", {**run.config, "adopted_from": "other"}, {})


def test_labels_are_written_by_a_template():
    labels = {
        "old": "old",
        "{group} w={model.width}": "pilot w=64",
        "{name} {lr}": "one 0.5",
        "a\n\tb \x1b[31m": "a b [31m #fec8ab21e848",
        "x" * 500: "x" * 59 + "…" + "x" * 60 + " #c38c2bf3055c",
        "a #0123456789ab": "a #0123456789ab #5f4b4d9c8629",  # else it might be the label of another name
    }
    run = found(group="pilot")
    assert {template: placed(run, label=template).name for template in labels} == labels
    assert placed(found(config={"a.b": "c"}), label="{a.b}").name == "c"


def test_tags_with_values_can_be_named():
    run = found(tags=("plain", "team=a=b", "jestlab.seed=7", "odd=x"))
    assert placed(run, label="{team} {name}", seed="jestlab.seed").label == "a=b one (wandb)"
    assert placed(run, seed="jestlab.seed").seed == 7
    assert placed(run, seed="odd").seed == placed(run, seed="plain").seed == 0


def test_rejects_labels_with_unknown_keys_and_names_of_other_runs():
    with pytest.raises(UserError, match=r"one: it has no 'widht' for its label: did you mean 'width'\?"):
        placed(found(config={"width": 3}), label="{widht}")
    with pytest.raises(UserError, match="its label is empty"):
        placed(found(name="\x00"))
    with pytest.raises(UserError, match=r"the study has a run 'one' of its own: give another, --label"):
        placed(found(), Known({"one"}, {}, {}, ()))


def test_seeds_are_those_of_the_config_or_the_first_free_ones():
    placing = Placing("csv", Rules(label="all"), NOTHING, "/here")
    configs = [{}, {"seed": 3}, {"seed": 3}, {"seed": -1}]
    runs = [placing.place(found(f"csv:t#{number}", config=config)) for number, config in enumerate(configs)]
    assert [run.seed for run in runs] == [0, 3, 1, 2]
    assert runs[2].left_out == {"seeds that another run of the label has: numbered instead": 1}
    for seed in (math.nan, math.inf, -1, 2**40, "1", True, 0.5):
        assert placed(found(config={"seed": seed})).seed == 0


def test_runs_keep_their_seeds():
    its, other = of_origin("wandb:lab/jest/a"), of_origin("b")
    assert its.startswith("71d3b1312cbeb82c")  # as in stores of earlier versions
    known = Known((), {("one (wandb)", 0): other, ("one (wandb)", 7): its}, {its: 7, other: 0}, ())
    assert placed(found(), known).seed == 7
    assert placed(found(config={"seed": 0}), known).seed == 7  # 0 is another's
    assert placed(found("new"), known).seed == 1


@given(st.lists(st.one_of(st.none(), st.integers(-1, 4)), max_size=12))
def test_each_run_has_its_own_seed_and_keeps_it(seeds):
    placing = Placing("csv", Rules(label="all"), NOTHING, "/here")
    configs = [{} if seed is None else {"seed": seed} for seed in seeds]
    runs = [placing.place(found(str(number), config=config)) for number, config in enumerate(configs)]
    assert len({run.seed for run in runs}) == len(runs)
    known = Known(
        (), {(run.label, run.seed): run.fingerprint for run in runs},
        {run.fingerprint: run.seed for run in runs}, (),
    )  # fmt: skip
    again = Placing("csv", Rules(label="all"), known, "/here")
    for number, config in reversed([*enumerate(configs)]):
        assert again.place(found(str(number), config=config)).seed == runs[number].seed


def test_scores_are_the_requested_ones():
    metrics = {
        "val/top1": Curve.of([5], [0.5]),
        "val.top5": Curve.of([5], [math.inf]),
        "acc": Curve.of([5], [0.75]),
        "/x": Curve.of([5], [1]),
    }
    run = found(metrics=metrics)

    def names(*scores: str) -> list[str]:
        chosen = placed(run, scores=tuple(map(parse_score, scores))).scores
        return [f"{score.dataset}/{score.metric}" for score in chosen]

    assert names("*") == ["val/top1", "val/top5"]
    assert names("v*1", "imagenet/top1=acc") == ["val/top1", "imagenet/top1"]
    assert names("other/*") == [] == names("a/b=missing")
    assert [score.value for score in placed(run, scores=[("a/b", "acc")]).scores] == [0.75]
    assert placed(run, scores=[("a/b", "val.top5")]).scores[0].value == math.inf  # not as if it were missing
    with pytest.raises(UserError, match="acc names no dataset: --score DATASET/METRIC=acc"):
        names("acc")
    for written in ("a=b", "/a=b", "a/b="):
        with pytest.raises(UserError, match="expected DATASET/METRIC=NAME"):
            parse_score(written)


def test_by_default_scores_are_those_that_the_study_has():
    known = Known((), {}, {}, {"eval/top1", "loss"})
    assert {score.metric for score in placed(found(), known).scores} == {"top1", "loss"}
    assert not placed(found()).scores


def test_scores_have_the_costs_of_training():
    run = found(
        metrics={
            "eval/top1": Curve.of([5, 10, 20], [0.1, 0.2, 0.3]),
            "seen": Curve.of([6, 20], [600, math.nan]),
        },
        seconds=12.5,
    )
    wanted = [("", "eval/*")]
    scores = placed(run, scores=wanted, examples=Effort("seen"), flops=Effort("step * 1e9")).scores
    assert [score.examples_seen for score in scores] == [None, 600, None]
    assert [score.flops_total for score in scores] == [5e9, 1e10, 2e10]
    assert [score.seconds for score in scores] == [None, None, 12.5]
    timed = placed(run, scores=wanted, seconds=Effort("step*model.width")).scores
    assert [score.seconds for score in timed] == [320, 640, 1280]


def test_rejects_unknown_costs_and_leaves_out_those_out_of_range():
    run = found(metrics={"a/b": Curve.of([10], [1])})
    for effort in ("step*1e300", "step*-1"):
        assert placed(run, scores=[("", "a/b")], examples=Effort(effort)).scores[0].examples_seen is None
    with pytest.raises(UserError, match="has no number 'nan'"):
        placed(run, scores=[("", "a/b")], examples=Effort("step*nan"))
    with pytest.raises(UserError, match=r"one: no metric 'los': did you mean 'loss'\?"):
        placed(found(), scores=[("", "*/*")], flops=Effort("los"))
    with pytest.raises(UserError, match=r"step\*batch: its config has no number 'batch'"):
        placed(found(), examples=Effort("step*batch"))


def test_states_and_reasons():
    for state, ends, reason in (
        ("COMPLETED", RunState.COMPLETED, "None"),
        ("FAILED", RunState.FAILED, "failed"),
        ("CANCELLED", RunState.CANCELLED, "stopped"),
        ("RUNNING", RunState.CANCELLED, "had not ended"),
    ):
        run = placed(found(state=state))
        assert run.state is ends
        assert reason in str(run.reason)


def test_drops_values_that_stores_cannot_hold():
    metrics = {"a\0b": Curve.of([-5, 0], [1, 2]), "gone": Curve.of([-1], [1])}
    config = {"x": math.nan, "y": [math.inf, {"k\0": "v\0\ud800"}]}
    run = placed(
        found(metrics=metrics, config=config, notes="\0 ", tags=("t\0", "jestlab.seed=3"), host="h\0")
    )
    assert {name: steps.tolist() for name, (steps, _) in run.metrics.items()} == {"ab #59b271ae1bbc": [0]}
    assert run.left_out == {"points at negative steps": 2}
    assert run.config["x"] == "nan" and list(run.config["y"][1].values()) == ["v?"]
    assert (run.note, run.tags, run.host) == ("", ("t",), "h")
    run = placed(found("csv:t.csv#\ud800\0"))
    assert run.origin.startswith("csv:t.csv#? #") and run.fingerprint == of_origin(run.origin)


def _label(name: str) -> str | None:
    try:
        return str(placed(found(name=name)).label)
    except UserError:  # nothing of it is printable
        return None


@given(TEXTS, TEXTS, st.sampled_from(["{}{}", "{} {}", "{}\n{}", "{}  {}", "{}\0{}", "{}x{}"]))
def test_distinct_names_have_distinct_labels(head, tail, joined):
    labels: dict[str | None, str] = {}
    for name in {head, tail, joined.format(head, tail), joined.format(tail, head), f"{head} "}:
        label = _label(name)
        for text in {name, *([label.removesuffix(" (wandb)")] if label else [])}:
            found_label = _label(text)
            assert found_label is None or labels.setdefault(found_label, text) == text


@given(TEXTS, TEXTS)
def test_distinct_origins_are_distinct_runs(first, second):
    fingerprints = {placed(found(f"csv:t.csv#{name}")).fingerprint for name in (first, second, f"{first}\0")}
    assert len(fingerprints) == len({first, second, f"{first}\0"})


def test_long_names_of_metrics_are_cut_and_stay_distinct():
    names = [f"{'é' * 3_000}{middle}{'/x' * 300}" for middle in "ab"]
    metrics = placed(found(metrics={name: Curve.of([0], [1]) for name in names})).metrics
    assert len(metrics) == 2 and max(len(name.encode()) for name in metrics) < 2_700


def test_a_run_whose_points_cannot_be_stored_is_refused():
    with pytest.raises(UserError, match="one: it has only points at negative steps"):
        placed(found(metrics={"loss": Curve.of([-2, -1], [1, 2])}))
    assert placed(found(metrics={})).state is RunState.COMPLETED


def test_a_run_of_which_all_is_left_out_is_refused():
    with pytest.raises(UserError, match="one: it has only cells of a: not numbers: nothing to adopt"):
        placed(found(metrics={}, left_out={"cells of a: not numbers": 2, "others": 0}))


def test_seeds_that_cannot_be_used_are_counted():
    placing = Placing("csv", Rules(label="all"), NOTHING, "/here")
    unusable: list[dict[str, Any]] = [{"config": {"seed": "abc"}}, {"config": {"seed": -1}}]
    unusable.append({"config": {}, "tags": ("seed=" + "1" * 5_000,)})
    runs = [placing.place(found(f"csv:t#{number}", **one)) for number, one in enumerate(unusable)]
    assert [run.seed for run in runs] == [0, 1, 2]
    for run in runs:
        assert run.left_out == {"seeds other than whole numbers from 0 to 4294967295: numbered instead": 1}
    for config, tags in (({"seed": 3}, ()), ({}, ()), ({}, ("seed=3.0",))):
        assert placed(found(config=config, tags=tags)).left_out == {}


def test_rejects_two_metrics_for_one_score():
    metrics = {"eval/top1": Curve.of([1], [0.5]), "eval.top1": Curve.of([1], [0.25])}
    with pytest.raises(UserError, match=r"eval/top1 and eval.top1 have one name: --score eval/top1=METRIC"):
        placed(found(metrics=metrics), scores=[("", "eval*")])


def test_huge_numbers_and_deep_configs_give_one_line():
    assert placed(found(config={"seed": 10**400})).seed == 0
    assert placed(found(tags=("seed=" + "1" * 5_000,))).seed == 0
    assert placed(found(tags=("seed=3.0",))).seed == 3
    scores = placed(found(config={"b": 10**300}), scores=[("", "eval/*")], flops=Effort("step*b")).scores
    assert scores[0].flops_total == 1e301
    deep: object = 1
    for _ in range(700):
        deep = {"a": [deep]}
    with pytest.raises(UserError, match="one: its config nests deeper than 100 levels"):
        placed(found(config={"deep": deep}), label="{width}")
