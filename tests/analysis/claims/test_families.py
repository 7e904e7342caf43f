"""Families of claims and numbers of seeds, as specs write them."""

from __future__ import annotations

import pytest

from jestlab.analysis.claims.families import Family
from jestlab.analysis.claims.stopping import Until
from jestlab.analysis.written import WrittenError


@pytest.mark.parametrize(
    ("written", "family"),
    [
        (None, Family()),
        ("none", Family(adjust="none")),
        ({"error": 0.1}, Family(0.1)),
        ({"error": 0.01, "adjust": "none"}, Family(0.01, "none")),
        ({"error": None}, Family()),
    ],
)
def test_a_family_as_it_is_written(written, family):
    assert Family.parse(written) == family
    assert Family.parse(family.written()) == family


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0.05, r"family: must be \{error: 0.05\} or none, not 0.05"),
        ("holm", "family: must be"),
        ({"error": 0.5}, r"family.error: must be between 0 and 0.5, not 0.5"),
        ({"error": True}, "family.error: must be between"),
        ({"error": float("nan")}, "family.error: must be between"),
        ({"adjust": "holm"}, "family.adjust: must be bonferroni or none, not 'holm'"),
        ({"erorr": 0.05}, "family.erorr: unknown key.*error"),
    ],
)
def test_an_invalid_family_names_the_place(written, message):
    with pytest.raises(WrittenError, match=message):
        Family.parse(written)


def test_claims_share_the_error_unless_each_is_by_itself():
    assert Family().share(55) == 0.05 / 55
    assert Family().share(0) == 0.05
    assert Family(0.1, "none").share(55) == 0.1


@pytest.mark.parametrize(
    "written",
    [
        {"until": "decided"},
        {"until": "decided", "at_least": 5, "at_most": 40},
        {"until": "decided", "budget": {"hours": 1.5}},
    ],
)
def test_seeds_until_decided_as_they_are_written(written):
    assert Until.parse(written).written() == written


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({}, "seeds.until: must be decided, not null"),
        ({"until": "bored"}, "seeds.until: must be decided, not 'bored'"),
        ({"until": "decided", "atleast": 3}, "seeds.atleast: unknown key.*at_least"),
        (
            {"until": "decided", "at_least": 0},
            "seeds.at_least: must be a number of seeds from 1 to 100",
        ),
        ({"until": "decided", "at_most": 101}, "seeds.at_most: must be a number"),
        ({"until": "decided", "at_least": 30}, "seeds.at_least: is above at_most, which is 24"),
        ({"until": "decided", "budget": 1}, r"seeds.budget: must be \{hours: 1\}, not 1"),
        ({"until": "decided", "budget": {"hours": 0}}, "seeds.budget.hours: must be a number above 0, not 0"),
    ],
)
def test_invalid_numbers_of_seeds_name_the_place(written, message):
    with pytest.raises(WrittenError, match=message):
        Until.parse(written)
