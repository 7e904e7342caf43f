"""Every registered study is documented and can be planned at each of its scales."""

from __future__ import annotations

import functools
import pickle
from collections import Counter

import pytest

from jestlab.experiments import base, paper
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.registry import study_names
from jestlab.platform.spec import load
from jestlab.platform.spec.load import study_module

NOT_OF_THE_PAPER = {"frontier", "icons"}
PLACES = [(name, scale) for name in study_names() for scale in study_module(name).SCALES]


@functools.cache
def planned(name: str, scale: str) -> Plan:
    return plan(load(name, scale), absent="note")


@pytest.mark.parametrize("name, scale", PLACES)
def test_every_study_asks_a_question_and_ends_in_reports(name, scale):
    study = planned(name, scale).study
    assert study.question.endswith("?")
    assert planned(name, scale).runs
    assert study.reports or study.studies
    has_a_paper = name not in NOT_OF_THE_PAPER
    assert set(study_module(name).SCALES) == set(base.SCALES if has_a_paper else ("smoke", "mini"))


@pytest.mark.parametrize("name", study_names())
def test_the_file_of_a_study_opens_with_its_question_and_command(name):
    opening = study_module(name).__doc__ or ""
    assert f"    jestlab launch {name}" in opening
    assert len(opening.splitlines()[0]) < 110


def test_the_paper_is_the_union_of_all_studies():
    assert set(paper.STUDIES) == set(study_names()) - {"paper", "quickstart"} - NOT_OF_THE_PAPER
    for scale in base.SCALES:
        alone = {run.fingerprint for name in paper.STUDIES for run in planned(name, scale).runs}
        assert set(planned("paper", scale).fingerprints) == alone


@pytest.mark.parametrize("name", study_names())
def test_a_study_travels_to_the_processes_that_write_its_reports(name):
    study = planned(name, "smoke").study
    assert pickle.loads(pickle.dumps(study)).name == study.name


def test_studies_share_what_they_have_in_common():
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
    for name, claim in claims:
        assert claim.source
        assert len(planned(name, "smoke").study.replicates) >= 3
