"""CONTRIBUTING.md is true: its tree and commands exist; links in the repository have targets.

python -m tests.test_contributing    # write the tree again, from the docstrings of packages
"""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
PORTIONS = {
    "experiments": "WHAT TO RUN: one file per study",
    "platform": "HOW IT RUNS",
    "models": "WHAT IS TRAINED",
    "analysis": "WHAT IT MEANS, read from the store's views",
}
COMMANDS = re.findall(r"^(make [^#\n]*)", CONTRIBUTING, flags=re.MULTILINE)


def test_links_within_the_project_lead_somewhere():
    for page in ROOT.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
            file, _, anchor = target.partition("#")
            there = page.parent / file if file else page
            assert there.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in anchors, f"{page.name}: {target}"


@pytest.mark.parametrize("line", map(str.strip, COMMANDS))
def test_make_targets_exist(line):
    done = subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_tree_names_every_folder_by_its_path():
    """Both ways: every folder is in the tree, and everything in the tree exists."""
    (shown,) = re.findall(r"```\n(.*?)```", CONTRIBUTING.split("## Layout of the code")[1], flags=re.DOTALL)
    names = [re.findall(r"^( *\S+)", text, flags=re.MULTILINE) for text in (shown, tree())]
    assert names[0] == names[1], "run: python -m tests.test_contributing"


def about(path: Path) -> str:
    """Return the first sentence of a module's docstring, cut to a line of the tree."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    line = text.partition("\n\n")[0].replace("\n", " ")
    line = re.split(r"(?<!Eq)(?<!Sec)\. ", line)[0].rstrip(".")
    while len(line) > 85:
        clause = max(line.rfind(sign) for sign in (": ", "; ", ", ", " ("))
        line = line[: clause if clause > 20 else line.rfind(" ")]
    return line.rstrip(":")


def tree() -> str:
    """Write the tree: every package with its purpose."""
    lines = []

    def walk(folder: Path, depth: int) -> None:
        for path in sorted(path.parent for path in folder.glob("*/__init__.py")):
            title = "  " * depth + path.name + "/"
            lines.append(f"{title:34} {about(path / '__init__.py')}".rstrip())
            walk(path, depth + 1)

    for portion, meaning in PORTIONS.items():
        lines.append(f"{portion}/jestlab/{portion}/".ljust(35) + meaning)
        walk(ROOT / portion / "jestlab" / portion, 1)
        for path in sorted((ROOT / portion / "jestlab").glob("*.py")):  # public, next to the four packages
            lines.append(f"{path.relative_to(ROOT).as_posix():34} {about(path)}")
    lines.append(f"{'tests/':34} mirrors the four")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    head, title, rest = CONTRIBUTING.partition("## Layout of the code")
    rest = re.sub(r"```\n.*?```", lambda _: f"```\n{tree()}```", rest, count=1, flags=re.DOTALL)
    (ROOT / "CONTRIBUTING.md").write_text(head + title + rest, encoding="utf-8")
