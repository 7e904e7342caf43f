"""Jobs of a real Slurm cluster, beyond the contract of executors: arrays, refusals, secrets."""

import pytest

from jestlab.platform.launch.executors.base import ExecutorUnavailable, JobState


def counting(executor, monkeypatch):
    """Return a list to which the names of the commands are added that an executor runs."""
    run, called = executor._run, []

    def counted(*command, **options):
        called.append(command[0])
        return run(*command, **options)

    monkeypatch.setattr(executor, "_run", counted)
    return called


def test_many_are_launched_by_one_command_and_found_again(slurm_harness, slurm, monkeypatch):
    executor, again = slurm_harness.executor(), slurm_harness.executor()
    called = counting(executor, monkeypatch)
    jobs = [slurm_harness.job(f"jestlab-many-{number}") for number in range(300)]
    launched = executor.launch_all(jobs)
    assert called.count("sbatch") == 1
    assert len({job.handle for job in launched}) == 300
    assert len(slurm.jobs()) == 300
    assert {status.state for status in executor.statuses(launched).values()} == {JobState.QUEUED}
    assert len(called) < 10  # however many jobs there are
    called = counting(again, monkeypatch)
    assert again.launch_all(jobs) == launched
    assert again.launch(jobs[7]) == launched[7]
    assert "sbatch" not in called
    again.stop(launched[-1], now=False)
    assert executor.statuses(launched[-1:])[launched[-1]].state.is_over  # Slurm forgets one that never began
    assert executor.statuses(launched[-2:-1])[launched[-2]].state == JobState.QUEUED


def test_an_array_is_no_longer_than_the_cluster_allows(slurm_harness, slurm, monkeypatch):
    executor = slurm_harness.executor()
    monkeypatch.setattr(executor, "_config", {**executor._config, "MaxArraySize": "4"})
    launched = executor.launch_all([slurm_harness.job(f"jestlab-few-{number}") for number in range(7)])
    ids = [job.handle.split(":")[1] for job in launched]
    assert [id_.partition("_")[2] for id_ in ids] == ["0", "1", "2", "0", "1", "2", ""]
    assert set(ids) == set(slurm.jobs())


def test_the_job_of_another_cluster_is_unknown(slurm_harness, slurm):
    executor = slurm_harness.executor()
    job = executor.launch(slurm_harness.job("jestlab-0a1b2c3d-1"))
    elsewhere = job._replace(handle=f"other:{job.handle.partition(':')[2]}")
    status = executor.statuses([elsewhere])[elsewhere]
    assert (status.state, "cluster other" in status.reason) == (JobState.UNKNOWN, True)
    with pytest.raises(ExecutorUnavailable, match="cluster other"):
        executor.stop(elsewhere, now=True)
    assert list(slurm.jobs().values()) == ["PENDING"]


def test_files_with_secrets_are_private_and_removed_once_the_job_has_read_them(
    slurm_harness, slurm, tmp_path
):
    job = slurm_harness.job("jestlab-0a1b2c3d-1")
    launched = slurm_harness.executor().launch(job)
    [secret] = (tmp_path / "lab" / "slurm").glob("*/0.sh")
    assert "correct-horse" in secret.read_text()
    assert secret.stat().st_mode & 0o077 == 0
    assert secret.parent.stat().st_mode & 0o077 == 0
    slurm_harness.run(launched)
    files = [file for file in (tmp_path / "lab" / "slurm").rglob("*") if file.is_file()]
    assert files
    for word in ("correct-horse", job.key.token):
        assert not [file for file in files if word in file.read_text()]
    assert job.key.token not in slurm_harness.shown()
