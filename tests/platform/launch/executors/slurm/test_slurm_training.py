"""The quickstart, shrunk, trained by jobs of a real Slurm cluster."""

import json

import labs_support as labs
import pytest
from tests.docs_support import SHRUNK


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
