"""Functions of the user as programs: found when the spec is read, without importing them."""

import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from jestlab.models.extensions import references
from jestlab.models.training.phases import PhaseClock
from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.load import load

EXPLODES = "raise RuntimeError('imported')\n"


def spec(folder: Path, program: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(f"program: {program}\nbase: {{a: 1}}\nruns: {{r: {{}}}}\n")
    return path


def package(folder: Path, name: str, **modules: str) -> None:
    for path, source in {"__init__": EXPLODES, **modules}.items():
        file = folder / name / f"{path}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)


def test_a_module_is_read_and_not_imported(tmp_path, monkeypatch):
    package(tmp_path, "research_a", training="def fit(config, context): ...\n" + EXPLODES)
    monkeypatch.chdir(tmp_path)
    assert programs.get("research_a.training:fit").name == "research_a.training:fit"
    with pytest.raises(UserError, match=r"no 'fitt' in .*training.py: did you mean 'fit'\?"):
        programs.get("research_a.training:fitt")
    with pytest.raises(UserError, match=r"no module 'research_a.trainin' for 'research_a.trainin:fit'"):
        programs.get("research_a.trainin:fit")
    assert not {name for name in sys.modules if name.startswith("research_a")}
    (tmp_path / "outer_b" / "inner").mkdir(parents=True)  # without __init__.py
    (tmp_path / "outer_b" / "inner" / "training.py").write_text(EXPLODES + "def fit(): ...\n")
    programs.get("outer_b.inner.training:fit")
    with pytest.raises(UserError, match="no 'fat' in"):
        programs.get("outer_b.inner.training:fat")


DEFINING = [
    "class fit:\n    def __call__(self): ...",
    "fit: object = print",
    "from somewhere import fit",
    "from somewhere import other as fit",
    "from somewhere import *",
    "try:\n    import torch\nexcept ImportError:\n    def fit(): ...",
    "a, (b, *fit) = 1, (2, 3)",
    "def __getattr__(name): ...",
    "globals()['fit'] = print",
]


def test_a_file_must_define_the_name(tmp_path):
    file = tmp_path / "own.py"
    for source in DEFINING:
        file.write_text(source + "\n")
        references.check(f"{file}:fit")
    for source in ["", "def other():\n    fit = 1", "class A:\n    def fit(self): ...", "fit"]:
        file.write_text(source + "\n")
        with pytest.raises(ValueError, match="no 'fit' in"):
            references.check(f"{file}:fit")


def test_the_name_of_a_file_is_part_of_the_identity_but_not_its_folder_and_content(tmp_path):
    found = []
    for file, source in (("a/own.py", ""), ("b/own.py", "MORE = 2\n"), ("a/other.py", "")):
        package(tmp_path, file[0], **{file[2:-3]: source + "def fit(): ...\n"})
        [fingerprint] = plan(load(str(spec(tmp_path, f"{file}:fit")))).fingerprints
        found.append(fingerprint)
    assert found[0] == found[1] != found[2]


def test_a_wrong_program_is_an_error_of_the_spec(tmp_path):
    for program, source, message in (
        ("gone.py:fit", "", r"study.yaml:1: program: .*/gone.py: no such file"),
        ("own.py:fti", "def fit(): ...", r"study.yaml:1: program: no 'fti' in .*own.py: did you mean 'fit'"),
        ("own.py:fit", "def fit(:", r"study.yaml:1: program: .*own.py:1: invalid syntax"),
        ("own.py", "", r"no program '.*own.py': .*path/to/file.py:callable"),
    ):
        (tmp_path / "own.py").write_text(source)
        with pytest.raises(UserError, match=message):
            expand(load(str(spec(tmp_path, program))))


def test_a_file_runs_with_its_neighbors_importable(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "neighbor_c.py").write_text("FACTOR = 3.0\n")
    (tmp_path / "code" / "own_c.py").write_text(
        textwrap.dedent(
            """
            from __future__ import annotations
            from dataclasses import dataclass
            from neighbor_c import FACTOR

            @dataclass
            class Result:
                value: float

            class Programs:
                @staticmethod
                def fit(config, context):
                    result = Result(FACTOR * config["a"])
                    context.evaluation(1, 1, 1.0, {"toy/score": result.value})
            """
        )
    )
    monkeypatch.setattr(sys, "path", [*sys.path])
    reported: list[object] = []
    context: Any = SimpleNamespace(clock=PhaseClock(), evaluation=lambda *given: reported.append(given))
    [run] = plan(load(str(spec(tmp_path, "code/own_c.py:Programs.fit")))).runs
    with mock.patch.dict(sys.modules):
        programs.get(run.program).entry(run.config, context)
    assert reported == [(1, 1, 1.0, {"toy/score": 3.0})]
