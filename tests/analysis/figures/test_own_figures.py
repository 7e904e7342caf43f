"""Figures of one's own: a function of the results becomes files, and a part of the page."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from jestlab.analysis.figures import Plot, Request, draw, pareto
from jestlab.analysis.own import OwnCode
from jestlab.analysis.report import build
from jestlab.platform.cli import cli

SCATTER = '''
"""Of one's own."""
from matplotlib.figure import Figure


def scatter(results, x="flops", fail=False):
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    for label, runs in results.final.groupby("label", sort=False):
        axes.scatter(runs[x], runs["score"], color=results.colour(label), label=results.shown(label))
    figure.suptitle("Scores $1")
    return figure, f"Against {x}."


def broken(results):
    rows = results.final
    return rows["gone"]


def nothing(results):
    return None
'''


def loader(function, digest="d"):
    return lambda experiment, kind, name: OwnCode(name, function, digest)


def drawn(store, function, **options):
    return draw("mine.py:scatter", Request(store.url, "study", own=loader(function), options=options))


def bars(results, colour="red"):
    figure = Figure(figsize=(3, 2))
    ends = results.final.groupby("label")["score"].mean()
    figure.subplots().bar(ends.index, ends, color=colour)
    return figure, f"Bars in {colour}."


def bars_in_pyplot(results):
    figure, axes = plt.subplots()
    axes.plot([1, 2])
    return figure


def test_a_function_of_the_results_is_saved_like_any_other_figure(study, tmp_path):
    plot = drawn(study, bars)
    paths = plot.save(tmp_path / "figures")
    assert [path.name for path in paths] == ["scatter.png", "scatter.svg", "scatter.pdf", "scatter.txt"]
    assert int.from_bytes(paths[0].read_bytes()[16:20]) == 600, "as fine as all others, 200 dots per inch"
    before = {path: path.stat().st_mtime_ns for path in paths}
    drawn(study, bars).save(tmp_path / "figures")
    assert {path: path.stat().st_mtime_ns for path in paths} == before
    drawn(study, bars, colour="blue").save(tmp_path / "figures")
    assert all(path.stat().st_mtime_ns > before[path] for path in paths)
    assert all(re.search(rb"jestlab:[0-9a-f]{64}", path.read_bytes()) for path in paths[:-1])


def test_what_the_results_hold(study):
    seen: dict[str, Any] = {}

    def look(results, **options):
        seen["options"] = options
        seen["labels"], seen["baseline"] = results.labels, results.baseline
        seen["references"] = results.references
        seen["final"] = results.final
        seen["loss"] = results.metrics("loss")
        seen["runs"] = results.runs
        seen["claims"] = results.claims
        seen["colours"] = {label: results.colour(label) for label in results.labels}
        changed = results.evaluations
        changed["score"] = 0.0
        seen["evaluations"] = results.evaluations
        seen["rule"] = results.config("selection.rule")
        return Figure()

    drawn(study, look, x=1)
    assert seen["options"] == {"x": 1}
    assert seen["labels"] == ["reference", "uniform", "independent", "joint"]
    assert (seen["baseline"], seen["references"]) == ("uniform", ["reference"])
    assert len(seen["final"]) == 8 and {"score", "flops", "shapes/zero_shot"} <= set(seen["final"])
    assert (seen["evaluations"]["score"] > 0).all(), "to change a frame changes nothing"
    assert set(seen["loss"]) == {"label", "seed", "name", "step", "value"}
    assert list(seen["runs"].query("label == 'joint'")["state"]) == ["COMPLETED"] * 2
    assert list(seen["claims"].columns[:3]) == ["statement", "source", "verdict"]
    assert seen["colours"]["uniform"] == "#000000" and len(set(seen["colours"].values())) == 4
    assert list(seen["rule"].index) == seen["labels"]


def test_a_plot_is_taken_as_it_is_and_drawn_anew_when_its_code_changes(study, tmp_path):
    def own(results):
        return pareto(results.frames, results.baseline)

    made = drawn(study, own)
    assert isinstance(made, Plot) and made.name == "scatter" and "cost" in made.data
    [png, *_] = made.save(tmp_path / "x")
    before = png.stat().st_mtime_ns
    changed = draw("mine.py:scatter", Request(study.url, "study", own=loader(own, "other")))
    changed.save(tmp_path / "x")
    assert png.stat().st_mtime_ns > before


def test_pyplot_does_not_keep_figures(study):
    drawn(study, bars_in_pyplot)
    assert plt.get_fignums() == []


def outside(results):
    return Figure(figsize=(-1, 1)) if results is None else 1 / 0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (outside, rf"^{re.escape(__file__)}:\d+: ZeroDivisionError: division by zero$"),
        (lambda results: results.metrics("gone"), "^experiment 'study' has logged none of gone$"),
        (lambda results: None, "mine.py:scatter returned NoneType: expected a matplotlib.figure.Figure"),
        (lambda results: partial(exit, 3)(), "SystemExit: 3"),
        (lambda results: json.loads("{\n"), r"test_own_figures.py:\d+: JSONDecodeError: Expecting"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_file_and_line(study, function, message):
    with pytest.raises(ValueError, match=message) as caught:
        drawn(study, function)
    assert "\n" not in str(caught.value)


def test_without_a_loader_nothing_is_executed(study):
    with pytest.raises(ValueError, match="not executed from here"):
        draw("mine.py:scatter", Request(study.url, "study"))
    with pytest.raises(ValueError, match="no figure 'paretto': choose one of"):
        draw("paretto", Request(study.url, "study"))


def test_the_page_shows_it_with_its_provenance(new_store, stored_run, tmp_path):
    own = {"kind": "/x/mine.py:scatter", "options": {"colour": "green"}}
    broken = {"kind": "/x/mine.py:broken"}
    store = new_store().add(stored_run("a", [0.1, 0.2]), spec={"reports": [own, own, broken]})

    def load(experiment, kind, name):
        return OwnCode(name, bars if "scatter" in name else outside, "d")

    page, *beside = build(store.url, "study", tmp_path / "page", own=load)
    names = {path.name for path in beside}
    assert {"scatter.png", "scatter.pdf", "scatter.provenance.json", "scatter-2.svg"} <= names
    html = page.read_text()
    assert '<section id="scatter">' in html and "Scatter: colour green" in html
    assert '<p class="caption">Bars in green.</p>' in html
    assert "ZeroDivisionError" in html
    told = json.loads((tmp_path / "page" / "report" / "scatter.provenance.json").read_text())
    assert set(told["files"]) == {"scatter.png", "scatter.svg", "scatter.pdf", "scatter.txt"} and told["runs"]


def called(*words):
    return CliRunner().invoke(cli, [*map(str, words)])


def test_the_verb_draws_what_a_file_defines(study, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SCATTER)
    monkeypatch.chdir(tmp_path)
    at = ("plot", "study", "--store", study.url, "--output", tmp_path / "out")
    done = called(*at, "--kind", "mine.py:scatter", "--option", "x=examples_seen")
    assert done.exit_code == 0, done.output
    assert done.output.split() == [
        str(tmp_path / f"out/scatter{suffix}") for suffix in (".png", ".svg", ".pdf", ".txt")
    ]
    for words, message in {
        ("mine.py:scater",): "no 'scater' in .*mine.py: did you mean 'scatter'",
        (
            "mine.py:scatter",
            "--option",
            "y=1",
        ): "takes no 'y', which --option gives: did you mean|its options",
        ("mine.py:scatter", "--option", "x"): "invalid override 'x': expected path=value, as in x=flops",
        ("mine.py:broken",): r"mine.py:17: KeyError: 'gone'",
        ("mine.py:nothing",): "returned NoneType: expected",
        ("scater",): "no figure 'scater': choose one of",
        ("pareto", "--option", "x=1"): "--option is for a figure of your own, and pareto is built in",
    }.items():
        done = called(*at, "--kind", *words)
        assert done.exit_code == 1, words
        assert re.search(message, str(done.exception) + done.output), (words, done.exception)
