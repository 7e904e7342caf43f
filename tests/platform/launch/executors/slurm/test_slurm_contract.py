"""What every executor promises, held by Slurm: real jobs on two nodes."""

import pytest
from executor_harnesses import MARKS
from slurm_support import wait_until

from jestlab.platform.contracts.executors import CASES, _Obedient, _over
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.executor import ExecutorAway, ExecutorError, JobState, LaunchedJob
from jestlab.platform.launch.executors.slurm import Slurm

NAME = "jestlab-0a1b2c3d-1"


@pytest.fixture
def harness(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    made = _Obedient(lambda lab, resources, on_exit: Slurm(lab, resources), {}, tmp_path)
    yield made
    made.close()


@pytest.fixture
def started(harness):
    """A job that runs, and its executor."""
    executor = harness.executor()
    launched = executor.launch(harness.job(NAME))
    harness.run(launched)
    return executor, launched


def status(executor, job):
    return executor.statuses([job])[job]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_every_executor_promises(harness, case):
    case(harness)


@pytest.mark.parametrize(("code", "known_as"), [(1, 1), (143, 143), (137, -9)])
def test_a_job_that_fails_says_how_its_process_ended(harness, started, code, known_as):
    executor, job = started
    harness.end(job, code)
    ended = _over(executor, job)
    assert (ended.state, ended.exit_code) == (JobState.FAILED, known_as)
    assert ended.reason


@pytest.mark.parametrize("field", ["store", "fingerprint", "attempt", "token"])
def test_a_job_without_the_marks_is_neither_watched_nor_stopped_nor_read(harness, started, field):
    executor, job = started
    other = {"attempt": 2}.get(field, "0f" * (32 if field == "fingerprint" else 16))
    forged = LaunchedJob(job.handle, job.marks._replace(**{field: other}))
    assert status(executor, forged).state == JobState.GONE
    assert "another attempt's" in status(executor, forged).reason
    for now in (False, True):
        executor.stop(forged, now=now)
    with pytest.raises(ExecutorError):
        b"".join(executor.logs(forged))
    assert status(executor, job).state == JobState.RUNNING


def test_a_launch_whose_answer_is_lost_is_one_job(harness, slurm, monkeypatch):
    """The first `sbatch` submits the job, and its answer does not come."""
    executor = harness.executor()._own
    run = executor._tools.run
    lost: list[str] = []

    def losing(*command, **options):
        said = run(*command, **options)
        if command[0] == "sbatch" and not lost:
            lost.append(said)
            raise ExecutorAway("sbatch has not answered")
        return said

    monkeypatch.setattr(executor._tools, "run", losing)
    job = executor.launch(harness.job(NAME))
    assert lost
    assert list(slurm.jobs()) == [job.handle.split(":")[1]] == [lost[0].strip()]


def test_where_no_controller_answers_a_job_is_unknown_and_calls_are_errors(harness, started, slurm):
    _, job = started
    executor = harness.executor()
    status(executor, job)  # knows its cluster
    slurm.wait_until_saved()
    slurm.kill("slurmctld")
    try:
        told = status(executor, job)
        assert (told.state, bool(told.reason)) == (JobState.UNKNOWN, True)
        for call in (
            lambda: executor.stop(job, now=False),
            lambda: executor.launch(harness.job(f"{NAME}0")),
        ):
            with pytest.raises(ExecutorAway) as raised:
                call()
            assert "\n" not in str(raised.value)
    finally:
        slurm.begin("slurmctld")
        slurm.wait_until_answers()
    wait_until(lambda: status(executor, job).state == JobState.RUNNING)


def test_the_job_of_another_cluster_is_unknown(harness, started):
    executor, job = started
    elsewhere = job._replace(handle=f"other:{job.handle.partition(':')[2]}")
    told = status(executor, elsewhere)
    assert (told.state, "cluster other" in told.reason) == (JobState.UNKNOWN, True)
    with pytest.raises(ExecutorAway, match="cluster other"):
        executor.stop(elsewhere, now=True)


def test_a_handle_of_something_else_is_unknown(harness):
    executor = harness.executor()
    something = LaunchedJob("pid 4711", MARKS)
    assert status(executor, something).state == JobState.UNKNOWN
    with pytest.raises(ExecutorError, match=r"'pid 4711' is not a handle of slurm"):
        executor.stop(something, now=True)


def test_many_are_launched_by_one_command_and_found_again(harness, slurm, monkeypatch):
    executor = harness.executor()._own
    run, called = executor._tools.run, []

    def counting(*command, **options):
        called.append(command[0])
        return run(*command, **options)

    monkeypatch.setattr(executor._tools, "run", counting)
    jobs = [harness.job(f"jestlab-many-{number}") for number in range(300)]
    launched = executor.launch_all(jobs)
    assert called.count("sbatch") == 1
    assert len({job.handle for job in launched}) == 300
    assert len(slurm.jobs()) == 300
    states = executor.statuses(launched)
    assert {told.state for told in states.values()} <= {JobState.QUEUED, JobState.RUNNING}
    again = harness.executor()._own
    monkeypatch.setattr(again._tools, "run", counting)
    assert again.launch_all(jobs) == launched
    assert called.count("sbatch") == 1
    assert again.launch(jobs[7]) == launched[7]
    last = launched[-1]
    again.stop(last, now=False)
    assert status(executor, last).state.is_over  # Slurm forgets a task of an array that never began
    assert status(executor, launched[-2]).state == JobState.QUEUED


def test_an_array_is_no_longer_than_the_cluster_allows(harness, slurm, monkeypatch):
    executor = harness.executor()._own
    executor._setting("ClusterName", "")
    monkeypatch.setattr(executor, "_config", {**executor._config, "MaxArraySize": "4"})
    launched = executor.launch_all([harness.job(f"jestlab-few-{number}") for number in range(7)])
    ids = [job.handle.split(":")[1] for job in launched]
    assert [id_.partition("_")[2] for id_ in ids] == ["0", "1", "2", "0", "1", "2", ""]
    assert set(ids) == set(slurm.jobs())


def test_what_cannot_run_is_refused_in_one_line(harness, tmp_path, slurm):
    from jestlab.platform.spec.resources import Resources
    from jestlab.platform.spec.slurm import Slurm as Options

    executor = Slurm(Lab.find(tmp_path / "lab"), Resources(), Options(partition="nope"))
    with pytest.raises(ExecutorError, match=r"invalid partition specified: nope.*sinfo") as raised:
        executor.launch(harness.job(NAME))
    assert not isinstance(raised.value, ExecutorAway)
    assert str(raised.value).startswith("quickstart joint, seed 1 was not launched: ")
    assert "\n" not in str(raised.value)
    assert not slurm.jobs()
