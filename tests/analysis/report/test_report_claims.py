"""The claims of a study on its page: near the top, in words, linked to their provenance."""

from __future__ import annotations

from typing import Any

import pytest
from tests.analysis.report.conftest import finished, make_lab

from jestlab.analysis.provenance import Origins
from jestlab.analysis.report import build
from jestlab.analysis.report.contents import gather
from jestlab.analysis.tables import table

pytestmark = pytest.mark.usefixtures("figure_stubs")

CLAIMS: list[dict[str, Any]] = [
    {
        "statement": "Joint selection learns more than uniform sampling",
        "of": "joint", "above": "uniform", "source": "Figure 3, middle", "unless": "never shown",
    },
    {
        "statement": "Independent selection is as good as its reference",
        "of": "independent", "near": "reference", "within": 0.02, "source": "Table 4",
        "unless": "the learners are small",
    },
    {"statement": "Selection hurts <b>", "of": ["joint", "independent"], "below": "uniform"},
    {"statement": "Greedy learns more", "of": "greedy", "above": "uniform", "unless": "never shown"},
    {"statement": "More is lost", "of": {"of": "joint", "minus": "uniform"}, "above": {
        "of": "independent", "minus": "uniform"}, "measure": "shapes/zero_shot"},
]  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("claims"), finished(), claims=CLAIMS, family="none")


@pytest.fixture(scope="module")
def built(lab):
    return build(lab.url, "study", lab.folder / "report")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light")])
def test_claims_are_shown_and_accessible(opened, lab, built, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    shown = opened(built[0], width, scheme)
    tab = shown.tab
    assert tab.evaluate("document.querySelector('main > section').id") == "claims"
    told = [" ".join(text.split()) for text in tab.locator(".claim").all_inner_texts()]
    assert told[0].startswith("✓ holds Joint selection learns more than uniform sampling Figure 3, middle +")
    assert (
        " points, 3 seeds: joint above uniform, by score Expected above 0; 3 of 3 seeds agree; chance"
        in told[0]
    )
    assert told[1].startswith("✗ does not hold at this scale (smoke) Independent selection is as good")
    assert told[1].endswith("Likely reason: the learners are small.")
    assert told[2].startswith("✗ does not hold at this scale (smoke) Selection hurts <b>")
    assert told[3].startswith("○ not run Greedy learns more 0 seeds: greedy above uniform, by score")
    assert told[3].endswith("Missing: unknown run: greedy.")
    assert not [text for text in told if "never shown" in text]
    assert tab.locator("#claims .caveat").inner_text() == table(lab.url, "claims", ["study"]).caption
    colours = {
        tab.evaluate(f"getComputedStyle(document.querySelector('.claim.{kind} .verdict')).color")
        for kind in ("holds", "fails", "open")
    }
    assert len(colours) == 3
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    found = axe.Axe().run(tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert found.violations_count == 0, found.generate_report()
    assert shown.complaints == []


def test_each_difference_links_to_its_provenance(opened, lab, built):
    tab = opened(built[0]).tab
    claims = table(lab.url, "claims", ["study"])
    origins = Origins.read(lab.url, ["study"])
    buttons = tab.locator(".claim button").all()
    assert len(buttons) == 4
    for button in buttons:
        row = button.get_attribute("data-row")
        told = origins.explain(claims, row, "difference")
        button.click()
        assert tab.locator("#provenance-title").text_content() == f"{row} · difference"
        made, ran = (part.text_content() for part in tab.locator("dialog table").all())
        assert len(told.runs) >= 6
        for run in told.runs:
            for part in (run.fingerprint[:12], run.label, f"{run.value:.6g}".replace("-", "−")):
                assert part in made
            assert run.fingerprint[:12] in made
            assert all(attempt.host in ran for attempt in run.attempts)
        tab.keyboard.press("Escape")


def test_a_page_without_claims_has_no_section_for_them(study):
    assert gather(study.url, "study", None, "scoring").claims is None


@pytest.mark.parametrize(
    ("rivals", "said"),
    [
        ((), "At scale smoke, 1 claim: holds."),
        (("joint",), "At scale smoke, 1 claim: holds. joint scores 40.0 ± 0.0%, +0.0 points against"),
    ],
)
def test_the_answer_is_only_the_claims_if_no_runs_compete(tmp_path, a_run, rivals, said):
    claim = {
        "statement": "Images find captions as well as classes", "within": 0.01,
        "of": {"of": "uniform", "measure": "shapes_retrieval/i2t_r1"},
        "near": {"of": "uniform", "measure": "shapes/zero_shot"},
    }  # fmt: skip
    runs = [a_run(name, [0.1, 0.4], seed) for name in ("uniform", *rivals) for seed in (0, 1)]
    lab = make_lab(tmp_path, runs, claims=[claim])
    assert gather(lab.url, "study", None, "scoring").answer.sentence.startswith(said)


def test_the_files_of_claims(lab, built):
    names = {path.name for path in built}
    assert {"claims.tex", "claims.csv", "claims.provenance.json"} <= names
    csv = (built[0].parent / "report" / "claims.csv").read_text()
    assert csv == table(lab.url, "claims", ["study"]).csv()
