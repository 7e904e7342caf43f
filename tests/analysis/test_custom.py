"""Custom figures and tables: functions of a study's results, on the command line and in reports."""

import inspect
import io
import json
import math
import re
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure

from jestlab.analysis.colors import BASELINE
from jestlab.analysis.curves import score_curves
from jestlab.analysis.custom import CodeFailed, CustomCode, NotYet
from jestlab.analysis.figures import draw, pareto
from jestlab.analysis.report import gather
from jestlab.analysis.tables import table
from jestlab.platform.cli import cli

HERE = rf"{re.escape(__file__)}:\d+"


def loader(function, digest="0123456789ab"):
    return lambda experiment, kind, name: CustomCode(name, function, digest)


def drawn(store, function, digest="d", **options):
    return draw("mine.py:scatter", store.url, "study", own=loader(function, digest), options=options)


def made(store, function, **options):
    return table(store.url, "mine.py:per_label", ["study"], options=options, own=loader(function))


def scatter(results, x="flops", color=None):
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    for label, runs in results.final.groupby("label", sort=False):
        own = color or results.look(label).color
        axes.scatter(runs[x], runs["score"], color=own, label=results.shown(label))
    figure.suptitle("Scores $1")
    return figure, f"Against {x} in {color or 'all colors'}."


def per_label(results, top=None):
    ends = results.final.groupby("label", sort=False)
    frame = ends[["shapes/zero_shot", "score"]].mean()
    frame["steps"], frame["waste"] = ends["step"].max(), ends["score"].std()
    frame["when"] = "today"
    waste = {"goal": "min", "digits": 2, "name": "wasted"}
    frame.attrs = {"caption": "Means.", "notes": ["one note"], "columns": {"waste": waste}}
    return frame.head(top) if top else frame


MINE = "\n\n".join(["from matplotlib.figure import Figure", *map(inspect.getsource, (scatter, per_label))])
"""A user's file with these functions."""


def outside(results):
    return 1 / 0


# ---- results and errors


def test_functions_receive_the_results(study):
    def check(given, **options):
        assert options == {"x": 1}
        assert given.labels == ["reference", "uniform", "independent", "joint"]
        assert (given.baseline, given.references) == ("uniform", ["reference"])
        assert len(given.final) == 8 and {"score", "flops", "shapes/zero_shot"} <= set(given.final)
        changed = given.evaluations
        changed["score"] = 0.0
        assert (given.evaluations["score"] > 0).all()  # frames are copies
        assert set(given.metrics("loss")) == {"label", "seed", "name", "step", "value"}
        assert list(given.runs.query("label == 'joint'")["state"]) == ["COMPLETED"] * 2
        colors = [given.look(label).color for label in given.labels]
        assert colors[1] == BASELINE.light and len(set(colors)) == 4
        assert list(given.config("selection.rule").index) == given.labels
        return Figure()

    drawn(study, check, x=1)


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
    with pytest.raises(ValueError, match="not executed from here"):
        draw("mine.py:scatter", study.url, "study")  # without a loader


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


# ---- figures


def test_a_figure_is_saved_like_other_figures(study, tmp_path):
    paths = drawn(study, scatter).save(tmp_path)
    assert [path.name for path in paths] == ["scatter.png", "scatter.svg", "scatter.pdf"]
    assert int.from_bytes(paths[0].read_bytes()[16:20]) == 600  # 200 dots per inch
    assert all(re.search(rb"jestlab:[0-9a-f]{64}", path.read_bytes()) for path in paths)


def test_a_figure_is_drawn_again_when_its_options_or_its_code_change(study, tmp_path, drawings):
    blue = drawn(study, scatter, color="blue"), drawn(study, scatter, "other", color="blue")
    for number, plot in enumerate((drawn(study, scatter), *blue), 1):
        plot.save(tmp_path)
        plot.save(tmp_path)
        assert len(drawings) == number


# ---- tables


def test_a_frame_is_a_table_in_all_formats(study):
    found = made(study, per_label)
    headings = [column.header for column in found.columns]
    assert headings == ["label", "zero-shot", "score", "steps", "wasted ↓", "when"]
    assert "| *reference*" in found.markdown() and "**65.0**" in found.markdown()  # it is not ranked
    assert "**0.00**" not in found.markdown().splitlines()[2]
    assert "Means." in found.markdown() and "one note" in found.markdown()
    raw = pd.read_csv(io.StringIO(found.csv()))
    assert list(raw["label"]) == ["reference", "uniform", "independent", "joint"]
    assert raw["shapes/zero_shot"].iloc[-1] == pytest.approx(0.65)
    assert json.loads(found.json())["rows"][0]["label"] == "reference"
    assert r"\caption{Means.}" in found.latex() and "one note." in found.latex()
    assert "<table" in found.html()
    assert len(made(study, per_label, top=2).frame) == 2


def test_cells_depend_on_the_runs_of_their_label(study):
    """Retracted results are struck through."""
    study.retract("joint", "wrong shards")
    found = made(study, per_label)
    assert found.experiments == ["study"] and found.parts is not None
    assert list(found.parts.query("row == 'joint'")["fingerprint"]) == ["joint-0", "joint-1"]
    assert found.column_named("waste").formula == "computed by mine.py:per_label, code 01234567"
    assert found.struck == {"joint": "wrong shards"}
    assert "joint is retracted: wrong shards" in found.markdown()


def test_rows_are_named_by_the_index_or_the_first_column(study):
    for frame, shown in (
        (pd.DataFrame({"class": ["cat", "dog"], "n": [1234, 5]}), [["cat", "1,234"], ["dog", "5"]]),
        (pd.DataFrame({"n": [1.0, math.nan]}, index=["cat", "dog"]), [["cat", "1.000"], ["dog", "—"]]),
        (pd.DataFrame({"yes": [True, None]}, index=["a", "b"]), [["a", "True"], ["b", "—"]]),
        (pd.DataFrame({"row": ["a"], "section": [-2]}), [["a", "−2"]]),
        (pd.DataFrame({2020: [0.5]}, index=pd.Index([7], name="year")), [["7", "0.5000"]]),
        (pd.DataFrame({"on": [pd.Timestamp("2026-01-02")]}, index=["a"]), [["a", "2026-01-02 00:00:00"]]),
        (pd.DataFrame({"z": [1 + 2j], "third": [Fraction(1, 3)]}, index=["a"]), [["a", "(1+2j)", "0.3333"]]),
        (pd.DataFrame({"n": np.array([1.5], np.longdouble)}, index=["a"]), [["a", "1.500"]]),
        (
            pd.DataFrame({"n": pd.array([2**40], "Int64"), "m": [2**64 - 1]}),
            [["1099511627776", f"{2**64 - 1:,}"]],
        ),
    ):
        found = made(study, lambda results, frame=frame: frame)
        assert [[cell.text for cell in line.cells] for line in found.lines] == shown
        assert json.loads(found.json())["rows"] and found.csv()


def test_an_invalid_table_is_an_error_of_one_line(study):
    def with_attrs(**attrs: Any) -> pd.DataFrame:
        frame = pd.DataFrame({"n": [1]}, index=["a"])
        frame.attrs.update(attrs)
        return frame

    for frame, message in (
        (None, "mine.py:per_label returned NoneType: expected a pandas DataFrame"),
        (pd.DataFrame({"n": []}), "the frame that mine.py:per_label returned has no rows"),
        (pd.DataFrame({"n": [1, 2]}, index=["a", "a"]), "has two rows called 'a'"),
        (pd.DataFrame({("a", "b"): [1]}), "has several levels: expected one"),
        (pd.DataFrame([[1, 2]], columns=["n", "n"], index=["a"]), "has two columns called 'n'"),
        (with_attrs(captoin="x"), "returned has attrs captoin: Extra inputs"),
        (with_attrs(columns={"m": {}}), "has no column 'm', which attrs name"),
        (with_attrs(columns={"n": {"digit": 1}}), "has attrs columns.n.digit: "),
        (with_attrs(columns={"n": {"goal": "more"}}), "has attrs columns.n.goal: .*'max' or 'min'"),
        (with_attrs(columns=["n"]), "has attrs columns: Input should be a valid dict"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            made(study, lambda results, frame=frame: frame)
        assert "\n" not in str(caught.value)


# ---- in reports and commands


def test_a_report_includes_figures_and_tables(new_store, stored_run):
    own = {"kind": "/x/mine.py:scatter", "options": {"color": "green"}}
    listed = {"kind": "table", "name": "/x/mine.py:per_label", "options": {"top": 1}}
    reports = [own, own, {"kind": "/x/mine.py:broken"}, listed]
    store = new_store().add(stored_run("a", [0.1, 0.2]), stored_run("b", [0.3]), spec={"reports": reports})
    functions = {"scatter": scatter, "broken": outside, "per_label": per_label}
    contents = gather(
        store.url, "study", own=lambda e, k, name: CustomCode(name, functions[name.rpartition(":")[2]], "d")
    )
    titles = {part.name: part.title for part in contents.figures[2:]}
    assert titles == {"scatter": "Scatter", "scatter-2": "Scatter: color green"}
    assert contents.figures[2].plot.texts.caption == "Against flops in green."
    (missing,) = (section.missing for section in contents.sections if section.missing)
    assert "ZeroDivisionError" in missing["Broken"]
    part = next(part for part in contents.tables if part.name == "per_label")
    assert part.title.startswith("Per label")
    assert [line.key for line in part.table.lines] == ["a"]
    assert part.table.column_named("score").formula.startswith("computed by")  # so its cells open


def test_commands_use_the_functions_of_a_file(study, tmp_path, monkeypatch, drawings):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)

    def called(verb, *words):
        return CliRunner().invoke(cli, [verb, *words, "--store", study.url])

    plot = partial(called, "plot", "study", "--output", str(tmp_path / "out"), "--kind")
    done = plot("mine.py:scatter", "--option", "x=examples_seen")
    assert done.exit_code == 0, done.output
    paths = [str(tmp_path / f"out/scatter{suffix}") for suffix in (".png", ".svg", ".pdf")]
    assert done.output.split() == paths
    listed = partial(called, "table", "mine.py:per_label", "study")
    done = listed("--option", "top=1", "--format", "csv")
    assert done.output.splitlines()[1].startswith("reference,"), done.output
    told = listed("--explain", "joint", "score").output
    assert "study/joint/1" in told and "computed by" in told
    for done, message in (
        (plot("mine.py:scater"), "no 'scater' in .*mine.py: did you mean 'scatter'"),
        (plot("mine.py:scatter", "--option", "y=1"), "has no option 'y', given in options: did you mean|its"),
        (plot("mine.py:scatter", "--option", "x"), "expected KEY=VALUE, such as threshold=0.5"),
        (plot("pareto", "--best", "x"), "expected KEY=VALUE, such as tuned={of: RUN, by: METRIC}"),
        (plot("pareto", "--best", "x={of: joint, by: los}"), "best: los has no goal"),
        (plot("scater"), "--kind: no report 'scater': did you mean"),
        (plot("pareto", "--option", "x=1"), "--option: not an option of this kind"),
        (called("table", "mine.py:per_label"), "shows an experiment: name one of study"),
        (listed("--option", "tap=1"), "did you mean 'top'"),
        (called("table", "summary", "study", "--option", "x=1"), "summary is built in"),
    ):
        assert done.exit_code in (1, 2), message
        assert re.search(message, str(done.exception) + done.output), (message, done.exception)
