"""Colors of labels: the same for the whole experiment, legible on both backgrounds."""

import pytest

from jestlab.analysis import colors
from jestlab.analysis.results import opened


def rows(*labels, needed=()):
    return [(label, label, "{}", label in needed) for label in labels]


def test_colors_follow_the_order_of_all_labels_and_the_declared_baseline():
    named = {"reports": [{"kind": "curves"}, {"kind": "pareto", "baseline": "plain"}]}
    found = colors.label_colors(rows("teacher", "a", "plain", "b", needed=["teacher"]), named)
    assert found == {
        "teacher": colors.REFERENCE, "a": colors.PALETTE[0], "plain": colors.BASELINE, "b": colors.PALETTE[1],
    }  # fmt: skip
    assert colors.label_colors(rows("a", "b"), {})["a"] == colors.BASELINE
    of_teacher = {"reports": [{"kind": "table", "baseline": "teacher"}]}
    assert (
        colors.label_colors(rows("teacher", "a", needed=["teacher"]), of_teacher)["teacher"]
        == colors.BASELINE
    )


def test_a_union_has_the_colors_of_its_studies():
    study = {"reports": [{"kind": "curves", "baseline": "plain"}]}
    found = colors.label_colors(
        rows("one/a", "one/plain", "two/x", "two/a"), {"studies": {"one": study, "two": {}}}
    )
    assert found == {
        "one/a": colors.PALETTE[0], "one/plain": colors.BASELINE,
        "two/x": colors.BASELINE, "two/a": colors.PALETTE[0],
    }  # fmt: skip


def test_repeated_colors_have_another_dash():
    found = [*colors.in_order(map(str, range(40)), "").values()][1:]
    assert len(set(found)) == 40 and {each.dash for each in found[:8]} == {""}


def test_a_store_gives_the_colors_of_its_results(study):
    with opened(study.url) as store:
        assert store.colors("study") == store.frames("study").colors
    assert list(study.read().only(["joint"]).colors) == ["reference", "uniform", "independent", "joint"]


def luminance(color):
    channels = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first, second):
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(("theme", "paper"), [("light", "#ffffff"), ("dark", "#14171a")])
def test_contrast(theme, paper):
    """Of text for labels that name a line at its end, and of graphics for references."""
    for color in (colors.BASELINE, *colors.PALETTE):
        assert contrast(getattr(color, theme), paper) >= 4.5, color
    assert contrast(getattr(colors.REFERENCE, theme), paper) >= 3
