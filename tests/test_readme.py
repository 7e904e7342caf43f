"""The README is true: every command in it runs, its specs are the specs, its tree is the tree.

python -m tests.test_readme    # write the tree again, from the first lines of the modules' docstrings
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests import docs_support
from tests.docs_support import FEW, Reader

from jestlab.experiments import paper
from jestlab.platform.cli import VERBS
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import Study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PORTIONS = {
    "experiments": "WHAT TO RUN: one file a study",
    "platform": "HOW IT RUNS",
    "models": "WHAT IS TRAINED",
    "analysis": "WHAT IT MEANS, read from the store's views",
}

LABS = {
    "paper": r"\bpaper\b",
    "own program": r"\bspirals\b",
    "specs": r"\.yaml\b",
    "data": r"^jestlab data\b",
    "quickstart": "",
}
"""Which commands run in which lab, by the first pattern found in them; labs are independent of each other."""


def test_links_within_the_project_lead_somewhere():
    for page in ROOT.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            there = ROOT / file if file else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in anchors, f"{page.name}: {target}"


def blocks(language: str) -> list[str]:
    """Find the code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands() -> list[str]:
    """List the command lines in the order of the README."""
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def lab_of(line: str) -> str:
    """Choose the lab in which a command runs."""
    return next(lab for lab, pattern in LABS.items() if re.search(pattern, line))


def test_its_claims_are_some():
    """They are of a study that compares joint and independent selection with uniform sampling."""
    (claims,) = (block for block in blocks("yaml") if not block.startswith("name:"))
    selected = {
        rule: {"selection": {"rule": rule, "reference": "reference"}} for rule in ("joint", "independent")
    }
    runs = {"reference": {"initialization": 1}, "uniform": {}, **selected}
    study = Study.parse({"name": "s", "runs": runs, **yaml.safe_load(claims)})
    assert len(study.claims) == 5
    assert len(plan(study).runs) == 4


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    """Somebody in a folder that holds the README's specs and scripts."""
    made = Reader(tmp_path, monkeypatch, capsys, seeds=2)
    made.write(docs_support.blocks(README))
    for spec in blocks("yaml"):
        name = re.match(r"name: (\S+)", spec)
        if name is not None:  # else a part of a spec
            (tmp_path / f"{name[1]}.yaml").write_text(spec, encoding="utf-8")
    monkeypatch.setattr(paper, "STUDIES", FEW)
    return made


@pytest.mark.parametrize("lab", LABS)
def test_every_command_runs(reader, lab):
    """In the order of the README: later commands look at what earlier ones made."""
    lines = [line for line in commands() if not line.startswith("make ") and lab_of(line) == lab]
    assert lines
    for line in lines:
        assert reader.run(line).strip(), line


def test_every_verb_is_shown():
    assert {line.split()[1] for line in commands() if line.startswith("jestlab ")} == set(VERBS)


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("make ")])
def test_make_targets_exist(line):
    done = subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_spec_shown_is_the_spec():
    source = (ROOT / "experiments/jestlab/experiments/quickstart.py").read_text(encoding="utf-8")
    assert blocks("python")[0].strip() == source.strip()


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def modules(folder: Path) -> Iterator[Path]:
    """List the modules that the tree names; a database's migrations are one line."""
    for path in sorted(folder.rglob("*.py")):
        if path.name != "__init__.py" and "migrations" not in path.parts:
            yield path


def named(tree: str) -> Iterator[str]:
    """Parse the tree: the path of each module in it, from the folders that it stands in."""
    folders: list[tuple[int, str]] = []
    for indent, name in re.findall(r"^( *)(\S+)", tree, flags=re.MULTILINE):
        while folders and len(indent) <= folders[-1][0]:
            folders.pop()
        if name.endswith("/"):
            folders.append((len(indent), name))
        elif name.endswith(".py"):
            yield "".join(folder for _, folder in folders) + name


def test_the_tree_names_every_module_by_its_path():
    """Both ways: every module is in the tree, and everything in the tree is there."""
    (tree,) = re.findall(r"```\n(.*?)```", README.split("## Where things are")[1], flags=re.DOTALL)
    there = [path.relative_to(ROOT).as_posix() for portion in PORTIONS for path in modules(ROOT / portion)]
    shown = list(named(tree))
    assert sorted(shown) == sorted(there), "run: python -m tests.test_readme"


def about(path: Path) -> str:
    """Take what a module is for from the first sentence of its docstring, cut to a line of the tree."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = text.partition("\n\n")[0].replace("\n", " ")
    line = re.split(r"(?<!Eq)(?<!Sec)\. ", line)[0].rstrip(".")
    while len(line) > 85:
        clause = max(line.rfind(sign) for sign in (": ", "; ", ", ", " ("))
        line = line[: clause if clause > 20 else line.rfind(" ")]
    return line.rstrip(":")


def tree() -> str:
    """Write the tree: every folder and module with what it is for."""
    lines = []

    def walk(folder: Path, depth: int) -> None:
        entries = sorted(folder.iterdir(), key=lambda path: (path.is_dir(), path.name))
        for path in entries:
            title = "  " * depth + path.name
            if path.is_dir() and (path / "__init__.py").exists():
                lines.append(f"{title + '/':34} {about(path / '__init__.py')}".rstrip())
                if path.name != "migrations":
                    walk(path, depth + 1)
            elif path.suffix == ".py" and path.name != "__init__.py":
                lines.append(f"{title:34} {about(path)}".rstrip())

    for portion, meaning in PORTIONS.items():
        lines.append(f"{portion}/jestlab/{portion}/".ljust(35) + meaning)
        walk(ROOT / portion / "jestlab" / portion, 1)
        for path in sorted((ROOT / portion / "jestlab").glob("*.py")):  # for users, beside the four
            lines.append(f"{path.relative_to(ROOT).as_posix():34} {about(path)}")
    lines.append(f"{'tests/':34} mirrors the four")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    head, title, rest = README.partition("## Where things are")
    rest = re.sub(r"```\n.*?```", lambda _: f"```\n{tree()}```", rest, count=1, flags=re.DOTALL)
    (ROOT / "README.md").write_text(head + title + rest, encoding="utf-8")
