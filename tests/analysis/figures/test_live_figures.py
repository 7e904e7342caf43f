"""`Plot.figure()`: a live figure of matplotlib, for notebooks and scripts that restyle it."""

from __future__ import annotations

import io

import pytest

from jestlab.analysis import figures, frames


@pytest.fixture
def curves(study):
    return figures.learning_curves(frames.read(study.url, "study"))


def test_it_is_live_and_unknown_to_pyplot(curves):
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    figure = curves.figure()
    assert plt.get_fignums() == before
    (axes,) = figure.axes
    axes.set_ylabel("accuracy")
    axes.get_lines()[0].set_color("red")
    drawn = io.BytesIO()
    figure.savefig(drawn, format="svg")
    assert b"#ff0000" in drawn.getvalue()
    assert curves.figure() is not figure  # each caller has one of their own


def test_saved_by_the_user_its_fonts_are_embedded(curves):
    import matplotlib

    drawn = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 3, "pdf.compression": 0}):
        curves.figure().savefig(drawn, format="pdf")
    assert b"/FontFile2" in drawn.getvalue()
    assert b"/Type3" not in drawn.getvalue()
