"""Positions of labels: separate, in order, near their points, and clear of everything drawn."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.figures.names import Box, place_beside, spread, widest, wrapped, wrapped_apart


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(1, 4))
def test_spread_keeps_order_distance_and_room(wanted, gap):
    places = spread(wanted, gap, 0, 100)
    in_order = [places[i] for i in sorted(range(len(wanted)), key=lambda i: wanted[i])]
    assert all(b - a >= gap - 1e-9 for a, b in itertools.pairwise(in_order))
    assert in_order[0] >= -1e-9
    assert in_order[-1] <= 100 + 1e-9


def test_spread_moves_only_what_is_too_close():
    assert spread([10, 50, 51, 90], 5, 0, 100) == pytest.approx([10, 48, 53, 90])
    assert spread([10, 50, 90], 5, 0, 100) == [10, 50, 90]
    assert spread([99, 100], 5, 0, 100) == pytest.approx([95, 100])
    assert spread([0, 0, 0], 60, 0, 100) == [0, 60, 120]  # no room, but still in order


def test_a_single_label_stays_near():
    (box,) = place_beside([(500, 300)], [(100, 16)], [Box(496, 296, 504, 304)], Box(0, 0, 1000, 600))
    assert abs((box.left + box.right) / 2 - 500) <= 70
    assert abs((box.bottom + box.top) / 2 - 300) <= 30
    (box,) = place_beside([(990, 300)], [(100, 16)], [], Box(0, 0, 1000, 600))
    assert box.right <= 1000


def test_names_of_panels_keep_what_distinguishes_them():
    stem = "joint example selection with a long name, width=64 "
    for names in (
        [f"{stem}lr={rate}" for rate in (0.1, 0.2, 0.3)],
        [f"{stem}lr={rate} {stem}" for rate in (0.1, 0.2)],
        [f"{'x' * 130}{end}" for end in "abc"],
        [f"{end}{'x' * 130}" for end in "abc"],
        ["short", "other"],
    ):
        found = wrapped_apart(names, 0.8)
        assert len(set(map(tuple, found))) == len(names)
        assert all(len(lines) <= 2 and widest(lines) <= 0.8 for lines in found)
    assert wrapped("short", 0.8) == ["short"]
    assert wrapped_apart(["a", "a"], 0.8) == [["a"], ["a"]]
