"""Slurm's answers, those of Slurm 22.05 and any other text, and the files that jobs leave."""

import pytest
from executor_harnesses import KEY
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors import slurm_tools as tools
from jestlab.platform.launch.executors.base import JobState, LaunchedJob
from jestlab.platform.launch.executors.slurm import COMMENT, SlurmExecutor
from jestlab.platform.launch.executors.slurm_batch import batch_of
from jestlab.platform.launch.executors.slurm_tools import QueueRow

QUEUE = """\
4|FAILED|2026-11-25T01:44:02|BadConstraints|(null)
slurm_load_jobs warning
1_0|RUNNING|2026-11-25T01:44:02|None|jestlab abc|x
"""


def test_reads_the_queue_and_the_clusters_settings():
    first, second = tools.rows(QUEUE)
    assert (first.id, first.state, first.reason) == ("4", "FAILED", "BadConstraints")
    assert second == QueueRow("1_0", "RUNNING", "2026-11-25T01:44:02", "None", "jestlab abc|x")
    settings = "Configuration data as of 2026-11-25T01:44:02\nClusterName             = c10543\n"
    assert tools.config(settings)["ClusterName"] == "c10543"


def status(state, reason="None", code=None, start="N/A"):
    return tools.status(QueueRow("7", state, start, reason, ""), code)


@pytest.mark.parametrize(
    ("meaning", "names"),
    [
        (JobState.QUEUED, "PENDING CONFIGURING REQUEUED REQUEUE_HOLD SPECIAL_EXIT"),
        (JobState.RUNNING, "RUNNING COMPLETING SUSPENDED STAGE_OUT SIGNALING"),
        (JobState.PREEMPTED, "PREEMPTED NODE_FAIL BOOT_FAIL TIMEOUT REVOKED CANCELLED"),
        (JobState.SUCCEEDED, "COMPLETED"),
        (JobState.FAILED, "FAILED OUT_OF_MEMORY"),
        (JobState.UNKNOWN, "SOMETHING_NEW"),
    ],
)
def test_every_state_has_a_meaning(meaning, names):
    assert {status(name).state for name in names.split()} == {meaning}


def test_slurms_reasons_are_shown():
    assert status("PENDING", "(Priority)").reason == "Priority"
    assert status("PENDING").reason == ""
    assert status("PENDING", start="2026-11-25T14:05:00").place == "estimated start 2026-11-25 14:05"
    assert "CANCELLED" in status("CANCELLED").reason
    assert "memory_gb" in status("OUT_OF_MEMORY").reason
    assert status("FAILED", code=3).exit_code == 3
    assert status("FAILED", "NodeDown").state == JobState.PREEMPTED


@given(st.text())
def test_no_answer_breaks_the_parsers(text):
    for row in tools.rows(text):
        assert tools.status(row).state in JobState
    tools.config(text)
    tools.accounts(text)
    assert status(text, text).state in JobState


GONE = (JobState.GONE, None)


@pytest.mark.parametrize(
    ("left", "queue", "accounted", "state", "code"),
    [
        (None, None, "", *GONE),
        ("0 7", None, "", JobState.SUCCEEDED, 0),
        ("3 7", None, "", JobState.FAILED, 3),
        ("137 7", None, "", JobState.FAILED, -9),
        ("0 8", None, "", *GONE),  # of another job of the batch
        ("half", None, "", *GONE),
        ("129 7", "CANCELLED", "", JobState.PREEMPTED, None),
        ("0 7", "CANCELLED", "", JobState.SUCCEEDED, 0),
        ("3 7", "FAILED", "", JobState.FAILED, 3),
        ("3 8", "FAILED", "", JobState.FAILED, None),
        ("143 7", "TIMEOUT", "", JobState.PREEMPTED, None),
        ("0 7", "COMPLETING", "", JobState.RUNNING, None),
        (None, "FAILED", "", JobState.FAILED, None),
        (None, None, "COMPLETED|0:0|None", JobState.SUCCEEDED, 0),
        (None, None, "OUT_OF_MEMORY|0:125|None", JobState.FAILED, -125),
        (None, None, "FAILED|9:0|None", JobState.FAILED, 9),
        (None, None, "FAILED|1:0|NodeDown", JobState.PREEMPTED, None),
        (None, None, "CANCELLED by 0|0:0|None", JobState.PREEMPTED, None),
        (None, None, "RUNNING|0:0|None", *GONE),
        ("3 7", None, "COMPLETED|0:0|None", JobState.FAILED, 3),
        (None, "COMPLETING", "FAILED|1:0|None", JobState.RUNNING, None),
    ],
)
def test_the_queue_the_file_that_a_job_left_and_accounting_decide(
    tmp_path, monkeypatch, left, queue, accounted, state, code
):
    executor, batch = SlurmExecutor(Lab.find(tmp_path)), batch_of([KEY])
    if left is not None:
        (tmp_path / "slurm" / batch).mkdir(parents=True)
        (tmp_path / "slurm" / batch / "0.end").write_text(f"{left}\n")
    lines = [f"7|{queue}|N/A|None|{COMMENT}{batch}"] if queue else ["7|FAILED|N/A|None|another's job"]
    theirs = "7|FAILED|1:0|None|/lab/slurm/another\n"  # which had or has the id
    answers = {
        "squeue": "\n".join(lines),
        "scontrol": "ClusterName = c\nAccountingStorageType = accounting_storage/slurmdbd\n",
        "sacct": f"{theirs}7|{accounted}|/lab/slurm/{batch}\n{theirs}",
    }
    monkeypatch.setattr(executor, "_run", lambda *command, **_: answers[command[0]])
    job = LaunchedJob(f"c:7:{batch}.0:runs/a/log.txt", KEY)
    found = executor.statuses([job])[job]
    assert (found.state, found.exit_code) == (state, code)
    if accounted.startswith("OUT"):
        assert "memory_gb" in found.reason


def test_of_a_job_that_was_submitted_twice_the_live_one_counts(tmp_path, monkeypatch):
    executor, batch = SlurmExecutor(Lab.find(tmp_path)), batch_of([KEY])
    ids = {"5": "FAILED", "6": "RUNNING", "7": "CANCELLED"}
    answer = "\n".join(f"{id_}|{state}|N/A|None|{COMMENT}{batch}" for id_, state in ids.items())
    monkeypatch.setattr(executor, "_run", lambda *command, **_: answer)
    assert [row.id for row in executor._queue().values()] == ["6"]
