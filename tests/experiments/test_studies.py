"""Every registered study is documented and can be planned at each of its scales; the quickstart in detail."""

import functools
from collections import Counter

import pytest

from jestlab.experiments import base, paper, quickstart
from jestlab.platform.errors import UserError
from jestlab.platform.planning.names import check
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec import StudySpec, load
from jestlab.platform.study_registry import study_module, study_names

NOT_OF_THE_PAPER = {"frontier", "icons"}


@functools.cache
def planned(name: str, scale: str) -> Plan:
    return plan(load(name, scale), note_absent=True)


def test_every_study_has_a_question_runs_and_reports_at_each_scale(subtests):
    for name in study_names():
        for scale in study_module(name).SCALES:
            with subtests.test(f"{name} {scale}"):
                study = planned(name, scale).study
                assert study.question.endswith("?")
                assert planned(name, scale).runs
                assert study.reports or study.studies


def test_every_study_mentions_metrics_and_keys_that_it_has():
    for name in study_names():
        check(planned(name, "smoke"))


def test_every_study_opens_with_its_subject_and_command(subtests):
    for name in study_names():
        with subtests.test(name):
            opening = study_module(name).__doc__ or ""
            assert f"    jestlab launch {name}" in opening
            assert len(opening.splitlines()[0]) < 110
            scales = ("smoke", "mini") if name in NOT_OF_THE_PAPER else base.SCALES
            assert set(study_module(name).SCALES) == set(scales)


def test_the_paper_is_the_union_of_its_studies():
    assert set(paper.STUDIES) == set(study_names()) - {"paper", "quickstart"} - NOT_OF_THE_PAPER
    for scale in base.SCALES:
        parts = {run.fingerprint for name in paper.STUDIES for run in planned(name, scale).runs}
        assert set(planned("paper", scale).fingerprints) == parts


def test_studies_share_runs():
    """Many have the uniform baseline of three billion examples, and JEST with the strong reference."""
    places = Counter(
        run.fingerprint for name in paper.STUDIES for run in planned(name, "smoke").runs if run.seed == 0
    )
    uniform = next(run for run in planned("filtering_ratio", "smoke").runs if run.name == "uniform")
    assert places[uniform.fingerprint] >= 10
    assert sum(places.values()) - len(places) > 60


def test_every_claim_has_at_least_three_seeds_and_a_source_in_the_paper():
    claims = [(name, claim) for name in paper.STUDIES for claim in planned(name, "smoke").study.claims]
    assert len(claims) > 25
    assert [claim.statement for _, claim in claims if not claim.source] == []
    assert all(len(planned(name, "smoke").study.replicates) >= 3 for name, _ in claims)


def test_quickstart_compares_three_rules_with_one_reference_on_three_seeds():
    runs = planned("quickstart", "smoke").runs
    needs = {"reference-cache": "reference", "independent": "reference-cache", "joint": "reference-cache"}
    assert Counter(run.name for run in runs) == dict.fromkeys(("reference", "uniform", *needs), 3)
    by_fingerprint = {run.fingerprint: run for run in runs}
    for run in runs:
        needed = [by_fingerprint[fingerprint] for fingerprint in run.needs.values()]
        expected = [(needs[run.name], run.seed)] if run.name in needs else []
        assert [(other.name, other.seed) for other in needed] == expected
        if run.program == "train":
            assert run.config["selection"]["rule"] == (run.name if run.name != "reference" else "uniform")
        curated = base.SMOKE.curated["strong"]["data.filter"] if run.name == "reference" else None
        assert run.config["data"]["filter"] == curated
    assert len({str(run.config["model"]) for run in runs if "model" in run.config}) == 1


def test_changing_a_study_does_not_change_the_next():
    first = quickstart.get_config("smoke")
    first.base["schedule"]["examples_seen"] = 1
    first.runs.joint["selection"]["rule"] = "uniform"
    written = {"name": "quickstart", "scale": "smoke", **quickstart.get_config()}
    assert load("quickstart") == StudySpec.parse(written)


def test_unknown_scales_name_the_valid_ones():
    for get in (functools.partial(load, "quickstart"), quickstart.get_config):
        with pytest.raises(UserError, match="no scale 'huge': valid: smoke, mini, paper"):
            get("huge")
