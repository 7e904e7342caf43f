"""Many jobs are one array of Slurm, as long as the cluster allows."""

from jestlab.platform.launch.executor import JobState


def counting(executor, monkeypatch):
    """Count the commands that an executor runs; return the names of them."""
    run, called = executor._tools.run_once, []

    def counted(*command, **options):
        called.append(command[0])
        return run(*command, **options)

    monkeypatch.setattr(executor._tools, "run_once", counted)
    return called


def test_many_are_launched_by_one_command_and_found_again(slurm_harness, slurm, monkeypatch):
    harness = slurm_harness
    executor, again = harness.executor(), harness.executor()
    called = counting(executor, monkeypatch)
    jobs = [harness.job(f"jestlab-many-{number}") for number in range(300)]
    launched = executor.launch_all(jobs)
    assert called.count("sbatch") == 1
    assert len({job.handle for job in launched}) == 300
    assert len(slurm.jobs()) == 300
    assert {told.state for told in executor.statuses(launched).values()} == {JobState.QUEUED}
    assert len(called) < 10  # however many there are
    called = counting(again, monkeypatch)
    assert again.launch_all(jobs) == launched
    assert again.launch(jobs[7]) == launched[7]
    assert "sbatch" not in called
    again.stop(launched[-1], now=False)
    assert executor.statuses(launched[-1:])[launched[-1]].state.is_over  # Slurm forgets one that never began
    assert executor.statuses(launched[-2:-1])[launched[-2]].state == JobState.QUEUED


def test_an_array_is_no_longer_than_the_cluster_allows(slurm_harness, slurm, monkeypatch):
    executor = slurm_harness.executor()
    executor._setting("ClusterName", "")
    monkeypatch.setattr(executor, "_config", {**executor._config, "MaxArraySize": "4"})
    launched = executor.launch_all([slurm_harness.job(f"jestlab-few-{number}") for number in range(7)])
    ids = [job.handle.split(":")[1] for job in launched]
    assert [id_.partition("_")[2] for id_ in ids] == ["0", "1", "2", "0", "1", "2", ""]
    assert set(ids) == set(slurm.jobs())
