"""The page on extending jestlab works as it says: its code as a package, installed in a fresh environment.

The environment is new, and gets the package by pip from a wheel that hatchling has built, without a network.
What that depends on it sees through a .pth file, which adds the site-packages of this environment. pip runs
from the wheel that Python's `ensurepip` holds: to install pip itself takes longer than all else.
"""

from __future__ import annotations

import ensurepip
import json
import os
import re
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
KINDS = {"criteria", "rules", "losses", "evaluations", "readers", "towers", "figures", "tables", "executors"}
_FILE = re.compile(r"^```\w+\n(# ([\w/.-]+\.\w+)\b.*?)^```$", re.DOTALL | re.MULTILINE)


def files() -> Iterator[tuple[str, str]]:
    """The files that the page's blocks of code are."""
    for text, name in _FILE.findall(PAGE.read_text(encoding="utf-8")):
        yield name, text


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JESTLAB_", "PYTHON", "PIP_"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env=inherited | {"JAX_PLATFORMS": "cpu", "JESTLAB_POLL_SECONDS": "0.2"} | environment,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's files are, and a fresh environment with their package."""
    place = tmp_path_factory.mktemp("example")
    source = place / "source"
    for name, text in files():
        if name != "config.yaml":
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_text(text)
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", place / "dist", cwd=source)
    [wheel] = (place / "dist").glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    python = place / "venv" / "bin" / "python"
    [own] = map(
        Path,
        json.loads(
            run(python, "-c", "import json, site; print(json.dumps(site.getsitepackages()))", cwd=place)
        ),
    )
    assert own.is_relative_to(place)
    lines = (f"import site; site.addsitedir({there!r})" for there in site.getsitepackages())
    (own / "those_of_the_tests.pth").write_text("\n".join(lines))
    [pip] = (Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl")
    run(python, pip / "pip", "install", "--no-index", "--no-deps", "--quiet", wheel, cwd=place)
    assert (own / "jestlab_example" / "rules.py").exists()
    return place


def test_the_page_shows_one_of_each_kind():
    shown = dict(files())
    groups = set(
        re.findall(r'^\[project\.entry-points\."jestlab\.(\w+)"\]$', shown["pyproject.toml"], re.MULTILINE)
    )
    assert groups == KINDS == {Path(name).stem for name in shown if name.startswith("jestlab_example/")}


def test_a_study_by_the_entry_points_names_ends_in_its_table_and_its_figure(folder):
    """Nothing of the package lies in the working directory: it is found as an installed one."""
    spec = dict(files())["example.yaml"]
    for name, reference in re.findall(
        r'^(\w+) = "(jestlab_example\.\S+)"$', dict(files())["pyproject.toml"], re.MULTILINE
    ):
        assert reference in spec, f"the page's study does not use {reference}"
        spec = spec.replace(f'"{reference}"', name)
    assert "jestlab_example" not in spec
    spec = spec.replace("nice -n 5", "nice -n 0")  # as fast as all else on a machine that is busy
    at = folder / "elsewhere"
    at.mkdir()
    (at / "example.yaml").write_text(spec)
    verb = (folder / "venv" / "bin" / "python", "-c", "from jestlab.platform.cli import main; main()")
    run(*verb, "launch", "example.yaml", cwd=at)
    reports = at / "lab" / "reports" / "example"
    assert {"extremes.tex", "extremes.csv", "scatter.pdf", "scatter.png", "report.html"} <= {
        p.name for p in reports.iterdir()
    }
    assert [line.split(",")[0] for line in (reports / "extremes.csv").read_text().splitlines()] == [
        "label",
        "reference",
        "joint",
    ]
    asked = (
        "SELECT DISTINCT executor, name FROM v_attempts JOIN v_evaluations USING (fingerprint) "
        "WHERE name LIKE 'colours/%'"
    )
    found = json.loads(run(*verb, "query", asked, "--json", cwd=at))
    assert found == [{"executor": "behind", "name": "colours/accuracy"}]
    table = run(*verb, "table", "extremes", "example", "--option", "of=colours/accuracy", cwd=at)
    assert "best" in table and "| joint" in table
    plots = run(*verb, "plot", "example", "--kind", "scatter", "--output", "plots", cwd=at).split()
    assert [Path(path).name for path in plots] == [f"scatter.{end}" for end in ("png", "svg", "pdf", "txt")]


def test_its_contract_tests_pass(folder):
    python = folder / "venv" / "bin" / "python"
    out = run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder / "source" / "tests", cwd=folder)
    assert "3 passed" in out
