"""The page of a union of studies: verdicts first, then each study with the reports of its spec."""

import json
from dataclasses import replace
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from tests.analysis.report.conftest import (
    Lab,
    by_class,
    by_id,
    copy_with_spec,
    parse_page,
    record_attempt,
    stubbed_figures,
    words,
)

from jestlab.analysis import published
from jestlab.analysis.claims import parts_of
from jestlab.analysis.report import build, gather
from jestlab.analysis.report.page import progress
from jestlab.analysis.tables import default_name, table
from jestlab.analysis.tables.explain import explain
from jestlab.platform.planning.plan import Plan, RunPlace
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.store import Store

METRICS = {"*": {"goal": "max", "unit": "percent"}}
SCORES = {"reference": 0.7, "uniform": 0.4, "joint": 0.65, "greedy": 0.6}
STUDIES: dict[str, dict[str, Any]] = {
    "ratios": {
        "question": "Does joint selection learn more?",
        "paper": "Figure 3, middle",
        "runs": {"reference": {}, "uniform": {}, "joint": {}},
        "claims": [
            {"statement": "Joint learns more", "of": "joint", "above": "uniform", "source": "Figure 3"},
            {"statement": "Joint surpasses its reference", "of": "joint", "above": "reference",
             "unless": "learners are small"},
        ],
        "reports": [{"kind": "table", "baseline": "uniform"}, {"kind": "curves", "baseline": "uniform"}],
    },
    "prior_art": {
        "question": "How does it compare with prior art?",
        "paper": "Table 1",
        "runs": {"uniform": {}, "joint": {}, "greedy": {}},
        "claims": [{"statement": "Joint learns more", "of": "joint", "above": "uniform"}],
        "reports": [
            {"kind": "table", "name": "comparison", "baseline": "uniform"},
            {"kind": "table", "name": "claims"},
            {"kind": "batch_size"},
        ],
    },
    "later": {
        "question": "And then?",
        "runs": {"uniform": {}, "joint": {}},
        "claims": [{"statement": "More is more", "of": "joint", "above": "uniform"}],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def union(tmp_path_factory):
    """Two of three studies with three seeds of each run, and their union, which shares equal runs.

    The third study is in the spec of the union alone. One of them has its own page.
    """
    folder = tmp_path_factory.mktemp("union") / "lab"
    url = stores.empty_lab(folder).store_url
    store = Store.open(url)
    import_cells(store, published.paper())
    made: dict[str, list[tuple[str, Any]]] = {}
    for name in ("ratios", "prior_art"):
        runs = [
            plans.run(run, config={"selection": {"rule": run}, "seed": seed}, seed=seed)
            for run in STUDIES[name]["runs"]
            for seed in range(3)
        ]
        study = StudySpec.parse({"name": name, "scale": "smoke", "metrics": METRICS, **STUDIES[name]})
        plans.record(store, Plan(study, tuple(runs)))
        for run in runs:
            made.setdefault(run.fingerprint, []).append((name, run))
    together = []
    for places in made.values():
        (first, run), *others = places
        aliases = tuple(RunPlace(f"{name}/{each.name}", f"{name}/{each.label}", {}) for name, each in others)
        names = {"name": f"{first}/{run.name}", "label": f"{first}/{run.label}"}
        together.append(replace(run, aliases=aliases, **names))
    spec = {"name": "paper", "question": "Is it so?", "scale": "smoke", "studies": STUDIES}
    family = {"error": 0.25}  # of four claims with three seeds each
    plans.record(store, Plan(StudySpec.parse(spec | {"family": family}), tuple(together)))
    for row in {row.fingerprint: row for row in store.runs("paper")}.values():
        score = SCORES[row.name.split("/")[1]] + 0.005 * row.seed * (1 if "joint" in row.name else -1)
        record_attempt(store, row, 3e9, [0.1, 0.2, score])
    store.close()
    own = folder / "reports" / "prior_art" / "report.html"
    own.parent.mkdir(parents=True)
    own.write_text("<!DOCTYPE html><title>prior_art</title>")
    return Lab(url, folder)


@pytest.fixture(scope="module")
def contents(union):
    return gather(union.url, "paper")


@pytest.fixture(scope="module")
def page(union):
    with stubbed_figures():
        return build(gather(union.url, "paper"), union.folder / "reports" / "paper")[0]


def test_a_union_has_the_claims_of_its_studies(union):
    claims = table(union.url, "claims", ["paper"])
    assert [column.header for column in claims.columns][:2] == ["study", "claim"]
    assert [(row["study"], row["verdict"]) for row in claims.frame.to_dict("records")] == [
        ("ratios", "holds"),
        ("ratios", "does not hold"),
        ("prior_art", "holds"),
        ("later", "not run"),
    ]
    assert claims.caption == "At scale smoke, 4 claims: 2 hold, 1 does not hold, 1 not run."
    # The same statement of two studies has two rows, each with its own runs.
    told = [
        explain(union.url, claims, f"Joint learns more ({name})", "n") for name in ("ratios", "prior_art")
    ]
    assert [{run["experiment"] for run in each.runs} for each in told] == [{"ratios"}, {"prior_art"}]


def test_claims_are_the_default_table_of_a_union_and_its_page_takes_no_baseline(union):
    assert [default_name(union.url, name) for name in ("paper", "ratios")] == ["claims", "summary"]
    assert [bool(parts_of(union.url, name)) for name in ("paper", "ratios", "none")] == [True, False, False]
    with pytest.raises(ValueError, match="paper is a union"):
        gather(union.url, "paper", "uniform")


def test_facts_about_runs_and_costs(contents):
    facts = " ".join(contents.facts[:3])
    for fact in ("12 runs in 3 studies", "sharing saved 6 runs", "108 GFLOP spent of 48.0 MFLOP planned"):
        assert fact in facts
    assert progress(contents.history) == ""
    banners = [[*section.banners] for section in contents.sections if section.study]
    assert banners == [[], [], [("Unfinished", "Not launched yet: run `jestlab launch later`")]]


def test_the_page_of_a_union(union, page):
    tree = parse_page(page)
    (answer,) = by_class(tree, "answer")
    assert words(answer) == f"◐ Partly: 2 of 4 claims hold {table(union.url, 'claims', ['paper']).caption}"
    (contents,) = by_class(tree, "studies")
    texts = [words(line).replace("✓ ✗", "✓✗") for line in contents.iter("li")]
    assert texts == ["ratios ✓✗ Figure 3, middle", "prior_art ✓ Table 1", "later ○"]
    assert by_class(contents, "marks")[0].get("aria-label") == "2 claims: 1 holds, 1 does not hold."
    (main,) = tree.iter("main")
    assert [part.get("id") for part in main if part.tag == "section"] == [
        "claims", "study-ratios", "study-prior_art", "study-later"
    ]  # fmt: skip
    headings = [words(heading) for heading in main.iter("h2")]
    assert headings == ["Claims", *(study["question"] for study in STUDIES.values())]
    assert len(by_class(by_id(tree, "claims"), "claim")) == 4
    assert "2 claims: 1 holds, 1 does not hold." in words(by_id(tree, "study-ratios"))
    comparison = words(by_id(tree, "table-prior_art-comparison"))
    assert "JEST++" in comparison  # published
    assert "joint" in comparison  # own
    assert len(list(by_id(tree, "study-ratios").iter("img"))) == 1
    assert "Not available yet: Batch size: no run of" in words(by_id(tree, "study-prior_art"))
    codes = [words(code) for code in by_id(tree, "study-ratios").iter("code")]
    assert codes == ["jestlab report ratios"]
    assert page.stat().st_size < 200_000  # no charting library, figures of few colors
    told = json.loads((page.parent / "report" / "prior_art-comparison.provenance.json").read_text())
    assert (told["experiment"], len(told["runs"])) == ("paper", 12)


def test_a_study_that_has_changed_is_marked(union, tmp_path):
    url = copy_with_spec(union, tmp_path / "copy.db", "ratios", lambda spec: spec | {"seeds": [7]})
    sections = gather(url, "paper").sections
    assert [bool(section.banners) for section in sections if section.study] == [True, False, True]
