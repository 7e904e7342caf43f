"""A wheel of jestlab, in environments that contain nothing else."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SELECTION = ROOT / "jestlab-select"
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
    return built(ROOT, folder)


@pytest.fixture(scope="module")
def selection_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(SELECTION, tmp_path_factory.mktemp("selection"))


def built(project: Path, folder: Path) -> Path:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
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


LIBRARIES = {"numpy": "numpy", "jax": "jax", "torch": "torch", "batches": "torch", "cache": "numpy"}
"""Module of jestlab-select → the only library that it may import, besides NumPy."""

IMPORT = """
import importlib, sys
sys.path.insert(0, {folder!r})
importlib.import_module("jestlab_select.{module}")
heavy = {{"flax", "jax", "jestlab", "optax", "pydantic", "safetensors", "sqlalchemy", "torch"}}
print(*sorted(heavy & {{name.partition(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize(
    "module", [pytest.param(x, marks=[pytest.mark.oracle] * (y == "torch")) for x, y in LIBRARIES.items()]
)
def test_jestlab_select_imports_the_array_library_in_use_and_nothing_else(selection_wheel, tmp_path, module):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert selection_wheel.name.startswith(f"jestlab_select-{version}-")
    assert selection_wheel.stat().st_size < 100_000
    zipfile.ZipFile(selection_wheel).extractall(tmp_path)
    script = IMPORT.format(folder=str(tmp_path), module=module)
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert set(done.stdout.split()) <= {LIBRARIES[module]}


@pytest.mark.oracle
def test_the_example_of_jestlab_select_runs(selection_wheel, tmp_path):
    zipfile.ZipFile(selection_wheel).extractall(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", (SELECTION / "README.md").read_text(), re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", example], check=True, capture_output=True, text=True, env=environment
    )
    assert re.fullmatch(r"tensor\(\[[\d, ]+\]\) tensor\([\d.]+\)\n", done.stdout)


@pytest.mark.full
def test_jestlab_select_installs_in_an_empty_environment(selection_wheel, tmp_path):
    if not UV.exists():
        pytest.skip("uv is not in the environment: make install")
    subprocess.run([UV, "venv", "--quiet", tmp_path / "empty"], check=True)
    subprocess.run(
        [UV, "pip", "install", "--quiet", "--python", tmp_path / "empty", f"{selection_wheel}[cache]"],
        check=True,
    )
    example = (
        "import numpy as np; from jestlab_select.numpy import select; "
        "settings = {'criterion': 'hard_learner'}; "
        "print(select(None, np.arange(9.0), None, batch_size=2, rule='greedy', **settings).indices)"
    )
    python = tmp_path / "empty" / "bin" / "python"
    done = subprocess.run([python, "-c", example], capture_output=True, text=True)
    assert done.stdout == "[7 8]\n", done.stderr
