"""The answer: a verdict, a sentence, and tiles, which claim no more than the numbers support; and claims."""

from unittest.mock import Mock

import pytest
from tests.analysis.report.conftest import by_class, words

from jestlab.analysis import tables
from jestlab.analysis.report import gather
from jestlab.analysis.report.answer import Answer, answer, verdict_of


def answer_of(store, baseline="uniform", scope="scoring") -> Answer:
    found = store.read()
    finals = tables.finals(found, baseline, scope)
    return answer(tables.summary(finals), finals)


def tiles_of(answer: Answer) -> dict[str, tuple[str, str, str]]:
    """Label → value, note, and tone of each tile."""
    return {tile.label: (tile.value, tile.note, tile.tone) for tile in answer.tiles}


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
    assert (said.verdict, said.tone) == ("✓ Clear winner", "good")
    beats = "joint beats uniform by 20.0 points (95% CI 15.0 to 25.0, n = 3)."
    assert said.sentence == f"{beats} In training FLOPs: 1.6× more."
    # It matches uniform after 1.6 of 2 steps, each at twice the cost: 2 / 3.2.
    goal = "to reach uniform’s final score; medians of both and of their ratio"
    assert tiles_of(said) == {
        "Δ score, joint − uniform": ("+20.0 points", "60.0 against 40.0; 95% CI 15.0 to 25.0, n = 3", "good"),
        "Examples": ("1.2× fewer", f"joint: 102 instead of 128 {goal}", "good"),
        "Training cost": ("1.6× more FLOPs", f"joint: 9.60 instead of 6.00 GFLOP {goal}", "bad"),
    }
    assert said.caveat == ""
    assert [*said.lines()][1].startswith("Training cost: 1.6× more FLOPs (joint: 9.60 instead of")
    one_seed = asked(uniform=[0.4], joint=[0.3])
    assert one_seed.sentence == "joint is worse than uniform by 10.0 points (one seed)."
    assert one_seed.tiles[0].note == "30.0 against 40.0"
    assert one_seed.verdict == "… Not decided yet"
    examples = tiles_of(one_seed)["Examples"]
    assert examples == ("Not reached", "uniform’s final score, in 0 of 1 seeds", "bad")


def test_without_a_better_run(asked):
    noise = asked(uniform=[0.4, 0.5, 0.45], joint=[0.45, 0.46, 0.47])
    assert (noise.verdict, noise.tone) == ("≈ No clear winner", "open")
    by = "by 1.0 points (95% CI −10.4 to 12.4, n = 3), not clearly."
    assert noise.sentence == f"joint is better than uniform {by}"
    opposite = asked(uniform=[0.45, 0.46, 0.47], joint=[0.4, 0.5, 0.45])
    assert opposite.sentence == f"joint is worse than uniform {by}"
    assert noise.tiles[0].tone == ""
    worse = asked(uniform=[0.6, 0.61, 0.62], joint=[0.4, 0.41, 0.42])
    assert worse.sentence == "uniform beats joint by 20.0 points (95% CI 20.0 to 20.0, n = 3)."
    assert worse.tiles[0].tone == "bad"
    alone = asked(uniform=[0.4, 0.6]).sentence
    assert alone.startswith("uniform scores 50.0% (95% CI −")
    assert alone.endswith(", n = 2); no other run has a finite score to compare.")


def test_the_best_of_several_is_named_only_if_it_beats_the_runner_up(asked):
    # Differences of best and good .1, .1, .12: mean .1067, std .01155; t(2) · std / √3 = .0287.
    said = asked(uniform=[0.4, 0.4, 0.4], good=[0.5, 0.51, 0.5], best=[0.6, 0.61, 0.62])
    assert said.sentence == (
        "best beats good, the runner-up, by 10.7 points (95% CI 7.8 to 13.5, n = 3). "
        "In training FLOPs: 2.4× more than uniform."
    )
    said = asked(uniform=[0.4, 0.4, 0.4], good=[0.5, 0.51, 0.5], best=[0.5, 0.53, 0.5])
    assert said.verdict == "≈ No clear winner"
    assert said.sentence == (
        "best and good beat uniform; best leads good by 0.7 points (95% CI −2.2 to 3.5, n = 3), not clearly."
    )


def test_a_claim_may_hold_although_the_interval_of_the_answer_includes_0(new_store, stored_runs):
    """Its test is one-sided (p = .030); the interval is two-sided (p = .061). A note says so, once."""
    store = new_store().add(
        *stored_runs("uniform", *([[0.1, 0.4]] * 4)),
        *stored_runs("joint", *([0.1, 0.4 + more] for more in (0.1, 0.2, 0.3, 0.05))),
        spec={"claims": [{"statement": "Joint learns more", "of": "joint", "above": "uniform"}]},
    )
    said = gather(store.url, "study").answer
    assert said.sentence.startswith("joint beats uniform by 16.2 points (95% CI −")
    assert (said.verdict, said.tone) == ("✓ Yes", "good")
    claims = tables.table(store.url, "claims", ["study"])
    assert list(claims.frame["verdict"]) == ["holds"]
    assert sum("decided although its interval includes 0" in note for note in claims.notes) == 1


def test_significant_runs_are_named_even_if_another_mean_is_higher(asked):
    # The highest mean is noise; differences of steady .05, .06, .05 and of low −.2, −.21, −.2 are not.
    said = asked(
        uniform=[0.4, 0.4, 0.4], noisy=[0.2, 0.9, 0.4], steady=[0.45, 0.46, 0.45], low=[0.2, 0.19, 0.2]
    )
    lead = "noisy leads steady by 4.7 points (95% CI −83.5 to 92.9, n = 3), not clearly."
    assert said.sentence == f"steady beats uniform; {lead}"


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
    assert said.sentence == "joint is better than uniform by 20.0 points (one seed)."
    assert said.caveat.startswith("Not judged: third and fourth (failed in 2 of 2 seeds). Judged by fewer")
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
    whole = "Total cost with the reference"
    for scope, note in {
        "learner": "without the reference’s training and the reference’s scoring and scoring: 1.2× fewer",
        "scoring": "without the reference’s training and the reference’s scoring: 1.6× more",
        "reference_scoring": "without the reference’s training: 3.2× more",
        "reference_training": "joint (one seed): 7.20 instead of 2.00 GFLOP to reach uniform’s final score",
    }.items():
        assert tiles_of(answer_of(store, scope=scope))[whole] == ("3.6× more FLOPs", note, "bad")


def test_flops_of_a_pretraining_run_count_although_no_plan_knows_them(new_store, stored_run):
    """Tuning takes 1.6 steps of 1, and .9 for its share in the pretraining."""
    store = new_store().add(
        stored_run("uniform", [0.1, 0.4], flops_per_step=(3e9, 0, 0), priced=False),
        stored_run("tuned", [0.1, 0.6], flops_per_step=(1e9, 0, 0), priced=False,
                   reference_training_share=0.9e9),
    )  # fmt: skip
    for scope, note in (
        ("scoring", "without the reference’s training: 3.8× fewer"),
        ("reference_training", ""),
    ):
        value, found, tone = tiles_of(answer_of(store, scope=scope))["Total cost with the reference"]
        assert (value, tone) == ("2.4× fewer FLOPs", "good")
        assert found.startswith(note)
    table = tables.summary(tables.finals(store.read(), scope="reference_training"))
    assert any("a share in the reference's training" in note for note in table.notes)
    assert table.frame.set_index("label")["flops"].to_dict() == {"uniform": 6e9, "tuned": 2.9e9}


def test_a_score_reached_at_the_first_evaluation_is_only_a_bound(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.4], flops_per_step=(1e9, 0, 0)),
        stored_run("joint", [0.5, 0.6], flops_per_step=(3e9, 0, 0)),
    )
    values = [tile.value for tile in answer_of(store).tiles]
    assert values[1:] == ["at least 2.0× fewer", "at most 1.5× more FLOPs"]


# ---- claims


def test_claims_are_shown_in_words(study, page, parsed_page):
    told = [words(claim) for claim in by_class(parsed_page, "claim")]
    assert told[0].startswith("✓ holds Joint selection learns more than uniform sampling Figure 3, middle +")
    evidence = " points, 3 seeds: joint above uniform, by score; expected above 0; 3 of 3 seeds agree; one"
    assert evidence in told[0]
    assert told[1].startswith("✗ does not hold at this scale (smoke) Independent selection is as good")
    assert told[1].endswith("Likely reason: the learners are small.")
    assert told[2].startswith("✗ does not hold at this scale (smoke) Selection hurts <b>")
    assert told[3].startswith("○ not run Greedy learns more 0 seeds: greedy above uniform, by score")
    assert told[3].endswith("Missing: unknown run: greedy.")
    assert not [text for text in told if "never shown" in text]
    claims = tables.table(study.url, "claims", ["study"])
    assert "only by `jestlab launch --decide`" in " ".join(claims.markdown().split())
    assert (page.parent / "report" / "claims.csv").read_text() == claims.csv()
    answer = words(by_class(parsed_page, "answer")[0])
    assert answer.startswith("◐ Partly: 2 of 5 claims hold joint beats ")


def test_the_answer_is_only_the_claims_if_no_runs_compete(new_store, stored_runs):
    retrieval, zero_shot = ({"of": "a", "measure": name} for name in ("shapes_retrieval/i2t_r1", "score"))
    claim = {"statement": "As well as classes", "within": 0.01, "of": retrieval, "near": zero_shot}
    store = new_store().add(*stored_runs("a", [0.1, 0.4], [0.1, 0.4]), spec={"claims": [claim]})
    said = gather(store.url, "study").answer
    assert (said.verdict, said.sentence) == ("✓ Yes", "At scale smoke, 1 claim: holds.")


@pytest.mark.parametrize(
    ("verdicts", "shown"),
    [
        (["holds"], "✓ Yes"),
        (["does not hold"], "✗ No"),
        (["holds", "holds"], "✓ All 2 claims hold"),
        (["does not hold", "does not hold"], "✗ No claim holds"),
        (["holds", "undecided"], "◐ Partly: 1 of 2 claims holds"),
        (["undecided"], "… Not decided yet"),
    ],
)
def test_only_a_single_claim_is_answered_by_yes_or_no(verdicts, shown):
    assert verdict_of([Mock(verdict=verdict) for verdict in verdicts], "Does it hold?")[0] == shown


@pytest.fixture
def claimed(new_store, stored_runs):
    """A function that returns the page of a question, given the costs and final scores of two runs."""

    def gathered(question, joint, cost=(3e9, 0, 0), **spec):
        claim = {"statement": "It holds", "of": "joint", "above": "uniform"}
        runs = []
        for name, ends, flops in (("uniform", (0.4, 0.41, 0.4), (3e9, 0, 0)), ("joint", joint, cost)):
            share = 1e9 if flops[2] else 0.0
            curves = [[0.1, end] for end in ends]
            runs += stored_runs(name, *curves, flops_per_step=flops, reference_training_share=share)
        store = new_store().add(*runs, question=question, spec={"claims": [claim]} | spec)
        return gather(store.url, "study")

    return gathered


def test_the_verdict_tells_the_cost_even_if_it_contradicts(claimed):
    """Joint matches uniform after about 1.6 of 2 steps."""
    ends = (0.6, 0.61, 0.59)
    said = claimed("Does it learn faster?", ends, (3e9, 3e9, 3e9)).answer
    assert said.verdict == "✓ Yes, per example"
    # Differences .2, .2, .19: mean .1967, std .00577; t(2) · std / √3 = .0143.
    beats = "joint beats uniform by 19.7 points (95% CI 18.2 to 21.1, n = 3)."
    assert said.sentence == f"{beats} In total FLOPs with the reference: no, 2.6× more."
    said = claimed("Does it learn faster?", ends).answer
    assert said.verdict == "✓ Yes"
    assert said.sentence.endswith(" In training FLOPs: yes, 1.2× fewer.")
    worse = claimed("Does it learn faster?", (0.3, 0.31, 0.32)).answer
    assert worse.verdict == "✗ No" and "FLOPs" not in worse.sentence


def test_other_questions_are_answered_by_the_winner_if_there_is_one(claimed):
    said = claimed("Which rule is best?", (0.6, 0.61, 0.59)).answer
    assert (said.verdict, said.tone) == ("✓ Best: joint", "good")
    assert said.sentence.endswith(" In training FLOPs: 1.2× fewer.")
    # One-sided p = .030, but the two-sided interval includes 0.
    assert claimed("Which rule is best?", (0.5, 0.43, 0.46)).answer.verdict == "… Not decided yet"
    assert claimed("Which rule is best?", (0.4, 0.38, 0.2)).answer.verdict == "… Not decided yet"
    assert claimed("Which is best?", (0.6, 0.61, 0.59), claims=[]).answer.verdict == "✓ Best: joint"


def test_a_difference_of_a_metric_to_minimize_has_the_sign_of_its_interval(new_store, stored_runs):
    runs = [*stored_runs("uniform", [2.41], [2.4], [2.42]), *stored_runs("joint", [2.1], [2.12], [2.09])]
    store = new_store().add(*runs, spec={"metrics": {"*": {"goal": "min", "unit": "nats"}}})
    said = answer_of(store)
    assert said.sentence.startswith("joint beats uniform by 0.3067 nats (95% CI 0.2442 to 0.3692, n = 3).")
    assert said.tiles[0].value == "−0.3067 nats"
    runs = [*stored_runs("uniform", [0.45], [0.46], [0.47]), *stored_runs("joint", [0.4], [0.5], [0.45])]
    said = answer_of(new_store().add(*runs, spec={"metrics": {"*": {"goal": "min"}}}))
    by = "0.0100 in score (95% CI −0.1038 to 0.1238"
    assert said.sentence.startswith(f"joint is better than uniform by {by}")
    assert said.sentence.endswith(", not clearly.")


def test_several_comparisons_are_noted_under_the_table(new_store, stored_runs):
    runs = [
        stored_runs(name, [0.1, end], [0.1, end + 0.01]) for end, name in ((0.4, "a"), (0.5, "b"), (0.6, "c"))
    ]
    page = gather(new_store().add(*(run for each in runs for run in each)).url, "study")
    (summary,) = [part for part in page.tables if part.name == "summary"]
    note = "Δ: each interval is for one comparison; 2 runs are compared with a"
    assert (summary.caption or "").endswith(f" {note}.") and note in summary.table.notes
