"""Results by a metric of which less is better, and by several: against NumPy, and turned upside down."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from jestlab.analysis import figures, frames, tables
from jestlab.analysis.claims import Claim
from jestlab.analysis.claims.measures import Measures
from jestlab.analysis.claims.verdicts import judge, read
from jestlab.analysis.curves import score_curves
from jestlab.analysis.frames import Frames
from jestlab.analysis.report.answer import answer

LESS, MORE = {"goal": "min", "digits": 2, "name": "PPL"}, {"goal": "max", "unit": "percent"}
ENDS = {"slow": (43.6, 44.1, 43.0), "fast": (23.4, 23.9, 22.7), "dear": (30.0, 23.5, 29.0)}
FLOPS = {"slow": 1e9, "fast": 3e9, "dear": 5e9}  # of a step
STEPS = 5


@pytest.fixture
def language(new_store, stored_run):
    """Three runs whose perplexity falls to what `ENDS` says while their accuracy rises."""
    runs = [
        stored_run(
            label, [60.0 + (end - 60.0) * step / STEPS for step in range(1, STEPS + 1)], seed=seed,
            flops_per_step=(FLOPS[label], 0.0, 0.0), metrics=["wiki/perplexity"],
        )
        for label, ends in ENDS.items()
        for seed, end in enumerate(ends)
    ]  # fmt: skip
    claims = [
        {"statement": "fast is better", "of": "fast", "better_than": "slow"},
        {"statement": "fast is above", "of": "fast", "above": "slow"},
        {
            "statement": "fast is more accurate",
            "of": "fast",
            "better_than": "slow",
            "measure": "wiki/accuracy",
        },
        {"statement": "dear is as good", "of": "dear", "near": "fast", "within": 1.0},
    ]
    spec = {
        "metrics": {"wiki/perplexity": LESS, "wiki/accuracy": MORE},
        "score": ["wiki/perplexity"],
        "claims": claims,
    }
    store = new_store().add(*runs, spec=spec)
    with sqlite3.connect(store.path) as connection:  # the accuracy of each: 1 − perplexity / 100
        columns = [row[1] for row in connection.execute("PRAGMA table_info(v_evaluations)")]
        put = {"metric": "'accuracy'", "name": "'wiki/accuracy'", "value": "1 - value / 100"}
        taken = ", ".join(put.get(column, column) for column in columns)
        connection.execute(f"INSERT INTO v_evaluations SELECT {taken} FROM v_evaluations")
    connection.close()
    return store


def rows_of(store, name: str) -> dict[tuple[str, int], np.ndarray]:
    """(label, seed) → [step, value, examples, FLOPs], straight from the store."""
    query = """
        SELECT label, seed, step, value, examples_seen, flops_total
        FROM v_evaluations WHERE name = ? ORDER BY step"""
    found: dict[tuple[str, int], list[Any]] = {}
    with sqlite3.connect(store.path) as connection:
        for label, seed, *numbers in connection.execute(query, [name]):
            found.setdefault((label, seed), []).append(numbers)
    connection.close()
    return {key: np.array(rows) for key, rows in found.items()}


@pytest.mark.parametrize(("metric", "sign"), [("wiki/perplexity", -1), ("wiki/accuracy", 1)])
def test_tables_and_fronts_are_those_of_plain_numpy(language, metric, sign):
    raw = rows_of(language, metric)
    finals = {label: np.array([raw[label, seed][-1, 1] for seed in range(3)]) for label in ENDS}
    costs = {label: np.array([raw[label, seed][-1, 3] for seed in range(3)]) for label in ENDS}
    read_frames = frames.read(language.url, "study").scored_by([metric])

    table = tables.summary(tables.finals(read_frames, "slow"))
    rows = table.frame.set_index("row")
    best = max(finals, key=lambda label: sign * finals[label].mean())
    column = next(column for column in table.columns if column.key == "score")
    assert [line.key for line in table.lines if table.cell(line.key, column).bold] == [best] == ["fast"]
    for label in ("fast", "dear"):
        differences = finals[label] - finals["slow"]
        assert rows.loc[label, "delta_mean"] == pytest.approx(differences.mean())
        half = 4.302652729911275 * differences.std(ddof=1) / np.sqrt(3)  # Student's t, 2 degrees of freedom
        assert rows.loc[label, "delta_high"] == pytest.approx(differences.mean() + half)
        factors = []
        for seed in range(3):
            target = raw["slow", seed][-1, 1]
            values, spent = raw[label, seed][:, 1], raw[label, seed][:, 3]
            at = int(np.argmax(sign * values >= sign * target))  # the first evaluation that is as good
            way = (target - values[at - 1]) / (values[at] - values[at - 1])
            factors.append(raw["slow", seed][-1, 3] / (spent[at - 1] + way * (spent[at] - spent[at - 1])))
        assert rows.loc[label, "fewer_flops"] == pytest.approx(np.median(factors))

    means = {label: (costs[label].mean(), finals[label].mean()) for label in ENDS}
    on_front = {
        one
        for one, (cost, score) in means.items()
        if not any(
            other != one and c <= cost and sign * s >= sign * score and (c, s) != (cost, score)
            for other, (c, s) in means.items()
        )
    }
    drawn = figures.pareto(read_frames, "slow", surfaces=True)
    shown = drawn.data[drawn.data["kind"] == "mean"].set_index("label")
    assert set(shown.index[shown["on_front"].astype(bool)]) == on_front == {"slow", "fast"}
    # The best seed of dear is better than the worst of fast, so that dear may be on the front.
    assert shown.loc["dear", "standing"] == "ambiguous"
    by_cost = sorted(ENDS, key=lambda label: costs[label].mean())
    attained = [  # by every seed, at the cost of each run: the worst seed of the best until there
        sign * min(max(sign * finals[label][seed] for label in by_cost[: i + 1]) for seed in range(3))
        for i in range(3)
    ]
    worst = drawn.data[(drawn.data["kind"] == "attained") & (drawn.data["at_least"] == 3)]
    steps = worst.sort_values("cost")["score"].to_numpy() / (100 if sign > 0 else 1)
    assert steps == pytest.approx(np.array(attained))


def test_claims_of_both_goals(language):
    better, above, accurate, near = read(language.url, ["study"])
    assert (better.verdict, better.metric.goal) == ("holds", "min")
    assert above.verdict == "does not hold"
    assert (accurate.verdict, accurate.metric.in_percent) == ("holds", True)
    assert near.verdict == "undecided"
    differences = np.array(ENDS["fast"]) - np.array(ENDS["slow"])
    assert better.difference == pytest.approx(differences.mean())
    assert accurate.difference == pytest.approx(-differences.mean() / 100)


def test_words_say_that_less_is_better(language):
    found = tables.finals(frames.read(language.url, "study"), "slow")
    table = tables.summary(found)
    assert [column.header for column in table.columns][2:5] == ["PPL ↓", "accuracy (%) ↑", "score ↓"]
    assert any(note.endswith("; less is better") for note in table.notes)
    said = answer(table.frame, found).sentence
    assert said.startswith("fast, the best of 2, scores 23.33 ± 0.60, ")
    assert "20.23 in score below slow" in said
    assert figures.pareto(found.frames).texts.y == "PPL, less is better"


def test_the_worst_is_not_called_the_best(language, new_store, stored_run):
    store = new_store().add(
        *(stored_run("good", [9.0, 2.0 + seed / 10], seed=seed) for seed in (0, 1, 2)),
        *(stored_run("bad", [9.0, 5.0 + seed / 10], seed=seed) for seed in (0, 1, 2)),
        spec={"metrics": {"*": {"goal": "min"}}},
    )
    found = tables.finals(frames.read(store.url, "study"), "good")
    said = answer(tables.summary(found).frame, found).sentence
    assert said.startswith("No run scores below good, which ends at 2.1 ± 0.1: bad ends 3 in score above it")


def test_a_metric_that_nobody_declares_is_not_ranked(new_store, stored_run):
    store = new_store().add(
        stored_run("a", [0.062], metrics=["toy/mse"]), stored_run("b", [0.1454], metrics=["toy/mse"])
    )
    found = tables.finals(frames.read(store.url, "study"), "a")
    table = tables.summary(found)
    text = table.markdown()
    assert "**" not in text
    assert "%" not in text.replace("95%", "")
    assert "0.062" in text
    assert "fewer" not in text.split("\n\n")[0]
    assert any(
        "toy/mse has no goal: say in the spec whether more or less is better" in note for note in table.notes
    )
    with pytest.raises(ValueError, match=r"toy/mse has no goal: .*metrics: \{toy/mse: \{goal: max\}\}"):
        figures.pareto(found.frames)
    assert "toy/mse has no goal" in answer(table.frame, found).caveat


def test_metrics_without_a_mean_stand_beside_each_other_without_a_score(language):
    without = frames.read(language.url, "study")
    without = replace(without, spec={key: value for key, value in without.spec.items() if key != "score"})
    table = tables.summary(tables.finals(without, "slow"))
    assert "score" not in {column.key for column in table.columns}
    assert any(
        note.startswith("no score: wiki/perplexity (min, raw), wiki/accuracy (max, percent)")
        for note in table.notes
    )
    assert "**23.33" in table.markdown()
    assert "**76.7" in table.markdown()
    with pytest.raises(ValueError, match="no score: "):
        figures.learning_curves(without)


def test_a_score_that_nobody_recorded_is_none(new_store, stored_run):
    spec = {"metrics": {"wiki/*": {"goal": "max"}}, "score": ["wiki/acuracy"]}
    store = new_store().add(stored_run("a", [0.5], metrics=["wiki/accuracy", "wiki/perplexity"]), spec=spec)
    with pytest.raises(ValueError, match=r"has recorded wiki/acuracy, .* did you mean 'wiki/accuracy'"):
        frames.read(store.url, "study").score  # noqa: B018


# ---- a metric turned upside down

NUMBER = st.floats(0.0, 100.0).map(lambda value: round(value, 3))
CURVE = st.lists(NUMBER, min_size=3, max_size=3)
RUNS = st.fixed_dictionaries(
    {label: st.lists(CURVE, min_size=2, max_size=2) for label in ("base", "one", "two")}
)


def turned(read_frames: Frames) -> Frames:
    """The same results, by a metric of the other sign and the other goal."""
    scores = read_frames.scores.copy()
    scores[read_frames.evaluated] *= -1
    spec = {**read_frames.spec, "metrics": {"*": {"goal": "min", "digits": 3}}}
    return replace(read_frames, scores=scores, spec=spec)


@given(runs=RUNS)
@settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink a failing example takes minutes
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_turning_sign_and_goal_turns_nothing_else(new_store, stored_run, runs):
    store = new_store().add(
        *(
            stored_run(
                label, curve, seed=seed, flops_per_step=((place + 1) * 1e9, 0.0, 0.0), metrics=["toy/x"]
            )
            for place, (label, curves) in enumerate(runs.items())
            for seed, curve in enumerate(curves)
        ),
        spec={"metrics": {"*": {"goal": "max", "digits": 3}}},
    )
    up = frames.read(store.url, "study")
    down = turned(up)
    for build in (tables.summary, tables.speedup_table):
        one, other = (build(tables.finals(each, "base")) for each in (up, down))
        assert [column.key for column in one.columns] == [column.key for column in other.columns]
        for a, b in zip(one.lines, other.lines, strict=True):
            for column, cell, its in zip(one.columns, a.cells, b.cells, strict=True):
                assert (cell.bold, cell.mark) == (its.bold, its.mark)
                assert numbers(cell.text) == numbers(its.text) or column.key == "delta"
        for end in ("examples_to_match", "flops_to_match", "fewer_examples", "fewer_flops"):
            if end in one.frame:
                np.testing.assert_array_equal(one.frame[end], other.frame[end])
    deltas = [tables.finals(each, "base").by_label for each in (up, down)]
    np.testing.assert_array_equal(deltas[0]["delta_mean"], -deltas[1]["delta_mean"])
    np.testing.assert_array_equal(deltas[0]["delta_low"], -deltas[1]["delta_high"])

    plots = [figures.pareto(each, "base", surfaces=True) for each in (up, down)]
    for part in ("label", "kind", "cost", "on_front", "standing", "at_least"):
        assert plots[0].data[part].equals(plots[1].data[part])
    np.testing.assert_array_equal(plots[0].data["score"], -plots[1].data["score"])
    volumes = [re.findall(r"Hypervolume of the means: (\S+)", plot.texts.caption) for plot in plots]
    assert volumes[0] == volumes[1] != []

    for comparison, opposite in (("better_than", "better_than"), ("above", "below"), ("below", "above")):
        verdicts = [
            judge(
                claim(where),
                "study",
                "",
                each.runs,
                measures_of(each),
            )
            for each, where in ((up, comparison), (down, opposite))
        ]
        assert verdicts[0].verdict == verdicts[1].verdict
        assert verdicts[0].evidence.forecast == pytest.approx(verdicts[1].evidence.forecast)
        assert verdicts[0].leans_towards == verdicts[1].leans_towards or verdicts[0].difference == 0

    found = [tables.finals(each, "base") for each in (up, down)]
    said = [answer(tables.summary(each).frame, each).sentence for each in found]
    assert words(said[0]) == words(said[1])


def measures_of(results: Frames) -> Measures:
    return Measures(results, score_curves(results), results.runs, (), results.declared)


def numbers(text: str) -> str:
    """The text without signs."""
    return text.replace("−", "").replace("+", "")


def words(sentence: str) -> list[str]:
    """The words of a sentence without signs, above and below alike; sorted: an interval turns, too."""
    return sorted(re.findall(r"[\w.]*\w", re.sub(r"\b(above|below)\b", "beyond", numbers(sentence))))


def claim(comparison: str) -> Claim:
    return Claim.parse({"statement": "x", "of": "one", comparison: "base"})
