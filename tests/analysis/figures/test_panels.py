"""Panels of printed figures: names that move apart, broken texts, and titles that stay distinct."""

import itertools
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.text import Text

from jestlab.analysis.figures.axes import count_axis
from jestlab.analysis.figures.labels import drawn, spread
from jestlab.analysis.figures.panels import finish, panels, titled, wrapped
from jestlab.analysis.figures.plot import Texts
from jestlab.analysis.figures.style import applied
from jestlab.analysis.sheet import Sheet

TEXTS = Texts("Title", "Caption.", "x", "y")


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(1, 4))
def test_spread_keeps_order_distance_and_room(wanted, gap):
    places = spread(wanted, gap, 0, 100)
    in_order = [places[i] for i in sorted(range(len(wanted)), key=lambda i: wanted[i])]
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(in_order))
    assert in_order[0] >= -1e-9
    assert in_order[-1] <= 100 + 1e-9


def test_spread_moves_only_what_is_too_close():
    assert spread([10, 50, 51, 90], 5, 0, 100) == pytest.approx([10, 48, 53, 90])
    assert spread([99, 100], 5, 0, 100) == pytest.approx([95, 100])
    assert spread([0, 0, 0], 60, 0, 100) == [0, 60, 120]  # no room, but still in order


def test_texts_are_broken_and_never_cut():
    name = "joint example selection with a long name, width=64 lr=0.1 " + "x" * 60
    lines = wrapped(name, 0.8, 7.5)
    assert lines.count("\n") > 3
    assert "".join(lines.split()) == name.replace(" ", "")
    assert wrapped("short", 0.8, 7.5) == "short"


def test_long_titles_are_whole_and_apart():
    with applied():
        figure, axes = panels(Sheet(width="3.25in"), 3, columns=3, height=1.5)
        titles = [f"joint example selection with a long name, width=64 lr={rate}" for rate in (0.1, 0.2, 0.3)]
        titled(axes, titles)
        finish(figure, TEXTS, Sheet())
        assert [each.get_title(loc="left").replace("\n", " ") for each in axes] == titles
        boxes = [title.get_window_extent() for title in map(attrgetter("_left_title"), axes)]
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
        assert figure.get_tightbbox().y1 <= figure.get_figheight()


@pytest.mark.parametrize(
    ("count", "alike", "is_direct"), [(3, False, True), (40, False, False), (40, True, True)]
)
def test_points_are_named_directly_if_names_have_room_or_a_legend_could_not_tell_them_apart(
    count, alike, is_direct
):
    with applied():
        figure, [axes] = panels(Sheet())
        for i in range(count):
            marker, color = ("o", "#6e6e6e") if alike else ("so^"[i % 3], f"#0000{i:02x}")
            axes.plot(i, i % 7, marker, color=color, label=f"run {i} filtering_ratio=0.5")
        finish(figure, TEXTS, Sheet())
        assert len(axes.texts) == (count if is_direct else 0)
        assert bool(figure.legends) != is_direct
        for text in axes.texts:
            [point] = [line for line in axes.get_lines() if line.get_label() == text.get_text()]
            xy: Any = point.get_xydata()
            place, end = axes.transData.transform([text.get_position(), xy[0]])
            assert abs(place - end).max() < 250  # pixels


def test_a_name_never_covers_the_front_or_an_interval():
    """Without room for it there is a legend."""
    with applied():
        for bars, is_direct in (([20], True), (range(40), False)):
            figure, [axes] = panels(Sheet(width="3.25in"))
            axes.set(xlim=(0, 40), ylim=(0, 100))
            for i in range(5):
                x, y = 3 + 7 * i, 20 + 15 * i
                axes.plot(x, y, "so^Dv"[i], color=f"#00{i}000", linestyle="none", label=f"independent {i}")
                axes.vlines(x, y - 10, y + 10)
            axes.vlines(bars, 0, 100)
            axes.plot([0, 20, 20, 40], [50, 50, 80, 80])
            finish(figure, TEXTS, Sheet(width="3.25in"))
            assert bool(figure.legends) != is_direct
            taken = drawn(axes, list(axes.texts))
            for name in axes.texts:
                (left, bottom), (right, top) = Text.get_window_extent(name).get_points().astype(int)
                assert not taken[bottom:top, left:right].any()


def test_panels_without_another_below_have_ticks_and_ticks_never_touch():
    with applied():
        figure, axes = panels(Sheet(), 7, columns=4, sharex=True, sharey=True)
        axes[0].set(xlim=(0, 98_000))
        count_axis(axes[0])
        finish(figure, TEXTS, Sheet())
        labeled = [each.xaxis.get_tick_params()["labelbottom"] for each in axes]
        assert labeled == [False] * 3 + [True] * 4
        boxes = [label.get_window_extent() for label in axes[3].get_xticklabels() if label.get_text()]
        assert len(boxes) > 1
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))
