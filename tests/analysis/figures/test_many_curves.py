"""Learning curves of ten runs and more: readable, and no two alike."""

import numpy as np
import pytest
from matplotlib.text import Text

from jestlab.analysis.figures import Sheet, draw
from jestlab.analysis.figures.style import FAINT


@pytest.fixture
def curves(new_store, stored_run):
    """A function that plots so many curves, the last of which is the best."""

    def plot(count, legend=None, **options):
        runs = [
            stored_run("run", [0.1, 0.2 + 0.5 * i / count, 0.3 + 0.5 * i / count + 0.01 * seed], seed=seed,
                       label="uniform" if i == 0 else f"joint filtering_ratio=0.{i}")
            for i in range(count) for seed in (0, 1)
        ]  # fmt: skip
        sheet = Sheet(legend=legend)
        return draw("curves", new_store().add(*runs).url, "study", sheet=sheet, **options)

    return plot


def test_of_more_than_seven_curves_the_best_are_colored_and_the_others_gray(curves):
    for count in (7, 8, 40):
        plot = curves(count)
        gray = plot.data.loc[plot.data["role"] == "other", "label"].unique().tolist()
        assert gray == [f"joint filtering_ratio=0.{i}" for i in (range(1, count - 6) if count > 7 else ())]
        figure = plot.figure()
        figure.canvas.draw()
        [axes] = figure.axes
        colors = [line.get_color() for line in axes.get_lines() if np.size(line.get_xdata())]
        assert colors.count(FAINT) == len(gray)
        assert len(axes.collections) == 7  # bands
        names = [Text.get_window_extent(text) for text in axes.texts]  # without their arrows
        assert len(names) == 7
        assert not any(a.overlaps(b) for i, a in enumerate(names) for b in names[i + 1 :])
    assert "In color: uniform and the best 6 of 39. Gray: the other runs." in plot.texts.caption


def test_a_gray_curve_with_a_single_evaluation_is_a_marker(new_store, stored_run):
    runs = [stored_run("run", [0.1 + i / 50], label="uniform" if i == 0 else f"joint {i}") for i in range(9)]
    [axes] = draw("curves", new_store().add(*runs).url, "study").figure().axes
    marked = [line for line in axes.get_lines() if line.get_marker() not in ("", "None")]
    assert sum(np.size(line.get_xdata()) for line in marked) == 9


def test_highlighted_runs_are_colored_and_the_others_grey(curves):
    plot = curves(12, highlight=("joint filtering_ratio=0.3", "joint filtering_ratio=0.11"))
    figure = plot.figure()
    [axes] = figure.axes
    assert len(axes.collections) == 3  # bands of these two and of the baseline
    named = {text.get_text() for text in axes.texts}
    assert named == {"uniform", "joint filtering_ratio=0.3", "joint filtering_ratio=0.11"}
    assert "Gray: the other runs." in plot.texts.caption
    with pytest.raises(ValueError, match=r"has no run 'jont': known: .*uniform"):
        curves(3, highlight=("jont",))


@pytest.mark.parametrize("count", [5, 16])
def test_a_legend_lists_the_colored_curves_once_with_their_looks(curves, count):
    figure = curves(count, legend="below").figure()
    figure.canvas.draw()
    [axes], [legend] = figure.axes, figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert (len(names), len(set(names)), names[0]) == (min(count, 7), min(count, 7), "uniform")
    colors = {line.get_color() for line in axes.get_lines() if line.get_marker() != "None"} - {FAINT}
    assert {line.get_color() for line in legend.get_lines()} == colors
    assert not axes.texts  # nothing is named twice
    assert legend.get_window_extent().y0 >= 0
