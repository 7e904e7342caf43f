"""Launches ship the user's code: the files as they were at the launch, or a commit that others can clone."""

import gzip
import hashlib
import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
import yaml

from jestlab.platform.errors import UserError
from jestlab.platform.launch import shipping
from jestlab.platform.launch.shipping import files_of, pack

TRAIN = """
import os
from pathlib import Path
from jestlab.platform import client
import helper
run = client.run()
(run.directory / "where").write_text(os.getcwd())
run.evaluation(1, examples_seen=1, scores={"toy/score": helper.VALUE})
Path(os.environ["ORIGINAL"], "exp", "helper.py").write_text("VALUE = 0.9\\n")
"""
FUNCTION = """
import helper

def train(config, context):
    context.evaluation(1, scores={"toy/score": helper.VALUE}, examples_seen=1)
"""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project: a script that changes a module that it has imported, and ignored data."""
    top = tmp_path / "project"
    (top / "exp").mkdir(parents=True)
    (top / "exp" / "train.py").write_text(TRAIN)
    (top / "exp" / "function.py").write_text(FUNCTION)
    (top / "exp" / "helper.py").write_text("VALUE = 0.5\n")
    (top / "exp" / "data.csv").write_text("1\n")
    (top / ".gitignore").write_text("*.csv\n")
    monkeypatch.setenv("ORIGINAL", str(top))
    monkeypatch.setenv("JESTLAB_SCRATCH", str(tmp_path / "scratch"))
    return top


def study(top: Path, **parts: Any) -> Path:
    given: dict[str, Any] = {
        "name": "shipped",
        "program": "command",
        "base": {"command": ["python", "train.py"]},
        "runs": {"a": {}, "b": {"width": 2}},
        "resources": {"code": "copy", "parallel": 1, "retries": 0},
    }
    path = top / "exp" / "study.yaml"
    path.write_text(yaml.safe_dump(given | parts))
    return path


def launch(spec: Path, root: Path, *options: str, code: int = 0) -> str:
    done = labs.here("launch", spec, "--no-reports", *options, root=root)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def rows(root: Path, sql: str) -> list[Any]:
    return sqlite3.connect(root / "results.db").execute(sql).fetchall()


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def pushed(top: Path, tmp_path: Path, *changes: Callable[[Path], object]) -> str:
    """Make the project a repository whose commit is on a remote; return the commit."""
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(top, "init", "-q", "-b", "main")
    for change in (
        lambda top: git(top, "remote", "add", "origin", f"file://{tmp_path}/remote.git"),
        *changes,
    ):
        change(top)
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    git(top, "push", "-q", "origin", "main")
    return git(top, "rev-parse", "HEAD")


SOURCES = "SELECT state, code_commit, code_patch, sources FROM attempt ORDER BY id"
PATCH = "The working tree of the launch: code/{} in the lab.\n"
VALUES = "SELECT value FROM v_evaluations ORDER BY run"


@pytest.mark.parametrize("is_repository", [False, True])
def test_all_runs_of_a_launch_use_and_record_the_files_of_its_begin(root, top, tmp_path, is_repository):
    spec = study(top)
    commit = pushed(top, tmp_path) if is_repository else None
    said = launch(spec, root)
    assert "code: 5 files, " in said
    assert rows(root, VALUES) == [(0.5,), (0.5,)]
    assert (top / "exp" / "helper.py").read_text() == "VALUE = 0.9\n"
    [archive] = (root / "code").iterdir()
    digest = hashlib.sha256(gzip.decompress(archive.read_bytes())).hexdigest()
    assert archive.name == f"{digest}.tar.gz"
    patch = None if is_repository else PATCH.format(archive.name)
    helper = hashlib.sha256(b"VALUE = 0.5\n").hexdigest()
    for state, *code, sources in rows(root, SOURCES):
        assert (state, *code) == ("COMPLETED", commit, patch)
        assert json.loads(sources)["helper.py"] == helper
    [where] = {file.read_text() for file in root.glob("runs/*/where")}
    inside = "exp" if is_repository else "."
    assert Path(where) == tmp_path / "scratch" / "code" / digest / inside
    if not is_repository:
        return
    # The next launch ships the changed file.
    assert "2 of 2 runs were made with different code (helper.py)" in launch(spec, root)
    launch(spec, root, "--rerun-changed", "b")
    assert rows(root, VALUES) == [(0.5,), (0.9,)]
    [new] = set((root / "code").iterdir()) - {archive}
    assert rows(root, SOURCES)[-1][1:3] == (commit, PATCH.format(new.name))


def test_a_function_of_a_file_runs_from_the_shipped_files(root, top):
    launch(study(top, program="function.py:train", base={}, runs={"a": {}}), root)
    [(state, _, patch, sources)] = rows(root, SOURCES)
    assert (
        state == "COMPLETED"
        and "code/" in patch
        and json.loads(sources).keys() == {"function.py", "helper.py"}
    )


def test_a_pushed_commit_is_cloned_and_recorded(root, top, tmp_path):
    spec = study(top, resources={"code": "git"}, runs={"a": {}})
    commit = pushed(top, tmp_path)
    launch(spec, root)
    assert [row[:3] for row in rows(root, SOURCES)] == [("COMPLETED", commit, None)]
    where = {file.read_text() for file in root.glob("runs/*/where")}
    assert where == {str(tmp_path / "scratch" / "code" / commit / "exp")}
    assert not (root / "code").exists()
    refused = launch(spec, root, "--rerun-changed", code=1)
    assert refused.endswith(
        f"uncommitted changes in {top}: exp/helper.py: commit and push, or set `code: copy`\n"
    )


def change(path: str, text: str) -> Callable[[Path], object]:
    return lambda top: (top / path).write_text(text)


def nested(top: Path) -> None:
    """Make a repository in the project, which its commit doesn't contain."""
    git(top, "init", "-q", "part")
    (top / "part" / "x.py").touch()


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (None, None, "project/exp has no commit: commit and push, or set `code: copy`"),
        ((), change("exp/new.py", ""), "uncommitted changes in {top}: exp/new.py: commit"),
        (
            (),
            lambda top: git(top, "rm", "-q", "exp/helper.py"),
            "uncommitted changes in {top}: exp/helper.py: ",
        ),
        ((), lambda top: git(top, "remote", "remove", "origin"), "has no remote: add one, push, or set"),
        ((), lambda top: git(top, "commit", "-qm", "x", "--allow-empty"), "isn't on origin: push it, or set"),
        (
            (),
            lambda top: git(top, "remote", "set-url", "origin", "https://ada:pw@example.org/x"),
            "remote origin contains credentials, which others could read: https://***@example.org/x: remove",
        ),
        ((change(".gitmodules", ""),), None, "`code: git` doesn't clone the submodules of {top}: set"),
    ],
)
def test_a_commit_that_cannot_be_cloned_is_refused_before_anything_is_written(
    root, top, tmp_path, before, after, reason
):
    spec = study(top, resources={"code": "git"})
    if before is not None:
        pushed(top, tmp_path, *before)
    if after is not None:
        after(top)
    said = launch(spec, root, code=1)
    assert reason.format(top=top) in said and said.count("\n") == 1
    assert not root.exists()


def test_ssh_urls_have_a_user_but_no_password(root, top, tmp_path, monkeypatch):
    spec = study(top, resources={"code": "git"})
    pushed(top, tmp_path)
    (tmp_path / "config").write_text(
        f"image: x/jestlab@sha256:{'0' * 64}\nkubernetes: {{store_secret: s/k, root: /lab}}\n"
    )
    for url, shown in (
        ("ssh://ada@example.org:22/x", "ssh://ada%40example.org:22/x"),
        ("ada@example.org:x", "ada@example.org:x"),
    ):
        git(top, "remote", "set-url", "origin", url)
        monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "config"))
        launch(spec, root, "--on", "kubernetes", "--render", str(tmp_path / "manifests"))
        for file in (tmp_path / "manifests").iterdir():
            assert f'"url":"{shown}"' in file.read_text()


def test_files_that_git_ignores_are_left_out_with_and_without_a_repository(top):
    (top / "lab").mkdir()
    (top / "lab" / "results.db").touch()
    wanted = {".gitignore", "exp/train.py", "exp/function.py", "exp/helper.py"}
    assert files_of(top, [top / "lab"]) == wanted
    git(top, "init", "-q")
    assert files_of(top, [top / "lab"]) == wanted
    git(top, "add", ".")
    (top / "exp" / "helper.py").unlink()
    (top / "part").mkdir()
    git(top / "part", "init", "-q")
    (top / "part" / "own.py").touch()
    (top / "part" / ".gitignore").write_text("x\n")
    (top / "part" / "x").touch()
    assert files_of(top, [top / "lab"]) == wanted - {"exp/helper.py"} | {"part/own.py", "part/.gitignore"}


def test_too_much_is_refused_with_the_largest(root, top, monkeypatch):
    monkeypatch.setattr(shipping, "MOST_BYTES", 3_000_000)
    (top / "exp" / "weights.bin").write_bytes(bytes(2_000_000))
    (top / "big.bin").write_bytes(bytes(4_000_000))
    with pytest.raises(UserError, match=r"6 MB, more than 3: .*largest: big.bin \(4 MB\), exp/ \(2 MB\), "):
        pack(top, files_of(top))


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x"])
def test_a_link_out_of_the_folder_is_refused(top, target):
    (top / "exp" / "link").symlink_to(target)
    with pytest.raises(
        UserError, match=rf"exp/link is a link out of {top}, to {target}: list it in .gitignore"
    ):
        pack(top, files_of(top))
    (top / ".gitignore").write_text("link\n")
    pack(top, files_of(top))


@pytest.mark.parametrize(
    ("ignored", "reason"),
    [("train.py", "train.py can't be shipped: Git ignores it"), ("exp", "Git ignores all files in")],
)
def test_a_script_that_git_ignores_is_refused(root, top, ignored, reason):
    spec = study(top)
    git(top, "init", "-q")
    (top / ".gitignore").write_text(f"{ignored}\n")
    assert reason in launch(spec, root, code=1)
    assert not root.exists()
