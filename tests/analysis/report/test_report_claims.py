"""The claims of a study on its page: near the top, in words, and linked to their provenance."""

from tests.analysis.report.conftest import by_class, words

from jestlab.analysis.report import gather
from jestlab.analysis.tables import table


def test_claims_are_shown_in_words(study, page, parsed_page):
    (main,) = parsed_page.iter("main")
    assert main[0].get("id") == "claims"
    told = [words(claim) for claim in by_class(parsed_page, "claim")]
    assert told[0].startswith("✓ holds Joint selection learns more than uniform sampling Figure 3, middle +")
    evidence = " points, 3 seeds: joint above uniform, by score Expected above 0; 3 of 3 seeds agree; chance"
    assert evidence in told[0]
    assert told[1].startswith("✗ does not hold at this scale (smoke) Independent selection is as good")
    assert told[1].endswith("Likely reason: the learners are small.")
    assert told[2].startswith("✗ does not hold at this scale (smoke) Selection hurts <b>")
    assert told[3].startswith("○ not run Greedy learns more 0 seeds: greedy above uniform, by score")
    assert told[3].endswith("Missing: unknown run: greedy.")
    assert not [text for text in told if "never shown" in text]
    claims = table(study.url, "claims", ["study"])
    assert (page.parent / "report" / "claims.csv").read_text() == claims.csv()
    answer = words(by_class(parsed_page, "answer")[0])
    assert answer.startswith(f"{claims.caption} joint, the best of 2, scores 65.3 ± 3.5%, 25.0 points above")


def test_the_answer_is_only_the_claims_if_no_runs_compete(new_store, stored_runs):
    retrieval, zero_shot = ({"of": "a", "measure": name} for name in ("shapes_retrieval/i2t_r1", "score"))
    claim = {"statement": "As well as classes", "within": 0.01, "of": retrieval, "near": zero_shot}
    store = new_store().add(*stored_runs("a", [0.1, 0.4], [0.1, 0.4]), spec={"claims": [claim]})
    assert gather(store.url, "study").answer.sentence == "At scale smoke, 1 claim: holds."
