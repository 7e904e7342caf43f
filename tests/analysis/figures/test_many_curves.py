"""Learning curves of ten runs and more: readable, and no two alike."""

import numpy as np
import pytest

from jestlab.analysis.colors import BASELINE
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


@pytest.mark.parametrize("count", [10, pytest.param(31, marks=pytest.mark.full)])
def test_each_of_many_curves_is_colored_in_its_own_panel(curves, count):
    plot = curves(count)
    figure = plot.figure()
    figure.canvas.draw()
    assert len(figure.axes) == count - 1
    for axes in figure.axes:
        colors = [line.get_color() for line in axes.get_lines() if np.size(line.get_xdata())]
        assert len(set(colors) - {FAINT, BASELINE.light}) == 1
        assert colors.count(BASELINE.light) == 2  # the baseline and its end
        assert colors.count(FAINT) == count - 2
        assert len(axes.collections) == 1  # one band
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    titles = [axes._left_title.get_window_extent() for axes in figure.axes]
    assert not any(title.overlaps(box) for title in titles for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(titles) for b in titles[i + 1 :])
    assert "In color: one run per panel." in plot.texts.caption
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["uniform", "other runs"]


def test_a_curve_with_a_single_evaluation_is_a_marker_in_its_panel(new_store, stored_run):
    runs = [stored_run("run", [0.1 + i / 50], label="uniform" if i == 0 else f"joint {i}") for i in range(9)]
    figure = draw("curves", new_store().add(*runs).url, "study").figure()
    assert len(figure.axes) == 8
    for axes in figure.axes:
        marked = [line for line in axes.get_lines() if line.get_marker() not in ("", "None")]
        assert sum(np.size(line.get_xdata()) for line in marked) == 9


def test_more_than_seven_curves_have_panels_and_of_very_many_the_best(curves):
    for count, shown in ((7, range(0)), (8, range(1, 8)), (40, range(10, 40))):
        plot = curves(count)
        alone = list(dict.fromkeys(plot.data.loc[plot.data["alone"].astype(bool), "label"]))
        assert alone == [f"joint filtering_ratio=0.{i}" for i in shown]
    assert "one run per panel (30 of 39)" in plot.texts.caption
    assert len(curves(7).figure().axes) == 1


def test_highlighted_runs_are_colored_and_the_others_grey(curves):
    plot = curves(12, highlight=("joint filtering_ratio=0.3", "joint filtering_ratio=0.11"))
    figure = plot.figure()
    [axes] = figure.axes
    assert len(axes.collections) == 3  # bands of these two and of the baseline
    named = {text.get_text() for text in axes.texts}
    assert named == {"uniform", "joint filtering_ratio=0.3", "joint filtering_ratio=0.11"}
    assert "Gray: the other runs." in plot.texts.caption
    with pytest.raises(ValueError, match=r"has no run 'jont': it has uniform"):
        curves(3, highlight=("jont",))


@pytest.mark.parametrize("count", [5, 16, pytest.param(31, marks=pytest.mark.full)])
def test_a_legend_lists_many_curves_of_one_panel_once_with_their_looks(curves, count):
    plot = curves(count, legend="below")
    figure = plot.figure()
    figure.canvas.draw()
    [axes], [legend] = figure.axes, figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert (len(names), len(set(names)), names[0]) == (count, count, "uniform")
    colors = {line.get_color() for line in axes.get_lines() if line.get_marker() != "None"}
    assert {line.get_color() for line in legend.get_lines()} == colors
    assert not axes.texts  # nothing is named twice
    assert legend.get_window_extent().y0 >= 0
    assert "one run per panel" not in plot.texts.caption
