"""Jobs that Slurm has forgotten: the files that they left."""

import pytest

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import JobState
from jestlab.platform.launch.executors.slurm import SlurmExecutor, _Handle
from jestlab.platform.launch.executors.slurm_batch import Task, batch_of
from jestlab.testing.executors import key_of

BATCH = batch_of([key_of("job")])


@pytest.mark.parametrize(
    ("left", "state", "code"),
    [
        (None, JobState.GONE, None),
        ("0 7", JobState.SUCCEEDED, 0),
        ("3 7", JobState.FAILED, 3),
        ("137 7", JobState.FAILED, -9),
        ("0 8", JobState.GONE, None),  # of another job of the batch
        ("half", JobState.GONE, None),
    ],
)
def test_the_file_decides(tmp_path, left, state, code):
    if left is not None:
        folder = tmp_path / "slurm" / BATCH
        folder.mkdir(parents=True)
        (folder / "0.end").write_text(f"{left}\n")
    handle = _Handle("cluster", "7", Task(BATCH, 0), "runs/a/log.txt")
    found = SlurmExecutor(Lab.find(tmp_path))._forgotten(handle)
    assert (found.state, found.exit_code) == (state, code)
