"""Launches that continue until claims are decided: which runs they add, and when."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from in_process import rows

from jestlab.platform.launch import session
from jestlab.platform.planning.plan import Plan, RunBudget

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
JOINT: dict[str, Any] = {"runs": {name: RUNS[name] for name in ("uniform", "joint")}, "claims": CLAIMS[:1]}
"""The first claim alone, which five seeds decide."""


def write_study(folder: Path, **parts: Any) -> Path:
    usual = {"program": "toy_programs:draw", "base": {"spread": 0.05}, "runs": RUNS, "claims": CLAIMS}
    return labs.write_study(folder, **usual | {"seeds": {"until": "decided"}, "score": ["toy/score"]} | parts)


def launched(root: Path, spec: Path, *words: str, code: int = 0) -> str:
    done = labs.here("launch", spec, "--no-reports", *words, root=root)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def claims(root: Path, name: str = "toy") -> list[dict[str, Any]]:
    return list(json.loads(labs.here("table", "claims", name, "--json", root=root).stdout)["rows"])


def seeds(root: Path, name: str = "toy") -> dict[str, int]:
    runs = f"FROM v_runs WHERE experiment = '{name}' AND state = 'COMPLETED' GROUP BY run"
    return dict(rows(root, f"SELECT run, COUNT(*) {runs}"))


def started_once(root: Path) -> bool:
    return all(len(path.read_text().splitlines()) == 1 for path in (root / "runs").glob("*/starts.txt"))


def test_seeds_are_added_until_each_claim_is_decided_or_futile(root, machine):
    spec = write_study(root.parent)
    said = launched(root, spec)
    joint, other = claims(root)
    assert (joint["verdict"], joint["stopped"], joint["agree"]) == ("holds", "decided", joint["seeds"])
    assert joint["seeds"] == 6  # the fewest that decide one of two claims
    assert (other["verdict"], other["seeds"]) == ("undecided", 12)
    assert other["stopped"].startswith("out of reach (under 5% chance of a decision by 24 seeds)")
    assert seeds(root) == {"uniform": 12, "joint": 6, "other": 12, "lone": 3}  # at least 3 of every run
    assert "1 of 2 claims decided, 1 out of reach" in said
    assert "nothing to run" in launched(root, spec)
    assert len(machine.jobs) == 33


def test_fixed_seeds_and_seeds_until_decided_explain_their_differences(root, machine):
    """One look at three seeds decides the claim; looks after every seed need five."""
    spec = write_study(root.parent, **JOINT, seeds=3)
    plan = labs.here("plan", spec, root=root).stdout
    assert (
        "With 3 seeds, the chance to decide a claim is 32% if the sides differ by 1 standard deviation, "
        in plan
    )
    launched(root, spec)
    assert claims(root)[0]["verdict"] == "holds"
    said = launched(root, spec, "--decide")
    assert "0 of 1 claim decided, 1 open" in said and "1 of 1 claim decided\n" in said
    left_out = (
        "no longer part of toy: 4 runs with further seeds; their results stay in the store. To keep them: "
    )
    assert f"{left_out}--decide\n" in launched(root, spec)
    launched(root, spec, "--decide")
    assert started_once(root)
    spec = write_study(root.parent, runs=JOINT["runs"], claims=[], seeds=3)
    assert f"{left_out}--set seeds=5\n" in launched(root, spec)


def test_a_launcher_that_dies_changes_no_verdict_and_wastes_no_run(root, machine):
    def die(job: object) -> None:
        if len(machine.jobs) == 7:
            raise RuntimeError("died")

    machine.before_launch = die
    spec = write_study(root.parent, **JOINT)
    with pytest.raises(RuntimeError, match="died"):
        launched(root, spec)
    machine.before_launch = lambda job: None
    launched(root, spec)
    [claim] = claims(root)
    assert (claim["verdict"], claim["seeds"]) == ("holds", 5)
    assert seeds(root) == {"uniform": 5, "joint": 5}
    assert started_once(root)


def test_a_seed_that_fails_counts_against_the_claims_that_need_it_alone(root, machine):
    runs = RUNS | {"other": RUNS["other"] | {"fail_seeds": [1]}}
    launched(root, write_study(root.parent, runs=runs), code=1)
    joint, other = claims(root)
    assert joint["verdict"] == "holds"
    assert (other["verdict"], other["seeds"] < 24) == ("undecided", True)
    assert other["stopped"].startswith("out of reach")
    assert f"other failed in 1 of {other['seeds']} seeds" in other["reason"]
    assert started_once(root)  # it was not tried again in each round
    assert rows(root, "SELECT state FROM v_runs WHERE run = 'other' AND seed = 1") == [("FAILED",)]


def test_the_budget_ends_a_study(root, machine):
    """The first three seeds of two runs take longer than it: 4 ms."""
    runs = {"uniform": RUNS["uniform"], "other": RUNS["other"]}
    spec = write_study(
        root.parent, runs=runs, claims=CLAIMS[1:], base={"spread": 0.05, "pause": 0.01},
        seeds={"until": "decided", "budget": {"hours": 1e-6}},
    )  # fmt: skip
    assert "1 over budget" in launched(root, spec)
    (other,) = claims(root)
    assert (other["verdict"], other["stopped"]) == ("undecided", "budget spent")
    assert seeds(root)["other"] == 3


def test_a_round_that_is_refused_ends_a_launch_with_reports(root, machine, monkeypatch):
    """The first round fits into the limit; runs of the second are estimated at more."""
    hours = iter((1.0, 30.0))

    def budgeted(plan: Plan, *_: object) -> Plan:
        budget = RunBudget("local", 1, next(hours))
        return replace(plan, runs=tuple(replace(run, budget=budget) for run in plan.runs))

    monkeypatch.setattr(session, "budgeted", budgeted)
    spec = write_study(root.parent, **JOINT, reports=["table"])
    done = labs.here("launch", spec, "--max-chip-hours", "20", root=root)
    assert done.returncode == 1 and done.stderr == ""
    assert "no further round: the 4 runs to do would take 120 chip-hours, more than " in done.stdout
    assert "no further run was launched" in done.stdout and "nothing was launched" not in done.stdout
    assert seeds(root) == {"uniform": 3, "joint": 3}
    assert (root / "reports" / "toy" / "table.md").is_file() and "claims:" in done.stdout


def test_a_union_is_one_family_and_its_parts_share_rounds(root, tmp_path, machine):
    """Two studies of one claim each are judged as two claims, not as one each."""
    runs = {"uniform": RUNS["uniform"], "joint": RUNS["joint"], "best": {"mean": 0.8, "salt": "b"}}
    best = {"statement": "Best is better", "of": "best", "above": "uniform"}
    for name, claim in (("first", CLAIMS[0]), ("second", best)):
        spec = write_study(tmp_path, name=name, runs=runs, claims=[claim], seeds=3)
        spec.rename(tmp_path / f"{name}.yaml")
    union = tmp_path / "both.yaml"
    union.write_text("name: both\nstudies: [first.yaml, second.yaml]\nresources: {retries: 0}\n")
    launched(root, union, "--decide")
    assert [(claim["verdict"], claim["seeds"]) for claim in claims(root, "both")] == [("holds", 6)] * 2
    assert started_once(root)
    (alone,) = claims(root, "first")
    assert (alone["verdict"], alone["seeds"]) == ("holds", 5)  # a family of one
