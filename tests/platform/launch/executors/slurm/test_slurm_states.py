"""Slurm's answers: those of Slurm 22.05, and any other text."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.launch.executors import slurm_tools as tools
from jestlab.platform.launch.executors.base import JobState

QUEUE = """\
4|FAILED|low|4294901756|2026-11-25T01:44:02|BadConstraints|(null)
2|PENDING|low|4294901758|2026-11-25T02:44:02|BeginTime|jestlab def
1_0|RUNNING|low|4294901759|2026-11-25T01:44:02|None|jestlab abc|x
5|CANCELLED|low|4294901755|N/A|PartitionNodeLimit|(null)
"""
CONFIG = """\
Configuration data as of 2026-11-25T01:44:02
ClusterName             = c10543
MaxArraySize            = 1001
"""


def test_lines_of_the_queue():
    rows = tools.rows(QUEUE)
    assert [row.id for row in rows] == ["4", "2", "1_0", "5"]
    assert rows[2] == tools.QueueRow(
        "1_0", "RUNNING", "low", 4294901759, "2026-11-25T01:44:02", "None", "jestlab abc|x"
    )
    assert rows[3].start == "N/A"


def test_the_clusters_settings():
    assert tools.config(CONFIG)["ClusterName"] == "c10543"


MEANINGS = {
    JobState.QUEUED: ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
    JobState.RUNNING: ("RUNNING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING"),
    JobState.PREEMPTED: (
        *("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "REVOKED"),
        *("CANCELLED by 1000", "CANCELLED+"),
    ),
    JobState.SUCCEEDED: ("COMPLETED",),
    JobState.FAILED: ("FAILED", "OUT_OF_MEMORY", "OUT_OF_ME+"),
    JobState.UNKNOWN: ("SOMETHING_NEW", ""),
}


def test_every_state_has_a_meaning():
    for meaning, names in MEANINGS.items():
        found = {name: tools.status(name) for name in names}
        assert {name: status.state for name, status in found.items()} == dict.fromkeys(names, meaning)
        assert not [name for name, status in found.items() if "\n" in status.reason]
        if meaning in (JobState.PREEMPTED, JobState.FAILED, JobState.UNKNOWN):
            assert all(status.reason for status in found.values())


def test_slurms_reasons_are_shown():
    assert tools.status("PENDING", "(Priority)").reason == "Priority"
    assert tools.status("PENDING", "None").reason == ""
    assert "CANCELLED by 1000" in tools.status("CANCELLED by 1000").reason
    assert "memory_gb" in tools.status("OUT_OF_MEMORY").reason
    assert tools.status("FAILED", "", 3).exit_code == 3
    assert tools.status("FAILED", "NodeDown").state == JobState.PREEMPTED


def test_the_place_in_a_queue():
    row = tools.rows("12_3|PENDING|gpu|90|2026-11-25T14:05:00|Priority|jestlab a\n")[0]
    pending = [(90, "12_3"), (100, "7"), (100, "8"), (10, "9")]
    place = tools.queue_position(row, pending)
    assert place == "3rd of 4 in partition gpu, estimated start 2026-11-25 14:05"
    assert tools.queue_position(dataclasses.replace(row, start="N/A"), []) == ""


@given(st.text())
def test_no_answer_breaks_the_parsers(text):
    for row in tools.rows(text):
        assert isinstance(row.priority, int)
        assert tools.status(row.state, row.reason).state in JobState
    tools.config(text)
    tools.status(text, text)
