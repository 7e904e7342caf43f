"""What Slurm is asked for, and the script of a job."""

import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch.executors import slurm_script
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.slurm import Slurm

FOLDER = Path("/lab/slurm/abc")


def options(count=1, resources=None, **slurm):
    return slurm_script.options("name", "comment", FOLDER, count, resources or Resources(), Slurm(**slurm))


def script(resources=None, **slurm):
    return slurm_script.script(
        FOLDER, Path("/home/a b"), [Path("/lab"), Path("/home/a b")], resources or Resources(), Slurm(**slurm)
    )


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


@pytest.mark.parametrize(("limit", "before"), [(None, 120), (60, 20), (600, 60), (86_400, 120)])
def test_a_job_is_told_before_its_limit(limit, before):
    assert slurm_script.warning_seconds(limit) == before


@pytest.mark.parametrize(("seconds", "written"), [(1, "1"), (60, "1"), (61, "2"), (86_400, "1440")])
def test_time_is_rounded_up_as_slurm_does(seconds, written):
    assert slurm_script.minutes(seconds) == written


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


def run_script(folder, text, task, **variables):
    (folder / "0.sh").write_text(task)
    (folder / "job").write_text(text)
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7", **variables}
    return subprocess.run(
        ["bash", str(folder / "job")], env=environment, capture_output=True, text=True, timeout=30
    )


@pytest.mark.parametrize(("code", "kept"), [(0, 0), (3, 3), (143, 143), (137, 137)])
def test_the_exit_code_is_kept(tmp_path, code, kept):
    log = tmp_path / "log.txt"
    text = slurm_script.script(tmp_path, tmp_path, [tmp_path], Resources(), Slurm(python="bash"))
    done = run_script(tmp_path, text, f"log='{log}'\narguments=(-c 'echo said; exit {code}')\n")
    assert done.returncode == kept
    assert (tmp_path / "0.end").read_text() == f"{kept} 7\n"
    assert log.read_text() == "said\n"
    assert not (tmp_path / "0.sh").exists()


def test_a_job_that_was_given_up_does_nothing(tmp_path):
    text = slurm_script.script(tmp_path, tmp_path, [tmp_path], Resources(), Slurm(python="bash"))
    (tmp_path / "job").write_text(text)
    done = subprocess.run(["bash", str(tmp_path / "job")], env={"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "7"})
    assert done.returncode == 75


@pytest.mark.parametrize("late", ["", "sleep 0.4; "], ids=["", "before the worker is known"])
@pytest.mark.parametrize("sent", ["TERM", "USR1"])
def test_what_asks_it_to_stop_is_passed_on(tmp_path, sent, late):
    """The exit code is the one of the worker that has saved, not the one of a shell that was interrupted."""
    program = f"trap 'sleep 0.3; echo heard {sent}; exit 143' {sent}; kill -s {sent} $PPID; "
    program += "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.2; done"
    text = slurm_script.script(tmp_path, tmp_path, [tmp_path], Resources(), Slurm(python="bash"))
    log = tmp_path / "log.txt"
    task = f"log='{log}'\narguments=(-c \"{program}\")\n".replace("$PPID", "\\$PPID")
    done = run_script(tmp_path, text.replace("child=$!", f"{late}child=$!"), task)
    assert (done.returncode, log.read_text()) == (143, f"heard {sent}\n")


def test_one_that_dies_of_being_asked_to_stop_has_not_failed(tmp_path):
    """As a worker that has not yet set its handlers."""
    text = slurm_script.script(tmp_path, tmp_path, [tmp_path], Resources(), Slurm(python="bash"))
    task = f"log='{tmp_path}/log.txt'\narguments=(-c 'kill -s USR1 $PPID; sleep 0.3; kill -s HUP $$')\n"
    assert run_script(tmp_path, text, task).returncode == 143


@pytest.mark.parametrize(
    "given",
    [
        {"partition": "gpu; rm -rf /"},
        {"account": "two words"},
        {"setup": ("one\ntwo",)},
        {"options": ("--comment=mine",)},
        {"options": ("-p gpu",)},
        {"gres": "gpu:4"},
        {"mounts": ("data",)},
        {"runtime": "docker"},
        {"partiton": "gpu"},
    ],
)
def test_what_slurm_would_misread_is_refused(given):
    with pytest.raises(ValidationError):
        Slurm(**given)


def test_what_a_study_says_is_laid_over_the_settings():
    settings = Settings(slurm={"partition": "gpu", "account": "lab"}).slurm
    laid = Slurm(partition="short", exclusive=True).laid_over(settings)
    assert (laid.partition, laid.account, laid.exclusive) == ("short", "lab", True)
