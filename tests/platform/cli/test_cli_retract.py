"""Retraction: a run's results are said to be wrong, with all that rests on them; nothing is deleted."""

from __future__ import annotations

import json
from pathlib import Path

import labs_support as labs
import pytest

pytestmark = pytest.mark.usefixtures("forking")


def said(root: Path, *arguments: object) -> str:
    done = labs.here(*arguments, root=root)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def spec(root: Path, tmp_path: Path) -> Path:
    """A launched study: `joint` needs `reference`."""
    spec = labs.write_study(tmp_path)
    said(root, "launch", spec, "--no-reports")
    return spec


def retracted(root: Path) -> dict[str, str | None]:
    return {row["run"]: row["retracted"] for row in json.loads(said(root, "status", "toy", "--json"))}


def test_a_run_and_what_needed_it_are_retracted_and_run_again(root, spec):
    told = said(root, "retract", "toy/reference", "wrong shards", "--author", "Ada")
    assert "wrong shards" in told and "needs" in told and "uniform" not in told
    assert retracted(root) == {"reference": "wrong shards", "joint": "wrong shards", "uniform": None}
    line = "2 of 3 runs are retracted: wrong shards (--rerun-retracted runs them again"
    assert line in said(root, "plan", spec) and line in said(root, "launch", spec, "--no-reports")
    assert "retracted: wrong shards" in said(root, "status", "toy")
    assert "COMPLETED, retracted: wrong shards" in said(root, "diff", "toy/reference", "toy/uniform")
    assert "~~" in (table := said(root, "table", "toy")) and "joint is retracted: wrong shards" in table
    again = said(root, "launch", spec, "--no-reports", "--rerun-retracted")
    assert "2 runs to run again" in again and line not in again
    assert set(retracted(root).values()) == {None}
    assert said(root, "retract") == "no results are retracted\n"
    attempts = {row["run"]: row["attempts"] for row in json.loads(said(root, "status", "toy", "--json"))}
    assert attempts == {"reference": 2, "joint": 2, "uniform": 1}


def test_a_retraction_makes_reports_anew(root, spec):
    said(root, "launch", spec, "--set", "reports=[table]")
    page = root / "reports" / "toy" / "table.md"
    assert "~~" not in page.read_text()
    said(root, "retract", "toy/uniform", "wrong shards")
    said(root, "launch", spec, "--set", "reports=[table]")
    assert "~~" in page.read_text() and "uniform is retracted: wrong shards" in page.read_text()
    assert "wrong shards" in (root / "reports" / "toy" / "report.html").read_text()
    said(root, "retract", "toy/uniform", "--undo")
    said(root, "launch", spec, "--set", "reports=[table]")
    assert "~~" not in page.read_text()


def test_a_retraction_can_be_taken_back(root, spec):
    said(root, "retract", "toy/reference", "wrong shards")
    refused = labs.here("retract", "toy/joint", "--undo", root=root)
    assert "rests on run" in refused.stderr and "--undo" in refused.stderr
    said(root, "retract", "toy/reference", "--undo")
    assert set(retracted(root).values()) == {None}
    assert "is not retracted" in labs.here("retract", "toy/joint", "--undo", root=root).stderr


def test_what_is_missing_is_said(root, spec):
    assert labs.here("retract", "toy/joint", root=root).returncode == 2
    assert labs.here("retract", "--undo", root=root).returncode == 2
    assert "say why" in labs.here("retract", "toy/joint", " ", root=root).stderr
    [row] = json.loads(said(root, "retract", "toy/uniform", "no", "--author", "Bo", "--json"))
    assert (row["label"], row["reason"], row["author"]) == ("uniform", "no", "Bo")
