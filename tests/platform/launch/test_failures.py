"""Failures: which are tried again, which fail a run at once, and when a whole launch stops."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from in_process import Scripted, launch_by, rows

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executors.base import JobState, JobStatus
from jestlab.platform.processes import EXIT_REFUSED
from jestlab.platform.programs import failures
from jestlab.platform.programs.failures import common_reason, exit_recurs, recurs
from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

LAB = Path("/lab")
FAULTY = {"program": "json:loads"}
"""A run whose program is called with two arguments and takes one."""
FAULT = "TypeError: loads() takes 1 positional argument but 2 were given"


def attempts(root: Path) -> list[tuple[Any, ...]]:
    """Run and number of attempts, of the runs with any."""
    return rows(root, "SELECT run, attempts FROM v_runs WHERE attempts > 0 ORDER BY run, seed")


def test_a_launch_stops_when_the_first_runs_fail_for_the_same_reason(root, tmp_path, machine):
    spec = labs.write_study(tmp_path, runs={"bad": FAULTY}, seeds=6, resources={"retries": 1})
    done = labs.here("launch", spec, "--parallel", 1, "--no-reports", root=root)
    assert done.returncode == 1
    assert f": {FAULT} (not retried)" in done.stdout
    [line] = [line for line in done.stdout.splitlines() if line.startswith("stopped: ")]
    assert line.startswith(f"stopped: 3 runs failed with the same error: {FAULT}; ")
    assert "--keep-going" in line
    assert "jestlab retry" not in done.stdout  # it would fail again
    assert attempts(root) == [("bad", 1)] * 3
    again = labs.here("launch", spec, "--keep-going", "--no-reports", "--json", root=root)
    outcome = json.loads(again.stdout)
    assert (outcome["counts"], outcome["stopped"]) == ({"FAILED": 6}, None)


class Racing(Scripted):
    """One slot, and jobs whose workers report a failure just after the launcher has looked at them."""

    store: Store

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """The launcher reads this when it looks for free slots."""
        with self.store.reading() as connection:
            running = claims.holding(connection, self.name, None)
        refused = (RunState.FAILED, "TypeError: no", EXIT_REFUSED)
        leases.end_all(self.store, (leases.Ending(run.fingerprint, run.id, *refused) for run in running))
        return 1


def test_a_failure_counts_before_its_slot_is_given_away(root, tmp_path, unrecorded):
    spec = labs.write_study(tmp_path, runs={"uniform": {}}, seeds=6)
    with closing(Store.open(Lab.find(root).store_url)) as store:
        executor = Racing(JobStatus(JobState.RUNNING))
        executor.store = store
        outcome = launch_by(executor, root, spec)
    assert outcome.stopped == "3 runs failed with the same error: TypeError: no"
    assert len(executor.launched) == failures.ALIKE
    assert executor.stopped == []


def test_only_failures_that_may_pass_are_tried_again(root, tmp_path, machine):
    """The launch continues because its first run completes."""
    runs = {"a": {}, "b": FAULTY, "c": {"fail_at": 3}, "d": {**FAULTY, "x": 1}, "e": {**FAULTY, "x": 2}}
    resources = {"retries": 1, "retry_exit_codes": [2, 17], "parallel": 1}
    spec = labs.write_study(tmp_path, runs=runs, resources=resources)
    outcome = json.loads(labs.here("launch", spec, "--no-reports", "--json", root=root).stdout)
    assert outcome["counts"] == {"FAILED": 4, "COMPLETED": 1}
    assert attempts(root) == [("a", 1), ("b", 1), ("c", 2), ("d", 1), ("e", 1)]
    assert {job.environment[failures.RETRIED_CODES] for job in machine.jobs} == {"2,17"}


MODELS = "from pathlib import Path; from jestlab.models.data"


def caught(source: str, **names) -> BaseException:
    try:
        exec(source, names)
    except BaseException as error:
        return error
    raise AssertionError("raised nothing")


@pytest.mark.parametrize(
    ("source", "again"),
    [
        ("1 + 'a'", False),
        ("import no_such_module_at_all", False),
        ("open('/no/such/file')", False),
        ("import sys; sys.exit(2)", False),
        ("from jestlab.models.data.filters import Filter; Filter.parse('(')", False),
        (f"{MODELS}.datasets import digest; digest(Path('/no'))", False),
        ("open('/lab/runs/a/state.json')", True),  # the lab may be away for a moment
        ("import sys; sys.exit(1)", True),
        ("raise ValueError('no such optimizer')", False),
        ("{}['lr']", False),
        ("assert 1 > 2", False),
        ("1 / 0", False),
        ("raise RuntimeError('diverged')", True),
        ("raise FloatingPointError('diverged')", True),
        ("raise MemoryError", True),
        ("raise ConnectionResetError(104, 'reset')", True),
        ("raise OSError(28, 'No space left on device')", True),
        ("raise RuntimeError('RESOURCE_EXHAUSTED: Out of memory')", True),
        ("raise TypeError('UNAVAILABLE: the server')", True),
        ("try:\n    raise ConnectionError\nexcept OSError as error:\n    error.text", True),
        ("try:\n    raise ConnectionError\nexcept OSError as error:\n    raise TypeError from error", True),
        ("try:\n    raise KeyError\nexcept KeyError as error:\n    error.text", False),
    ],
)
def test_which_exceptions_come_again(source, again):
    assert recurs(caught(source), LAB) is not again
    assert recurs(UserError("no such folder"), LAB) and not recurs(StoreUnreachable("locked"), LAB)


HEADER = "Traceback (most recent call last):\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
TRACE = HEADER + '  File "train.py", line 5, in <module>\n    train(1)\n'


@pytest.mark.parametrize(
    ("code", "output", "again"),
    [
        (2, "usage: train.py", False),
        (127, "named by the spec", True),
        (126, "", False),
        (1, TRACE + "TypeError: no\n", False),
        (1, TRACE + "KeyError: 'lr'\n", False),
        (1, "epoch 1\n" + TRACE + "ModuleNotFoundError: No module named 'troch'\n", False),
        (1, TRACE + "FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'\n", False),
        (1, '  File "train.py", line 1\n    x =\n       ^\nSyntaxError: invalid syntax\n', False),
        (1, TRACE + "TypeError: no\nlast words of another process\n", True),
        (1, TRACE + "torch.OutOfMemoryError: CUDA out of memory\n", True),
        (
            1,
            TRACE + "requests.ConnectionError: no\n" + DURING + TRACE + "TypeError: no\n",
            True,
        ),
        (1, TRACE + "FileNotFoundError: [Errno 2] No such file: '/lab/runs/a/state'\n", True),
        (1, "TypeError: no\n", True),  # not a traceback
        (1, "", True),
        (3, TRACE + "TypeError: no\n", True),  # caught, and another code chosen
        (-9, "", True),
    ],
)
def test_which_ends_of_commands_come_again(monkeypatch, code, output, again):
    monkeypatch.setenv(failures.RETRIED_CODES, "17,127")
    assert exit_recurs(code, output, LAB) is not again


def test_when_runs_fail_alike():
    failed = dict.fromkeys("abc", RunState.FAILED)
    reasons = {run: f"exit code 1: step {number} | no /lab/{run}" for number, run in enumerate("abcd")}
    same = "no /lab/a (exit code 1)"
    assert common_reason(failed, reasons, ()) == same
    assert common_reason({"a": RunState.FAILED, "b": RunState.FAILED}, reasons, ()) is None
    assert common_reason(failed, reasons | {"c": "exit code 1: something else"}, ()) is None
    assert common_reason(failed | {"d": RunState.COMPLETED}, reasons, ()) is None
    assert common_reason(failed | {"d": RunState.COMPLETED}, reasons, {"d"}) == same  # a reference
    assert common_reason(failed | {"d": RunState.SKIPPED}, reasons, ()) == same
    objects = {run: f"TypeError: <f at 0x7f3{run}8d> failed" for run in failed}
    assert common_reason(failed, objects, ()) == objects["a"]
