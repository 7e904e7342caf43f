"""`jestlab export --format`: writes a complete new folder, or nothing and an error of one line."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import labs_support as labs
import pyarrow.parquet as pq
import pytest
from tests.platform.exchange.recorded import LABEL, files_below, only, raise_error, result

from jestlab.platform.cli.export import VIEWERS
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.exchange import export as exporting
from jestlab.platform.exchange import read_mlflow, read_tensorboard
from jestlab.platform.exchange.source_run import AdoptOptions
from jestlab.platform.store.store import Store

Command = Callable[..., str]
TOY = sorted(["baseline/0", "broken/0", f"{LABEL}/0", f"{LABEL}/1", "waiting/0"])


def called(root: Path, *arguments: object, code: int = 0) -> str:
    """Call `jestlab export`, check its exit code, and return its output or its error."""
    done = labs.here("export", *arguments, root=root)
    assert done.returncode == code, done.stderr
    if not code:
        return done.stdout
    error = done.stderr.removeprefix("\n")  # after the ^C of a terminal
    assert done.stdout == "" and error.count("\n") == 1
    return error


@pytest.fixture
def export(recorded_sqlite: Store, sqlite_url: str, tmp_path: Path) -> Command:
    """The command in a lab that has the recorded studies."""
    return lambda *arguments, code=0: called(tmp_path / "lab", *arguments, "--store", sqlite_url, code=code)


def places(kind: str, folder: Path) -> list[str]:
    """LABEL/SEED of each run in a folder."""
    if kind == "parquet":
        rows = pq.read_table(folder / "runs.parquet").to_pylist()
        return sorted(f"{row['label']}/{row['seed']}" for row in rows)
    if kind == "mlflow":
        return sorted(run.name for run in read_mlflow.read(folder, raise_error))
    return sorted(
        "/".join(run.name.split("/")[1:])
        for run in read_tensorboard.read(folder, raise_error, AdoptOptions())
    )


@pytest.mark.parametrize("kind", VIEWERS)
def test_exports_all_or_some_experiments(export, out, monkeypatch, kind):
    monkeypatch.chdir(out.parent)
    printed = export("my runs", "--format", kind)
    assert "6 runs" in printed and VIEWERS[kind].format(folder="'my runs'") in printed
    assert places(kind, Path("my runs")) == sorted([*TOY, "broken/0"])
    assert only(out.parent, out.with_name("my runs"))
    data = json.loads(export(out, "toy", "--format", kind, "--json"))
    assert data == {"folder": str(out), "format": kind, "runs": 5}
    assert places(kind, out) == TOY


def test_writes_to_empty_and_new_folders(export, out, monkeypatch):
    monkeypatch.chdir(out.parent)
    for name in ("empty", "here"):
        Path(name).mkdir()
    Path("link").symlink_to("empty")
    for folder in ("link", "new/deeper/out"):
        export(folder, "toy", "--format", "parquet")
        assert places("parquet", Path(folder)) == TOY
    monkeypatch.chdir("here")
    export(".", "toy", "--format", "parquet")
    assert places("parquet", out.parent / "here") == TOY
    assert {path.name for path in out.parent.iterdir()} == {"empty", "link", "new", "here"}


def test_rejects_other_places_and_options(export, out, tmp_path, copy):
    assert "store" in called(tmp_path / "lab", out, "--format", "parquet", code=1)
    assert not (tmp_path / "lab").exists()
    assert "no runs to export" in called(copy.root, out, "--format", "parquet", code=1)
    assert all(name in export(out, "--format", "wandb", code=2) for name in VIEWERS)
    assert "--with-checkpoints" in export(out, "--format", "parquet", "--with-checkpoints", code=2)
    assert files_below(out.parent) == set()
    out.mkdir()
    (out / ".hidden").write_text("mine")
    for folder, reason in (
        (out, "not empty"),
        (out / ".hidden", "is a file"),
        (out / ".hidden/x", "Not a"),
    ):
        assert reason in export(folder, "--format", "parquet", code=1)
    assert "File name too long" in export(out.with_name("x" * 300), "--format", "parquet", code=1)
    assert f"{out} is a folder: name an archive" in export(out, code=1)
    assert files_below(out.parent) == {"out", "out/.hidden"}


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("kind", "error", "code", "message"),
    [
        *((kind, FULL, 1, "cannot write {out}: No space left on device\n") for kind in VIEWERS),
        ("parquet", KeyboardInterrupt(), 130, "interrupted\n"),
        ("parquet", StoreUnreachable("the store is locked"), 1, "the store is locked\n"),
        ("parquet", ValueError("no such\nnumber"), 1, "no such number\n"),
    ],
)
def test_failed_and_interrupted_exports_leave_nothing(export, out, monkeypatch, kind, error, code, message):
    partial: list[str] = []

    def failing(store, members, advance):
        yield result("first", metrics={"loss": [1.0]})
        yield result("second")
        partial.extend(path.name for path in out.parent.iterdir() if path != out)
        raise error

    monkeypatch.setattr(exporting, "read", failing)
    for exists in (False, True):
        if exists:
            out.mkdir()
        assert export(out, "--format", kind, code=code) == f"jestlab: {message.format(out=out)}"
        assert files_below(out.parent) == ({"out"} if exists else set())
    assert len(partial) == 2 and all(name.startswith(".out.") for name in partial)


def test_does_not_replace_a_folder_that_was_filled_meanwhile(out):
    def runs():
        yield result()
        out.mkdir()
        (out / "theirs").touch()

    with pytest.raises(UserError, match=r"cannot write .*/out: Directory not empty"):
        exporting.write("parquet", runs(), out)
    assert files_below(out.parent) == {"out", "out/theirs"}
