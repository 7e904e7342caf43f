"""A study that trains, in Slurm and on this machine: the same table."""

import copy
from typing import Any

import labs_support as labs
import yaml
from slurm_support import SlurmLab
from tests.models.conftest import TINY


def untimed(table: str) -> list[list[str]]:
    """The cells of a table without its columns of times."""
    rows = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    kept = [number for number, name in enumerate(rows[0]) if "time" not in name]
    return [[row[number] for number in kept] for row in rows]


def test_a_study_in_slurm_has_the_table_of_one_on_this_machine(lab, tmp_path):
    base: dict[str, Any] = copy.deepcopy(TINY)
    base["evaluation"]["points"] = 1
    runs = {
        "reference": {"initialization": 1},
        "joint": {"selection": {"rule": "joint", "reference": "reference", "chunks": 2}},
    }
    spec = tmp_path / "small.yaml"
    spec.write_text(yaml.safe_dump({"name": "small", "base": base, "runs": runs}))
    lab.launched(spec, "--on", "slurm")
    here = SlurmLab(lab.cluster, lab.root.with_name("here"))
    here.launched(spec, "--on", "local")
    tables = [untimed(labs.jestlab("table", "small", root=each.root).stdout) for each in (lab, here)]
    assert tables[0] == tables[1]
    assert [row[1].strip() for row in tables[0]][2:4] == ["*reference*", "joint"]
    assert lab.results() == here.results()
    executors = {executor for (executor,) in lab.rows("SELECT executor FROM attempt")}
    assert executors == {"slurm"}
