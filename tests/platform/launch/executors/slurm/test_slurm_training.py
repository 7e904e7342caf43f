"""The quickstart, shrunk, trained by jobs of a real Slurm cluster."""

import functools
import json
import os
import subprocess

import labs_support as labs
import pytest
from tests.docs_support import SHRUNK
from tests.waiting import wait_until


@pytest.mark.smoke
def test_the_quickstart_trains_in_slurm(lab):
    changes = (*SHRUNK["quickstart"], "seeds=1")
    words = [word for change in changes for word in ("--set", change)]
    done = labs.here("launch", "quickstart", "--on", "slurm", *words, "--no-reports", root=lab.root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(lab.rows("SELECT executor, state FROM attempt")) == {("slurm", "COMPLETED")}
    table = json.loads(labs.here("table", "quickstart", "--json", root=lab.root).stdout)
    assert [row["label"] for row in table["rows"]] == ["reference", "uniform", "independent", "joint"]
    assert all((row["seeds"], row["examples_seen"]) == (1, 256) for row in table["rows"])
    assert all(0.0 <= row["score_mean"] <= 1.0 for row in table["rows"])


def test_rendered_scripts_can_be_submitted_as_they_are(lab, tmp_path):
    study = lab.study({"one": {"steps": 5}, "two": {"steps": 6, "needs": ["one"]}})
    rendered = labs.here("launch", study, "--render", tmp_path / "jobs", root=lab.root)
    assert rendered.returncode == 0, rendered.stderr
    assert "2 manifests" in rendered.stdout
    lab.hurry()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JESTLAB_")}
    environment["PYTHONPATH"] = labs.variables(lab.root)["PYTHONPATH"]  # of the toy programs
    submit = functools.partial(subprocess.run, env=environment, cwd="/", capture_output=True, text=True)
    plan = labs.planned(study)
    scripts = [next((tmp_path / "jobs").glob(f"*-{run.fingerprint[:8]}-*.sbatch")) for run in plan.runs]
    for count, script in enumerate(scripts, start=1):
        submit(["sbatch", script], check=True)
        wait_until(lambda count=count: lab.attempts() == [("COMPLETED", "")] * count, 90.0)  # type: ignore[misc]
    assert all("attempt 1" in log.read_text() for log in lab.root.glob("runs/*/log.txt"))
    for script in scripts:
        job = submit(["sbatch", "--parsable", script], check=True).stdout.strip()
        shown = ("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T")
        wait_until(lambda shown=shown: lab.cluster.tool(*shown).strip() == "COMPLETED", 60.0)  # type: ignore[misc]
    assert lab.attempts() == [("COMPLETED", "")] * 2  # completed runs aren't repeated
