"""Every installed study: what it says of itself, and that it can be launched at each of its scales."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from jestlab.experiments import base, paper
from jestlab.platform.plan import Plan, plan
from jestlab.platform.spec import load, registry

PLACES = [(name, scale) for name in registry.names() for scale in registry.module(name).SCALES]


@functools.cache
def planned(name: str, scale: str) -> Plan:
    return plan(load(name, scale), absent="note")


@pytest.mark.parametrize("name, scale", PLACES)
def test_it_asks_something_and_ends_in_reports(name, scale):
    study = planned(name, scale).study
    assert study.question.endswith("?")
    assert planned(name, scale).runs
    assert study.reports or study.studies
    assert registry.module(name).SCALES == base.SCALES


@pytest.mark.parametrize("name", registry.names())
def test_its_file_opens_with_the_question_and_the_command(name):
    opening = registry.module(name).__doc__ or ""
    assert f"    jestlab launch {name}" in opening
    assert len(opening.splitlines()[0]) < 110


def test_the_paper_is_the_union_of_all_studies():
    assert set(paper.STUDIES) == set(registry.names()) - {"paper", "quickstart"}
    for scale in base.SCALES:
        alone = {run.fingerprint for name in paper.STUDIES for run in planned(name, scale).runs}
        assert set(planned("paper", scale).fingerprints) == alone


def test_studies_share_what_they_have_in_common():
    """The uniform baseline of three billion examples, and JEST with the strong reference, stand in many."""
    places = Counter(
        run.fingerprint for name in paper.STUDIES for run in planned(name, "smoke").runs if run.seed == 0
    )
    uniform = next(run for run in planned("filtering_ratio", "smoke").runs if run.name == "uniform")
    assert places[uniform.fingerprint] >= 10
    assert sum(places.values()) - len(places) > 60


def test_every_claim_has_three_seeds_to_be_decided_by_and_a_place_in_the_paper():
    claims = [(name, claim) for name in paper.STUDIES for claim in planned(name, "smoke").study.claims]
    assert len(claims) > 25
    for name, claim in claims:
        assert claim.source
        assert len(planned(name, "smoke").study.seeds) >= 3
