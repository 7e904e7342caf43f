"""`jestlab register`: a study's claims before its first run; `--pilot`: claims tested on later seeds."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest

pytestmark = pytest.mark.usefixtures("in_process", "store")

CLAIMS = [
    {"statement": "Joint is better", "of": "joint", "above": "uniform"},
    {"statement": "Other is better", "of": "other", "above": "uniform"},
]


def write_study(folder: Path, means: dict[str, float] | None = None, **parts: Any) -> Path:
    means = means or {"uniform": 0.5, "joint": 0.7, "other": 0.9}
    defaults = {
        "program": "toy_programs:draw",
        "base": {"spread": 0.05},
        "runs": {name: {"mean": mean, "salt": name} for name, mean in means.items()},
        "claims": CLAIMS,
        "seeds": 2,
        "score": ["toy/score"],
    }
    return labs.write_study(folder, **defaults | parts)


@pytest.fixture
def claims(jestlab):
    def call(name="toy"):
        """Return the changes since the registration by statement."""
        content = json.loads(jestlab("table", "claims", name, "--json"))
        assert all(row["registered"] for row in content["rows"])
        return {row["statement"]: row["exploratory"] for row in content["rows"]}

    return call


def test_launches_a_study_as_registered(tmp_path, jestlab, claims):
    refused = jestlab("register", write_study(tmp_path, claims=[]), code=1)
    assert "toy claims nothing: write `claims` in its spec" in refused and refused.count("\n") == 1
    spec = write_study(tmp_path)
    first = jestlab("register", spec)
    assert first.startswith("toy is registered: 2 claims, an error of 5% together; digest ")
    assert jestlab("register", spec).startswith("toy was registered as it is: 2 claims")
    assert "exploratory" not in jestlab("launch", spec, "--no-reports")
    assert claims() == dict.fromkeys(["Joint is better", "Other is better"], "")
    table = jestlab("table", "claims", "toy")
    assert "registered on 20" in table and "before its first run" in table
    refused = jestlab("register", write_study(tmp_path, claims=CLAIMS[:1]), code=1)
    assert "6 of the runs of toy have begun: a study is registered before its first run" in refused


def test_reports_changes_before_the_launch_and_marks_them_in_the_table(tmp_path, jestlab, claims):
    jestlab("register", write_study(tmp_path))
    spec = write_study(tmp_path, claims=[CLAIMS[0] | {"within": 0.01}, CLAIMS[1]])
    changed = "changed since, and exploratory: toy: Joint is better: within nothing → 0.01"
    assert f"{changed}\n" in jestlab("plan", spec)
    assert changed in jestlab("launch", spec, "--no-reports")
    assert claims() == {"Joint is better": "within nothing → 0.01", "Other is better": ""}
    jestlab("launch", write_study(tmp_path, seeds=3), "--no-reports")
    assert set(claims().values()) == {"seeds: [0, 1] → [0, 1, 2]"}  # every claim is exploratory


def test_a_study_can_be_registered_again_until_its_first_run(tmp_path, jestlab, claims):
    jestlab("register", write_study(tmp_path))
    spec = write_study(tmp_path, claims=CLAIMS[:1], base={"spread": 0.005})
    registered = json.loads(jestlab("register", spec, "--decide", "--json"))
    assert registered["new"] is True
    assert registered["studies"]["toy"]["seeds"] == {"until": "decided", "at_least": 2}
    assert len(registered["runs"]) == 3
    jestlab("launch", spec, "--decide", "--no-reports")
    assert claims() == {"Joint is better": ""}


PILOT: dict[str, Any] = {
    "means": {"uniform": 0.5, "joint": 0.9, "worse": 0.2, "level": 0.5},
    "claims": [
        {"statement": "Level is level", "of": "level", "above": "uniform"},
        {"statement": "Worse is better", "of": "worse", "above": "uniform"},
        {"statement": "Joint is better", "of": "joint", "above": "uniform"},
    ],
}
UNTIL = {"until": "decided", "at_least": 2, "at_most": 14}


@pytest.fixture
def launched(tmp_path, jestlab):
    """A launched study with three seeds."""
    spec = write_study(tmp_path, **PILOT, seeds=3)
    jestlab("launch", spec, "--no-reports")
    return spec


@pytest.fixture
def rows(jestlab):
    return lambda: json.loads(jestlab("table", "claims", "toy", "--json"))["rows"]


def test_a_pilot_orders_the_claims_and_only_later_seeds_decide(tmp_path, root, launched, jestlab, rows):
    spec = write_study(tmp_path, **PILOT, seeds=UNTIL)
    lines = jestlab("register", spec, "--pilot").splitlines()
    assert lines[1] == "Seeds 0 to 2 are its pilot. Tested in this order, 8 at a time:"
    first = {"does not hold  toy: Worse is better", "holds          toy: Joint is better"}
    assert set(lines[2:4]) == first
    assert lines[4].endswith("toy: Level is level")
    registered = json.loads(jestlab("register", spec, "--pilot", "--json"))
    assert registered["new"] is False
    assert registered["pilot"]["seeds"] == 3
    assert registered["pilot"]["order"][-1][1:] == ["Level is level", lines[4].split("  toy")[0]]
    jestlab("launch", spec, "--no-reports")
    level, worse, joint = rows()  # in the order of the spec
    assert (joint["verdict"], joint["only"]) == ("holds", "holds")
    assert (worse["verdict"], worse["only"]) == ("does not hold", "does not hold")
    assert {(row["registered"], row["exploratory"]) for row in rows()} == {(True, "")}
    # The first of three claims that is decided has a third of the error, the second half of it.
    assert sorted((joint["seeds"], worse["seeds"])) == [6, 7]
    assert level["seeds"] <= 11
    shown = jestlab("table", "claims", "toy")
    assert "before the runs that decide" in shown
    assert "after a pilot of 3 seeds, which decide nothing" in shown
    seeds = sqlite3.connect(root / "results.db").execute("SELECT seed FROM v_runs WHERE label = 'joint'")
    assert sorted(seed for (seed,) in seeds) == list(range(3 + 7))
    assert "nothing to run: all" in jestlab("launch", spec, "--no-reports")


def test_a_pilot_requires_completed_runs_and_further_seeds(tmp_path, jestlab):
    fixed = {**PILOT, "seeds": 2}
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"seeds": UNTIL}, "toy has no runs that could be a pilot: launch it first"),
        ({}, "toy has no seeds left to decide after a pilot of 2: register it with --decide"),
        ({"seeds": UNTIL | {"at_most": 2}}, "register it with --decide and an `at_most` above 2"),
    )
    for number, (parts, message) in enumerate(refusals):
        if number == 1:
            jestlab("launch", write_study(tmp_path, **fixed), "--no-reports")
        refused = jestlab("register", write_study(tmp_path, **fixed | parts), "--pilot", code=1)
        assert message in refused and refused.count("\n") == 1


def test_claims_without_a_family_are_tested_for_one_verdict_each(tmp_path, jestlab, rows):
    study = PILOT | {"means": {"uniform": 0.5, "joint": 0.9}, "claims": CLAIMS[:1], "base": {"spread": 0.005}}
    jestlab("launch", write_study(tmp_path, **study, seeds=3), "--no-reports")
    spec = write_study(tmp_path, **study, seeds=UNTIL, family="none")
    lines = jestlab("register", spec, "--pilot").splitlines()
    assert lines[1] == "Seeds 0 to 2 are its pilot. Each is tested for one verdict:"
    jestlab("launch", spec, "--no-reports")
    [joint] = rows()
    assert (joint["verdict"], joint["only"], joint["seeds"]) == ("holds", "holds", 5)
    shown = " ".join(jestlab("table", "claims", "toy").split())
    assert "each claim is tested for the verdict that the pilot leaned to" in shown
    assert "8 at a time" not in shown
