"""Reports that a spec asks for, in addition to those of every page."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from tests.analysis.report.conftest import Lab, finished, make_lab

from jestlab.analysis import published
from jestlab.analysis.report.contents import gather
from jestlab.analysis.tables import table
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.store import Store

ON_EVERY_PAGE = [
    {"kind": "table", "baseline": "uniform"},
    {"kind": "table", "name": "speedups"},
    {"kind": "curves", "effort": "flops"},
    {"kind": "pareto"},
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A finished experiment in a store with the paper's results, recorded once: tests copy it."""
    lab = make_lab(tmp_path_factory.mktemp("recorded"), finished())
    store = Store.open(lab.url)
    import_cells(store, published.paper())
    store.close()
    return lab


@pytest.fixture
def asking(recorded, tmp_path):
    """A function that makes the experiment whose spec has given reports."""

    def make(*reports, unknown=()):
        shutil.copy(recorded.folder / "results.db", tmp_path)
        with closing(sqlite3.connect(tmp_path / "results.db")) as connection, connection:
            spec = json.loads(connection.execute("SELECT spec FROM experiment").fetchone()[0])
            spec = Study.parse(spec | {"reports": list(reports)}).to_dict()
            spec["reports"] += unknown
            connection.execute("UPDATE experiment SET spec = ?", [json.dumps(spec)])
        return Lab(f"sqlite:///{tmp_path / 'results.db'}", tmp_path)

    return make


def shown(lab):
    contents = gather(lab.url, "study", "uniform", "scoring")
    return contents, [part.name for part in contents.results], [still.plot.name for still in contents.stills]


def test_the_first_report_with_a_baseline_sets_the_baseline_of_the_page(asking):
    lab = asking({"kind": "batch_size"}, {"kind": "table", "baseline": "joint"},
                 {"kind": "speedup", "baseline": "uniform", "scope": "learner"})  # fmt: skip
    contents = gather(lab.url, "study")
    assert (contents.baseline, contents.scope) == ("joint", "learner")


def test_an_unknown_baseline_is_reported(asking):
    contents = gather(asking({"kind": "table", "baseline": "gone"}).url, "study")
    assert (contents.baseline, contents.scope) == ("uniform", "scoring")
    assert "no run 'gone'" in contents.not_made["Summary"]


def test_tables_and_figures_are_in_the_order_of_the_spec(asking):
    """Those of every page are not repeated."""
    lab = asking(
        {"kind": "speedup"},
        *ON_EVERY_PAGE,
        {"kind": "table", "name": "comparison"},
        {"kind": "step_costs"},
        {"kind": "table", "name": "laion", "published": False},
        {"kind": "against", "x": "selection.rule"},
    )
    contents, names, stills = shown(lab)
    assert names == ["summary", "speedups", "comparison", "laion"]
    assert stills == ["speedup", "step_costs", "against"]
    assert not contents.not_made
    assert contents.results[2].table.markdown() == table(lab.url, "comparison", ["study"]).markdown()


def test_a_report_with_other_options_is_added(asking):
    contents, names, stills = shown(asking(
        {"kind": "table", "mean": "shared"},
        {"kind": "table", "baseline": "joint"},
        {"kind": "table", "name": "speedups", "crossing": "lasting"},
        {"kind": "curves", "baseline": "joint"},
        {"kind": "pareto", "scope": "learner"},
        {"kind": "pareto", "surfaces": True},
        {"kind": "pareto", "cost": "examples_seen"},
        {"kind": "speedup"},
        {"kind": "speedup", "scope": "learner"},
    ))  # fmt: skip
    assert names == ["summary", "speedups", "summary-2", "summary-3", "speedups-2"]
    assert stills == ["curves-2", "pareto-2", "pareto-3", "pareto-4", "speedup", "speedup-2"]
    titles = [part.title for part in (*contents.results[2:], *contents.stills[:4])]
    assert titles == [
        "Summary: mean shared", "Summary: baseline joint", "Speedups: crossing lasting",
        "Curves: baseline joint", "Pareto: scope learner", "Pareto: surfaces", "Pareto: over examples seen",
    ]  # fmt: skip
    assert contents.results[3].table.baselines["uniform"] == "joint"
    assert not contents.not_made


def test_a_report_may_show_only_some_runs(asking):
    some = {"runs": ["uniform", "joint"]}
    lab = asking(
        {"kind": "table"} | some,
        {"kind": "table", "name": "comparison", "baseline": "independent", "runs": ["independent", "joint"]},
        {"kind": "curves"} | some,
        {"kind": "step_costs", "runs": ["unifrom"]},
    )
    contents, names, stills = shown(lab)
    assert (names, stills) == (["summary", "speedups", "summary-2", "comparison"], ["curves-2"])
    assert contents.results[2].title == "Summary: rows uniform, joint"
    assert list(contents.results[2].table.frame["label"]) == ["uniform", "joint"]
    own = contents.results[3].table.frame.query("section == 'study'")
    assert list(own["row"]) == ["independent", "joint"]
    assert contents.not_made == {
        "Step costs": "experiment 'study' has no run 'unifrom': did you mean 'uniform'?"
    }


def test_a_report_that_cannot_be_made_is_explained_and_the_others_are_made(asking):
    """A store may have specs of a later version."""
    later = [{"kind": "hologram"}, {"kind": "speedup", "baseline": "joint", "depth": 3}]
    contents, _, stills = shown(asking({"kind": "filtering_ratio"}, {"kind": "speedup"}, unknown=later))
    assert stills == ["speedup", "speedup-2"]
    assert list(contents.not_made) == ["Filtering ratio", "Hologram"]
    assert "varies selection.filtering_ratio" in contents.not_made["Filtering ratio"]
    assert "no figure 'hologram'" in contents.not_made["Hologram"]
