"""What `jestlab doctor` reports about a site with Slurm."""

import labs_support as labs
import pytest
import yaml

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors import slurm_tools
from jestlab.platform.spec.resources import SlurmOptions


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """Examine this machine with these settings of Slurm."""

    def examine(**options):
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump({"on": "slurm", "slurm": options} if options else {}))
        monkeypatch.setenv("JESTLAB_CONFIG", str(config))
        return labs.here("doctor", "--no-jax", root=tmp_path / "lab").stdout

    return examine


def test_a_site_that_works(doctor, slurm):
    lines = [line for line in doctor(partition="high").splitlines() if "slurm" in line.lower()]
    parts = ("slurm-wlm", "a job would be accepted", "on a disk of this")
    assert not [part for part in parts if part not in "\n".join(lines)]
    assert "a job would be accepted" in doctor()  # a default partition is all that many sites need
    assert not slurm.jobs()


def test_a_partition_that_does_not_exist(doctor, slurm):
    assert "invalid partition" in doctor(partition="nope")


def test_a_site_whose_controller_is_away(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")

    def away(*command):
        raise UserError("scontrol: Unable to contact slurm controller")

    [(well, found, remedy)] = slurm_tools.examine(Lab.find(tmp_path / "lab"), SlurmOptions(), away)
    assert (well, found) == (False, "no answer")
    assert "Unable to contact" in remedy


def test_a_machine_without_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    [(well, found, remedy)] = slurm_tools.examine(Lab.find(tmp_path / "lab"), SlurmOptions())
    assert (well, "sbatch" in found, "cluster" in remedy) == (False, True, True)
