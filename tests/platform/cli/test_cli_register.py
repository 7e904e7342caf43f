"""`jestlab register`: a study's claims before its first run."""

import json
from collections.abc import Callable
from pathlib import Path

import labs_support as labs
import pytest

pytestmark = pytest.mark.usefixtures("in_process", "store")

CLAIMS = [
    {"statement": "Joint is better", "of": "joint", "above": "uniform"},
    {"statement": "Other is better", "of": "other", "above": "uniform"},
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a study with claims, with changes."""
    means = {"uniform": 0.5, "joint": 0.7, "other": 0.9}
    study = {
        "program": "toy_programs:draw",
        "base": {"spread": 0.05},
        "runs": {name: {"mean": mean, "salt": name} for name, mean in means.items()},
        "claims": CLAIMS,
        "seeds": 2,
        "score": ["toy/score"],
    }
    return lambda **parts: labs.write_study(tmp_path, **study | parts)


@pytest.fixture
def launched(jestlab):
    """Launch a study; return what is printed, and the changes since the registration by statement."""

    def call(*words):
        text = jestlab("launch", *words, "--no-reports")
        rows = json.loads(jestlab("table", "claims", "toy", "--json"))["rows"]
        assert all(row["registered"] for row in rows)
        return text, {row["statement"]: row["exploratory"] for row in rows}

    return call


def test_launches_a_study_as_registered(write, jestlab, launched):
    refused = jestlab("register", write(claims=[]), code=1)
    assert "toy has no claims: write `claims` in its spec" in refused and refused.count("\n") == 1
    spec = write()
    first = jestlab("register", spec)
    bound = "an error rate of at most 5% for all together"
    assert first.startswith(f"toy is registered: 2 claims, {bound}; digest ")
    assert jestlab("register", spec).startswith("toy was registered before")
    text, changes = launched(spec)
    assert changes == {"Joint is better": "", "Other is better": ""} and "exploratory" not in text
    table = jestlab("table", "claims", "toy")
    assert "registered on 20" in table and "before the first run" in table
    refused = jestlab("register", write(claims=CLAIMS[:1]), code=1)
    assert "6 of the runs of toy have started" in refused


def test_reports_changes_before_the_launch_and_marks_them_in_the_table(write, jestlab, launched):
    jestlab("register", write())
    spec = write(claims=[CLAIMS[0] | {"within": 0.01}, CLAIMS[1]])
    line = "changed since, and exploratory: toy: Joint is better: within nothing → 0.01"
    assert f"{line}\n" in jestlab("plan", spec)
    text, changes = launched(spec)
    assert line in text and changes == {"Joint is better": "within nothing → 0.01", "Other is better": ""}
    assert set(launched(write(seeds=3))[1].values()) == {"seeds [0, 1] → [0, 1, 2]"}  # of every claim


def test_a_study_can_be_registered_again_until_its_first_run(write, jestlab, launched):
    jestlab("register", write())
    spec = write(claims=CLAIMS[:1], base={"spread": 0.005})
    registered = json.loads(jestlab("register", spec, "--decide", "--json"))
    assert registered["new"] is True and len(registered["runs"]) == 3
    assert registered["studies"]["toy"]["seeds"] == {"until": "decided", "at_least": 2}
    assert launched(spec, "--decide")[1] == {"Joint is better": ""}
