"""The store's password is for the job alone."""

import subprocess

from jestlab.platform.contracts.executors import _Obedient
from jestlab.platform.launch.executors.slurm import Slurm


def test_nobody_sees_the_stores_password(slurm, tmp_path):
    """Neither in what Slurm shows of the job, nor in its script, nor among processes, nor in files."""
    harness = _Obedient(lambda lab, resources, on_exit: Slurm(lab, resources), {}, tmp_path)
    try:
        executor = harness.executor()
        job = harness.job("jestlab-0a1b2c3d-1")
        assert "correct-horse" in job.environment["JESTLAB_STORE"]
        assert "correct-horse" not in repr(executor.render(job))
        launched = executor.launch(job)
        id_ = launched.handle.split(":")[1]
        harness.run(launched)
        shown = [
            slurm.tool("scontrol", "-o", "show", "job", id_),
            slurm.tool("scontrol", "write", "batch_script", id_, "-"),
            slurm.tool("squeue", "-O", "all"),
            subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout,
            launched.handle,
        ]
        assert all(shown)
        assert not any("correct-horse" in text for text in shown)
        assert str(job.marks.token) not in "".join(shown)
        files = [file for file in (tmp_path / "lab" / "slurm").rglob("*") if file.is_file()]
        assert files
        assert not [file for file in files if job.marks.token in file.read_text()]
        assert not [file for file in files if "correct-horse" in file.read_text()]  # the job has removed it
        stored = [file for file in (slurm.folder / "state").rglob("*") if file.is_file()]
        assert not [file for file in stored if b"correct-horse" in file.read_bytes()]
    finally:
        harness.close()


def test_what_a_waiting_job_will_read_is_its_owners_alone(slurm, tmp_path):
    slurm.tool("scontrol", "update", "NodeName=n1,n2", "State=DRAIN", "Reason=test")
    harness = _Obedient(lambda lab, resources, on_exit: Slurm(lab, resources), {}, tmp_path)
    try:
        harness.executor().launch(harness.job("jestlab-0a1b2c3d-1"))
        [secret] = (tmp_path / "lab" / "slurm").glob("*/0.sh")
        assert "correct-horse" in secret.read_text()
        assert secret.stat().st_mode & 0o077 == 0
        assert secret.parent.stat().st_mode & 0o077 == 0
    finally:
        harness.close()
