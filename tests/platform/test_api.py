"""The Python API: what scripts and notebooks load, plan, launch and read."""

import asyncio
import inspect
import os
import pickle
import signal
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores
import yaml
from ml_collections import ConfigDict
from tests.platform.serve.conftest import record

from jestlab import api
from jestlab.analysis.sheet import Sheet
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.options import LaunchOptions
from jestlab.platform.spec.options import FIGURES, PageOptions, TableOptions

SIGNALS = (signal.SIGINT, signal.SIGTERM)
STUDY = {
    "seeds": 2,
    "reports": [{"table": {"baseline": "uniform"}}],
    "score": ["toy/score"],
    "question": "Is <b>joint</b> better?",
    "claims": [{"statement": "Joint is better", "of": "joint", "better_than": "uniform"}],
}


@pytest.fixture
def spec(tmp_path, root):
    """A study of three toy runs with two seeds, in a file."""
    return labs.write_study(tmp_path, **STUDY)


@pytest.fixture
def study(spec, root):
    return api.load(spec, root=root)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A study whose runs have completed, for all tests that only read."""
    root = tmp_path_factory.mktemp("api") / "lab"
    spec = labs.write_study(root.parent, **STUDY)
    record(stores.empty_lab(root), yaml.safe_load(spec.read_text()))
    return api.load(spec, root=root)


# ---- load


def test_a_study_comes_from_a_file_a_name_a_dict_and_a_config_dict(spec, root, monkeypatch):
    written = yaml.safe_load(spec.read_text())
    monkeypatch.chdir(spec.parent)
    from_file = api.load(spec, root=root)
    for given in (str(spec), spec.name, written, ConfigDict(written, convert_dict=False)):
        assert api.load(given, root=root).to_yaml() == from_file.to_yaml()
    assert (from_file.name, from_file.scale) == ("toy", None)
    assert api.load("quickstart", root=root).scale == "smoke"
    assert api.load("quickstart", scale="mini", root=root).scale == "mini"


def test_overrides_are_values_or_texts(spec, root):
    by_value = api.load(spec, overrides={"seeds": 1, "runs.uniform.steps": 4}, root=root)
    by_text = api.load(spec, overrides=["seeds=1", "runs.uniform.steps=4"], root=root)
    assert by_value.to_yaml() == by_text.to_yaml()
    assert len(api.load(spec, overrides="seeds=1", root=root).plan()) == len(by_value.plan()) == 3


# ---- plan


def test_a_plan_prints_and_has_html_and_a_frame(study, spec, root):
    plan = study.plan()
    assert f"{plan}\n" == labs.here("plan", spec, root=root).stdout
    assert repr(plan) == str(plan)
    assert not root.exists()
    plan = study.plan(why=True)
    html = plan._repr_html_()
    assert "Is &lt;b&gt;joint&lt;/b&gt; better?" in html
    assert html.count("<tr") == 1 + 3 + 1
    frame = plan.frame()
    assert list(frame["label"]) == ["reference", "joint", "uniform"] * 2
    assert set(frame["action"]) == {"run"}
    assert frame["why"].str.len().min() > 0
    assert frame["total_flops"].isna().all()
    assert (plan.cost.runs, plan.cost.flops, plan.cost.hours) == (6, None, None)


# ---- launch


def test_a_launch_runs_remaining_runs_and_returns_the_outcome(spec, root, capsys, monkeypatch):
    plans.blank_page(monkeypatch)
    study = api.load(spec, overrides={"seeds": 1}, root=root)
    outcome = study.launch()
    assert outcome.ok and outcome.check() is outcome
    assert outcome.states == {f"{run}/0": "COMPLETED" for run in ("reference", "joint", "uniform")}
    assert outcome.page in outcome.files and outcome.page.is_file()
    shown = capsys.readouterr().out
    assert "3 to run" in shown and "[3/3] COMPLETED" in shown
    assert str(outcome).splitlines()[0] == "toy: 3 COMPLETED"
    again = study.launch(progress=False)
    assert capsys.readouterr().out == ""
    assert again.ok and again.notes == ("nothing to run: all 3 runs are COMPLETED",)
    assert len(labs.starts(root, "joint")) == 1


def test_failed_runs_raise_only_on_check(tmp_path, root):
    spec = labs.write_study(tmp_path, runs={"good": {}, "bad": {"fail_at": 3}, "late": {"needs": ["bad"]}})
    outcome = api.load(spec, root=root).launch(progress=False, reports=False)
    assert not outcome.ok and outcome.files == () and outcome.page is None
    assert outcome.states == {"good/0": "COMPLETED", "bad/0": "FAILED", "late/0": "SKIPPED"}
    assert "diverged at step 3" in outcome.reasons["bad/0"]
    with pytest.raises(api.Error, match=r"FAILED bad/0: .*diverged at step 3"):
        outcome.check()
    assert "diverged at step 3" in outcome._repr_html_()


@pytest.mark.parametrize("below_a_loop", [False, True])
def test_ctrl_c_stops_the_runs(tmp_path, root, below_a_loop):
    """Also below a running event loop, as in the kernel of a notebook. The script's handlers stay."""
    study = api.load(
        labs.write_study(tmp_path, base={"steps": 6_000, "pause": 0.05}, runs={"only": {}}), root=root
    )
    handlers = [signal.default_int_handler, lambda *_: None]
    before = [signal.signal(each, own) for each, own in zip(SIGNALS, handlers, strict=True)]

    def interrupt():
        labs.wait_until(lambda: labs.starts(root, "only"))
        os.kill(os.getpid(), signal.SIGINT)

    async def cell():
        study.launch(progress=False)

    try:
        with labs.meanwhile(interrupt), pytest.raises(KeyboardInterrupt, match="launch again to resume"):
            if below_a_loop:
                # asyncio's own handler would cancel `cell`, which a kernel's does not.
                with closing(asyncio.new_event_loop()) as loop:
                    loop.run_until_complete(cell())
            else:
                study.launch(progress=False)
        assert list(map(signal.getsignal, SIGNALS)) == handlers
    finally:
        for number, handler in zip(SIGNALS, before, strict=True):
            signal.signal(number, handler)
    assert set(study.plan().frame()["state"]) == {"CANCELLED"}


# ---- results


def test_tables_and_figures_are_those_of_the_verbs(finished):
    assert len(finished.results().table(rows="uniform, joint", columns=["score"]).frame) == 2
    table = finished.results().table("summary", baseline="uniform")
    printed = labs.here("table", "toy", "--baseline", "uniform", root=finished.lab._lab.root).stdout
    assert str(table) == repr(table) == printed
    assert table.html() in table._repr_html_()
    assert r"\begin{tabular}" in table.latex()
    assert "joint" in set(table.frame["row"])
    assert list(finished.results().claims().frame["statement"]) == ["Joint is better"]
    png, _ = finished.results().figure("curves", baseline="uniform")._repr_png_()
    assert png.startswith(b"\x89PNG")


def test_a_frame_of_rows(finished):
    where, columns = "seed < 1 and final and steps = 12", ["label", "seed", "name", "value"]
    frame = finished.results().frame("evaluations", where, columns=columns)
    assert set(frame["label"]) == {"uniform"} and list(frame.columns) == columns
    downwards = finished.results().frame(order_by="-seed, label", columns="seed, label", limit=2)
    assert downwards.to_dict("list") == {"seed": [1, 1], "label": ["joint", "reference"]}
    assert len(finished.lab.frame("runs", where="seed = 1")) == 3
    counted = finished.lab.query("SELECT label, COUNT(*) AS runs FROM v_runs GROUP BY label ORDER BY label")
    assert counted.to_dict("list") == {"label": ["joint", "reference", "uniform"], "runs": [2, 2, 2]}


def test_a_page_is_a_path_and_a_link(finished, monkeypatch):
    plans.blank_page(monkeypatch)
    page = finished.results().report()
    assert page.is_file() and page.name == "report.html"
    monkeypatch.chdir(page.parents[2].parent)
    assert page._repr_html_() == (
        '<a href="lab/reports/toy/report.html" target="_blank">lab/reports/toy/report.html</a>'
    )
    assert repr(page) == "Page('lab/reports/toy/report.html')"
    assert pickle.loads(pickle.dumps(page)) == page
    assert finished.results().report(baseline="joint") == page


# ---- labs


def test_a_lab_is_opened_by_folder_file_or_url(finished, monkeypatch):
    root = finished.lab._lab.root
    for place in (root, str(root), root / "results.db", f"sqlite:///{root / 'results.db'}"):
        lab = api.open_lab(place)
        assert lab.experiments == ["toy"]
        assert lab.results("toy").table().name
    monkeypatch.setenv("JESTLAB_ROOT", str(root))
    assert api.open_lab().experiments == ["toy"]
    lab = api.OpenLab(Lab(Path("lab"), "postgresql://me:open-sesame@db.example/results"))
    assert "db.example" in repr(lab) and "open-sesame" not in repr(lab)


# ---- errors


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda study, _: api.load("nowhere.yaml"), "nowhere.yaml: no such file"),
        (
            lambda study, _: api.load({"name": "mine", "program": "toy_programs:loop", "rnus": {}}),
            "spec mine: rnus",
        ),
        (lambda study, _: api.load("quickstart", overrides={"sedes": 1}), "overrides: sedes"),
        (lambda study, _: api.load("quickstart", overrides=["sedes=1"]), "--set sedes"),
        (lambda study, _: study.launch(parallel=0), "parallel: must be greater than 0, not 0"),
        (lambda study, _: study.launch(retries=-1), "retries: must be greater than or equal to 0, not -1"),
        (lambda study, _: study.launch(paralel=2), "paralel: unknown key: did you mean 'parallel'?"),
        (lambda study, _: study.launch(on="moon"), "'moon'"),
        (lambda study, _: study.launch(fail_fast=True, keep_going=True), "give one of them"),
        (lambda study, _: study.launch(runs=["joint"]), "rerun_changed"),
        (lambda study, _: study.results().table(), "launch a study first"),
        (lambda study, _: api.open_lab(study.lab._lab.root / "nowhere"), "no store at"),
        (
            lambda _, finished: finished.lab.results("tyo"),
            "no experiment 'tyo' in the results store: did you mean 'toy'",
        ),
        (lambda _, finished: finished.lab.query("DELETE FROM run"), "queries are read-only"),
        (lambda _, finished: finished.results().table("sumary"), "no table and no experiment 'sumary'"),
        (lambda _, finished: finished.results().table(scope="some"), "scope: 'some' is not valid"),
        (lambda _, finished: finished.results().figure("pareot"), "no report 'pareot'"),
        (
            lambda _, finished: finished.results().figure("curves", width=3.25),
            "must be a length with its unit",
        ),
        (lambda _, finished: finished.results().report(scope="some"), "scope: 'some' is not valid"),
        (lambda _, finished: finished.results().frame(where="sede < 3"), "sede"),
    ],
)
def test_what_is_wrong_is_one_line_and_writes_nothing(study, finished, root, call, said):
    with pytest.raises(api.Error) as refused:
        call(study, finished)
    assert said in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value._render_traceback_() == [f"Error: {refused.value}"]  # IPython shows this
    assert not root.exists()


# ---- names


def test_public_names_exist_and_are_documented():
    assert api.__version__ == version("jestlab")
    public = [getattr(api, name) for name in api.__all__ if name != "__version__"]
    for place in public:
        methods = [each for name, each in vars(place).items() if name[0] != "_" and inspect.isfunction(each)]
        assert all(map(inspect.getdoc, (place, *methods))), place


@pytest.mark.parametrize(
    ("method", "models"),
    [
        (api.ExperimentResults.table, [TableOptions]),
        (api.ExperimentResults.figure, [*FIGURES.values(), Sheet]),
        (api.ExperimentResults.report, [PageOptions]),
        (api.LoadedStudy.launch, [LaunchOptions]),
    ],
)
def test_methods_accept_and_document_all_options(method, models):
    parameters = inspect.signature(method).parameters
    for name in {name for model in models for name in model.model_fields} - {"kind", "figure"}:
        assert name in parameters
        assert f"    {name}: " in (inspect.getdoc(method) or "")
