"""`jestlab register --pilot`: the seeds so far say how the claims are tested, and those to come decide."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest

from jestlab.analysis.claims.pilot import Expected, Pilot

SEEDS = {"until": "decided", "at_least": 2, "at_most": 14}
CLAIMS = [
    {"statement": "Level is level", "of": "level", "above": "uniform"},
    {"statement": "Worse is better", "of": "worse", "above": "uniform"},
    {"statement": "Joint is better", "of": "joint", "above": "uniform"},
]
MEANS = {"uniform": 0.5, "joint": 0.9, "worse": 0.2, "level": 0.5}


def write_study(folder: Path, **parts: Any) -> Path:
    runs = {name: {"mean": mean, "salt": name} for name, mean in MEANS.items()}
    defaults = {
        "program": "toy_programs:draw", "base": {"spread": 0.05}, "runs": runs, "claims": CLAIMS, "seeds": 3,
        "score": ["toy/score"],
    }  # fmt: skip
    return labs.write_study(folder, **defaults | parts)


def done(*words: object, root: Path) -> str:
    result = labs.here(*words, root=root)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def launched(root):
    """A study with a fixed number of seeds that has been launched, and its spec until decided."""
    done("launch", write_study(root.parent), "--no-reports", root=root)
    return write_study(root.parent, seeds=SEEDS)


def test_the_clearest_claims_come_first_each_for_what_it_leans_to(root, launched):
    said = done("register", launched, "--pilot", root=root).splitlines()
    assert said[1] == "Seeds 0 to 2 are its pilot. Tested in this order, 8 at a time:"
    assert sorted(said[2:4]) == ["does not hold  toy: Worse is better", "holds          toy: Joint is better"]
    assert said[4].endswith("toy: Level is level")
    told = json.loads(done("register", launched, "--pilot", "--json", root=root))
    assert told["new"] is False
    assert told["pilot"]["seeds"] == 3
    assert [each[1:] for each in told["pilot"]["order"]][-1] == ["Level is level", said[4].split("  toy")[0]]


def test_its_seeds_decide_nothing_and_later_ones_do(root, launched):
    done("register", launched, "--pilot", root=root)
    done("launch", launched, "--no-reports", root=root)
    rows = json.loads(done("table", "claims", "toy", "--json", root=root))["rows"]
    level, worse, joint = rows  # as they are written
    assert (joint["verdict"], joint["only"]) == ("holds", "holds")
    assert (worse["verdict"], worse["only"]) == ("does not hold", "does not hold")
    assert {(row["registered"], row["exploratory"]) for row in rows} == {(True, "")}
    # The first of three claims that is decided has a third of the error, the second half of it.
    assert sorted((joint["seeds"], worse["seeds"])) == [6, 7]
    assert level["seeds"] <= 11
    shown = done("table", "claims", "toy", root=root)
    assert "before the runs that decide" in shown
    assert "after a pilot of 3 seeds, which decide nothing" in shown
    seeds = sqlite3.connect(root / "results.db").execute("SELECT seed FROM v_runs WHERE label = 'joint'")
    assert sorted(seed for (seed,) in seeds) == list(range(3 + 7))
    assert "nothing to run: all" in done("launch", launched, "--no-reports", root=root)


def test_a_pilot_must_have_run_and_seeds_must_be_left(root):
    spec = write_study(root.parent, seeds=SEEDS)
    refused = labs.here("register", spec, "--pilot", root=root)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1)
    assert "toy has no runs that could be a pilot: launch it first" in refused.stderr
    fixed = write_study(root.parent)
    done("launch", fixed, "--no-reports", root=root)
    refused = labs.here("register", fixed, "--pilot", root=root)
    assert "toy has no seeds left to decide after a pilot of 3: register it with --decide" in refused.stderr
    short = write_study(root.parent, seeds=SEEDS | {"at_most": 3})
    refused = labs.here("register", short, "--pilot", root=root)
    assert "register it with --decide and an `at_most` above 3" in refused.stderr


def test_a_claim_whose_turn_does_not_come_stays_undecided(root, launched, monkeypatch):
    """With one claim at a time, what is hopeless blocks all after it, and no seeds are spent on them."""
    monkeypatch.setattr("jestlab.analysis.claims.pilot.AT_ONCE", 1)
    monkeypatch.setattr("jestlab.analysis.claims.verdicts.AT_ONCE", 1)
    order = (
        Expected("toy", "Level is level", "holds"),
        Expected("toy", "Joint is better", "holds"),
        Expected("toy", "Worse is better", "does not hold"),
    )
    monkeypatch.setattr("jestlab.platform.planning.registering.pilot", lambda store, plan: Pilot(3, order))
    done("register", launched, "--pilot", root=root)
    said = done("launch", launched, "--no-reports", root=root)
    level, worse, joint = json.loads(done("table", "claims", "toy", "--json", root=root))["rows"]
    assert level["verdict"] == joint["verdict"] == worse["verdict"] == "undecided"
    assert level["stopped"].startswith("hopeless")
    assert joint["stopped"] == worse["stopped"] == "claims before it cannot be decided"
    assert joint["agree"] == joint["seeds"] == 2  # those with which every study begins
    assert "0 of 3 claims decided" in said


def test_claims_that_share_no_error_keep_the_verdict_that_they_are_tested_for(root):
    done("launch", write_study(root.parent), "--no-reports", root=root)
    alone = write_study(root.parent, seeds=SEEDS, family="none")
    said = done("register", alone, "--pilot", root=root).splitlines()
    assert said[1] == "Seeds 0 to 2 are its pilot. Each is tested for one verdict:"
    done("launch", alone, "--no-reports", root=root)
    [*_, joint] = json.loads(done("table", "claims", "toy", "--json", root=root))["rows"]
    assert (joint["verdict"], joint["only"], joint["seeds"]) == ("holds", "holds", 5)
    shown = " ".join(done("table", "claims", "toy", root=root).split())
    assert "each claim is tested for the verdict that the pilot leaned to" in shown
    assert "8 at a time" not in shown
