"""Failures: which are tried again, which fail a run at once, and when a whole launch stops."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

import labs_support as labs
import pytest
import yaml

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import failures
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executor import Executor, Job, JobState, JobStatus, LaunchedJob
from jestlab.platform.launch.failures import alike, exit_recurs, recurs
from jestlab.platform.launch.options import Options
from jestlab.platform.launch.processes import EXIT_REFUSED
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.spec.schema import Study
from jestlab.platform.store import claims, leases
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

LAB = Path("/lab")
FAULTY = """
import sys
print("epoch 1")
def train(x):
    return x + "a"
train(int(sys.argv[1]))
"""


def attempts(root: Path) -> list[int]:
    rows = sqlite3.connect(root / "results.db").execute("SELECT attempts FROM v_runs WHERE attempts > 0")
    return [count for (count,) in rows]


def study(folder: Path, script: str, runs: int, **parts) -> Path:
    """A study of a script of the user's own, which gets the number of the run."""
    (folder / "train.py").write_text(script)
    written = {
        "program": "command",
        "base": {"command": ["python", "train.py", "{number}"], "cwd": "."},
        "runs": {f"run{number}": {"number": number} for number in range(runs)},
    }
    path = folder / "own.yaml"
    path.write_text(yaml.safe_dump(written | parts))
    return path


def test_a_fault_of_the_program_is_not_tried_again_and_stops_a_launch_of_nothing_else(root, tmp_path):
    done = labs.here("launch", study(tmp_path, FAULTY, 6), "--parallel", 1, "--no-reports", root=root)
    assert done.returncode == 1
    assert "not tried again: exit code 1: " in done.stdout
    reason = "TypeError: unsupported operand type(s) for +: 'int' and 'str'"
    [line] = [line for line in done.stdout.splitlines() if line.startswith("stopped: ")]
    where = f'File "{tmp_path}/train.py", line 5, in train | return x + "a"'
    said = f"exit code 1: {where} | {reason}"
    assert line == (f"stopped: 3 runs failed alike: {said}; mend it and launch again, or --keep-going")
    assert "jestlab retry" not in done.stdout  # it would fail again
    assert set(attempts(root)) == {1}
    assert len(attempts(root)) == 3
    status = labs.here("status", "own", root=root).stdout
    assert "not tried again: " in status
    assert "CANCELLED" in status


class Racing(Executor):
    """One slot, and jobs whose workers say that they failed just after the launcher has looked at them."""

    name = "kubernetes"
    chips = 0

    def __init__(self, store: Store) -> None:
        self.store = store
        self.launched: list[str] = []

    @property
    def parallel(self) -> int:  # type: ignore[override]
        """What a launcher asks for when it looks for free slots."""
        running = claims.holding(self.store, self.name, None)
        refused = (RunState.FAILED, "TypeError: no", EXIT_REFUSED)
        leases.end_all(self.store, (leases.Ending(run.fingerprint, run.id, *refused) for run in running))
        return 1

    def launch(self, job: Job) -> LaunchedJob:
        self.launched.append(job.name)
        return LaunchedJob(job.name, job.marks)

    def statuses(self, jobs: Sequence[LaunchedJob]) -> dict[LaunchedJob, JobStatus]:
        return dict.fromkeys(jobs, JobStatus(JobState.RUNNING))

    def stop(self, job: LaunchedJob, *, now: bool) -> None:
        raise AssertionError("nothing is to be stopped")

    def logs(self, job: LaunchedJob) -> Iterator[bytes]:
        yield b""


def test_a_failure_counts_before_its_slot_is_given_away(root, tmp_path):
    planned = plan(load(str(labs.write_study(tmp_path, runs={"uniform": {}}, seeds=6))))
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    try:
        store.record(planned)
        executor = Racing(store)
        outcome = launch(lab, store, "toy", planned.runs, lambda _: executor, options=Options("kubernetes"))
    finally:
        store.close()
    assert outcome.stopped == "3 runs failed alike: TypeError: no"
    assert len(executor.launched) == failures.ALIKE


def test_keep_going(root, tmp_path):
    spec = study(tmp_path, FAULTY, 5)
    done = labs.here("launch", spec, "--keep-going", "--no-reports", "--json", root=root)
    outcome = json.loads(done.stdout)
    assert outcome["counts"] == {"FAILED": 5}
    assert outcome["stopped"] is None
    assert attempts(root) == [1] * 5
    both = labs.here("launch", spec, "--keep-going", "--fail-fast", root=root)
    assert both.returncode == 2


def test_a_launch_goes_on_where_some_runs_complete(root, tmp_path):
    script = "import sys\nif sys.argv[1] != '0': raise TypeError('no')\n"
    spec = study(tmp_path, script, 5, resources={"parallel": 1})
    outcome = json.loads(labs.here("launch", spec, "--no-reports", "--json", root=root).stdout)
    assert outcome["counts"] == {"FAILED": 4, "COMPLETED": 1}


def test_exit_codes_that_the_spec_names_are_tried_again(root, tmp_path):
    script = "import sys; sys.exit(17 if sys.argv[1] == '0' else 2)"
    spec = study(tmp_path, script, 2, resources={"retries": 1, "retry_exit_codes": [2]})
    assert labs.here("launch", spec, "--no-reports", root=root).returncode == 1
    assert attempts(root) == [2, 2]
    spec = study(tmp_path, script, 2, resources={"retries": 1}, name="other", base={
        "command": ["python", "train.py", "{number}"], "cwd": ".", "version": 2
    })  # fmt: skip
    labs.here("launch", spec, "--no-reports", root=root)
    counts = "SELECT attempts FROM v_runs WHERE experiment = 'other' ORDER BY run"
    assert sqlite3.connect(root / "results.db").execute(counts).fetchall() == [(2,), (1,)]


def test_a_function_that_fails_by_its_own_fault_is_not_tried_again(root, tmp_path):
    runs = {"a": {"program": "json:loads"}, "b": {"fail_at": 3}}  # called with a config and a context
    spec = labs.write_study(tmp_path, runs=runs, resources={"retries": 1})
    done = labs.here("launch", spec, "--no-reports", root=root)
    assert "not tried again: TypeError: loads() takes 1 positional argument" in done.stdout
    counts = "SELECT run, attempts FROM v_runs ORDER BY run"
    assert sqlite3.connect(root / "results.db").execute(counts).fetchall() == [("a", 1), ("b", 2)]


def test_the_codes_are_whole_numbers_and_part_of_the_resolved_spec():
    written = {"name": "own", "runs": {"a": {}}, "resources": {"retry_exit_codes": [17, 75]}}
    assert Study.parse(written).to_dict()["resources"] == {"retry_exit_codes": [17, 75]}
    with pytest.raises(UserError, match=r"resources\.retry_exit_codes.* 255"):
        Study.parse(written | {"resources": {"retry_exit_codes": [256]}})


MODELS = "from pathlib import Path; from jestlab.models.data"


def caught(source: str, **names) -> BaseException:
    """What a program raises."""
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
        ("unknown_name", False),
        ("None.steps", False),
        ("compile('x =', 'file.py', 'exec')", False),
        ("open('/no/such/file')", False),
        ("import sys; sys.exit(2)", False),
        ("from jestlab.models.data.filters import Filter; Filter.parse('(')", False),
        (f"{MODELS}.datasets import digest; digest(Path('/no'))", False),
        (f"{MODELS}.benchmarks import load_benchmark; load_benchmark(Path('/no'), 32)", False),
        (f"{MODELS}.tokenizer import train_tokenizer; train_tokenizer(['a'], 2)", False),
        ("open('/lab/runs/a/state.json')", True),  # the lab may be away for a moment
        ("import sys; sys.exit(1)", True),
        ("raise ValueError('diverged')", True),
        ("raise MemoryError", True),
        ("raise ConnectionResetError(104, 'reset')", True),
        ("raise TimeoutError", True),
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


def test_what_users_have_to_fix_comes_again_and_a_store_that_is_away_does_not():
    assert recurs(UserError("no such folder"), LAB)
    assert not recurs(StoreUnreachable("locked"), LAB)


HEADER = "Traceback (most recent call last):\n"
WHERE = '  File "train.py", line 5, in <module>\n    train(1)\n'


@pytest.mark.parametrize(
    ("code", "output", "again"),
    [
        (2, "usage: train.py", False),
        (126, "", False),
        (127, "sh: train: not found", False),
        (1, HEADER + WHERE + "TypeError: no\n", False),
        (1, "epoch 1\n" + HEADER + WHERE + "ModuleNotFoundError: No module named 'troch'\n", False),
        (1, HEADER + WHERE + "FileNotFoundError: [Errno 2] No such file or directory: 'a.csv'\n", False),
        (1, '  File "train.py", line 1\n    x =\n       ^\nSyntaxError: invalid syntax\n', False),
        (1, HEADER + WHERE + "NotImplementedError\n", False),
        (1, HEADER + WHERE + "ValueError: diverged\n", True),
        (1, HEADER + WHERE + "TypeError: no\nlast words of another process\n", True),
        (1, HEADER + WHERE + "torch.OutOfMemoryError: CUDA out of memory\n", True),
        (
            1,
            HEADER + WHERE + "requests.ConnectionError: no\n\nDuring handling of the above exception, "
            "another exception occurred:\n\n" + HEADER + WHERE + "TypeError: no\n",
            True,
        ),
        (1, HEADER + WHERE + "FileNotFoundError: [Errno 2] No such file: '/lab/runs/a/state'\n", True),
        (1, "TypeError: no\n", True),  # not a traceback
        (1, "", True),
        (3, HEADER + WHERE + "TypeError: no\n", True),  # caught, and another code chosen
        (-9, "", True),
        (137, "", True),
    ],
)
def test_which_ends_of_commands_come_again(code, output, again):
    assert exit_recurs(code, output, LAB) is not again


def test_named_codes_win(monkeypatch):
    monkeypatch.setenv(failures.RETRIED_CODES, "2,17")
    assert not exit_recurs(2, "", LAB)
    assert exit_recurs(127, "", LAB)


def test_when_runs_fail_alike():
    failed = dict.fromkeys("abc", RunState.FAILED)
    reasons = {run: f"exit code 1: step {number} | no /lab/{run}" for number, run in enumerate("abcd")}
    assert alike(failed, reasons, ()) == reasons["a"]
    assert alike({"a": RunState.FAILED, "b": RunState.FAILED}, reasons, ()) is None
    assert alike(failed, reasons | {"c": "exit code 1: something else"}, ()) is None
    assert alike(failed | {"d": RunState.COMPLETED}, reasons, ()) is None
    assert alike(failed | {"d": RunState.COMPLETED}, reasons, {"d"}) == reasons["a"]  # a reference
    assert alike(failed | {"d": RunState.SKIPPED}, reasons, ()) == reasons["a"]
