"""Jobs that Slurm has forgotten: the files that they left, and what accounting has."""

import pytest

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import JobState
from jestlab.platform.launch.executors.slurm import SlurmExecutor, _Handle
from jestlab.platform.launch.executors.slurm_batch import Task, batch_of
from jestlab.platform.launch.executors.slurm_tools import Account
from jestlab.testing.executors import key_of

BATCH = batch_of([key_of("job")])
FOLDER = f"/lab/slurm/{BATCH}"
OTHERS = [Account("COMPLETED", "0:0", "/lab/slurm/another"), Account("FAILED", "1:0", "")]
"""Accounts of other jobs that had its id."""


@pytest.mark.parametrize(
    ("left", "accounted", "state", "code"),
    [
        (None, None, JobState.GONE, None),
        ("0 7", None, JobState.SUCCEEDED, 0),
        ("3 7", None, JobState.FAILED, 3),
        ("137 7", None, JobState.FAILED, -9),
        ("0 8", None, JobState.GONE, None),  # of another job of the batch
        ("half", None, JobState.GONE, None),
        (None, ("COMPLETED", "0:0", FOLDER), JobState.SUCCEEDED, 0),
        (None, ("OUT_OF_MEMORY", "0:125", FOLDER), JobState.FAILED, -125),
        (None, ("CANCELLED by 0", "0:0", FOLDER), JobState.PREEMPTED, None),
        (None, ("FAILED", "3:0", "/lab/slurm/another"), JobState.GONE, None),  # the id was used again
        ("129 7", ("CANCELLED by 0", "0:0", FOLDER), JobState.PREEMPTED, None),
        ("0 7", ("CANCELLED by 0", "0:0", FOLDER), JobState.SUCCEEDED, 0),
        ("3 7", ("FAILED", "3:0", FOLDER), JobState.FAILED, 3),
        ("143 7", ("TIMEOUT", "0:0", FOLDER), JobState.PREEMPTED, None),
    ],
)
def test_the_file_and_accounting_decide(tmp_path, left, accounted, state, code):
    executor = SlurmExecutor(Lab.find(tmp_path))
    handle = _Handle("cluster", "7", Task(BATCH, 0), "runs/a/log.txt")
    if left is not None:
        folder = tmp_path / "slurm" / BATCH
        folder.mkdir(parents=True)
        (folder / "0.end").write_text(f"{left}\n")
    accounts = [] if accounted is None else [Account(*accounted)]
    for place in range(len(OTHERS) + 1):
        found = executor._forgotten(handle, {"7": [*OTHERS[:place], *accounts, *OTHERS[place:]]})
        assert (found.state, found.exit_code) == (state, code)
    found = executor._forgotten(handle, {"7": accounts} if accounts else {})
    assert (found.state, found.exit_code) == (state, code)
