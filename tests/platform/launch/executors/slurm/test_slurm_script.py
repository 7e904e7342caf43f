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


def options(count=1, resources=None, **slurm):
    return slurm_batch.sbatch_options(
        "name", "comment", FOLDER, count, resources or Resources(), SlurmOptions(**slurm)
    )


def script(resources=None, **slurm):
    return slurm_batch.script(FOLDER, Path("/lab"), resources or Resources(), SlurmOptions(**slurm))


def test_resources_become_options():
    resources = Resources(nodes=2, gpus=4, threads=8, memory_gb=64, time="4h")
    asked = options(
        1, resources, partition="gpu", account="lab", qos="long", constraint="a100&nvlink", exclusive=True
    )
    wanted = (
        "--nodes=2 --ntasks-per-node=1 --cpus-per-task=8 --gpus-per-node=4 --mem=61035M --time=240 "
        "--partition=gpu --account=lab --qos=long --constraint=a100&nvlink --exclusive "
        "--no-requeue --signal=B:USR1@120"
    )
    assert set(wanted.split()) <= set(asked)
    assert not [option for option in asked if option.startswith("--array")]


def test_what_is_not_said_is_left_to_the_site():
    said = " ".join(options())
    for name in ("--mem", "--time", "--partition", "--account", "--gpus", "--gres", "--exclusive"):
        assert name not in said
    assert "--array=0-299" in options(300)
    assert "--gres=gpu:a100:2" in options(1, Resources(gpus=2), gres="gpu:a100")
    assert "--reservation=x" in options(options=("--reservation=x",))


def test_logs_are_found_without_slurm(tmp_path):
    executor, batch = slurm.SlurmExecutor(Lab.find(tmp_path), Resources()), batch_of([KEY])
    for number, said in ((0, "no log: .*No such file"), (1, "no log: .*another attempt")):
        with pytest.raises(ExecutorError, match=said) as raised:
            next(executor.logs(LaunchedJob(f"c:4:{batch}.{number}:nothing.txt", KEY)))
        assert raised.type is ExecutorError  # it would be in vain to try again


@pytest.mark.parametrize(
    ("time", "minutes", "warning"), [("60s", 1, 20), ("610s", 11, 61), ("1d", 1440, 120)]
)
def test_a_job_is_asked_to_stop_before_its_limit(time, minutes, warning):
    """Slurm rounds minutes up."""
    assert {f"--time={minutes}", f"--signal=B:USR1@{warning}"} <= set(options(1, Resources(time=time)))


@pytest.mark.parametrize(
    ("slurm", "parts"),
    [
        ({}, ['"${arguments[@]}" &', "stop TERM"]),
        ({"python": "/opt/python"}, ["/opt/python"]),
        ({"setup": ("module load cuda", "source env.sh")}, ["\nmodule load cuda\nsource env.sh\n"]),
        (
            {"container": "nvcr.io#nvidia/jax", "mounts": ("/data:/data",)},
            ["srun --nodes=1", "='nvcr.io#nvidia/jax'", "/lab:/lab", "/data:/data", "python3", "USR2"],
        ),
        (
            {"container": "/images/jax.sif", "runtime": "apptainer"},
            ["apptainer exec --bind", "/images/jax.sif python3", "stop TERM"],
        ),
    ],
)  # fmt: skip
def test_what_the_site_says_is_in_the_script(slurm, parts):
    text = script(**slurm)
    assert not [part for part in parts if part not in text]
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_several_nodes_are_one_process_each():
    text = script(Resources(nodes=3, threads=2))
    for part in (
        "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 --cpus-per-task=2",
        "JAX_PROCESS_ID=$SLURM_PROCID",
    ):
        assert part in text
    assert "JAX_COORDINATOR_ADDRESS" in text
    assert "JAX_" not in script()


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
    text = slurm_batch.script(folder, folder, Resources(), SlurmOptions(python="bash"))
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


@pytest.mark.parametrize(
    ("signal", "late"), [("TERM", ""), ("USR1", ""), ("USR1", "sleep 0.4; ")], ids=["TERM", "USR1", "early"]
)
def test_a_signal_is_passed_on_to_the_worker(tmp_path, signal, late):
    """The exit code is the one of the worker that has saved, not the one of an interrupted shell."""
    program = f"trap 'sleep 0.2; echo heard {signal}; exit 143' {signal}; kill -s {signal} $PPID; "
    program += "while :; do sleep 0.05; done"
    assert run_script(tmp_path, program, late) == 143
    assert (tmp_path / "log.txt").read_text() == f"heard {signal}\n"


def test_a_worker_that_dies_of_the_signal_has_not_failed(tmp_path):
    """For example, before it has set its handlers."""
    assert run_script(tmp_path, "kill -s USR1 $PPID; sleep 0.3; kill -s HUP $$") == 143


@pytest.mark.parametrize(
    "given",
    [
        {"partition": "gpu; rm -rf /"},
        {"setup": ("one\ntwo",)},
        {"options": ("--comment=mine",)},
        {"options": ("-p gpu",)},
        {"gres": "gpu:4"},
        {"mounts": ("data",)},
    ],
)
def test_rejects_what_slurm_would_misread(given):
    with pytest.raises(ValidationError):
        SlurmOptions(**given)


def test_a_study_overrides_the_settings():
    settings = Settings(slurm={"partition": "gpu", "account": "lab"}).slurm
    laid = SlurmOptions(partition="short", exclusive=True).laid_over(settings)
    assert (laid.partition, laid.account, laid.exclusive) == ("short", "lab", True)
