"""A cluster that can't be used refuses a launch in one line, before anything is written."""

import json
import socket

import labs_support as labs
import pytest
import yaml
from in_process import Scripted, launch_by, rows

from jestlab.platform.launch.executors.base import ExecutorError, JobState, JobStatus


@pytest.fixture
def unreachable(tmp_path, monkeypatch):
    """A kubeconfig whose server doesn't exist, and settings for launches there."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    user = {"name": "u", "user": {}}
    config = {"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "x"}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    location = "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(location, str(tmp_path / "kubeconfig"))
    section = {"store_secret": "jestlab-store/url", "root": "/lab"}
    settings = {"image": f"europe.pkg.dev/lab@sha256:{'0' * 64}", "kubernetes": section}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "settings.yaml"))
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")


def test_an_unreachable_cluster_refuses_24_runs_in_one_line(unreachable, tmp_path, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.session._check_store", lambda *_: None)  # as for PostgreSQL
    spec = labs.write_study(tmp_path, runs={"a": {}, "b": {}}, seeds=12)
    done = labs.here("launch", spec, "--on", "kubernetes", root=tmp_path / "lab")
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    assert "kubernetes can't launch jobs: the cluster can't be reached" in line
    assert not (tmp_path / "lab").exists()


@pytest.mark.parametrize(
    ("words", "study", "refused"),
    [
        (["--on", "local"], {}, "--detach=dependencies require --on slurm, not local"),
        (["--on", "slurm", "--parallel", "2"], {}, "parallel: requires a launcher"),
        (["--on", "slurm", "--fail-fast"], {"resources": {"parallel": 2}}, "parallel, fail_fast: requires"),
    ],
)
def test_what_requires_a_launcher_is_refused_without_one(root, tmp_path, words, study, refused):
    done = labs.here(
        "launch", labs.write_study(tmp_path, **study), "--detach=dependencies", *words, root=root
    )
    assert done.returncode == 1 and refused in done.stderr, done.stderr
    assert not root.exists()


class Rejecting(Scripted):
    """Accepts the check, and rejects all jobs."""

    def launch_all(self, jobs):
        self.batches.append(len(jobs))
        return [ExecutorError("not launched: sbatch: Invalid partition name specified") for _ in jobs]


def test_a_rejected_job_is_not_launched_again(root, tmp_path, unrecorded):
    executor = Rejecting(JobStatus(JobState.QUEUED))
    spec = labs.write_study(tmp_path, runs={"a": {}, "b": {"needs": ["a"]}}, seeds=24)
    outcome = launch_by(executor, root, spec, retries=2)
    assert executor.batches == [24]
    reasons = rows(root, "SELECT DISTINCT state, attempts, reason FROM v_runs WHERE run = 'a'")
    assert reasons == [("FAILED", 1, "not launched: sbatch: Invalid partition name specified")]
    assert {str(state) for state in outcome.states.values()} <= {"FAILED", "SKIPPED", "CANCELLED"}
    assert (
        outcome.stopped
        == "24 runs failed with the same error: not launched: sbatch: Invalid partition name specified"
    )
