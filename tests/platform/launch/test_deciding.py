"""Launches that go on until claims are decided: which runs, and that no death or company changes that."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest

RUNS = {
    "uniform": {"mean": 0.5, "salt": "u"},
    "joint": {"mean": 0.7, "salt": "j"},
    "other": {"mean": 0.51, "salt": "o"},
    "lone": {"mean": 0.1, "salt": "l"},  # of no claim
}
CLAIMS = [
    {"statement": "Joint is better", "of": "joint", "above": "uniform"},
    {"statement": "Other is better", "of": "other", "above": "uniform"},
]


def write_study(folder: Path, **parts: Any) -> Path:
    return labs.write_study(
        folder,
        **{
            "program": "toy_programs:draw",
            "base": {"spread": 0.05},
            "runs": RUNS,
            "claims": CLAIMS,
            "seeds": {"until": "decided"},
            "score": ["toy/score"],
        }
        | parts,
    )


def claims(root: Path, name: str = "toy") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(labs.here("table", "claims", name, "--json", root=root).stdout)[
        "rows"
    ]
    return found


def seeds(root: Path, name: str = "toy") -> dict[str, int]:
    """How many seeds of each run have completed."""
    query = "SELECT run, COUNT(*) FROM v_runs WHERE experiment = ? AND state = 'COMPLETED' GROUP BY run"
    return dict(sqlite3.connect(root / "results.db").execute(query, (name,)).fetchall())


def started_once(root: Path) -> bool:
    """Whether no run was started twice."""
    return all(len(path.read_text().splitlines()) == 1 for path in (root / "runs").glob("*/starts.txt"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Verdicts, and seeds of each run, of a launch that nothing disturbs."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("deciding") / "lab"
        for name, value in labs.variables(root).items():
            patch.setenv(name, value)
        done = labs.here("launch", write_study(root.parent), root=root)
        assert done.returncode == 0, done.stderr
        labs.wait_until_ended(root)
        yield done.stdout, claims(root), seeds(root)


def test_seeds_are_added_until_each_claim_is_decided_or_hopeless(undisturbed):
    said, (joint, other), counts = undisturbed
    assert (joint["verdict"], joint["stopped"], joint["agree"]) == ("holds", "decided", joint["seeds"])
    assert joint["seeds"] == counts["joint"] == 6  # the fewest that decide one of two claims
    assert other["verdict"] == "undecided"
    assert other["stopped"].startswith("hopeless (a chance under 5% of a decision by 24 seeds)")
    assert counts["lone"] == 3  # the least of every run
    assert counts["uniform"] == max(counts["joint"], counts["other"])
    assert "1 of 2 claims decided, 1 hopeless" in said


def test_launched_again_nothing_is_run(root, undisturbed):
    spec = write_study(root.parent)
    labs.here("launch", spec, root=root)
    before = seeds(root)
    again = labs.here("launch", spec, root=root)
    assert "nothing to run" in again.stdout
    assert seeds(root) == before == undisturbed[2]
    assert started_once(root)


@pytest.mark.parametrize("at", [2, 9, 17])
def test_a_killed_launcher_changes_no_verdict_and_wastes_no_run(root, undisturbed, at):
    """Killed without a word once so many runs have begun; the next launch goes on."""
    spec = write_study(root.parent, base={"spread": 0.05, "pause": 0.2})
    with labs.started("launch", spec, root=root) as first:
        labs.wait_until(lambda: len(list((root / "runs").glob("*/starts.txt"))) >= at, 60.0)
        first.kill()
        first.wait()
        labs.wait_until_ended(root)
    done = labs.here("launch", spec, root=root)
    assert done.returncode == 0, done.stderr
    assert [(each["verdict"], each["seeds"]) for each in claims(root)] == [
        (each["verdict"], each["seeds"]) for each in undisturbed[1]
    ]
    assert seeds(root) == undisturbed[2]


def test_two_launchers_at_once_run_each_run_once(root, undisturbed):
    spec = write_study(root.parent, base={"spread": 0.05, "pause": 0.1})
    with labs.started("launch", spec, root=root) as first, labs.started("launch", spec, root=root) as second:
        for launcher in (first, second):
            said, _ = launcher.communicate()
            assert launcher.returncode == 0, said
    assert started_once(root)
    assert seeds(root) == undisturbed[2]
    assert [each["verdict"] for each in claims(root)] == [each["verdict"] for each in undisturbed[1]]


def test_a_seed_that_fails_holds_up_the_claims_that_need_it_alone(root):
    runs = RUNS | {"other": RUNS["other"] | {"fail_seeds": [1]}}
    done = labs.here("launch", write_study(root.parent, runs=runs), root=root)
    assert done.returncode == 1
    joint, other = claims(root)
    assert joint["verdict"] == "holds"
    assert (other["verdict"], other["seeds"], other["stopped"]) == ("undecided", 1, "goes on")
    failed = [path for path in (root / "runs").glob("other-*/starts.txt") if path.read_text().count("\n") > 1]
    assert not failed  # it was not tried again in each round
    query = "SELECT state FROM v_runs WHERE run = 'other' AND seed = 1"
    assert sqlite3.connect(root / "results.db").execute(query).fetchall() == [("FAILED",)]


def test_the_budget_ends_a_study(root):
    """Each run takes at least .3 s: half a minute is not enough for 24 seeds of two runs that are alike."""
    runs = {"uniform": RUNS["uniform"], "other": RUNS["other"]}
    spec = write_study(
        root.parent, runs=runs, claims=CLAIMS[1:], base={"spread": 0.05, "pause": 0.3},
        seeds={"until": "decided", "budget": {"hours": 0.0007}},
    )  # fmt: skip
    done = labs.here("launch", spec, root=root)
    (other,) = claims(root)
    assert (other["verdict"], other["stopped"]) == ("undecided", "budget spent")
    assert "1 beyond the budget" in done.stdout
    assert seeds(root)["other"] < 24


def test_decide_goes_on_from_a_fixed_number_of_seeds(root):
    spec = write_study(root.parent, seeds=2)
    labs.here("launch", spec, root=root)
    assert seeds(root) == dict.fromkeys(RUNS, 2)
    assert {each["stopped"] for each in claims(root)} == {"2 seeds planned"}
    labs.here("launch", spec, "--decide", root=root)
    assert started_once(root)
    assert seeds(root)["joint"] == 6
    assert claims(root)[0]["verdict"] == "holds"


def test_a_union_is_one_family_and_its_parts_share_rounds(root, tmp_path):
    """Two studies of one claim each are judged as two claims, not as one each."""
    for name, claim in zip(("first", "second"), CLAIMS, strict=True):
        write_study(tmp_path, name=name, claims=[claim], seeds=3).rename(tmp_path / f"{name}.yaml")
    union = tmp_path / "both.yaml"
    union.write_text("name: both\nstudies: [first.yaml, second.yaml]\nresources: {retries: 0}\n")
    done = labs.here("launch", union, "--decide", "--no-reports", root=root)
    assert done.returncode == 0, done.stderr
    joint, _ = claims(root, "both")
    assert (joint["verdict"], joint["seeds"]) == ("holds", 6)
    assert started_once(root)
    (alone,) = claims(root, "first")
    assert (alone["verdict"], alone["seeds"]) == ("holds", 5)  # a family of one
