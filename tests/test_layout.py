"""The layout of the repository: folders, file names, and import contracts."""

import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.conftest import SLOWEST, slowest_first

ROOT = Path(__file__).parents[1]
PORTIONS = ("experiments", "platform", "models", "analysis")
BESIDE = {"platform": ["api.py", "testing"], "analysis": ["conditions.py"]}
"""Modules beside the four packages: those that users import, and the language that two packages share."""


def test_each_root_folder_is_a_portion_of_the_namespace_and_nothing_else():
    for portion in PORTIONS:
        folder = ROOT / portion
        assert [path.name for path in folder.iterdir() if path.name != "__pycache__"] == ["jestlab"]
        inside = sorted(path.name for path in (folder / "jestlab").iterdir() if path.name != "__pycache__")
        assert inside == sorted([portion, *BESIDE.get(portion, [])])
        package = folder / "jestlab" / portion
        assert (package / "py.typed").exists()
        sources = {path.parent for path in package.rglob("*.py")}
        assert [str(path) for path in sources if not (path / "__init__.py").exists()] == []


def test_no_package_markers_among_the_tests():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_test_files_have_names_of_their_own():
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_slowest_files_exist():
    """A renamed file would start late again, and nobody would see why."""
    assert [place for place in SLOWEST if not (ROOT / "tests" / place).exists()] == []


def test_slowest_tests_start_first():
    """Each file stays whole, and no test is lost or added."""
    first, second = SLOWEST[:2]
    paths = ["test_layout.py"] * 30 + [second] * 4 + ["test_conditions.py"] * 31 + [first] * 5
    items: Any = [SimpleNamespace(path=ROOT / "tests" / path) for path in paths]
    for workers in (1, 2):
        ordered = slowest_first(items, workers)
        assert sorted(map(id, ordered)) == sorted(map(id, items))
        found = [item.path.relative_to(ROOT / "tests").as_posix() for item in ordered]
        assert found[:5] == [first] * 5
        after = 35 if workers == 2 else 5
        assert found[after : after + 4] == [second] * 4


def test_the_standard_librarys_platform_is_not_shadowed():
    code = "import platform, uuid; print(platform.system())"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "Linux" or sys.platform != "linux"


CROSSINGS = {
    "models": "import jestlab.platform.errors",
    "analysis": "import jestlab.models.config",
    "platform": "import jestlab.experiments.base",
    "experiments": "import jestlab.platform.planning.plan",
}


def test_contracts_report_forbidden_imports(tmp_path):
    """One forbidden import in each portion breaks its contract, and so does a module without a layer."""
    for portion, line in CROSSINGS.items():
        shutil.copytree(ROOT / portion, tmp_path / portion, ignore=shutil.ignore_patterns("__pycache__"))
        (tmp_path / portion / "jestlab" / portion / "trespasser.py").write_text(line + "\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    lint = "from importlinter.cli import lint_imports_command as c; c()"
    done = subprocess.run(
        [sys.executable, "-c", lint, "--no-cache"],
        cwd=tmp_path,
        env={"PYTHONPATH": ":".join(str(tmp_path / name) for name in PORTIONS), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "5 broken" in done.stdout, done.stdout + done.stderr
