"""The user's own code of a run: which files count, found without running them."""

import hashlib
import sys
from pathlib import Path

import pytest

from jestlab.platform.programs.sources import sources_of
from jestlab.platform.store.provenance import digests_of


def write(folder: Path, files: dict[str, str]) -> None:
    """Write files by their paths without .py."""
    for name, content in files.items():
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def named(place: Path, *words: str, **config: object) -> list[str]:
    found = sources_of("command", {"command": list(words), "cwd": str(place), **config})
    return [] if found is None else sorted(found)


def test_a_script_and_what_it_imports_of_ones_own(tmp_path):
    write(
        tmp_path,
        {
            "ridge": "import numpy, helpers\nfrom parts.loss import square\ndef f():\n    import late\n",
            "helpers": "from parts import shapes as s",
            "late": "import json",
            "parts/loss": "from .deep import more",
            "parts/deep/more": "",
            "parts/shapes": "",
            "json": "not valid, and found first, as Python does",
            "unused": "",
        },
    )
    (tmp_path / "parts" / "data.csv").write_text("1")
    assert named(tmp_path, "python", "ridge.py") == [
        "helpers.py", "json.py", "late.py", "parts/deep/more.py", "parts/loss.py", "parts/shapes.py",
        "ridge.py",
    ]  # fmt: skip
    found = sources_of("command", {"command": "python ridge.py", "cwd": str(tmp_path)})
    assert found is not None
    assert digests_of(found)["late.py"] == hashlib.sha256(b"import json").hexdigest()


def test_installed_packages_and_interpreters_are_not_ones_own(tmp_path):
    package = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages"
    write(package, {"torch/__init__": ""})
    write(tmp_path, {"train": "import torch, click"})
    (tmp_path / ".git").mkdir()
    assert named(tmp_path, sys.executable, "train.py", "--out", "{directory}") == ["train.py"]
    assert named(tmp_path, "true") == named(tmp_path, "python", "-c", "print()") == []
    assert sources_of("train", {}) is None


def test_imports_are_followed_through_the_repository(tmp_path):
    write(tmp_path, {"scripts/train": "import mylib.model, common", "common": ""})
    write(tmp_path / "src/mylib", {"__init__": "", "model": "from . import layers", "layers": ""})
    assert named(tmp_path, "python", "scripts/train.py") == ["train.py"]
    (tmp_path / ".git").mkdir()
    assert named(tmp_path, "python", "scripts/train.py") == [
        "../common.py", "../src/mylib/__init__.py", "../src/mylib/layers.py", "../src/mylib/model.py",
        "train.py",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["./run.sh", "fast"], ["run.sh"]),
        (["sh", "-c", "python train.py | tee log"], ["train.py"]),
        (["{script}", "--lr", "0.1"], ["run.sh"]),
        (["python", "-m", "pack.main"], ["__init__.py", "main.py"]),
        (["python", "-m", "pack"], ["__init__.py", "__main__.py"]),
        (["python", "broken.py"], ["broken.py"]),
        (["python", "missing.py"], []),
        (["echo", "it's"], []),
    ],
)
def test_words_of_a_command_that_are_files(tmp_path, words, files):
    write(tmp_path, {"train": "", "broken": "def ("})
    write(tmp_path / "pack", {"__init__": "", "__main__": "", "main": "import pack"})
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    assert named(Path("/"), *words, cwd=str(tmp_path), script="./run.sh") == files


def test_a_function_counts_with_its_module(tmp_path, monkeypatch):
    write(tmp_path, {"alone": "import pkg"})
    write(tmp_path / "pkg", {"__init__": "", "train": "from pkg import parts", "parts": ""})
    monkeypatch.syspath_prepend(str(tmp_path))
    for program, files in {
        f"{tmp_path}/alone.py:run": ["alone.py", "pkg/__init__.py"],
        "pkg.train:run": ["__init__.py", "parts.py", "train.py"],
        "click:command": [],
        "nowhere.at.all:run": [],
        f"{tmp_path}/nowhere.py:run": [],
    }.items():
        found = sources_of(program, {})
        assert ([] if found is None else sorted(found)) == files, program
