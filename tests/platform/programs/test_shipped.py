"""Workers fetch shipped code to a folder of their own, and find the paths of configs there."""

import gzip
import hashlib
import io
import os
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch.shipping import files_of, pack
from jestlab.platform.programs.context import Failed
from jestlab.platform.programs.shipped import ShippedCode
from jestlab.platform.store.records import RunRecord, RunState


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("JESTLAB_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.chdir(tmp_path)
    return Lab.find(tmp_path / "lab")


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with unusual files."""
    top = tmp_path / "project"
    (top / "src" / "größe").mkdir(parents=True)
    (top / "src" / "größe" / "a b\n.py").write_text("V = 1\n")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o750)
    (top / os.fsdecode(b"\xff.txt")).write_bytes(b"\0\r")
    (top / "empty").touch(mode=0o600)
    (top / "link").symlink_to("src/größe")
    (top / "src" / "broken").symlink_to("../absent")
    return top


def shipped(lab: Lab, top: Path, **changes: str) -> ShippedCode:
    content = pack(top, files_of(top))
    code = ShippedCode(top=str(top), cwd="/", archive=hashlib.sha256(content).hexdigest())
    (lab.root / "code").mkdir(parents=True, exist_ok=True)
    (lab.root / code.file).write_bytes(gzip.compress(content))
    return code.model_copy(update=changes)


def run(top: Path) -> RunRecord:
    config = {
        "command": ["python", "a.py"],
        "cwd": str(top / "src"),
        "rules": {f"{top}/run.sh": [f"{top}/x/../src", f"{top}/ignored.csv", f"{top}2", 3]},
    }
    return RunRecord("f" * 64, f"{top}/rule.py:f", config, 0, "runs/a", RunState.PENDING, None, {})


def test_files_links_and_executable_bits_arrive_unchanged(lab, top):
    code = shipped(lab, top)
    code.applied(run(top), lab)
    here = lab.root.parent / "scratch" / "code" / str(code.archive)
    names = {path.relative_to(top): path for path in top.rglob("*")}
    found = {path.relative_to(here): path for path in here.rglob("*")}
    assert found.keys() - {Path(".git")} == names.keys()
    for name, path in names.items():
        assert found[name].is_symlink() == path.is_symlink()
        if path.is_symlink():
            assert found[name].readlink() == path.readlink()
        elif path.is_file():
            assert found[name].read_bytes() == path.read_bytes()
            assert os.access(found[name], os.X_OK) == (path.name == "run.sh")


def test_the_same_content_has_the_same_digest(top, tmp_path):
    first = pack(top, files_of(top))
    other = tmp_path / "other"
    subprocess.run(["cp", "-r", "--no-preserve=timestamps", top, other], check=True)
    os.utime(other / "run.sh", (1, 1))
    (other / "empty").chmod(0o644)
    assert pack(other, sorted(files_of(other), reverse=True)) == first
    (other / "empty").chmod(0o755)
    assert pack(other, files_of(other)) != first


def test_paths_of_a_config_lead_to_the_shipped_files_alone(lab, top):
    (top / "rule.py").write_text("def f(config, context): ...\n")
    code = shipped(lab, top, cwd=str(top / "src"))
    (top / "rule.py").unlink()
    moved = code.applied(run(top), lab)
    here = Path.cwd().parent
    assert here.parent == lab.root.parent / "scratch" / "code"
    assert moved.program == f"{here}/rule.py:f"
    assert moved.config["cwd"] == str(here / "src")
    assert moved.config["rules"] == {f"{here}/run.sh": [f"{here}/src", f"{top}/ignored.csv", f"{top}2", 3]}
    (here / "mark").touch()
    assert code.applied(run(top), lab) == moved and (here / "mark").exists()  # not fetched again


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda file: file.unlink(), "the lab has no code/"),
        (lambda file: file.write_bytes(b"\x1f\x8b"), "ended before the end-of-stream"),
        (lambda file: file.write_bytes(file.with_name("other").read_bytes()), "is damaged: delete it"),
    ],
)
def test_a_missing_or_damaged_archive_is_refused(lab, top, damage, problem):
    code = shipped(lab, top)
    (lab.root / "code" / "other").write_bytes(gzip.compress(b"other"))
    damage(lab.root / code.file)
    with pytest.raises((UserError, EOFError), match=problem):
        code.applied(run(top), lab)
    assert not any((lab.root.parent / "scratch" / "code").glob("[!.]*"))


@pytest.mark.skipif(not hasattr(tarfile, "data_filter"), reason="this Python has no filters")
@pytest.mark.parametrize("name", ["../x", "/tmp/x", "link/x"])
def test_no_archive_writes_outside_its_folder(lab, top, name):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, ".."
        archive.addfile(link)
        archive.addfile(tarfile.TarInfo(name))
    code = shipped(lab, top, archive=hashlib.sha256(buffer.getvalue()).hexdigest())
    (lab.root / code.file).write_bytes(gzip.compress(buffer.getvalue()))
    with pytest.raises(tarfile.FilterError):
        code.applied(run(top), lab)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", "-C", folder, *identity, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_a_commit_is_cloned_once(lab, top):
    (top / os.fsdecode(b"\xff.txt")).unlink()
    git(top, "init", "-q")
    git(top, "add", ".")
    git(top, "commit", "-qm", "first")
    commit = git(top, "rev-parse", "HEAD")
    git(top, "commit", "-qm", "second", "--allow-empty")
    code = ShippedCode(top=str(top), cwd=str(top), commit=commit, url=f"file://{top}/.git")
    moved = code.applied(run(top), lab)
    assert git(Path.cwd(), "rev-parse", "HEAD") == commit
    assert (Path.cwd() / "link" / "a b\n.py").read_text() == "V = 1\n"
    (top / ".git").rename(top / "away")
    assert code.applied(run(top), lab) == moved
    absent = code.model_copy(update={"commit": "0" * 40})
    with pytest.raises(
        Failed, match=r"can't clone file://.*does not appear to be a git repository"
    ) as raised:
        absent.applied(run(top), lab)
    assert not raised.value.recurs


def test_without_git_the_reason_says_so_and_is_not_retried(lab, top, monkeypatch):
    (lab.root.parent / "bin").mkdir()
    (lab.root.parent / "bin" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(lab.root.parent / "bin"))
    code = ShippedCode(top=str(top), cwd=str(top), commit="0" * 40, url="git@example.org:ada/x.git")
    with pytest.raises(Failed, match=r"git: not found.*jobs need git") as raised:
        code.applied(replace(run(top)), lab)
    assert raised.value.recurs
