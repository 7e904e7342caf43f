"""What Slurm is asked for, and the script of a job."""

import functools
import shlex
import subprocess
from pathlib import Path

import pytest
from executor_harnesses import KEY, job
from pydantic import ValidationError

from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors import slurm, slurm_batch
from jestlab.platform.launch.executors.base import ExecutorError, LaunchedJob
from jestlab.platform.launch.executors.slurm_batch import batch_of
from jestlab.platform.spec.resources import Resources, SlurmOptions

FOLDER = Path("/lab/slurm/abc")


def options(count=1, slurm=None, **resources):
    given = Resources(**resources), SlurmOptions(**(slurm or {}))
    return slurm_batch.sbatch_options("name", "comment", FOLDER, count, *given)


def script(folder=FOLDER, slurm=None, **resources):
    return slurm_batch.script(folder, Resources(**resources), SlurmOptions(**(slurm or {})))


SITE = {"partition": "gpu", "account": "lab", "qos": "long", "constraint": "a100&nvlink", "exclusive": True}
PLAIN = (
    "--job-name=name --comment=comment --chdir=/lab/slurm/abc --output=/lab/slurm/abc/0.out"
    " --open-mode=append --nodes=1 --ntasks-per-node=1 --cpus-per-task=1 --signal=B:USR1@120 --no-requeue"
)


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        ({}, ""),
        ({"count": 300}, "--array=0-299 --output=/lab/slurm/abc/%a.out"),
        ({"nodes": 2, "threads": 8}, "--nodes=2 --cpus-per-task=8"),
        ({"gpus": 4, "memory_gb": 64}, "--mem=61035M --gpus-per-node=4"),
        ({"gpus": 2, "slurm": {"gres": "gpu:a100"}}, "--gres=gpu:a100:2"),
        # Slurm rounds minutes up; a job is asked to stop before its limit.
        ({"time": "60s"}, "--signal=B:USR1@20 --time=1"),
        ({"time": "610s"}, "--signal=B:USR1@61 --time=11"),
        ({"time": "1d"}, "--time=1440"),
        ({"slurm": SITE}, "--partition=gpu --account=lab --qos=long --constraint=a100&nvlink --exclusive"),
        ({"slurm": {"options": ("--reservation=x",)}}, "--reservation=x"),
    ],
)
def test_what_is_asked_for_becomes_options_and_the_rest_is_left_to_the_site(asked, more):
    found = options(**asked)
    assert set(found) - set(PLAIN.split()) == set(more.split())
    assert len(found) == len(set(found)) >= len(PLAIN.split())


def test_logs_are_found_without_slurm(tmp_path):
    executor, batch = slurm.SlurmExecutor(Lab.find(tmp_path), Resources()), batch_of([KEY])
    for number, said in ((0, "no log: .*No such file"), (1, "no log: .*another attempt")):
        with pytest.raises(ExecutorError, match=said) as raised:
            next(executor.logs(LaunchedJob(f"c:4:{batch}.{number}:nothing.txt", KEY)))
        assert raised.type is ExecutorError  # it would be in vain to try again


SEVERAL = "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=2"


@pytest.mark.parametrize(
    ("asked", "parts"),
    [
        ({}, ['"${arguments[@]}" &', "stop TERM"]),
        ({"slurm": {"python": "/opt/python"}}, ["/opt/python"]),
        (
            {"slurm": {"setup": ("module load cuda", "source env.sh")}},
            ["\nmodule load cuda\nsource env.sh\n"],
        ),
        ({"nodes": 3, "threads": 2}, [SEVERAL, "JAX_PROCESS_ID=$SLURM_PROCID", "JAX_COORDINATOR_ADDRESS"]),
    ],
)
def test_what_the_site_and_the_study_say_is_in_the_script(asked, parts):
    text = script(**asked)
    assert not [part for part in parts if part not in text]
    assert ("JAX_" in text) == ("nodes" in asked)
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_a_rendered_script_runs_by_hand_once_the_store_is_given(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$JESTLAB_STORE $OMP_NUM_THREADS $*"\n')
    python.chmod(0o755)
    executor = slurm.SlurmExecutor(lab, Resources(threads=3), SlurmOptions(python=str(python)))
    text = executor.render(job(log=lab.root / "runs/joint/log.txt"))
    assert "#SBATCH --cpus-per-task=3\n" in text and "correct-horse" not in text
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    run = functools.partial(subprocess.run, ["bash", "-c", text], timeout=60)
    assert run(env=environment).returncode != 0
    assert run(env=environment | {"JESTLAB_STORE": "the-store"}).returncode == 0
    printed = (lab.root / "runs/joint/log.txt").read_text()
    assert printed == f"the-store 3 -m {job().module} {' '.join(job().arguments)}\n"


def run_script(folder, program, late=""):
    """Run the script of a job whose worker is a program of Bash.

    Args:
        folder: Of the job.
        program: The worker's program; None for a job whose files have been removed.
        late: Executed before the script knows the worker's process.
    """
    text = script(folder, {"python": "bash"})
    (folder / "job").write_text(text.replace("child=$!", f"{late}child=$!"))
    if program is not None:
        words = shlex.join(["-c", program])
        (folder / "0.sh").write_text(f"log='{folder}/log.txt'\narguments=({words})\n")
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"}
    return subprocess.run(["bash", folder / "job"], env=environment, timeout=60).returncode


@pytest.mark.parametrize("code", [0, 137])
def test_the_exit_code_is_kept(tmp_path, code):
    assert run_script(tmp_path, f"echo said; exit {code}") == code
    assert (tmp_path / "0.end").read_text() == f"{code} 7\n"
    assert (tmp_path / "log.txt").read_text() == "said\n"
    assert not (tmp_path / "0.sh").exists()


def test_a_job_that_was_given_up_does_nothing(tmp_path):
    assert run_script(tmp_path, None) == 75


HEARS = "trap 'sleep 0.2; echo heard; exit 143' {0}; kill -s {0} $PPID; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("program", "late", "said"),
    [
        (HEARS.format("TERM"), "", "heard\n"),
        (HEARS.format("USR1"), "", "heard\n"),
        (HEARS.format("USR1"), "sleep 0.4; ", "heard\n"),
        # A worker that dies of the signal, for example before it has set its handlers, has not failed.
        ("kill -s USR1 $PPID; sleep 0.3; kill -s HUP $$", "", ""),
    ],
    ids=["TERM", "USR1", "early", "dies"],
)
def test_a_signal_is_passed_on_to_the_worker(tmp_path, program, late, said):
    """The exit code is the one of the worker that has saved, not the one of an interrupted shell."""
    assert run_script(tmp_path, program, late) == 143
    assert (tmp_path / "log.txt").read_text() == said


@pytest.mark.parametrize(
    "given",
    [
        {"partition": "gpu; rm -rf /"},
        {"setup": ("one\ntwo",)},
        {"options": ("--comment=mine",)},
        {"options": ("-p gpu",)},
        {"gres": "gpu:4"},
    ],
)
def test_rejects_what_slurm_would_misread(given):
    with pytest.raises(ValidationError):
        SlurmOptions(**given)


def test_a_study_overrides_the_settings():
    settings = Settings(slurm={"partition": "gpu", "account": "lab"}).slurm
    laid = SlurmOptions(partition="short", exclusive=True).laid_over(settings)
    assert (laid.partition, laid.account, laid.exclusive) == ("short", "lab", True)
