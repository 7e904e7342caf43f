"""A wheel of jestlab, in environments that contain nothing else."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UV = Path(sys.prefix) / "uv" / "bin" / "uv"
MOST_BYTES = 400_000_000
"""Size of the core's installation."""

# A script whose Python lives in another environment, without jestlab.
SCRIPT = """
from jestlab.platform import client

run = client.run()
for step in range(1, 5):
    run.log(step, loss=run.config["rate"] / step)
run.evaluation(4, scores={"toy/accuracy": run.config["rate"] + 0.01 * run.seed})
"""
STUDY = """
program: command
base: {command: [PYTHON, script.py], rate: 0.1}
runs: {slow: {}, fast: {rate: 0.2}}
seeds: 2
metrics: {toy/accuracy: {goal: max}}
reports: [table: {baseline: slow}, curves]
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def test_it_contains_every_file_of_the_packages(wheel):
    listed = subprocess.run(
        ["git", "ls-files", "*/jestlab/*"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = {path.partition("/")[2] for path in listed.stdout.split() if not path.startswith("tests/")}
    assert {Path(file).suffix for file in files} >= {".py", ".css", ".csv", ".js", ".j2", ".yaml", ".typed"}
    assert files <= set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.full
def test_its_core_launches_commands_and_names_the_extra_of_jest(wheel, tmp_path):
    """Another environment, without jestlab, executes the command."""
    if not UV.exists():
        pytest.skip("uv is not in the environment: make install")
    pinned = subprocess.run(
        [UV, "pip", "freeze", "--exclude-editable", "--python", sys.executable],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (tmp_path / "constraints.txt").write_text(pinned)
    for name in ("core", "other"):
        subprocess.run([UV, "venv", "--quiet", tmp_path / name], check=True)
    subprocess.run(
        [UV, "pip", "install", "--quiet", "--constraint", tmp_path / "constraints.txt", "--python",
         tmp_path / "core", wheel],
        check=True,
    )  # fmt: skip
    [packages] = (tmp_path / "core" / "lib").glob("python*/site-packages")
    assert not {"jax", "xmanager", "pyarrow", "kubernetes"} & {path.name for path in packages.iterdir()}
    assert sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) < MOST_BYTES

    def jestlab(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'core' / 'bin'}:{os.defpath}"}
        done = subprocess.run(
            ["jestlab", *words], cwd=tmp_path / "work", env=environment, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    (tmp_path / "work").mkdir()
    assert "Examples:" in jestlab("--help").stdout
    jestlab("init", "mine.yaml")  # a command's study, without JAX
    assert "9 to run" in jestlab("plan", "mine.yaml").stdout
    assert "[9/9] COMPLETED" in jestlab("launch", "mine.yaml").stdout
    (tmp_path / "work" / "jestlab").mkdir()  # not a part of the package, although workers can import it
    (tmp_path / "work" / "jestlab" / "notes.py").write_text("rate = 1\n")
    (tmp_path / "work" / "script.py").write_text(SCRIPT)
    python = str(tmp_path / "other" / "bin" / "python")
    (tmp_path / "work" / "apart.yaml").write_text(STUDY.replace("PYTHON", python))
    said = jestlab("launch", "apart.yaml")
    assert "[4/4] COMPLETED" in said.stdout
    assert "| fast" in jestlab("table", "apart").stdout
    query = "SELECT git_commit, versions FROM v_attempts"
    attempts = json.loads(jestlab("query", query, "--format", "json").stdout)
    [recorded] = {(each["git_commit"], json.loads(each["versions"])["jestlab"]) for each in attempts}
    assert recorded[0] is None and re.fullmatch(r".+\+code\.[0-9a-f]{12}", recorded[1])
    assert jestlab("plan", "apart.yaml").stderr == ""  # no warning of different versions
    assert Path(jestlab("report", "apart").stdout.split()[-1]).suffix == ".html"
    said = jestlab("launch", "quickstart", code=1)
    assert said.stderr == "jestlab: jax isn't installed: pip install 'jestlab[jax]'\n"
    assert "jax" in jestlab("doctor").stdout
