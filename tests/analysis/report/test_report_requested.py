"""Reports that a spec asks for, in addition to those of every page."""

from contextlib import closing

import pytest
from tests.analysis.report.conftest import copy_with_spec

from jestlab.analysis import published
from jestlab.analysis.report import gather
from jestlab.analysis.report.page import PageSection
from jestlab.analysis.tables import table
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.store import Store

ON_EVERY_PAGE = [
    {"kind": "table", "baseline": "uniform"},
    {"kind": "table", "name": "speedups"},
    {"kind": "curves", "over": "flops"},
    {"kind": "pareto"},
]


@pytest.fixture
def asked(study, tmp_path):
    """A function that makes the page of a spec with given reports; also the names of what these added.

    The store has the paper's results, too.
    """

    def make(*reports, unknown=()):
        def change(spec):
            parsed = StudySpec.parse(spec | {"reports": list(reports)}).to_dict()
            return parsed | {"reports": [*parsed["reports"], *unknown]}

        url = copy_with_spec(study, tmp_path / "copy.db", "study", change)
        with closing(Store.open(url)) as store:
            import_cells(store, published.paper())
        page = gather(url, "study", baseline="uniform", scope="scoring")
        (results,) = (section for section in page.sections if section.id == "results")
        missing = dict(next((section.missing for section in page.sections if section.missing), {}))
        made = PageSection("", "", tables=results.tables[1:], figures=page.figures[2:], missing=missing)
        return made, [part.name for part in made.tables], [part.plot.name for part in made.figures]

    return make


def test_the_first_report_with_a_known_baseline_sets_the_baseline_of_the_page(new_store, stored_run):
    table, speedup = {"kind": "table", "baseline": "joint"}, {"kind": "speedup", "baseline": "uniform"}
    for reports, baseline, scope in (
        ([{"kind": "batch_size"}, table, speedup | {"scope": "learner"}], "joint", "learner"),
        ([table | {"baseline": "gone"}], "uniform", "scoring"),
    ):
        runs = [stored_run("uniform", [0.1]), stored_run("joint", [0.3])]
        contents = gather(new_store().add(*runs, spec={"reports": reports}).url, "study")
        assert contents.options == {"baseline": baseline, "scope": scope}
    (missing,) = (section.missing for section in contents.sections if section.missing)
    assert "no run 'gone'" in missing["Summary"]


def test_tables_and_figures_are_in_the_order_of_the_spec(asked, tmp_path):
    """Those of every page are not repeated."""
    made, names, stills = asked(
        {"kind": "speedup"},
        *ON_EVERY_PAGE,
        {"kind": "table", "name": "comparison"},
        {"kind": "step_costs"},
        {"kind": "table", "name": "laion", "published": False},
        {"kind": "against", "x": "selection.rule"},
    )
    assert names == ["comparison", "laion"]
    assert stills == ["speedup", "step_costs", "against"]
    assert not made.missing
    assert (
        made.tables[0].table.markdown()
        == table(f"sqlite:///{tmp_path}/copy.db", "comparison", ["study"]).markdown()
    )


def test_a_report_with_other_options_is_added(asked):
    made, names, stills = asked(
        {"kind": "table", "scope": "learner"},
        {"kind": "table", "baseline": "joint"},
        {"kind": "table", "name": "speedups", "scope": "learner"},
        {"kind": "curves", "baseline": "joint"},
        {"kind": "pareto", "scope": "learner"},
        {"kind": "pareto", "trajectories": True},
        {"kind": "pareto", "over": "examples_seen"},
        {"kind": "speedup"},
        {"kind": "speedup", "scope": "learner"},
    )
    assert names == ["summary-2", "summary-3", "speedups-2"]
    assert stills == ["curves-2", "pareto-2", "pareto-3", "pareto-4", "speedup", "speedup-2"]
    assert [part.title for part in made.tables] == [
        "Summary: scope learner", "Summary: baseline joint", "Speedups: scope learner"
    ]  # fmt: skip
    assert [part.title for part in made.figures][1:3] == ["Pareto: scope learner", "Pareto: trajectories"]
    assert made.tables[1].table.baselines["uniform"] == "joint"
    assert not made.missing


def test_a_report_may_show_only_some_runs(asked):
    some = {"runs": ["uniform", "joint"]}
    made, names, stills = asked(
        {"kind": "table", "rows": some["runs"]},
        {"kind": "table", "name": "comparison", "baseline": "independent", "rows": ["independent", "joint"]},
        {"kind": "curves"} | some,
        {"kind": "step_costs", "runs": ["unifrom"]},
    )
    assert (names, stills) == (["summary-2", "comparison"], ["curves-2"])
    assert made.tables[0].title == "Summary: rows uniform + joint"
    assert list(made.tables[0].table.frame["label"]) == ["uniform", "joint"]
    own = made.tables[1].table.frame.query("section == 'study'")
    assert list(own["row"]) == ["independent", "joint"]
    assert made.missing == {"Step costs": "experiment 'study' has no run 'unifrom': did you mean 'uniform'?"}


def test_a_report_may_have_a_row_of_the_best_runs(asked):
    best = {
        "best": {"chosen": {"of": ["independent", "joint"], "by": "shapes_retrieval/i2t_r1"}},
        "score": "shapes/zero_shot",
    }
    made, names, stills = asked(
        {"kind": "table", "baseline": "chosen"} | best, {"kind": "curves", "runs": ["chosen"]} | best
    )
    assert not made.missing
    assert (names, stills) == (["summary-2"], ["curves-2"])
    assert made.tables[0].title.startswith("Summary: baseline chosen, ")
    assert list(made.tables[0].table.frame["label"]) == ["reference", "uniform", "chosen"]
    assert set(made.figures[0].plot.data["label"]) == {"chosen"}


def test_a_report_that_cannot_be_made_is_explained_and_the_others_are_made(asked):
    """A store may have specs of a later version."""
    later = [{"kind": "hologram"}, {"kind": "speedup", "baseline": "joint", "depth": 3}]
    made, _, stills = asked({"kind": "filtering_ratio"}, {"kind": "speedup"}, unknown=later)
    assert stills == ["speedup", "speedup-2"]
    assert list(made.missing) == ["Filtering ratio", "Hologram"]
    assert "varies selection.filtering_ratio" in made.missing["Filtering ratio"]
    assert "no figure 'hologram'" in made.missing["Hologram"]
