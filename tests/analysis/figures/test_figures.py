"""Figures: their data, their captions, and that they are drawn only when they would change."""

from __future__ import annotations

import dataclasses
import itertools
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from jestlab.analysis import figures, frames
from jestlab.analysis.figures.style import ink, looks


@pytest.fixture
def curves(study):
    return figures.learning_curves(frames.read(study.url, "study"), "uniform")


@pytest.fixture
def pareto(study):
    return figures.pareto(frames.read(study.url, "study"), "uniform")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def texts_of(figure):
    (axes,) = figure.axes
    return {text.get_text() for text in [*axes.texts, *figure.texts]}


def lines_of(figure, points):
    """Colour, style, x and y of each line of a figure that has so many points."""
    (axes,) = figure.axes
    found = [(line, *np.asarray(line.get_data(), float)) for line in axes.get_lines()]
    return [(line.get_color(), line.get_linestyle(), x, y) for line, x, y in found if len(x) == points]


def test_learning_curves_show_every_competitor(curves):
    figure = curves.figure()
    (axes,) = figure.axes
    lines = {colour: (x, y) for colour, _, x, y in lines_of(figure, 4)}
    assert len(lines) == len(axes.collections) == 3  # a line and a band each; the reference has neither
    assert list(lines["#000000"][0]) == [64, 128, 192, 256]
    assert list(lines["#000000"][1]) == pytest.approx([10, 20, 30, 45])
    assert (":", 45.0) in {(style, round(y[0], 1)) for _, style, _, y in lines_of(figure, 2)}
    assert {"uniform", "independent", "joint"} <= texts_of(figure)


def test_learning_curves_over_flops(study):
    plot = figures.learning_curves(frames.read(study.url, "study"), effort="flops", band="std")
    figure = plot.figure()
    assert figure.axes[0].get_xlabel() == "training FLOPs (GFLOP)"
    assert max(x.max() for _, _, x, _ in lines_of(figure, 4)) == pytest.approx(32)
    assert "± standard deviation" in plot.texts.caption


def test_captions_say_what_is_shown(curves, pareto):
    assert curves.texts.title == "Is it faster?"
    assert "bands: from the lowest to the highest seed" in curves.texts.caption
    assert "Dotted: final score of uniform" in curves.texts.caption
    assert "Final score of the reference (grey dashes if in range): reference 75.0." in curves.texts.caption
    assert "Pareto front of the means" in pareto.texts.caption
    assert "Filled: on the front; open: dominated." in pareto.texts.caption
    assert "FLOPs: training, plus the learner's scoring" in pareto.texts.caption


def test_the_score_of_a_reference_in_training_is_not_final(new_store, stored_run):
    store = new_store().add(
        stored_run("teacher", [0.3, 0.4], needed=1),
        stored_run("reference", [0.3, 0.5], needed=1, state="RUNNING", total_steps=9),
        stored_run("joint", [0.2, 0.4], state="RUNNING", total_steps=9),
    )
    caption = figures.learning_curves(frames.read(store.url, "study")).texts.caption
    assert "Final score of the reference (grey dashes if in range): teacher 40.0." in caption
    assert "Score so far of the reference (grey dashes if in range): reference 50.0." in caption


def test_pareto_front_is_of_the_competitors(pareto):
    means = pareto.data[pareto.data["kind"] == "mean"].set_index("label")
    assert means["on_front"].to_dict() == {
        "reference": False,
        "uniform": True,
        "independent": False,
        "joint": True,
    }
    assert means.loc["joint", "score"] == pytest.approx(65)
    assert means.loc["joint", "cost"] == pytest.approx(32e9)
    assert (pareto.data["kind"] == "seed").sum() == 8
    ((_, _, x, y),) = lines_of(pareto.figure(), 6)
    assert list(x)[1:-1] == pytest.approx([12, 12, 32, 32])
    assert list(y)[2:] == pytest.approx([45, 45, 65, 65])


def test_points_possibly_on_the_front_are_ambiguous(new_store, stored_run):
    scored = (3e9, 5e9, 0.0)
    store = new_store().add(
        stored_run("uniform", [0.2], seed=0),
        stored_run("uniform", [0.3], seed=1),
        stored_run("near", [0.5], seed=0, flops_per_step=scored),
        stored_run("near", [0.7], seed=1, flops_per_step=scored),
        stored_run("best", [0.6], seed=0, flops_per_step=scored),
        stored_run("best", [0.8], seed=1, flops_per_step=scored),
        stored_run("worse", [0.3], flops_per_step=(9e9, 0.0, 0.0)),
    )
    plot = figures.pareto(frames.read(store.url, "study"))
    means = plot.data[plot.data["kind"] == "mean"].set_index("label")
    assert means["standing"].to_dict() == {
        "uniform": "front",
        "near": "ambiguous",
        "best": "ambiguous",
        "worse": "dominated",
    }
    assert (means.loc["near", "low"], means.loc["near", "high"]) == pytest.approx((50, 70))
    assert "half filled: on it or dominated" in plot.texts.caption
    assert "Without dots and bars: one seed" in plot.texts.caption
    # From 9.9 GFLOP (a tenth beyond the costliest) to 3 at .25, and to 8 at .7: 6.9 × .25 + 1.9 × .45
    assert "Hypervolume of the means: 2.58 GFLOP × score" in plot.texts.caption
    faces = {
        (line.get_marker(), line.get_fillstyle(), line.get_markerfacecolor())
        for line in plot.figure().axes[0].get_lines()
        if line.get_marker() in ("o", "s", "^", "D")
    }
    looks = {row["marker"]: row["colour"] for _, row in means.iterrows()}
    assert ("o", "full", looks["o"]) in faces
    assert ("s", "left", looks["s"]) in faces
    assert ("D", "full", "white") in faces


def test_surfaces_are_what_seeds_attain(study):
    plot = figures.pareto(frames.read(study.url, "study"), "uniform", surfaces=True)
    attained = plot.data[plot.data["kind"] == "attained"]
    best, worst = (attained[attained["at_least"] == k] for k in (1, 2))
    assert list(best["cost"]) == list(worst["cost"]) == [12e9, 32e9]
    assert list(best["score"]) == pytest.approx([50, 70])
    assert list(worst["score"]) == pytest.approx([40, 60])
    assert "attained by at least 1, half and all of 2 seeds" in plot.texts.caption
    plot.figure()


def test_surfaces_need_a_complete_seed(new_store, stored_run):
    store = new_store().add(stored_run("uniform", [0.1], seed=0), stored_run("joint", [0.2], seed=1))
    with pytest.raises(ValueError, match="experiment 'study', since no seed is complete"):
        figures.pareto(frames.read(store.url, "study"), surfaces=True)


def test_trajectories_are_not_part_of_the_front(study):
    plot = figures.pareto(frames.read(study.url, "study"), trajectories=True)
    assert (plot.data["kind"] == "trajectory").sum() == 2 + 3 * 4
    assert plot.data.loc[plot.data["kind"] == "trajectory", "on_front"].isna().all()
    assert "not part of the front" in plot.texts.caption


def test_costs_far_apart_get_a_logarithmic_axis(new_store, stored_run):
    store = new_store().add(
        stored_run("small", [0.3]), stored_run("large", [0.6], flops_per_step=(3e11, 0.0, 0.0))
    )
    (axes,) = figures.pareto(frames.read(store.url, "study")).figure().axes
    assert axes.get_xscale() == "log"


def test_names_do_not_overlap(new_store, stored_run):
    rng = np.random.default_rng(0)
    store = new_store().add(
        *(
            stored_run("run", [0.1, 0.5 + 0.02 * rng.random()], label=f"joint filtering_ratio=0.{i}",
                       flops_per_step=(1e9 * (1 + 0.05 * i), 0.0, 0.0))
            for i in range(9)
        )
    )  # fmt: skip
    for plot in (
        figures.pareto(frames.read(store.url, "study")),
        figures.learning_curves(frames.read(store.url, "study"), together=True),
    ):
        figure = plot.figure()
        figure.canvas.draw()
        # Of the text alone: an annotation's own extent holds its arrow, too.
        texts = [text for text in figure.axes[0].texts if "joint" in text.get_text()]
        boxes = [Text.get_window_extent(text) for text in texts]
        assert len(boxes) == 9
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2)), plot.name


def test_half_finished_runs_are_marked(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.2]),
        stored_run("joint", [0.3, 0.5]),
        stored_run("joint", [0.3], seed=1, state="FAILED", total_steps=2),
    )
    assert "joint (1 of 2 seeds)" in texts_of(
        figures.learning_curves(frames.read(store.url, "study")).figure()
    )
    assert "joint (1 of 2 seeds)" in texts_of(figures.pareto(frames.read(store.url, "study")).figure())


def test_nothing_to_draw(new_store, stored_run):
    running = new_store().add(stored_run("uniform", [0.1], state="RUNNING", total_steps=2))
    figures.learning_curves(frames.read(running.url, "study")).figure()  # a curve may be shown before it ends
    with pytest.raises(
        ValueError, match="no run of experiment 'study' has completed with a score and known FLOPs"
    ):
        figures.pareto(frames.read(running.url, "study"))
    split = new_store().add(
        stored_run("uniform", [0.1], metrics=["a/zero_shot"]),
        stored_run("joint", [0.1], metrics=["b/zero_shot"]),
    )
    with pytest.raises(ValueError, match="'study' has no score to draw over examples_seen yet: 2 COMPLETED"):
        figures.learning_curves(frames.read(split.url, "study"))


def test_saved_files_are_complete_and_reproducible(pareto, tmp_path):
    first, second = pareto.save(tmp_path / "a"), pareto.save(tmp_path / "b")
    assert [path.name for path in first] == ["pareto.png", "pareto.svg", "pareto.pdf"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert names(tmp_path / "a") == ["pareto.pdf", "pareto.png", "pareto.svg"]
    with Image.open(first[0]) as image:
        image.load()
        assert image.width == 1100  # 5.5 inches at 200 dots an inch
    svg = first[1].read_text()
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "<dc:date>" not in svg
    pdf = first[2].read_bytes()
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf


def test_drawn_only_when_something_changed(study, stored_run, tmp_path):
    def saved():
        paths = figures.pareto(frames.read(study.url, "study"), "uniform").save(tmp_path)
        return [path.stat().st_mtime_ns for path in paths]

    first = saved()
    assert saved() == first
    study.add(stored_run("late", [0.9]))
    later = saved()
    assert all(b > a for a, b in zip(first, later, strict=True))
    (tmp_path / "pareto.svg").write_text("half a file")
    assert saved() != later


def test_unchanged_figures_do_not_import_matplotlib(study, tmp_path):
    code = (
        "import sys; from jestlab.analysis import frames, figures\n"
        f"figures.pareto(frames.read({study.url!r}, 'study')).save({str(tmp_path)!r})\n"
        "print('matplotlib' in sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["True", "False"]


def test_a_failure_leaves_the_old_figure(pareto, tmp_path):
    folder = tmp_path / "figures"
    before = [path.read_bytes() for path in sorted(pareto.save(folder))]

    def fails_late(data, texts, sheet):
        from matplotlib.lines import Line2D

        class Unpaintable(Line2D):
            def draw(self, renderer):
                raise ZeroDivisionError

        figure = pareto.draw(data, texts, sheet)
        figure.axes[0].add_artist(Unpaintable([0], [0]))
        return figure

    changed = dataclasses.replace(pareto.texts, title="another")
    with pytest.raises(ZeroDivisionError):
        dataclasses.replace(pareto, texts=changed, draw=fails_late).save(folder)
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == before


def test_nothing_half_written_is_left(pareto, tmp_path):
    (tmp_path / "figures" / "pareto.svg").mkdir(parents=True)  # nothing can replace it
    with pytest.raises(OSError, match=r"pareto\.svg"):
        pareto.save(tmp_path / "figures")
    assert names(tmp_path / "figures") == ["pareto.png", "pareto.svg"]


def test_every_label_has_a_distinct_look():
    found = looks(["uniform", *(f"run {i}" for i in range(30))], "uniform")
    assert len(set(found.values())) == 31
    in_grey = {(look.marker, str(look.line)) for look in list(found.values())[:11]}
    assert len(in_grey) == 11
    assert re.fullmatch("#[0-9a-f]{6}", ink("#E69F00"))


def test_the_user_s_matplotlib_settings_are_ignored(pareto, tmp_path):
    import matplotlib

    plain = pareto.save(tmp_path / "a")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        odd = pareto.save(tmp_path / "b")
        assert matplotlib.rcParams["font.size"] == 30
    assert plain[0].read_bytes() == odd[0].read_bytes()
