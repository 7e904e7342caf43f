"""Names of experiments are not taken by accident."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import labs_support as labs
import pytest
from sqlalchemy import update

from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import tables
from jestlab.platform.store.store import Store
from jestlab.platform.whoami import user_name

OWN = {"a": {}, "b": {"steps": 5}}
OTHER = {"c": {"steps": 6}, "d": {"steps": 7}, "e": {"steps": 8}}


def launch(root: Path, folder: Path, *options: str, **parts) -> tuple[int, str]:
    done = labs.here("launch", labs.write_study(folder, **parts), *options, "--no-reports", root=root)
    return done.returncode, done.stderr or done.stdout


def members(root: Path, experiment: str = "toy") -> list[str]:
    query = "SELECT run FROM v_runs WHERE experiment = ? ORDER BY position"
    return [run for (run,) in sqlite3.connect(root / "results.db").execute(query, (experiment,))]


def test_another_study_does_not_replace_an_experiment_of_its_name(root, tmp_path):
    assert launch(root, tmp_path, runs=OWN)[0] == 0
    code, said = launch(root, tmp_path, runs=OTHER)
    assert code == 1
    assert said == (
        "jestlab: there is an experiment toy already, and this study has none of its 2 runs: --replace if it "
        "is what toy has become, or another name (--set name=NAME) to keep both\n"
    )
    assert members(root) == ["a", "b"]
    planned = labs.here("plan", labs.write_study(tmp_path, runs=OTHER), root=root)
    assert planned.stdout.splitlines()[-1].startswith("a launch is refused: there is an experiment toy")
    assert launch(root, tmp_path, "--set", "name=other", runs=OTHER)[0] == 0
    assert members(root) == ["a", "b"]
    assert launch(root, tmp_path, "--replace", runs=OTHER)[0] == 0
    assert members(root) == ["c", "d", "e"]


def test_ones_own_study_changes_freely(root, tmp_path):
    assert launch(root, tmp_path, runs=OWN)[0] == 0
    assert launch(root, tmp_path, runs=OWN, seeds=2)[0] == 0
    assert launch(root, tmp_path, runs={"a": {}} | OTHER)[0] == 0
    assert launch(root, tmp_path, runs={"a": {}})[0] == 0


def test_what_has_no_results_is_replaced(root, tmp_path):
    """As after a first launch of which every run failed: mended in its base, it shares no run with that."""
    failing = {"a": {"fail_at": 1}, "b": {"fail_at": 1, "steps": 5}}
    assert launch(root, tmp_path, runs=failing)[0] == 1
    assert launch(root, tmp_path, runs=OWN)[0] == 0


def test_an_experiment_of_another_user_is_theirs(root, tmp_path):
    assert launch(root, tmp_path, runs=OWN)[0] == 0
    store = Store.open(Lab.find(root).store_url)

    def belongs_to(owner: str | None) -> None:
        with store.writing() as connection:
            connection.execute(update(tables.Experiment).values(owner=owner, host="atlas"))

    belongs_to("alice")
    code, said = launch(root, tmp_path, runs=OWN, seeds=2)
    assert code == 1
    assert said == (
        "jestlab: toy is an experiment of alice, launched on atlas: take another name (--set name=NAME), or "
        "--replace to make it yours\n"
    )
    belongs_to(None)  # of an older store
    assert launch(root, tmp_path, runs=OWN)[0] == 0
    belongs_to("alice")
    assert launch(root, tmp_path, "--replace", runs=OWN)[0] == 0
    owners = sqlite3.connect(root / "results.db").execute("SELECT owner FROM v_experiments").fetchall()
    assert owners == [(user_name(),)]
    store.close()


@pytest.mark.parametrize("part", ["one", "two"])
def test_parts_of_a_union_have_names_too(root, tmp_path, part):
    assert launch(root, tmp_path, runs=OWN, name=part)[0] == 0
    union = {
        name: {"program": "toy_programs:loop", "base": {"steps": 9}, "runs": {"x": {"y": index}}}
        for index, name in enumerate(("one", "two"))
    }
    path = tmp_path / "both.yaml"
    path.write_text(f"name: both\nstudies: {union}\n")
    done = labs.here("launch", path, "--no-reports", root=root)
    assert done.returncode == 1
    assert f"there is an experiment {part} already" in done.stderr
    assert "another name in the union" in done.stderr
    assert labs.here("launch", path, "--no-reports", "--replace", root=root).returncode == 0
