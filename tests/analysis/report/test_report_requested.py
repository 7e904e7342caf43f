"""Reports that a spec asks for, besides those that every page has."""

from __future__ import annotations

import json
import shutil
import sqlite3

import pytest
from tests.analysis.report.conftest import Lab, finished, make_lab

from jestlab.analysis import published
from jestlab.analysis.provenance import Origins
from jestlab.analysis.report import build
from jestlab.analysis.report.contents import gather
from jestlab.analysis.tables import table
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.store import Store

pytestmark = pytest.mark.usefixtures("figure_stubs")

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
    import_paper(lab)
    return lab


def import_paper(lab):
    store = Store.open(lab.url)
    import_cells(store, published.paper())
    store.close()


@pytest.fixture
def asking(recorded, new_lab, tmp_path):
    """Makes an experiment whose spec has such reports: the recorded one, or one of other runs."""

    def make(*reports, runs=None):
        if runs is not None:
            lab = new_lab(*runs, reports=reports)
            import_paper(lab)
            return lab
        shutil.copy(recorded.folder / "results.db", tmp_path)
        connection = sqlite3.connect(tmp_path / "results.db")
        spec = json.loads(connection.execute("SELECT spec FROM experiment").fetchone()[0])
        spec = Study.parse(spec | {"reports": list(reports)}).to_dict()
        connection.execute("UPDATE experiment SET spec = ?", [json.dumps(spec)])
        connection.commit()
        connection.close()
        return Lab(f"sqlite:///{tmp_path / 'results.db'}", tmp_path)

    return make


def shown(lab):
    contents = gather(lab.url, "study", "uniform", "scoring")
    return contents, [part.name for part in contents.results], [still.plot.name for still in contents.stills]


def test_reports_of_every_page_are_not_repeated(asking):
    contents, tables, stills = shown(asking(*ON_EVERY_PAGE))
    assert (tables, stills, contents.not_made) == (["summary", "speedups"], [], {})


def test_the_first_report_with_a_baseline_sets_the_page_s_baseline(asking):
    lab = asking({"kind": "batch_size"}, {"kind": "table", "baseline": "joint"},
                 {"kind": "speedup", "baseline": "uniform", "scope": "learner"})  # fmt: skip
    contents = gather(lab.url, "study")
    assert (contents.baseline, contents.scope) == ("joint", "learner")
    contents = gather(lab.url, "study", "uniform", "scoring")
    assert (contents.baseline, contents.scope) == ("uniform", "scoring")


def test_an_unknown_baseline_is_reported_and_does_not_stop_the_page(asking):
    contents = gather(asking({"kind": "table", "baseline": "gone"}).url, "study")
    assert (contents.baseline, contents.scope) == ("uniform", "scoring")
    assert "no run 'gone'" in contents.not_made["Summary"]


def test_tables_and_figures_in_the_order_of_the_spec(asking):
    lab = asking(
        {"kind": "speedup"},
        *ON_EVERY_PAGE,
        {"kind": "table", "name": "comparison"},
        {"kind": "step_costs"},
        {"kind": "table", "name": "laion", "published": False},
        {"kind": "against", "x": "selection.rule"},
    )
    contents, tables, stills = shown(lab)
    assert tables == ["summary", "speedups", "comparison", "laion"]
    assert stills == ["speedup", "step_costs", "against"]
    assert not contents.not_made
    assert contents.results[2].table.markdown() == table(lab.url, "comparison", ["study"]).markdown()
    made = {path.name for path in build(lab.url, "study", lab.folder / "report")}
    assert {"comparison.tex", "laion.csv", "speedup.pdf", "against.png", "report.html"} <= made


def test_a_report_with_other_options_is_added(asking):
    told = [
        {"kind": "table", "mean": "shared"},
        {"kind": "table", "baseline": "joint"},
        {"kind": "table", "name": "speedups", "crossing": "lasting"},
        {"kind": "curves", "baseline": "joint"},
        {"kind": "pareto", "scope": "learner"},
        {"kind": "pareto", "surfaces": True},
        {"kind": "pareto", "cost": "examples_seen"},
        {"kind": "speedup"},
        {"kind": "speedup", "scope": "learner"},
    ]
    contents, tables, stills = shown(asking(*told))
    assert tables == ["summary", "speedups", "summary-2", "summary-3", "speedups-2"]
    assert stills == ["curves-2", "pareto-2", "pareto-3", "pareto-4", "speedup", "speedup-2"]
    titles = [part.title for part in contents.results]
    assert titles[2:] == ["Summary: mean shared", "Summary: baseline joint", "Speedups: crossing lasting"]
    assert [still.title for still in contents.stills[:4]] == [
        "Curves: baseline joint",
        "Pareto: scope learner",
        "Pareto: surfaces",
        "Pareto: over examples seen",
    ]
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
    contents, tables, stills = shown(lab)
    assert (tables, stills) == (["summary", "speedups", "summary-2", "comparison"], ["curves-2"])
    assert contents.results[2].title == "Summary: rows uniform, joint"
    assert list(contents.results[2].table.frame["label"]) == ["uniform", "joint"]
    own = contents.results[3].table.frame.query("section == 'study'")
    assert list(own["row"]) == ["independent", "joint"]
    assert contents.not_made == {
        "Step costs": "experiment 'study' has no run 'unifrom': did you mean 'uniform'?"
    }


def test_a_report_that_cannot_be_made_says_why_and_the_rest_is_made(asking, opened):
    lab = asking({"kind": "filtering_ratio"}, {"kind": "speedup"})
    contents, _, stills = shown(lab)
    assert stills == ["speedup"]
    assert list(contents.not_made) == ["Filtering ratio"]
    page = build(lab.url, "study", lab.folder / "report")[0]
    section = opened(page).tab.locator("#not-made").inner_text()
    assert contents.not_made["Filtering ratio"] in section


def test_without_any_evaluation(asking, a_run):
    lab = asking(
        {"kind": "table", "name": "comparison"}, {"kind": "speedup"}, runs=[a_run("uniform", ends="none")]
    )
    contents, tables, stills = shown(lab)
    assert (tables, stills) == ([], [])
    assert list(contents.not_made) == ["Comparison", "Speedup"]
    build(lab.url, "study", lab.folder / "report")


def test_a_report_of_a_later_version_is_left_out(asking):
    """A store may hold specs that this code does not know yet."""
    from sqlalchemy import text

    from jestlab.platform.store.engine import writable

    lab = asking({"kind": "speedup"})
    engine = writable(lab.url)
    with engine.begin() as connection:
        spec = json.loads(connection.execute(text("SELECT spec FROM experiment")).scalar_one())
        spec["reports"] += [{"kind": "hologram"}, {"kind": "speedup", "baseline": "joint", "depth": 3}]
        connection.execute(text("UPDATE experiment SET spec = :spec"), {"spec": json.dumps(spec)})
    engine.dispose()
    contents, _, stills = shown(lab)
    assert stills == ["speedup", "speedup-2"]
    assert "no figure 'hologram'" in contents.not_made["Hologram"]


OPEN = """
() => [...document.querySelectorAll('#table-comparison button')].map(button => {
  button.click();
  const dialog = document.querySelector('dialog');
  const body = dialog.querySelector('.body').textContent;
  dialog.close();
  return {...button.dataset, body};
})
"""


def test_published_cells_show_their_source(asking, opened):
    lab = asking({"kind": "table", "name": "comparison"})
    page = opened(build(lab.url, "study", lab.folder / "report")[0])
    made = table(lab.url, "comparison", ["study"])
    origins = Origins.read(lab.url, ["study"])
    cells = page.tab.evaluate(OPEN)
    printed = 0
    for cell in cells:
        told = origins.explain(made, cell["row"], cell["column"])
        assert told.formula in cell["body"]
        if told.published is not None:
            printed += 1
            for part in ("printed", "source", "citation", "note", "check"):
                assert str(told.published.get(part) or "") in cell["body"]
        for run in told.runs:
            assert run.fingerprint[:12] in cell["body"]
    assert printed > 50
    assert printed < len(cells)
    assert page.complaints == []
