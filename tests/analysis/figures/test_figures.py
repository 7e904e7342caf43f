"""Figures: their data, captions, and files, which are drawn only when they would change."""

import dataclasses
import itertools
import re
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

from jestlab.analysis import figures
from jestlab.analysis.colors import BASELINE, in_order
from jestlab.analysis.figures import charts
from jestlab.analysis.figures.style import FRONT, ink, looks


@pytest.fixture(scope="module")
def pareto(results):
    return figures.pareto(results, "uniform")


def lines_of(figure, points):
    """Return color, style, x, and y of each line of a figure that has so many points."""
    (axes,) = figure.axes
    found = [(line, *np.asarray(line.get_data(), float)) for line in axes.get_lines()]
    return [(line.get_color(), line.get_linestyle(), x, y) for line, x, y in found if len(x) == points]


def test_learning_curves_show_every_competitor_in_a_new_figure(results):
    curves = figures.learning_curves(results, "uniform")
    known_to_pyplot = plt.get_fignums()
    figure = curves.figure()
    assert curves.figure() is not figure
    assert plt.get_fignums() == known_to_pyplot
    (axes,) = figure.axes
    lines = {colour: (x, y) for colour, _, x, y in lines_of(figure, 4)}
    assert len(lines) == len(axes.collections) == 3  # a line and a band each; the reference has neither
    assert list(lines[BASELINE.light][0]) == [64, 128, 192, 256]
    assert list(lines[BASELINE.light][1]) == pytest.approx([10, 20, 30, 45])
    assert (":", 45.0) in {(style, round(y[0], 1)) for _, style, _, y in lines_of(figure, 2)}
    assert {"uniform", "independent", "joint"} <= {text.get_text() for text in axes.texts}


def test_the_score_of_an_unfinished_reference_is_not_final(read_runs, stored_run):
    results = read_runs(
        stored_run("teacher", [0.3, 0.4], needed=1),
        stored_run("reference", [0.3, 0.5], needed=1, state="RUNNING", total_steps=9),
        stored_run("joint", [0.2, 0.4], state="RUNNING", total_steps=9),
    )
    caption = figures.learning_curves(results).texts.caption
    assert "References (gray dashes if in range): teacher 40.0, reference 50.0 so far." in caption


def test_pareto_front_is_of_the_competitors_without_their_trajectories(pareto, results):
    means = pareto.data[pareto.data["kind"] == "mean"].set_index("label")
    assert set(means.index[means["on_front"].astype(bool)]) == {"uniform", "joint"}
    assert means.loc["joint", "score"] == pytest.approx(65)
    assert means.loc["joint", "cost"] == pytest.approx(32e9)
    assert (pareto.data["kind"] == "seed").sum() == 8
    ((_, _, x, y),) = (line for line in lines_of(pareto.figure(), 4) if line[0] == FRONT)
    assert list(x)[:-1] == pytest.approx([12, 12, 32])
    assert list(y)[1:] == pytest.approx([45, 65, 65])
    plot = figures.pareto(results, trajectories=True)
    trajectories = plot.data[plot.data["kind"] == "trajectory"]
    assert len(trajectories) == 2 + 3 * 4 and trajectories["on_front"].isna().all()
    assert "Faint lines: paths over training." in plot.texts.caption


def test_points_possibly_on_the_front_are_ambiguous(read_runs, stored_run, stored_runs):
    scored = (3e9, 5e9, 0.0)
    results = read_runs(
        *stored_runs("uniform", [0.2], [0.3], [0.25]),
        *stored_runs("near", [0.5], [0.7], [0.6], flops_per_step=scored),
        *stored_runs("best", [0.6], [0.8], [0.7], flops_per_step=scored),
        stored_run("worse", [0.2], flops_per_step=(9e9, 0.0, 0.0)),
    )
    plot = figures.pareto(results)
    means = plot.data[plot.data["kind"] == "mean"].set_index("label")
    standings = {"uniform": "front", "near": "ambiguous", "best": "ambiguous", "worse": "dominated"}
    assert means["standing"].to_dict() == standings
    half = 4.30265 * 10 / 3**0.5  # Student's t with two degrees of freedom
    assert (means.loc["near", "low"], means.loc["near", "high"]) == pytest.approx((60 - half, 60 + half))
    assert "half filled: on it or dominated (intervals overlap)" in plot.texts.caption
    assert "A single seed is treated as exact." in plot.texts.caption
    drawn = {(line.get_marker(), line.get_fillstyle()) for line in plot.figure().axes[0].get_lines()}
    assert {("o", "full"), ("s", "left"), ("D", "full")} <= drawn


def test_a_label_keeps_its_look_beside_other_labels_and_another_baseline(results):
    def color(results, baseline):
        data = figures.learning_curves(results, baseline).data
        return data.loc[data["label"] == "joint", "color"].iloc[0]

    assert color(results, "uniform") == color(results, "independent")
    assert color(results.only(["joint", "uniform"]), "uniform") == color(results, "uniform")


def test_curves_compare_with_the_baseline_of_the_study(read_runs, stored_run):
    runs = [stored_run(name, [0.1, 0.2]) for name in ("uniform", "joint")]
    spec = {"reports": [{"kind": "curves"}, {"kind": "table", "baseline": "joint"}]}
    plot = figures.learning_curves(read_runs(*runs, spec=spec))
    assert "Dotted: final value of joint." in plot.texts.caption


def test_axes_show_whole_intervals_up_to_100_percent_and_distant_costs(read_runs, stored_runs):
    found = read_runs(*stored_runs("uniform", [0.1], [0.3]), *stored_runs("joint", [0.6], [0.64], [0.62]))
    for plot in (figures.learning_curves(found), figures.pareto(found)):
        data = plot.data[plot.data["low"].notna()]
        bottom, top = plot.figure().axes[0].get_ylim()
        assert data["low"].min() < 0 == bottom
        assert data.loc[data["label"] == "joint", "high"].max() < 100 == top
    large = stored_runs("large", [0.6], flops_per_step=(3e11, 0.0, 0.0))
    (axes,) = figures.pareto(read_runs(*stored_runs("small", [0.3]), *large)).figure().axes
    assert axes.get_xscale() == "log"


def test_a_logarithmic_axis_ends_at_means_and_seeds_not_at_intervals(read_runs, stored_runs):
    curves = [0.9, 0.011], [0.5, 0.012], [0.7, 0.03]
    runs = stored_runs("uniform", *curves, metrics=["wiki/loss"], flops_per_step=(3e9, 0.0, 0.0))
    runs += stored_runs("joint", [0.8, 0.0095], [0.8, 0.0111], metrics=["wiki/loss"])
    spec = {"metrics": {"wiki/loss": {"goal": "min", "scale": "log"}}, "score": ["wiki/loss"]}
    found = read_runs(*runs, spec=spec)
    for plot in (figures.learning_curves(found), figures.pareto(found)):
        (axes,) = plot.figure().axes
        bottom, _ = axes.get_ylim()
        assert plot.data["low"].min() < 0 and axes.get_yscale() == "log"
        assert 0.005 < bottom < 0.0095
    huge = stored_runs("uniform", [1e299, 1e-12], metrics=["wiki/loss"])
    figures.learning_curves(read_runs(*huge, spec=spec)).figure()  # limits don't overflow


def test_an_axis_of_costs_has_no_numbers_below_0(read_runs, stored_run):
    runs = [
        stored_run(name, [0.1, score], seed=seed, seconds_per_step=seconds)
        for name, score in (("uniform", 0.3), ("joint", 0.4))
        for seed, seconds in enumerate((1.0, 5.0))
    ]
    results = read_runs(*runs)
    plot = figures.pareto(results, over="seconds")
    assert plot.data["cost_low"].min() < 0 == plot.figure().axes[0].get_xlim()[0]
    curves = figures.learning_curves(results, over="seconds")
    assert 0 <= curves.figure().axes[0].get_xlim()[0] < curves.data["effort"].min()


def test_names_do_not_overlap(read_runs, stored_run):
    rng = np.random.default_rng(0)
    runs = [
        stored_run("run", [0.1, 0.5 + 0.02 * rng.random()], label=f"joint filtering_ratio=0.{i}",
                   flops_per_step=(1e9 * (1 + 0.05 * i), 0.0, 0.0))
        for i in range(9)
    ]  # fmt: skip
    results = read_runs(*runs)
    figure = figures.pareto(results).figure()
    figure.canvas.draw()
    # Of the text alone: the extent of an annotation includes its arrow.
    texts = [text for text in figure.axes[0].texts if "joint" in text.get_text()]
    boxes = [Text.get_window_extent(text) for text in texts]
    assert len(boxes) == 9
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_of_very_many_labels_the_front_and_the_baseline_are_named(read_runs, stored_run):
    runs = [stored_run("run", [0.1, 0.3 + 0.01 * i], label=f"joint {i}") for i in range(25)]
    references = [
        stored_run("made", [0.1, 0.31 + 0.01 * i], label=f"reference {i}", needed=1) for i in range(8)
    ]
    plot = figures.pareto(read_runs(stored_run("uniform", [0.1, 0.2]), *runs, *references), "uniform")
    [axes] = plot.figure().axes
    named = [handle.get_label() for handle in axes.get_legend_handles_labels()[0]]
    assert named == ["uniform", "joint 24"]
    assert "Named: the front and the baseline." in plot.texts.caption
    assert "8 references: 31.0 to 38.0." in plot.texts.caption


def test_nothing_to_draw(new_store, stored_run):
    running = new_store().add(stored_run("uniform", [0.1], state="RUNNING", total_steps=2))
    results = running.read()
    assert len(figures.learning_curves(results).data) == 1  # a curve may be shown before it ends
    with pytest.raises(ValueError, match="has completed with a score and known FLOPs"):
        figures.pareto(results)
    split = new_store().add(
        stored_run("uniform", [0.1], metrics=["a/zero_shot"]),
        stored_run("joint", [0.1], metrics=["b/zero_shot"]),
    )
    with pytest.raises(ValueError, match="'study' has no score to draw over examples_seen yet: 2 COMPLETED"):
        figures.learning_curves(split.read())


@pytest.fixture(scope="module")
def saved(pareto, tmp_path_factory):
    return pareto.save(tmp_path_factory.mktemp("saved"))


def test_saved_files_are_complete_and_reproducible(pareto, saved, tmp_path):
    """Whatever the user's matplotlib settings are."""
    assert [path.name for path in saved] == ["pareto.png", "pareto.svg", "pareto.pdf"]
    assert sorted(saved) == sorted(saved[0].parent.iterdir())
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        second = pareto.save(tmp_path)
        assert matplotlib.rcParams["font.size"] == 30
    assert [path.read_bytes() for path in saved] == [path.read_bytes() for path in second]
    png, svg, pdf = saved
    with Image.open(png) as image:
        image.load()
        assert image.width == 1100  # 5.5 inches at 200 dots per inch
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")
    assert "<dc:date>" not in svg.read_text()
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in pdf.read_bytes()


def test_is_drawn_only_when_something_changed(study, stored_run, tmp_path, drawings):
    def save(**changes):
        plot = figures.pareto(study.read(), "uniform")
        dataclasses.replace(plot, sheet=figures.Sheet(**changes)).save(tmp_path)
        return len(drawings)

    assert [save(), save()] == [1, 1]
    study.add(stored_run("late", [0.9]))
    assert [save(), save()] == [2, 2]
    (tmp_path / "pareto.svg").write_text("half a file")
    assert save() == 3
    assert save(width="4in") == 4
    plot = figures.pareto(study.read(), "uniform")
    for known, count in ((b"another", 5), (b"older " + plot._mark.encode(), 5)):
        (tmp_path / "pareto.png").write_bytes(known)
        assert (plot.png([tmp_path / "none", tmp_path]) == known) == (known[:5] == b"older")
        assert len(drawings) == count


def test_unchanged_figures_import_no_matplotlib(finished_study, saved):
    code = (
        "import sys\n"
        "from jestlab.analysis import figures\n"
        "from jestlab.analysis.results import read as read_frames\n"
        f"plot = figures.pareto(read_frames({finished_study.url!r}, 'study'), 'uniform')\n"
        f"plot.save({str(saved[0].parent)!r})\n"
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_failure_leaves_the_old_figure(pareto, saved):
    before = {path: path.read_bytes() for path in saved}

    def fails_late(data, texts, sheet):
        figure = pareto.draw(data, texts, sheet)
        figure.axes[0].get_lines()[0].draw = lambda renderer: 1 / 0
        return figure

    changed = dataclasses.replace(pareto.texts, title="another")
    with pytest.raises(ZeroDivisionError):
        dataclasses.replace(pareto, texts=changed, draw=fails_late).save(saved[0].parent)
    assert {path: path.read_bytes() for path in saved[0].parent.iterdir()} == before


def test_every_label_has_a_distinct_look():
    """Markers of points in print have no line style."""
    found = looks(in_order([f"run {i}" for i in range(105)], "run 0"))
    assert len({(look.color, look.marker) for look in found.values()}) == 105
    assert len({look.color for look in list(found.values())[:9]}) == 9
    assert re.fullmatch("#[0-9a-f]{6}", ink("#E69F00"))


def test_pages_get_the_numbers_of_the_print(results, read_runs, stored_runs):
    plot = figures.learning_curves(results, "uniform")
    series = {one["label"]: one for one in charts.curves(plot)["series"]}
    joint, data = series["joint"], plot.data.query("label == 'joint' and kind == 'mean'")
    for ours, theirs in {"x": "effort", "y": "mean", "low": "low", "high": "high"}.items():
        assert joint[ours] == pytest.approx(data[theirs].tolist(), rel=1e-5)
    assert np.mean([line["y"] for line in joint["lines"]], axis=0) == pytest.approx(joint["y"])
    assert series["reference"]["lines"] == []
    assert charts.curves(plot)["about"].startswith(
        "Mean over seeds and its 95% confidence interval. Thin lines"
    )
    chart = charts.pareto(figures.pareto(results, "uniform"))
    joint = next(one for one in chart["series"] if one["label"] == "joint")
    assert (joint["path"]["x"][-1], joint["path"]["y"][-1]) == pytest.approx((joint["x"][0], joint["y"][0]))
    many = [run for i in range(9) for run in stored_runs(f"run {i}", [0.1, 0.2], [0.1, 0.3])]
    large = stored_runs("large", [0.6], flops_per_step=(3e11, 0.0, 0.0))
    assert not charts.pareto(figures.pareto(read_runs(*many)))["x_log"]
    found = read_runs(*many, *large)
    chart = charts.pareto(figures.pareto(found))
    assert chart["x_log"] and all(one["path"] is None for one in chart["series"])
    assert all(one["lines"] == [] for one in charts.curves(figures.learning_curves(found))["series"])
    assert sum(one["shown"] for one in chart["series"]) == charts.SHOWN_AT_FIRST
