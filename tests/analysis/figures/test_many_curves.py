"""Learning curves of ten runs and more: readable, and no two alike."""

from __future__ import annotations

import pytest

from jestlab.analysis.figures import Request, Sheet, draw
from jestlab.analysis.figures.style import ACCENT, looks


@pytest.fixture
def many(new_store, stored_run):
    def make(count):
        runs = [
            stored_run("run", [0.1, 0.2 + 0.5 * i / count, 0.3 + 0.5 * i / count + 0.01 * seed], seed=seed,
                       label="uniform" if i == 0 else f"joint filtering_ratio=0.{i}")
            for i in range(count) for seed in (0, 1)
        ]  # fmt: skip
        return new_store().add(*runs)

    return make


def curves(lab, **options):
    sheet = Sheet.parse(options.pop("figure", {}))
    return draw("curves", Request(lab.url, "study", sheet=sheet, **options))


@pytest.mark.parametrize(("count", "width"), [(10, None), (16, "3.25in"), (31, None)])
def test_each_of_many_curves_has_a_panel_in_which_it_alone_is_coloured(many, count, width):
    plot = curves(many(count), figure={"width": width} if width else {})
    figure = plot.figure()
    figure.canvas.draw()
    assert len(figure.axes) == count - 1
    for axes in figure.axes:
        colours = [line.get_color() for line in axes.get_lines()]
        assert colours.count(ACCENT) == 1
        assert len(colours) == count + 1  # all others, the baseline and its end
        assert len(axes.collections) == 1  # one band
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[i + 1 :])
    titles = [axes._left_title.get_window_extent() for axes in figure.axes]
    assert not any(title.overlaps(box) for title in titles for box in boxes)
    assert not any(a.overlaps(b) for i, a in enumerate(titles) for b in titles[i + 1 :])
    assert "Blue: one run a panel; black: uniform; grey: the other runs" in plot.texts.caption
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["uniform", "this run", "the other runs"]


def test_of_very_many_the_best_have_panels(many):
    plot = curves(many(40))
    assert len(plot.figure().axes) == 30
    assert "one run a panel (30 of 39)" in plot.texts.caption
    assert "joint filtering_ratio=0.39" in set(plot.data.loc[plot.data["alone"], "label"])
    assert "joint filtering_ratio=0.1" not in set(plot.data.loc[plot.data["alone"], "label"])


def test_seven_curves_are_together(many):
    assert len(curves(many(7)).figure().axes) == 1


def test_highlighted_runs_are_coloured_and_the_others_grey(many):
    plot = curves(many(12), highlight=("joint filtering_ratio=0.3", "joint filtering_ratio=0.11"))
    figure = plot.figure()
    [axes] = figure.axes
    assert len(axes.collections) == 3  # bands of these two and of the baseline
    named = {text.get_text() for text in axes.texts}
    assert named == {"uniform", "joint filtering_ratio=0.3", "joint filtering_ratio=0.11"}
    assert "Grey: 9 other runs." in plot.texts.caption
    with pytest.raises(ValueError, match=r"has no run 'jont': it has uniform"):
        curves(many(3), highlight=("jont",))


def test_a_legend_asked_for_keeps_them_together_and_no_two_alike(many):
    plot = curves(many(31), figure={"legend": "right"})
    figure = plot.figure()
    figure.canvas.draw()
    assert len(figure.axes) == 1
    [legend] = figure.legends
    assert len(legend.get_texts()) == 31
    assert legend.get_window_extent().y0 >= 0
    assert "one run a panel" not in plot.texts.caption
    triples = {
        (look.colour, look.marker, str(look.line))
        for look in looks([str(i) for i in range(31)], "0").values()
    }
    assert len(triples) == 31


def test_twelve_runs_have_a_colour_of_their_own():
    found = looks(["uniform", *map(str, range(11))], "uniform")
    assert len({look.colour for look in found.values()}) == 12
