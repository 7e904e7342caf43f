"""The claims of a study on its page: near the top, in words, and linked to their provenance."""

from __future__ import annotations

from typing import Any

import pytest
from tests.analysis.report.conftest import (
    by_class,
    by_id,
    check_accessible,
    finished,
    make_lab,
    parse_page,
    stubbed_figures,
    words,
)

from jestlab.analysis.report import build
from jestlab.analysis.report.contents import gather
from jestlab.analysis.tables import table

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
    with stubbed_figures():
        return build(lab.url, "study", lab.folder / "report")


def test_claims_are_shown_in_words(lab, built):
    page = parse_page(built[0])
    (main,) = page.iter("main")
    assert main[0].get("id") == "claims"
    told = [words(claim) for claim in by_class(page, "claim")]
    assert told[0].startswith("✓ holds Joint selection learns more than uniform sampling Figure 3, middle +")
    evidence = " points, 3 seeds: joint above uniform, by score Expected above 0; 3 of 3 seeds agree; chance"
    assert evidence in told[0]
    assert told[1].startswith("✗ does not hold at this scale (smoke) Independent selection is as good")
    assert told[1].endswith("Likely reason: the learners are small.")
    assert told[2].startswith("✗ does not hold at this scale (smoke) Selection hurts <b>")
    assert told[3].startswith("○ not run Greedy learns more 0 seeds: greedy above uniform, by score")
    assert told[3].endswith("Missing: unknown run: greedy.")
    assert not [text for text in told if "never shown" in text]
    claims = table(lab.url, "claims", ["study"])
    assert words(by_class(by_id(page, "claims"), "caveat")[0]) == claims.caption
    assert {"claims.tex", "claims.csv", "claims.provenance.json"} <= {path.name for path in built}
    assert (built[0].parent / "report" / "claims.csv").read_text() == claims.csv()


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), [(1280, "dark"), (400, "light")])
def test_claims_are_accessible(opened, built, width, scheme):
    shown = opened(built[0], width, scheme)
    colors = {
        shown.tab.evaluate(f"getComputedStyle(document.querySelector('.claim.{kind} .verdict')).color")
        for kind in ("holds", "fails", "open")
    }
    assert len(colors) == 3
    check_accessible(shown, width)


def test_a_page_without_claims_has_no_section_for_them(parsed_page):
    assert not [element for element in parsed_page.iter("section") if element.get("id") == "claims"]


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
