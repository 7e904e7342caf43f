"""The house stands as planned: what lies where, and who may import whom."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.conftest import LONGEST, longest_first

ROOT = Path(__file__).parents[1]
PORTIONS = ("experiments", "platform", "models", "analysis")
FOR_USERS = {"platform": ["api.py", "testing.py"]}
"""Modules that users import, beside the four packages."""


@pytest.mark.parametrize("portion", PORTIONS)
def test_each_root_folder_is_a_portion_of_the_namespace_and_nothing_else(portion):
    folder = ROOT / portion
    assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["jestlab"]
    inside = sorted(path.name for path in (folder / "jestlab").iterdir() if path.name != "__pycache__")
    assert inside == sorted([portion, *FOR_USERS.get(portion, [])])
    package = folder / "jestlab" / portion
    assert (package / "py.typed").exists()
    sources = {path.parent for path in package.rglob("*.py")}
    assert [str(path) for path in sources if not (path / "__init__.py").exists()] == []


def test_no_package_markers_among_the_tests():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_test_files_have_names_of_their_own():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("place", LONGEST)
def test_what_starts_first_is_there(place):
    """A file that moved would start late again, and nobody would see why."""
    assert (ROOT / "tests" / place).exists()


def test_the_longest_tests_begin_the_workers_pieces():
    """Each place stays whole, and no test is lost or added."""
    first, second = (place if place.endswith(".py") else f"{place}test_one.py" for place in LONGEST[:2])
    paths = ["test_layout.py"] * 30 + [second] * 4 + ["test_conditions.py"] * 31 + [first] * 5
    items: Any = [SimpleNamespace(path=ROOT / "tests" / path) for path in paths]
    for workers in (1, 2):
        ordered = longest_first(items, workers)
        assert sorted(map(id, ordered)) == sorted(map(id, items))
        found = [item.path.relative_to(ROOT / "tests").as_posix() for item in ordered]
        assert found[:5] == [first] * 5
        after = 35 if workers == 2 else 5
        assert found[after : after + 4] == [second] * 4


def test_the_standard_librarys_platform_is_not_shadowed():
    code = "import platform, uuid; print(platform.system())"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "Linux" or sys.platform != "linux"


def test_import_borders_hold():
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


BORDERS = {
    "models": "import jestlab.platform.errors",
    "analysis": "import jestlab.models.config",
    "platform": "import jestlab.experiments.base",
    "experiments": "import jestlab.platform.planning.plan",
}


@pytest.mark.parametrize(("portion", "line"), BORDERS.items())
def test_a_crossed_border_is_seen(tmp_path, portion, line):
    """The contracts are not satisfied by not being checked."""
    import shutil

    for name in PORTIONS:
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / portion / "jestlab" / portion / "trespasser.py").write_text(line + "\n")
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(str(tmp_path / name) for name in PORTIONS), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "1 broken" in done.stdout, done.stdout + done.stderr
    assert "trespasser" in done.stdout
