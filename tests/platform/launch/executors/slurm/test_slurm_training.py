"""The quickstart, shrunk, trained by jobs of a real Slurm cluster."""

import json
import os
import subprocess
from contextlib import closing

import labs_support as labs
import pytest
from tests.docs_support import SHRUNK
from tests.waiting import wait_until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning import recording
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store


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


def test_a_rendered_script_can_be_submitted_by_hand(lab, tmp_path):
    study, url = lab.study({"one": {"steps": 5}}), Lab.find(lab.root).store_url
    with closing(Store.open(url)) as store:
        recording.record(store, plan(load(str(study))))
    rendered = labs.here("launch", study, "--render", tmp_path / "jobs", root=lab.root)
    assert rendered.returncode == 0, rendered.stderr
    [script] = (tmp_path / "jobs").glob("*.sbatch")
    environment = {**os.environ, **labs.variables(lab.root), "JESTLAB_STORE": url}
    subprocess.run(["sbatch", script], check=True, env=environment, cwd=tmp_path, capture_output=True)
    lab.hurry()
    wait_until(lambda: lab.attempts() == [("COMPLETED", "")], 60.0)
