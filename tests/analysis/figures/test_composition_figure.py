"""The figure of the composition of batches: its numbers, its bars, and its errors."""

import pytest
from matplotlib.patches import Rectangle

from jestlab.analysis.figures import draw
from jestlab.analysis.figures.style import PARTS

READ = {"emoji": (0.3, 0.3), "logo": (0.7, 0.7)}
CHOSEN = {
    "joint": {"emoji": (0.5, 0.7), "logo": (0.5, 0.3)},
    "independent": {"emoji": (1.0, 0.8), "flag": {2: 0.2}},  # no flags in the first batch: not logged
}


def counted(called, kinds, column="kind"):
    return {f"selected/{called}/{column}/{kind}": shares for kind, shares in kinds.items()}


@pytest.fixture
def store(new_store, stored_run):
    """Two runs with counts of what they selected, in two steps of two seeds, and one without."""
    runs = [stored_run("uniform", [0.1, 0.2])]
    for label, kinds in CHOSEN.items():
        logged = (
            counted(label, kinds) | counted("candidates", READ) | counted(label, {"twemoji": (1, 1)}, "set")
        )
        runs += [stored_run(label, [0.1, 0.2], seed=seed, logged=logged) for seed in (0, 1)]
    return new_store().add(*runs)


def test_shares_are_means_over_steps_and_seeds(store):
    plot = draw("composition", store.url, "study", x="kind")
    data = plot.data
    found = {(row.text, row.component): row.relative for row in data.itertuples() if row.relative}
    assert found == pytest.approx({
        ("candidates", "emoji"): 0.3, ("candidates", "logo"): 0.7, ("joint", "emoji"): 0.6,
        ("joint", "logo"): 0.4, ("independent", "emoji"): 0.9, ("independent", "flag"): 0.1,
    })  # fmt: skip
    assert list(dict.fromkeys(data["text"])) == ["candidates", "joint", "independent"]
    figure = plot.figure()
    (axes,) = figure.axes
    bars = {
        (round(bar.get_y() + bar.get_height() / 2), round(bar.get_x(), 3)): round(bar.get_width(), 3)
        for bar in axes.patches
        if isinstance(bar, Rectangle) and bar.get_width()
    }
    # Three bars from the top; emoji come first, as there are most of them in all.
    assert axes.yaxis_inverted()
    assert bars == {(0, 0): 0.3, (0, 0.3): 0.7, (1, 0): 0.6, (1, 0.6): 0.4, (2, 0): 0.9, (2, 0.9): 0.1}
    names = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert names == ["emoji", "logo", "flag"]


def test_a_run_that_selects_by_several_rules_has_a_bar_for_each(new_store, stored_run):
    logged = counted("candidates", {"logo": {0: 1.0}})
    for rule, share in (("joint", 0.9), ("uniform", 0.4)):
        logged |= counted(rule, {"logo": {0: share}, "flag": {0: 1 - share}})
    runs = stored_run("uniform", [0.1, 0.2]), stored_run("diagnosis", [], logged=logged, program="diagnose")
    data = draw("composition", new_store().add(*runs).url, "study").data
    logos = data[data["component"] == "logo"].set_index("text")["relative"]
    assert logos.to_dict() == {"candidates": 1, "diagnosis joint": 0.9, "diagnosis uniform": 0.4}


def test_the_rarest_of_many_values_are_merged(new_store, stored_run):
    kinds = {f"kind {i}": (0.2 - 0.02 * i,) for i in range(len(PARTS) + 2)}
    run = stored_run("joint", [0.1], logged=counted("joint", kinds) | counted("candidates", kinds))
    data = draw("composition", new_store().add(run).url, "study").data
    of_run = data[data["text"] == "joint"].set_index("component")["relative"]
    assert list(of_run.index) == [*(f"kind {i}" for i in range(len(PARTS) - 1)), "others"]
    assert of_run.sum() == pytest.approx(sum(share for (share,) in kinds.values()))


def test_a_column_without_counts_is_an_error(store, study):
    with pytest.raises(ValueError, match="has counted by 'knd': did you mean 'kind'"):
        draw("composition", store.url, "study", x="knd")
    with pytest.raises(ValueError, match=r"set runtime\.diagnostics\.every_steps"):
        draw("composition", study.url, "study")
