"""Reports of a study, from a store to files."""

from __future__ import annotations

from pathlib import Path

import plans_support as plans
import pytest

from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.store import Store

STUDY = Study.parse(
    {
        "name": "toy",
        "runs": {"uniform": {}, "joint": {}},
        "metrics": {"*": {"goal": "max", "unit": "percent"}},
        "reports": [
            {"kind": "table", "baseline": "uniform"},
            "curves",
            "pareto",
            {"speedup": {"baseline": "uniform"}},
            {"against": {"x": "steps", "by": ["rule"]}},
            {"kind": "table", "baseline": "joint"},
            {"table": {"name": "comparison", "baseline": "uniform"}},
            {"table": {"name": "speedups"}},
            {"table": {"runs": ["joint"], "baseline": "joint"}},
        ],
    }
)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    lab = Lab.find(tmp_path / "lab")
    runs = (plans.run("uniform", config={"steps": 2}), plans.run("joint", config={"steps": 3}))
    store = Store.open(lab.store_url)
    store.record(Plan(STUDY, runs))
    return lab


def complete(lab: Lab) -> None:
    store = Store.open(lab.store_url)
    for i, run in enumerate(store.runs("toy")):
        attempt = plans.begun(store, run)
        for step in (1, 2):
            attempt.evaluation(step, 64 * step, 1e6 * step, {"toy/score": (0.2 + 0.1 * i) * step})
        attempt.complete()


def test_every_report_in_every_format_as_soon_as_it_can_be_made(lab):
    """What cannot be made yet is said, and does not stop the rest."""
    notes: list[str] = []
    assert reports.write(lab, STUDY, notes.append)[0] == lab.reports / "toy" / "report.html"
    assert [note.partition(":")[0] for note in notes] == [
        "no table yet",
        "no curves yet",
        "no pareto yet",
        "no speedup yet",
        "no against yet",
        "no table-2 yet",
        "no comparison yet",
        "no speedups yet",
        "no table-3 yet",
    ]
    complete(lab)
    notes.clear()
    written = reports.write(lab, STUDY, notes.append)
    assert notes == []
    folder = lab.reports / "toy"
    assert {path.name for path in written if path.parent == folder} == {
        "report.html",
        *(f"table{suffix}" for suffix in (".md", ".tex", ".csv", ".html", ".json")),
        *(
            f"{name}{suffix}"
            for name in ("table-2", "table-3", "comparison", "speedups")
            for suffix in (".md", ".tex", ".csv", ".html", ".json")
        ),
        *(
            f"{name}{suffix}"
            for name in ("curves", "pareto", "speedup", "against")
            for suffix in (".png", ".svg", ".pdf")
        ),
    }
    # Nothing half-written beside them.
    assert sorted(written) == sorted(path for path in folder.rglob("*") if path.is_file())
    assert "| joint" in (folder / "table.md").read_text()
    assert "| uniform" in (folder / "table.md").read_text()
    assert "| uniform" not in (folder / "table-3.md").read_text()
    assert (
        "joint scores 60.0%, 20.0 points above uniform, by one seed" in (folder / "report.html").read_text()
    )


@pytest.mark.parametrize("published", [True, False])
def test_the_papers_results_are_there_where_a_table_shows_them(lab, published):
    complete(lab)
    shown = {"name": "comparison", "published": published}
    study = Study.parse(STUDY.to_dict() | {"reports": [{"table": shown}]})
    store = Store.open(lab.store_url)
    for _ in range(2):  # nor is it done twice
        reports.bring_up_to_date(lab, store, study, pytest.fail)
        text = (lab.reports / "toy" / "comparison.md").read_text()
        assert ("SigLIP" in text) == published
        assert "| joint" in text


def test_claims_are_a_table_of_it_asked_for_or_not(lab):
    complete(lab)
    claims = [{"statement": "More steps help", "of": "joint", "above": "uniform"}]
    study = Study.parse(STUDY.to_dict() | {"reports": [], "claims": claims})
    store = Store.open(lab.store_url)
    store.record(
        Plan(study, (plans.run("uniform", config={"steps": 2}), plans.run("joint", config={"steps": 3})))
    )
    written = reports.write(lab, study)
    folder = lab.reports / "toy"
    assert {path.name for path in written if path.parent == folder} == {
        "report.html", *(f"claims{suffix}" for suffix in (".md", ".tex", ".csv", ".html", ".json"))
    }  # fmt: skip
    assert "| More steps help |" in (folder / "claims.md").read_text()
    asked = Study.parse(study.to_dict() | {"reports": [{"table": {"name": "claims"}}]})
    assert sorted(reports.write(lab, asked)) == sorted(written)
