"""Families of claims and numbers of seeds, as specs write them."""

from collections.abc import Callable
from typing import Any

import pytest

from jestlab.analysis.claims.families import Family
from jestlab.analysis.claims.stopping import Until
from jestlab.analysis.written import WrittenError


def test_parses_a_family_and_writes_it_back():
    for written, family in (
        (None, Family()),
        ("none", Family(adjust="none")),
        ({"error": 0.1}, Family(0.1)),
        ({"error": 0.01, "adjust": "none"}, Family(0.01, "none")),
        ({"error": None}, Family()),
    ):
        assert Family.parse(written) == family
        assert Family.parse(family.written()) == family


def test_claims_share_the_error_unless_they_are_not_adjusted():
    assert Family().share(55) == 0.05 / 55
    assert Family().share(0) == 0.05
    assert Family(0.1, "none").share(55) == 0.1


def test_parses_seeds_until_decided_and_writes_them_back():
    for written in (
        {"until": "decided"},
        {"until": "decided", "at_least": 5, "at_most": 40},
        {"until": "decided", "at_least": 1, "at_most": 100, "budget": {"hours": 1.5}},
    ):
        assert Until.parse(written).written() == written


def test_rejects_invalid_values_and_names_the_place():
    cases: list[tuple[Callable[[Any], object], Any, str]] = [
        (Family.parse, 0.05, r"family: must be \{error: 0.05\} or none, not 0.05"),
        (Family.parse, "holm", "family: must be"),
        (Family.parse, {"error": 0}, "family.error: must be between"),
        (Family.parse, {"error": 0.5}, r"family.error: must be between 0 and 0.5, not 0.5"),
        (Family.parse, {"error": True}, "family.error: must be between"),
        (Family.parse, {"error": float("nan")}, "family.error: must be between"),
        (Family.parse, {"adjust": "holm"}, "family.adjust: must be bonferroni or none, not 'holm'"),
        (Family.parse, {"erorr": 0.05}, "family.erorr: unknown key.*error"),
        (Until.parse, {}, "seeds.until: must be decided, not null"),
        (Until.parse, {"until": "bored"}, "seeds.until: must be decided, not 'bored'"),
        (Until.parse, {"until": "decided", "atleast": 3}, "seeds.atleast: unknown key.*at_least"),
        (Until.parse, {"until": "decided", "at_least": 0}, "seeds.at_least: must be .* from 1 to 100"),
        (Until.parse, {"until": "decided", "at_most": 101}, "seeds.at_most: must be a number"),
        (Until.parse, {"until": "decided", "at_least": True}, "seeds.at_least: must be a number"),
        (Until.parse, {"until": "decided", "at_least": 30}, "seeds.at_least: is above at_most, which is 24"),
        (Until.parse, {"until": "decided", "budget": 1}, r"seeds.budget: must be \{hours: 1\}, not 1"),
        (Until.parse, {"until": "decided", "budget": {"hours": 0}}, "budget.hours: must be .* above 0"),
    ]
    for parse, written, message in cases:
        with pytest.raises(WrittenError, match=message):
            parse(written)
