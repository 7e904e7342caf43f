"""Results by metrics of which less is better: like those with the opposite sign and goal."""

import re
from dataclasses import replace

import numpy as np
import pytest

from jestlab.analysis import figures, tables
from jestlab.analysis.claims import Claim, Family, Study
from jestlab.analysis.claims.contrast import contrast_of
from jestlab.analysis.claims.judged import Judged
from jestlab.analysis.claims.measures import Measures
from jestlab.analysis.claims.verdicts import judge, read
from jestlab.analysis.curves import score_curves
from jestlab.analysis.frames import Frames
from jestlab.analysis.metrics import Metrics
from jestlab.analysis.report.answer import answer
from jestlab.platform.store.views import VIEWS

LESS, MORE = {"goal": "min", "digits": 2, "name": "PPL"}, {"goal": "max", "unit": "percent"}
ENDS = {"slow": (43.6, 44.1, 43.0), "fast": (23.4, 23.9, 22.7), "costly": (30.0, 23.5, 29.0)}
FLOPS = {"slow": 1e9, "fast": 3e9, "costly": 5e9}  # of a step
STEPS = 5


@pytest.fixture
def language(new_store, stored_runs):
    """Three runs whose perplexity falls to the values of `ENDS` while their accuracy rises."""
    runs = []
    for label, ends in ENDS.items():
        curves = [[60 + (end - 60) * step / STEPS for step in range(1, STEPS + 1)] for end in ends]
        price = (FLOPS[label], 0.0, 0.0)
        runs += stored_runs(label, *curves, flops_per_step=price, metrics=["wiki/perplexity"])
    claims = [
        {"statement": "fast is better", "of": "fast", "better_than": "slow"},
        {"statement": "fast is above", "of": "fast", "above": "slow"},
        {"statement": "more accurate", "of": "fast", "better_than": "slow", "measure": "wiki/accuracy"},
        {"statement": "costly is as good", "of": "costly", "near": "fast", "within": 1.0},
    ]
    spec = {
        "metrics": {"wiki/perplexity": LESS, "wiki/accuracy": MORE},
        "score": ["wiki/perplexity"],
        "claims": claims,
    }
    store = new_store().add(*runs, spec=spec)
    # The accuracy of each is 1 − perplexity / 100.
    put = {"metric": "'accuracy'", "name": "'wiki/accuracy'", "value": "1 - value / 100"}
    taken = ", ".join(put.get(column, column) for column in VIEWS["v_evaluations"].columns)
    store.execute(f"INSERT INTO v_evaluations SELECT {taken} FROM v_evaluations")
    return store


def test_claims_of_both_goals(language):
    better, above, accurate, near = read(language.url, ["study"])
    verdicts = [each.verdict for each in (better, above, accurate, near)]
    assert verdicts == ["holds", "does not hold", "holds", "undecided"]
    assert (better.contrast.metric.goal, accurate.contrast.metric.in_percent) == ("min", True)
    differences = np.array(ENDS["fast"]) - np.array(ENDS["slow"])
    assert better.contrast.difference.mean == pytest.approx(differences.mean())
    assert accurate.contrast.difference.mean == pytest.approx(-differences.mean() / 100)


def test_texts_say_that_less_is_better(language):
    found = tables.finals(language.read(), "slow")
    table = tables.summary(found)
    assert [column.header for column in table.columns][2:5] == ["PPL ↓", "accuracy (%) ↑", "Δ slow"]
    assert any(note.endswith("; less is better") for note in table.notes)
    said = answer(table, found)
    lead = "fast leads costly by 4.17 in score (95% CI −5.66 to 14.00, n = 3), not clearly."
    assert said.sentence == f"fast and costly beat slow; {lead}"
    assert said.tiles[0].value == "−20.23"
    assert said.tiles[0].tone == "good"
    assert figures.pareto(found.frames).texts.y == "PPL, less is better"
    # The answer does not call the worst run the best.
    found = tables.finals(language.read().only(["slow", "fast"]), "fast")
    said = answer(tables.summary(found), found)
    assert said.sentence.startswith("fast beats slow by 20.23 in score (95% CI")
    assert said.tiles[0].tone == "bad"


def test_an_undeclared_metric_is_not_ranked(read_runs, stored_run):
    runs = [stored_run(name, [end], metrics=["toy/mse"]) for name, end in (("a", 0.062), ("b", 0.1454))]
    found = tables.finals(read_runs(*runs), "a")
    table = tables.summary(found)
    text = table.markdown()
    assert "**" not in text
    assert "%" not in text.replace("95%", "")
    assert "0.062" in text
    assert "fewer" not in text.split("\n\n")[0]
    assert "toy/mse has no goal: say in the spec whether more or less is better" in " ".join(table.notes)
    with pytest.raises(ValueError, match=r"toy/mse has no goal: .*metrics: \{toy/mse: \{goal: max\}\}"):
        figures.pareto(found.frames)
    assert "toy/mse has no goal" in answer(table, found).caveat


def test_metrics_without_a_mean_are_shown_without_a_score(language):
    without = language.read()
    without = replace(without, spec={key: value for key, value in without.spec.items() if key != "score"})
    table = tables.summary(tables.finals(without, "slow"))
    assert "score" not in {column.key for column in table.columns}
    assert "no score: wiki/perplexity (min, raw), wiki/accuracy (max, percent)" in " ".join(table.notes)
    assert "23.33 [" in table.markdown()
    assert "76.7 [" in table.markdown()
    with pytest.raises(ValueError, match="no score: "):
        figures.learning_curves(without)


def test_a_score_that_was_not_recorded_is_an_error(read_runs, stored_run):
    spec = {"metrics": {"wiki/*": {"goal": "max"}}, "score": ["wiki/acuracy"]}
    results = read_runs(stored_run("a", [0.5], metrics=["wiki/accuracy", "wiki/perplexity"]), spec=spec)
    with pytest.raises(ValueError, match=r"has recorded wiki/acuracy, .* did you mean 'wiki/accuracy'"):
        results.score  # noqa: B018


# ---- the opposite sign and goal

CURVES = {
    "base": [[10.0, 30.0, 50.0], [12.0, 31.5, 55.25]],
    "one": [[20.0, 60.125, 58.0], [15.0, 40.0, 61.5]],
    "two": [[5.0, 20.0, 41.0], [30.0, 55.5, 70.0]],
}
TIES = {
    "base": [[0.0, 0.0, 100.0], [50.0, 50.0, 50.0]],
    "one": [[100.0, 0.0, 100.0], [50.0, 0.0, 50.0]],
    "two": [[0.0, 0.0, 0.0], [0.0, 100.0, 60.0]],
}


def opposite(results: Frames) -> Frames:
    scores = results.scores.copy()
    scores[results.evaluated] *= -1
    spec = {**results.spec, "metrics": {"*": {"goal": "min", "digits": 3}}}
    return replace(results, scores=scores, spec=spec, declared=Metrics.of_spec(spec, []))


@pytest.fixture(params=[CURVES, TIES], ids=["curves", "ties"])
def pair(request, read_runs, stored_runs):
    runs = []
    for place, (label, curves) in enumerate(request.param.items(), start=1):
        runs += stored_runs(label, *curves, flops_per_step=(place * 1e9, 0, 0), metrics=["toy/x"])
    results = read_runs(*runs, spec={"metrics": {"*": {"goal": "max", "digits": 3}}})
    return results, opposite(results)


def test_the_opposite_sign_and_goal_change_only_signs(pair):
    """In tables, fronts, verdicts, and the answer."""
    for build in (tables.summary, tables.speedup_table):
        one, other = (build(tables.finals(each, "base")) for each in pair)
        assert [column.key for column in one.columns] == [column.key for column in other.columns]
        for a, b in zip(one.lines, other.lines, strict=True):
            for cell, its in zip(a.cells, b.cells, strict=True):
                assert (cell.bold, cell.mark) == (its.bold, its.mark)
                assert sorted(numbers(cell.text).split()) == sorted(numbers(its.text).split())
        for end in ("examples_to_match", "flops_to_match", "fewer_examples", "fewer_flops"):
            if end in one.frame:
                np.testing.assert_array_equal(one.frame[end], other.frame[end])
    deltas = [tables.finals(each, "base").by_label for each in pair]
    np.testing.assert_array_equal(deltas[0]["delta_mean"], -deltas[1]["delta_mean"])
    np.testing.assert_array_equal(deltas[0]["delta_low"], -deltas[1]["delta_high"])

    plots = [figures.pareto(each, "base") for each in pair]
    for part in ("label", "kind", "cost", "on_front", "standing"):
        assert plots[0].data[part].equals(plots[1].data[part])
    np.testing.assert_array_equal(plots[0].data["score"], -plots[1].data["score"])

    for comparisons in (("better_than", "better_than"), ("above", "below"), ("below", "above")):
        up, down = (verdict(each, where) for each, where in zip(pair, comparisons, strict=True))
        assert up.verdict == down.verdict
        assert up.evidence.forecast == pytest.approx(down.evidence.forecast)
        assert up.points_to_claim == down.points_to_claim or up.contrast.difference.mean == 0

    found = [tables.finals(each, "base") for each in pair]
    said = [answer(tables.summary(each), each).sentence for each in found]
    assert words(said[0]) == words(said[1])


def verdict(results: Frames, comparison: str) -> Judged:
    claim = Claim.model_validate({"statement": "x", "of": "one", comparison: "base"})
    measures = Measures(results, score_curves(results), results.runs, results.declared)
    runs = results.runs.assign(retracted="")
    return judge([contrast_of(claim, "study", Study({}, ""), runs, measures)], Family())[0]


def numbers(text: str) -> str:
    return re.sub(r"[−+,\[\]]", "", text)


def words(sentence: str) -> list[str]:
    """Return the words without signs, sorted: an interval is reversed."""
    return sorted(re.findall(r"[\w.]*\w", numbers(sentence)))
