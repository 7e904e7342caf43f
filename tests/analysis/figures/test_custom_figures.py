"""Custom figures: a function of the results becomes files, and a part of the page."""

import json
import re
from functools import partial

import pytest
from click.testing import CliRunner

from jestlab.analysis.curves import score_curves
from jestlab.analysis.custom import CodeFailed, CustomCode, NotYet
from jestlab.analysis.figures import draw, pareto
from jestlab.analysis.report import gather
from jestlab.platform.cli import cli

SCATTER = '''
"""A custom figure."""
from matplotlib.figure import Figure


def scatter(results, x="flops"):
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    for label, runs in results.final.groupby("label", sort=False):
        axes.scatter(runs[x], runs["score"], color=results.look(label).color, label=results.shown(label))
    figure.suptitle("Scores $1")
    return figure, f"Against {x}."
'''


HERE = rf"{re.escape(__file__)}:\d+"


def drawn(store, function, digest="d", **options):
    def own(experiment, kind, name):
        return CustomCode(name, function, digest)

    return draw("mine.py:scatter", store.url, "study", own=own, options=options)


def bars(results, color="red"):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    ends = results.final.groupby("label")["score"].mean()
    figure.subplots().bar(ends.index, ends, color=color)
    return figure, f"Bars in {color}."


def outside(results):
    return 1 / 0


def test_is_saved_like_other_figures(study, tmp_path):
    paths = drawn(study, bars).save(tmp_path)
    assert [path.name for path in paths] == ["scatter.png", "scatter.svg", "scatter.pdf"]
    assert int.from_bytes(paths[0].read_bytes()[16:20]) == 600  # 200 dots per inch
    assert all(re.search(rb"jestlab:[0-9a-f]{64}", path.read_bytes()) for path in paths)


def test_is_drawn_again_when_its_options_or_its_code_change(study, tmp_path, drawings):
    blue = drawn(study, bars, color="blue"), drawn(study, bars, "other", color="blue")
    for number, plot in enumerate((drawn(study, bars), *blue), 1):
        plot.save(tmp_path)
        plot.save(tmp_path)
        assert len(drawings) == number


def test_functions_receive_the_results(study):
    from matplotlib.figure import Figure

    seen = []

    def look(results, **options):
        check_results(results)
        seen.append(options)
        return Figure()

    drawn(study, look, x=1)
    assert seen == [{"x": 1}]


def check_results(given):
    assert given.labels == ["reference", "uniform", "independent", "joint"]
    assert (given.baseline, given.references) == ("uniform", ["reference"])
    assert len(given.final) == 8 and {"score", "flops", "shapes/zero_shot"} <= set(given.final)
    changed = given.evaluations
    changed["score"] = 0.0
    assert (given.evaluations["score"] > 0).all()  # frames are copies
    assert set(given.metrics("loss")) == {"label", "seed", "name", "step", "value"}
    assert list(given.runs.query("label == 'joint'")["state"]) == ["COMPLETED"] * 2
    colors = [given.look(label).color for label in given.labels]
    assert colors[1] == "#000000" and len(set(colors)) == 4
    assert list(given.config("selection.rule").index) == given.labels


def test_an_error_is_one_line_with_file_and_line(study):
    for function, message in (
        (outside, rf"^{HERE}: ZeroDivisionError: division by zero$"),
        (lambda results: results.metrics("gone"), "^experiment 'study' has logged none of gone$"),
        (lambda results: None, "mine.py:scatter returned NoneType: expected a matplotlib.figure.Figure"),
        (lambda results: partial(exit, 3)(), "SystemExit: 3"),
        (lambda results: json.loads("{\n"), rf"^{HERE}: JSONDecodeError: Expecting"),
        # A mistake, which jestlab's own code finds: no result that comes later mends it.
        (
            lambda results: score_curves(results.frames, "all"),  # type: ignore[arg-type]
            rf"^{HERE}: ValueError: unknown cost scope 'all'",
        ),
        (lambda results: results.frames.label_of("jiont"), rf"^{HERE}: RequestError: .*jiont"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            drawn(study, function)
        assert "\n" not in str(caught.value)


def test_only_missing_results_are_told_as_not_yet(new_store, stored_run):
    store = new_store().add(stored_run("a", [0.1], state="RUNNING"))
    for function in (
        lambda results: results.final,
        lambda results: results.metrics("gone"),
        lambda results: pareto(results.frames),
    ):
        with pytest.raises(NotYet):
            drawn(store, function)
    with pytest.raises(CodeFailed):
        drawn(store, lambda results: results.frames.label_of("b"))


def test_without_a_loader_nothing_is_executed(study):
    with pytest.raises(ValueError, match="not executed from here"):
        draw("mine.py:scatter", study.url, "study")


def test_a_report_includes_the_figures(new_store, stored_run):
    own = {"kind": "/x/mine.py:scatter", "options": {"color": "green"}}
    broken = {"kind": "/x/mine.py:broken"}
    store = new_store().add(stored_run("a", [0.1, 0.2]), spec={"reports": [own, own, broken]})

    def load(experiment, kind, name):
        return CustomCode(name, bars if "scatter" in name else outside, "d")

    contents = gather(store.url, "study", own=load)
    titles = {part.name: part.title for part in contents.figures[2:]}
    assert titles == {"scatter": "Scatter", "scatter-2": "Scatter: color green"}
    assert contents.figures[2].plot.texts.caption == "Bars in green."
    (missing,) = (section.missing for section in contents.sections if section.missing)
    assert "ZeroDivisionError" in missing["Broken"]


def test_the_command_draws_the_figures_of_a_file(study, tmp_path, monkeypatch, drawings):
    (tmp_path / "mine.py").write_text(SCATTER)
    monkeypatch.chdir(tmp_path)

    def called(*words):
        at = ("plot", "study", "--store", study.url, "--output", str(tmp_path / "out"), "--kind")
        return CliRunner().invoke(cli, [*at, *words])

    done = called("mine.py:scatter", "--option", "x=examples_seen")
    assert done.exit_code == 0, done.output
    suffixes = (".png", ".svg", ".pdf")
    assert done.output.split() == [str(tmp_path / f"out/scatter{suffix}") for suffix in suffixes]
    unknown = "has no option 'y', given in options: did you mean|its options"
    for words, message in {
        ("mine.py:scater",): "no 'scater' in .*mine.py: did you mean 'scatter'",
        ("mine.py:scatter", "--option", "y=1"): unknown,
        ("mine.py:scatter", "--option", "x"): "expected KEY=VALUE, such as x=flops",
        ("scater",): "--kind: no report 'scater': did you mean",
        ("pareto", "--option", "x=1"): "--option: not an option of this kind",
    }.items():
        done = called(*words)
        assert done.exit_code in (1, 2), words
        assert re.search(message, str(done.exception) + done.output), (words, done.exception)
