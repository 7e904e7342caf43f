"""`jestlab register`: a study's claims before its first run."""

import json
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
    assert "toy has no claims: write `claims` in its spec" in refused and refused.count("\n") == 1
    spec = write_study(tmp_path)
    first = jestlab("register", spec)
    assert first.startswith("toy is registered: 2 claims, an error rate of 5% for all together; digest ")
    assert jestlab("register", spec).startswith("toy was registered before")
    assert "exploratory" not in jestlab("launch", spec, "--no-reports")
    assert claims() == dict.fromkeys(["Joint is better", "Other is better"], "")
    table = jestlab("table", "claims", "toy")
    assert "registered on 20" in table and "before its first run" in table
    refused = jestlab("register", write_study(tmp_path, claims=CLAIMS[:1]), code=1)
    assert "6 of the runs of toy have started" in refused


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
