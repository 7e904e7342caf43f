"""The answer in a sentence says what the numbers allow, and no more."""

from __future__ import annotations

import pytest
from pandas import DataFrame

from jestlab.analysis import frames, tables
from jestlab.analysis.report.answer import Answer, answer


@pytest.fixture
def asked(new_store, stored_run):
    """The answer of an experiment whose runs end so, by name: a score a seed; all begin at .1."""

    def ask(baseline="uniform", in_percent=True, **ends: list[float]) -> Answer:
        store = new_store().add(
            *(
                stored_run(name, [0.1, score], seed=seed, flops_per_step=(3e9 * (1 + place), 0.0, 0.0))
                for place, (name, scores) in enumerate(ends.items())
                for seed, score in enumerate(scores)
            )
        )
        table: DataFrame = tables.summary(frames.read(store.url, "study"), baseline).frame
        return answer(table, baseline, in_percent)

    return ask


def test_better(asked):
    # Differences .2, .22, .18: mean .2, std .02; t(2) = 4.3027, so ± 4.3027 · .02 / √3 = .0497.
    said = asked(uniform=[0.4, 0.4, 0.4], joint=[0.6, 0.62, 0.58])
    assert said.sentence.startswith(
        "joint scores 60.0 ± 2.0%, 20.0 points above uniform (95% CI 15.0 to 25.0, 3 seeds). "
        "It reaches uniform’s final score with "
    )
    assert "no fewer FLOPs" in said.sentence  # twice the cost, a quarter sooner
    assert said.caveat == ""


def test_the_best_of_several_says_so(asked):
    said = asked(uniform=[0.4, 0.41], joint=[0.6, 0.62], third=[0.5, 0.51])
    assert said.sentence.startswith("joint, the best of 2, scores 61.0 ± 1.4%")
    assert said.caveat == "The interval does not allow for joint having been picked as the best of 2."


def test_noise(asked):
    said = asked(uniform=[0.4, 0.5, 0.45], joint=[0.45, 0.46, 0.47])
    assert said.sentence.startswith(
        "No difference beyond the seeds’ noise: joint scores 46.0 ± 1.0%, +1.0 points"
    )
    assert "fewer" not in said.sentence


def test_the_baseline_is_best(asked):
    said = asked(uniform=[0.6, 0.61, 0.62], joint=[0.4, 0.41, 0.42])
    assert said.sentence == (
        "No run scores above uniform, which ends at 61.0 ± 1.0%: joint ends 20.0 points below it "
        "(95% CI −20.0 to −20.0, 3 seeds)."
    )


@pytest.mark.parametrize(
    ("joint", "said"),
    [(0.6, "20.0 points above uniform, by one seed"), (0.3, "10.0 points below it, by one seed")],
)
def test_one_seed(asked, joint, said):
    assert said in asked(uniform=[0.4], joint=[joint]).sentence


def test_nothing_to_compare_with(asked):
    assert asked(uniform=[0.4, 0.6]).sentence == (
        "uniform scores 50.0 ± 14.1%; there is nothing to compare it with."
    )


def test_no_seed_in_common(new_store, stored_run):
    store = new_store().add(stored_run("uniform", [0.1, 0.4]), stored_run("joint", [0.1, 0.6], seed=1))
    table = tables.summary(frames.read(store.url, "study"), "uniform").frame
    assert answer(table, "uniform", True).sentence == (
        "joint scores 60.0%; uniform, the baseline, has no seed in common with it."
    )


def test_not_in_percent(asked):
    said = asked(in_percent=False, uniform=[0.4, 0.41], joint=[0.6, 0.62]).sentence
    assert said.startswith("joint scores 0.61 ± 0.01414, 0.205 in score above uniform (95% CI")
