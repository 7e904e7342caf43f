"""Pictures of selected examples: over training, and of one super-batch."""

import io
import math

import numpy as np
import pytest
from PIL import Image

from jestlab.analysis.figures import draw
from jestlab.analysis.figures.selected import PICTURES, ShownExample, selected, super_batch
from jestlab.analysis.report import gather


def png(color: tuple[int, int, int]) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (12, 12), color).save(file, "PNG")
    return file.getvalue()


COLORS = {("uniform", 1): (255, 0, 0), ("uniform", 4): (0, 0, 255), ("joint", 1): (0, 160, 0)}


def pictures(experiment, labels, size):
    assert experiment == "study"
    return [
        ShownExample(label, step, True, 0.5, f"{label} {step}", png(color))
        for (label, step), color in COLORS.items()
        if label in labels
        for _ in range(size)
    ]


def test_each_run_has_a_row_and_each_step_its_pictures(results):
    plot = selected(results, pictures)
    assert len(plot.data) == 3 * PICTURES
    assert set(plot.data["label"]) == {"uniform", "joint"}  # references select nothing
    with Image.open(io.BytesIO(plot.png())) as image:
        shown = np.asarray(image.convert("RGB")).astype(int)
    found = {key: np.abs(shown - color).max(axis=-1) <= 8 for key, color in COLORS.items()}
    assert all(is_color.mean() > 0.05 for is_color in found.values())
    # Both steps of uniform are in one row, joint is in another.
    rows = {key: np.flatnonzero(is_color.any(axis=1)) for key, is_color in found.items()}
    assert set(rows["uniform", 1]) == set(rows["uniform", 4])
    assert not set(rows["uniform", 1]) & set(rows["joint", 1])


def test_without_pictures_is_an_error(study):
    with pytest.raises(ValueError, match="read from a lab"):
        draw("selected", study.url, "study")

    def nothing(experiment, labels, size):
        raise ValueError("no run has recorded what it selected")

    with pytest.raises(ValueError, match="no run has recorded"):
        draw("selected", study.url, "study", pictures=nothing)


def test_a_report_includes_the_pictures(new_store, stored_run):
    runs = [stored_run("uniform", [0.1, 0.2]), stored_run("joint", [0.2, 0.3])]
    store = new_store().add(*runs, experiment="study", spec={"reports": [{"kind": "selected"}]})
    contents = gather(store.url, "study", pictures=pictures)
    assert [part.name for part in contents.figures[2:]] == ["selected"]


def test_one_super_batch_has_captions_and_scores():
    shown = [
        ShownExample("joint", 5, True, 1.25, "a $5 dog in a very long caption", png((255, 0, 0))),
        ShownExample("joint", 5, False, math.nan, "cat", png((0, 0, 255))),
    ]
    plot = super_batch("b", shown, "joint, step 5", "Below each its caption.")
    figure = plot.figure()
    words = [(axes.get_title(loc="left"), *(text.get_text() for text in axes.texts)) for axes in figure.axes]
    assert words == [("selected", "a $5 dog in a…\n1.25"), ("rejected", "cat")]
    assert list(plot.data["caption"]) == [shown[0].caption, "cat"]
