"""`jestlab export --format`: writes a whole new folder, or nothing and an error of one line."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.platform.exchange.recorded import LABEL, files_below, only, result

from jestlab.platform.cli import main
from jestlab.platform.cli.export import VIEWERS
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.exchange import export as kinds
from jestlab.platform.exchange import export_read as results
from jestlab.platform.exchange import read_mlflow as mlflow
from jestlab.platform.exchange import read_tensorboard as tensorboard
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store

Command = Callable[..., str]


@pytest.fixture
def called(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call `jestlab export` in a lab, check its exit code, and return what it printed."""

    def call(*arguments: object, code: int = 0, store: str | None = None) -> str:
        words = ["export", *map(str, arguments), "--root", str(tmp_path / "lab")]
        with pytest.raises(SystemExit) as stopped:
            main([*words, "--store", store] if store else words)
        printed = capsys.readouterr()
        assert stopped.value.code == code, printed.err
        if not code:
            return printed.out
        said = printed.err.removeprefix("\n")  # after the ^C of a terminal
        assert printed.out == "" and said.count("\n") == 1
        return said

    return call


@pytest.fixture
def export(called: Command, recorded_sqlite: Store, sqlite_url: str) -> Command:
    """The command in a lab that has the recorded studies."""
    return lambda *arguments, **more: called(*arguments, **more, store=sqlite_url)


def places(kind: str, folder: Path) -> list[str]:
    """LABEL/SEED of each run in a folder."""
    if kind == "parquet":
        rows = pq.read_table(folder / "runs.parquet").to_pylist()
        return sorted(f"{row['label']}/{row['seed']}" for row in rows)
    if kind == "mlflow":
        return sorted(run.name for run in mlflow.read(folder))
    return sorted("/".join(run.name.split("/")[1:]) for run in tensorboard.read(folder))


TOY = sorted(["baseline/0", "broken/0", f"{LABEL}/0", f"{LABEL}/1", "waiting/0"])


FORMATS = tuple(VIEWERS)


@pytest.mark.parametrize("kind", FORMATS)
def test_exports_all_or_some_experiments(export, out, monkeypatch, kind):
    monkeypatch.chdir(out.parent)
    printed = export("my runs", "--format", kind)
    viewer = VIEWERS[kind].format(folder="'my runs'")
    assert printed == f"my runs: 6 runs; to view them: {viewer}\n"
    assert places(kind, Path("my runs")) == sorted([*TOY, "broken/0"])
    assert only(out.parent, out.with_name("my runs"))
    told = json.loads(export(out, "toy", "--format", kind, "--json"))
    assert told == {"folder": str(out), "format": kind, "runs": 5}
    assert places(kind, out) == TOY


def test_writes_to_empty_and_new_folders(export, out, monkeypatch):
    monkeypatch.chdir(out.parent)
    for name in ("empty", "here"):
        Path(name).mkdir()
    Path("link").symlink_to("empty")
    for folder in ("link", "new/deeper/out"):
        export(folder, "toy", "--format", "parquet")
        assert places("parquet", Path(folder)) == TOY
    assert Path("link").is_symlink()
    monkeypatch.chdir("here")
    export(".", "toy", "--format", "parquet")
    assert places("parquet", out.parent / "here") == TOY
    assert {path.name for path in out.parent.iterdir()} == {"empty", "link", "new", "here"}


def test_rejects_files_and_folders_that_are_not_empty(export, out):
    out.mkdir()
    (out / ".hidden").write_text("mine")
    for folder, reason in (
        (out, "{} is not empty: give the name of a new folder"),
        (out / ".hidden", "{} is a file: give the name of a new folder"),
        (out / ".hidden" / "below", "cannot write {}: Not a directory"),
    ):
        said = export(folder, "--format", "parquet", code=1)
        assert said == f"jestlab: {reason.format(folder)}\n"
        assert files_below(out.parent) == {"out", "out/.hidden"}
    assert (out / ".hidden").read_text() == "mine"
    assert "File name too long" in export(out.with_name("x" * 300), "--format", "parquet", code=1)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("kind", "error", "code", "said"),
    [
        *((kind, FULL, 1, "jestlab: cannot write {out}: No space left on device\n") for kind in FORMATS),
        ("parquet", KeyboardInterrupt(), 130, "jestlab: interrupted\n"),
        ("parquet", StoreUnreachable("the store is locked"), 1, "jestlab: the store is locked\n"),
        ("parquet", ValueError("no such\nnumber"), 1, "jestlab: no such number\n"),
    ],
)
def test_failed_and_interrupted_exports_leave_nothing(export, out, monkeypatch, kind, error, code, said):
    partial: list[str] = []

    def failing(store, experiments, advance):
        yield result("first", metrics={"loss": [1.0]})
        yield result("second")
        partial.extend(path.name for path in out.parent.iterdir() if path != out)
        raise error

    monkeypatch.setattr(results, "read", failing)
    for exists in (False, True):
        if exists:
            out.mkdir()
        assert export(out, "--format", kind, code=code) == said.format(out=out)
        assert files_below(out.parent) == ({"out"} if exists else set())
    assert all(name.startswith(".out.") and name.endswith(".part") for name in partial)
    assert len(partial) == 2


def test_does_not_replace_a_folder_that_was_filled_meanwhile(out):
    def runs():
        yield result()
        out.mkdir()
        (out / "theirs").touch()

    with pytest.raises(UserError, match=r"cannot write .*/out: Directory not empty"):
        kinds.write("parquet", runs(), out)
    assert files_below(out.parent) == {"out", "out/theirs"}


def test_rejects_empty_labs(called, out, tmp_path):
    said = called(out, "--format", "parquet", code=1)
    assert "no results store" in said or "no store" in said, said
    assert not (tmp_path / "lab").exists()
    Store.open(Lab.find(tmp_path / "lab").store_url).close()
    said = called(out, "--format", "parquet", code=1)
    assert said == "jestlab: there are no runs to export: launch a study first\n"
    assert files_below(out.parent) == set()


def test_rejects_unknown_formats_and_checkpoints_outside_of_archives(export, out):
    said = export(out, "--format", "wandb", code=2)
    assert all(name in said for name in FORMATS)
    said = export(out, "--format", "parquet", "--with-checkpoints", code=2)
    assert said.startswith("jestlab: --with-checkpoints: only archives contain files of runs")
    assert files_below(out.parent) == set()


def test_an_archive_is_a_file(export, out):
    out.mkdir()
    for arguments in ([out], [out, "toy", "--format", "archive"]):
        said = export(*arguments, code=1)
        assert said.startswith(f"jestlab: {out} is a folder: name an archive, NAME.zip")
    assert files_below(out.parent) == {"out"}
    told = json.loads(export(out / "toy.zip", "toy", "--json"))
    assert (told["experiments"], told["runs"]) == (["toy"], 4)
    assert files_below(out) == {"toy.zip"}
