"""Custom executors: the contract test, options, errors, and launches."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import labs_support as labs
import own_executors as own
import pytest
import yaml

from jestlab import testing
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import executors, session
from jestlab.platform.launch.executors.base import ExecutorError, JobState, LaunchedJob
from jestlab.platform.spec.load import load
from jestlab.platform.spec.resources import Resources
from jestlab.testing import executors as contract

SOURCE = Path(own.__file__)
SCRIPT = """
import json, os
print("niceness", os.nice(0), flush=True)
with open(os.environ["JESTLAB_REPORTS"], "w") as reports:
    reports.write(json.dumps({"type": "evaluation", "step": 1, "scores": {"toy/score": 0.5}}) + chr(10))
"""


# ---- the contract


@pytest.mark.parametrize(
    ("executor", "options"),
    [(own.Wrapped, {"command": "nice -n 5 {worker}"}), (own.Plain, {"say": "x"})],
    ids=["wrapped", "from the interface"],
)
def test_executors_pass(executor, options):
    testing.check_executor(executor, **options)


LATE = pytest.mark.full
"""For executors with which the check waits until its patience is over."""


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        pytest.param(own.NoStop, "asked to stop ends; .*: after .* it has not ended: running", marks=LATE),
        pytest.param(own.Silent, "reads its log, .*: after .* its log is '', not 'step 1", marks=LATE),
        (own.Twice, "finds its job and doesn't start a second one: .* became"),
        (own.AnyMarks, "another key .*: its state is running, not gone"),
        (own.Failing, "launch of the executor Failing fails: KeyError: 'no such queue'"),
    ],
)
def test_bad_executors_fail_the_contract_test(executor, message, monkeypatch):
    monkeypatch.setattr(contract, "_PATIENCE_SECONDS", 5.0)  # a busy machine starts slowly
    with pytest.raises(AssertionError, match=message):
        testing.check_executor(executor)


# ---- by name


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab.find(tmp_path / "lab")


def test_options_of_the_study_come_after_those_of_the_settings(lab, monkeypatch):
    made = []
    monkeypatch.setattr(own.Plain, "__init__", lambda self, *args, **options: made.append((args, options)))
    name = f"{SOURCE}:Plain"
    settings = Settings(executors={name: {"say": "a", "account": "ours"}})
    monkeypatch.setattr("jestlab.models.extensions.load", lambda kind, given: own.Plain)
    executor = executors.get(name, Resources(on=name, options={"say": "b"}), settings, lab)
    assert (executor.name, executor.here, executor.parallel) == (name, False, None)
    assert made[0][1] == {"say": "b", "account": "ours"} and made[0][0][1] is not None
    executors.get(name, None, settings, lab)
    assert made[1][1] == {"say": "a", "account": "ours"} and made[1][0][1] is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Gone", r"no 'Gone' in .*own_executors.py"),
        ("shlex", r"the executor .*:shlex can't be created: TypeError: 'module' object is not callable"),
        ("Sequence", "can't be created: TypeError"),
        ("contextlib.suppress", "is a suppress, not an Executor"),
    ],
)
def test_a_wrong_executor_is_one_line(lab, name, message):
    reference = f"{SOURCE}:{name}"
    with pytest.raises(UserError, match=message) as caught:
        executors.get(reference, Resources(on=reference), Settings(), lab)
    assert "\n" not in str(caught.value)


def test_exceptions_of_an_executor_are_one_line(lab):
    reference = f"{SOURCE}:Failing"
    executor = executors.get(reference, Resources(), Settings(), lab)
    with pytest.raises(
        ExecutorError, match=r"launch of the executor .*Failing fails: KeyError: 'no such queue'"
    ):
        executor.launch(None)  # type: ignore[arg-type]
    job = LaunchedJob("not a handle", contract.key_of("x"))
    assert executor.statuses([job])[job].state is JobState.UNKNOWN
    assert executor.room() is None and executor.render(None) is None  # type: ignore[arg-type]
    executor.close()


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"on": "kubernets"}, "did you mean 'kubernetes'"),
        ({"on": "mine"}, "valid: local, vertex, kubernetes, slurm; custom code: package.module:name"),
        ({"on": "local", "options": {"x": 1}}, "local is not a custom executor: leave out `options`"),
    ],
)
def test_wrong_executors_in_a_spec(tmp_path, resources, message):
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"runs": {"a": {}}, "resources": resources}))
    with pytest.raises(UserError, match=message):
        load(str(path))


# ---- a launch


@pytest.mark.parametrize(
    ("shares_folders", "file_system", "message"),
    [
        (False, None, "jobs on mine cannot reach the SQLite file .*results.db: give --store postgresql"),
        (True, "nfs4", "results.db is on a network file system .nfs4., where SQLite is not safe"),
        (True, None, None),
    ],
)
def test_only_jobs_that_share_folders_may_use_sqlite(
    tmp_path, monkeypatch, shares_folders, file_system, message
):
    monkeypatch.setattr(session, "network_file_system", lambda path: file_system)
    lab = Lab.find(tmp_path)
    executor = SimpleNamespace(name="mine", here=False, shares_folders=shares_folders)
    if message is None:
        session._check_store(lab, executor)
    else:
        with pytest.raises(UserError, match=message):
            session._check_store(lab, executor)


def test_a_study_is_launched_by_it_and_its_logs_are_found(tmp_path, root, unrecorded):
    (tmp_path / "score.py").write_text(SCRIPT)
    (tmp_path / "own_executors.py").write_text(SOURCE.read_text())
    resources = {"on": "own_executors.py:Wrapped", "options": {"command": "nice -n 7 {worker}"}, "retries": 0}
    program = {"program": "command", "base": {"command": ["python", "score.py"]}, "runs": {"a": {}}}
    study = tmp_path / "study.yaml"
    study.write_text(yaml.safe_dump({"name": "niced", **program, "resources": resources}))
    for command in (("plan", study), ("launch", study, "--no-reports"), ("logs", "niced/a")):
        done = labs.here(*command, root=root)
        assert done.returncode == 0, done.stdout + done.stderr
    niceness = min(os.nice(0) + 7, 19)  # tests may run under `nice`
    assert f"niceness {niceness}" in done.stdout
    query = "SELECT DISTINCT executor, state FROM v_attempts"
    assert json.loads(labs.here("query", query, "--json", root=root).stdout) == [
        {"executor": f"{tmp_path}/own_executors.py:Wrapped", "state": "COMPLETED"}
    ]
