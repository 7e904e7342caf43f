"""What was registered of a study, compared with what it is now."""

import copy
import hashlib
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.analysis.claims import registration
from jestlab.analysis.claims.registration import Registration, compare, content_of, digest_of

PLAIN = """
class A:
    x = 1

    def f(y):
        return f"{y['k']}b"
"""
DESCRIBED = '''"""The module."""

class A:  # a comment
    """A class.

    Attributes:
        x: A "number".
    """

    x = 1
    """Isn't documented."""

    # A comment.
    def f(y):
        """Return a text."""
        return f"{y['k']}b"
'''

SPEC: dict[str, Any] = {
    "claims": [
        {"statement": "A", "of": "joint", "above": "uniform", "source": "Fig. 3"},
        {"statement": "B", "of": "joint", "near": "other", "within": 0.05},
    ],
    "seeds": {"until": "decided"},
    "score": ["toy/score"],
    "metrics": {"toy/score": {"goal": "max"}},
}
RUNS = {"study/joint": "a" * 64, "study/uniform": "b" * 64, "study/other": "c" * 64}


def content(spec=None, runs=None):
    return content_of("study", spec or SPEC, runs or RUNS)


def changed(path, value):
    spec = copy.deepcopy(SPEC)
    place = spec
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return spec


def changes(before, now, statement, labels=("joint",), study="study"):
    """Return the changes that affect a claim."""
    found = compare(before, now)
    return "; ".join(each.text for each in found if each.affects(study, statement, labels))


def test_a_longer_study_is_a_change_where_the_rate_of_wrong_verdicts_is_bounded():
    """Whoever stops when the verdicts look best isn't covered by a false discovery rate."""
    before = changed(("family",), {"rate": 0.05})
    after = copy.deepcopy(before)
    after["seeds"]["at_most"] = 40
    assert changes(content(before), content(after), "A").startswith("seeds ")


def test_claims_that_change_the_default_family_affect_the_others():
    claims = [*SPEC["claims"], *(SPEC["claims"][0] | {"statement": f"More {i}"} for i in range(8))]
    found = changes(content(), content(changed(("claims",), claims)), "A")
    assert found.startswith("family ") and "a false discovery rate" in found


@pytest.mark.parametrize(
    ("path", "value", "of_a", "of_b"),
    [
        (("seeds", "at_most"), 40, "", ""),  # the bounds cover it
        (("seeds",), 5, "seeds ", "seeds "),
        (
            ("family",),
            {"error": 0.1},
            'family "an error rate of at most 5% for all together" → "an',
            "family ",
        ),
        (("family",), {"test": "signed_rank"}, "family ", "family "),
        (("score",), [], 'score ["toy/score"] → nothing', "score "),
        (("claims", 1, "within"), 0.1, "", "within 0.05 → 0.1"),
        (("claims", 0, "of"), "other", 'of "joint" → "other"', ""),
        (("claims", 0, "statement"), "C", "", ""),
        (("claims", 0, "source"), "Fig. 4", "", ""),  # it decides nothing
        (("claims", 0, "unless"), "it rains", "", ""),
        (("question",), "Why?", "", ""),
        (("metrics", "toy/score", "name"), "Score", "", ""),
        (("metrics", "toy/score", "goal"), "min", "metrics ", "metrics "),
    ],
)
def test_reports_a_change_for_the_claims_that_it_affects(path, value, of_a, of_b):
    now = content(changed(path, value))
    for statement, expected in (("A", of_a), ("B", of_b)):
        found = changes(content(), now, statement)
        assert found.startswith(expected) if expected else found == ""


def test_unregistered_claims_and_those_of_runs_with_another_config_are_exploratory():
    assert compare(content(), content()) == []
    renamed = content(changed(("claims", 0, "statement"), "C"))
    assert changes(content(), renamed, "C") == "not registered"
    assert list(map(str, compare(content(), renamed))) == ["study: C: not registered"]
    retuned = content(runs=RUNS | {"study/other": "d" * 64})
    assert changes(content(), retuned, "A", ["joint", "uniform"]) == ""
    assert changes(content(), retuned, "B", ["joint", "other"]) == "other config: other"
    assert compare(content(), content(runs=RUNS | {"study/new": "d" * 64})) == []


def test_a_union_registers_its_parts():
    parts = {"one": SPEC, "two": changed(("claims", 0, "of"), "other")}
    runs = {"one/joint": "a" * 64, "two/joint": "a" * 64}
    before = content_of("all", {"studies": parts}, runs)
    now = content_of("all", {"studies": parts | {"two": SPEC}}, runs | {"two/joint": "e" * 64})
    assert changes(before, now, "A", study="one") == ""
    assert changes(before, now, "A", study="two") == 'of "other" → "joint"; other config: joint'


@given(st.permutations(list(SPEC.items())))
def test_the_digest_depends_on_the_content_alone(items):
    assert digest_of(content(dict(items))) == digest_of(json.loads(json.dumps(content())))
    assert digest_of(content(changed(("seeds", "at_most"), 40))) != digest_of(content())


def test_the_digest_is_the_sha256_of_compact_json_in_utf_8():
    written = '{"question":"größer?","seeds":3}'
    assert digest_of({"seeds": 3, "question": "größer?"}) == hashlib.sha256(written.encode()).hexdigest()


def test_a_registration_tells_whether_other_code_judges_now():
    for registered, is_changed in (({}, False), ({"code": "0" * 64}, True)):
        about = Registration(content() | registered, "", "", "Ada", datetime.now(UTC))
        assert about.is_by_other_code == is_changed


@pytest.mark.parametrize("module", ["intervals", "costs"])  # which FLOPs count decides claims on efforts
def test_the_digest_of_the_code_ignores_comments_and_docstrings(monkeypatch, tmp_path, module):
    shutil.copytree(Path(registration.__file__).parents[1], tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(registration, "__file__", str(tmp_path / "claims" / "registration.py"))

    def digest(text):
        (tmp_path / f"{module}.py").write_text(text)
        return registration.code_digest.__wrapped__()

    assert digest(PLAIN) == digest(DESCRIBED) != digest(PLAIN.replace("}b", "}c"))
