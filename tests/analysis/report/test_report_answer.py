"""The answer in one sentence, which claims no more than the numbers support; and the claims of a study."""

import pytest
from tests.analysis.report.conftest import by_class, words

from jestlab.analysis import tables
from jestlab.analysis.report import gather
from jestlab.analysis.report.answer import Answer, answer


def answer_of(store, baseline="uniform", scope="scoring") -> Answer:
    found = store.read()
    finals = tables.finals(found, baseline, scope)
    return answer(tables.summary(finals).frame, finals)


@pytest.fixture
def asked(new_store, stored_runs):
    """A function that returns the answer of an experiment, given the final score of each seed by run."""

    def ask(**ends: list[float]) -> Answer:
        runs = []
        for place, (name, scores) in enumerate(ends.items(), start=1):
            curves = [[0.1, score] for score in scores]
            runs += stored_runs(name, *curves, flops_per_step=(3e9 * place, 0, 0))
        return answer_of(new_store().add(*runs))

    return ask


def test_a_better_run(asked):
    # Differences .2, .22, .18: mean .2, std .02; t(2) = 4.3027, so ± 4.3027 · .02 / √3 = .0497.
    said = asked(uniform=[0.4, 0.4, 0.4], joint=[0.6, 0.62, 0.58])
    assert said.sentence.startswith(
        "joint scores 60.0 ± 2.0%, 20.0 points above uniform (95% CI 15.0 to 25.0, 3 seeds). "
        "It reaches uniform’s final score with "
    )
    # It matches uniform after 1.6 of 2 steps, each at twice the cost: 2 / 3.2.
    assert said.sentence.endswith("with 1.2× fewer examples and 1.6× more training FLOPs.")
    assert said.caveat == ""
    one_seed = asked(uniform=[0.4], joint=[0.3]).sentence
    assert one_seed == "joint scores 30.0%, 10.0 points below uniform, by one seed, which has no interval."


def test_without_a_better_run(asked):
    noise = asked(uniform=[0.4, 0.5, 0.45], joint=[0.45, 0.46, 0.47]).sentence
    assert noise.startswith(
        "joint scores 46.0 ± 1.0%, +1.0 points against uniform; the interval includes 0 (95% CI −"
    )
    assert noise.endswith(", 3 seeds).")
    assert "fewer" not in noise
    assert asked(uniform=[0.6, 0.61, 0.62], joint=[0.4, 0.41, 0.42]).sentence == (
        "joint scores 41.0 ± 1.0%, 20.0 points below uniform (95% CI −20.0 to −20.0, 3 seeds)."
    )
    alone = asked(uniform=[0.4, 0.6]).sentence
    assert alone == "uniform scores 50.0 ± 14.1%; no other run has a finite score to compare."


def test_a_claim_may_hold_although_the_interval_of_the_answer_includes_0(new_store, stored_runs):
    """Its test is one-sided (p = .030); the interval is two-sided (p = .061). A note says so, once."""
    store = new_store().add(
        *stored_runs("uniform", *([[0.1, 0.4]] * 4)),
        *stored_runs("joint", *([0.1, 0.4 + more] for more in (0.1, 0.2, 0.3, 0.05))),
        spec={"claims": [{"statement": "Joint learns more", "of": "joint", "above": "uniform"}]},
    )
    assert "+16.2 points against uniform; the interval includes 0" in answer_of(store).sentence
    claims = tables.table(store.url, "claims", ["study"])
    assert list(claims.frame["verdict"]) == ["holds"]
    assert sum("decided although its interval includes 0" in note for note in claims.notes) == 1


def test_significant_runs_are_named_even_if_another_mean_is_higher(asked):
    # The highest mean is noise; differences of steady .05, .06, .05 and of low −.2, −.21, −.2 are not.
    said = asked(
        uniform=[0.4, 0.4, 0.4], noisy=[0.2, 0.9, 0.4], steady=[0.45, 0.46, 0.45], low=[0.2, 0.19, 0.2]
    )
    assert said.sentence.startswith("noisy, the best of 3, scores 50.0 ± 36.1%, +10.0 points against uniform")
    assert "the interval includes 0" in said.sentence
    # t(2) · .005774 / √3 = .01434.
    assert said.sentence.endswith(
        "Against uniform, intervals without 0: steady (+5.3 points, 95% CI 3.9 to 6.8, 3 seeds), "
        "low (−20.3 points, 95% CI −21.8 to −18.9, 3 seeds)."
    )
    assert said.caveat == "The intervals do not account for 3 runs having been compared."


def test_runs_that_are_not_judged_are_named(new_store, stored_run):
    def runs(name, score, seeds=2, **told):
        return [stored_run(name, [0.1, score + 0.01 * seed], seed=seed, **told) for seed in range(seeds)]

    store = new_store().add(
        *runs("reference", 0.9, needed=1),
        *runs("uniform", 0.4),
        *runs("joint", 0.6, 1),
        *runs("joint", 0.6, 2, state="RUNNING")[1:],
        *runs("third", 0.8, metrics=("shapes/zero_shot",)),
        *runs("fourth", 0.7, state="FAILED"),
    )
    said = answer_of(store)
    assert said.sentence.startswith("joint scores 60.0%, 20.0 points above uniform, by one seed")
    assert said.caveat.startswith("Not judged: third, fourth (failed in 2 of 2 seeds). Judged by fewer")
    assert said.caveat.endswith("joint (1 of 2).")
    store = new_store().add(*runs("uniform", 0.4, 1), *runs("joint", 0.6, 2)[1:])  # no seed in common
    said = answer_of(store)
    assert said.sentence == "joint scores 61.0%; it is not compared with uniform, the baseline."
    assert said.caveat == "Not judged: joint."


def test_flops_name_their_scope_and_the_widest_one(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.4], flops_per_step=(1e9, 0, 0)),
        stored_run("joint", [0.1, 0.6], flops_per_step=(1e9, 1e9, 2e9), reference_training_share=0.8e9),
    )
    # Uniform spends 2 steps of 1; joint matches it after 1.6 steps of 1 (training), 2 (and scoring) or
    # 4 (and the reference's scoring), and .8 for its share in training the reference: 7.2.
    needed = "with a share in the training of needed runs."
    for scope, said in {
        "learner": f"1.2× fewer training FLOPs; 3.6× more {needed}",
        "scoring": f"1.6× more FLOPs with scoring; 3.6× more {needed}",
        "reference_scoring": f"3.2× more FLOPs with the reference’s scoring; 3.6× more {needed}",
        "reference_training": f"3.6× more FLOPs {needed}",
    }.items():
        assert said in answer_of(store, scope=scope).sentence


def test_flops_of_a_pretraining_run_count_although_no_plan_knows_them(new_store, stored_run):
    """Tuning takes 1.6 steps of 1, and .9 for its share in the pretraining."""
    store = new_store().add(
        stored_run("uniform", [0.1, 0.4], flops_per_step=(3e9, 0, 0), priced=False),
        stored_run("tuned", [0.1, 0.6], flops_per_step=(1e9, 0, 0), priced=False,
                   reference_training_share=0.9e9),
    )  # fmt: skip
    said = answer_of(store).sentence
    assert "3.8× fewer training FLOPs; 2.4× fewer with a share in the training of needed runs." in said
    said = answer_of(store, scope="reference_training").sentence
    assert "2.4× fewer FLOPs with a share in the training of needed runs." in said
    table = tables.summary(tables.finals(store.read(), scope="reference_training"))
    assert any("a share in the reference's training" in note for note in table.notes)
    assert table.frame.set_index("label")["flops"].to_dict() == {"uniform": 6e9, "tuned": 2.9e9}


def test_a_score_reached_at_the_first_evaluation_is_only_a_bound(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.4], flops_per_step=(1e9, 0, 0)),
        stored_run("joint", [0.5, 0.6], flops_per_step=(3e9, 0, 0)),
    )
    assert answer_of(store).sentence.endswith(
        "with at least 2.0× fewer examples and at most 1.5× more training FLOPs."
    )


# ---- claims


def test_claims_are_shown_in_words(study, page, parsed_page):
    (main,) = parsed_page.iter("main")
    assert main[0].get("id") == "claims"
    told = [words(claim) for claim in by_class(parsed_page, "claim")]
    assert told[0].startswith("✓ holds Joint selection learns more than uniform sampling Figure 3, middle +")
    evidence = " points, 3 seeds: joint above uniform, by score Expected above 0; 3 of 3 seeds agree; chance"
    assert evidence in told[0]
    assert told[1].startswith("✗ does not hold at this scale (smoke) Independent selection is as good")
    assert told[1].endswith("Likely reason: the learners are small.")
    assert told[2].startswith("✗ does not hold at this scale (smoke) Selection hurts <b>")
    assert told[3].startswith("○ not run Greedy learns more 0 seeds: greedy above uniform, by score")
    assert told[3].endswith("Missing: unknown run: greedy.")
    assert not [text for text in told if "never shown" in text]
    claims = tables.table(study.url, "claims", ["study"])
    assert (page.parent / "report" / "claims.csv").read_text() == claims.csv()
    answer = words(by_class(parsed_page, "answer")[0])
    assert answer.startswith(f"{claims.caption} joint, the best of 2, scores 65.3 ± 3.5%, 25.0 points above")


def test_the_answer_is_only_the_claims_if_no_runs_compete(new_store, stored_runs):
    retrieval, zero_shot = ({"of": "a", "measure": name} for name in ("shapes_retrieval/i2t_r1", "score"))
    claim = {"statement": "As well as classes", "within": 0.01, "of": retrieval, "near": zero_shot}
    store = new_store().add(*stored_runs("a", [0.1, 0.4], [0.1, 0.4]), spec={"claims": [claim]})
    assert gather(store.url, "study").answer.sentence == "At scale smoke, 1 claim: holds."
