"""Positions of labels: apart, in order, near, and clear of everything drawn."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.figures.names import Box, place_beside, spread


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
    assert spread([0, 0, 0], 60, 0, 100) == [0, 60, 120]  # no room: in order all the same


def overlap(a, b):
    return min(a.right, b.right) > max(a.left, b.left) and min(a.top, b.top) > max(a.bottom, b.bottom)


def test_crowded_labels_do_not_overlap():
    frame = Box(0, 0, 1000, 600)
    points = [(500 + 20 * i, 300 + 12 * (i % 3)) for i in range(8)]
    markers = [Box(x - 4, y - 4, x + 4, y + 4) for x, y in points]
    boxes = place_beside(points, [(120, 16)] * 8, markers, frame)
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes, 2))
    assert not any(overlap(box, marker) for box in boxes for marker in markers)
    assert all(b.left >= 0 and b.right <= 1000 and b.bottom >= 0 and b.top <= 600 for b in boxes)


def test_a_single_label_stays_near():
    (box,) = place_beside([(500, 300)], [(100, 16)], [Box(496, 296, 504, 304)], Box(0, 0, 1000, 600))
    assert abs((box.left + box.right) / 2 - 500) <= 70
    assert abs((box.bottom + box.top) / 2 - 300) <= 30
    (box,) = place_beside([(990, 300)], [(100, 16)], [], Box(0, 0, 1000, 600))
    assert box.right <= 1000
