"""`jestlab export --format`: a new folder, whole or not at all, and one line of what is wrong."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pyarrow.parquet as pq
import pytest
from tests.platform.formats.recorded import LABEL, files_below, only, result

from jestlab.platform.adopting import mlflow, tensorboard
from jestlab.platform.cli import main
from jestlab.platform.cli.lab import FORMATS, export_command
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.formats import kinds, results
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
def export(called: Command, sqlite_store: Store, sqlite_url: str) -> Command:
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


def test_formats_are_those_that_there_are():
    assert sorted(kinds.WRITERS) == sorted(FORMATS)
    (option,) = (each for each in export_command.params if each.name == "kind")
    assert isinstance(option.type, click.Choice) and list(option.type.choices) == ["archive", *FORMATS]


@pytest.mark.parametrize("kind", FORMATS)
def test_all_or_some_experiments(export, out, kind):
    printed = export(out, "--format", kind)
    assert printed.startswith(f"{out}: 6 runs; to look at them: ")
    assert places(kind, out) == sorted([*TOY, "broken/0"])
    assert only(out.parent, out)
    some = out.with_name("with a space")
    told = json.loads(export(some, "toy", "--format", kind, "--json"))
    assert told == {"folder": str(some), "format": kind, "runs": 5}
    assert places(kind, some) == TOY


@pytest.mark.parametrize(
    ("kind", "viewer"),
    [
        ("mlflow", "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri 'my runs'"),
        ("tensorboard", "tensorboard --logdir 'my runs'"),
    ],
)
def test_what_is_printed_can_be_pasted(export, out, monkeypatch, kind, viewer):
    monkeypatch.chdir(out.parent)
    assert export("my runs", "other", "--format", kind) == f"my runs: 1 run; to look at them: {viewer}\n"


@pytest.mark.parametrize("kind", FORMATS)
def test_a_folder_that_is_there(export, out, kind, monkeypatch):
    out.mkdir()
    (out / ".hidden").write_text("mine")
    before = out.stat().st_mtime_ns
    said = export(out, "--format", kind, code=1)
    assert said == f"jestlab: {out} is not empty: give the name of a new folder\n"
    assert files_below(out.parent) == {"out", "out/.hidden"} and out.stat().st_mtime_ns == before
    said = export(out / ".hidden", "--format", kind, code=1)
    assert said == f"jestlab: {out / '.hidden'} is a file: give the name of a new folder\n"
    assert (out / ".hidden").read_text() == "mine"

    (out / ".hidden").unlink()
    export(out, "toy", "--format", kind)
    assert places(kind, out) == TOY
    monkeypatch.chdir(out.parent)
    Path("empty").mkdir()
    Path("link").symlink_to("empty")
    export("link", "toy", "--format", kind)
    assert Path("link").is_symlink() and places(kind, Path("empty")) == TOY
    export("new/deeper/out", "toy", "--format", kind)
    assert places(kind, Path("new/deeper/out")) == TOY
    Path("here").mkdir()
    monkeypatch.chdir("here")
    export(".", "toy", "--format", kind)
    assert places(kind, out.parent / "here") == TOY
    assert {path.name for path in out.parent.iterdir()} == {"out", "empty", "link", "new", "here"}


def test_places_where_nothing_can_be(export, out):
    out.write_text("a file")
    said = export(out / "below", "--format", "parquet", code=1)
    assert said == f"jestlab: cannot write {out / 'below'}: Not a directory\n"
    said = export(out.with_name("x" * 300), "--format", "parquet", code=1)
    assert "File name too long" in said
    assert files_below(out.parent) == {"out"} and out.read_text() == "a file"


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "jestlab: interrupted\n"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            1,
            "jestlab: cannot write {out}: No space left on device\n",
        ),
        (StoreUnreachable("the store is locked"), 1, "jestlab: the store is locked\n"),
        (ValueError("no such\nnumber"), 1, "jestlab: no such number\n"),
    ],
)
def test_what_fails_or_is_stopped_leaves_nothing(export, out, monkeypatch, kind, exists, error, code, said):
    """After some runs have been written."""
    if exists:
        out.mkdir()
    there: list[str] = []

    def failing(store, experiments):
        yield result("first", metrics={"loss": [1.0]})
        yield result("second")
        there.extend(path.name for path in out.parent.iterdir() if path != out)
        raise error

    monkeypatch.setattr(results, "read", failing)
    assert export(out, "--format", kind, code=code) == said.format(out=out)
    (partial,) = there
    assert partial.startswith(".out.") and partial.endswith(".part")
    assert files_below(out.parent) == ({"out"} if exists else set())


def test_a_folder_that_somebody_fills_meanwhile_is_not_replaced(out):
    def runs():
        yield result()
        out.mkdir()
        (out / "theirs").touch()

    with pytest.raises(UserError, match=r"cannot write .*/out: Directory not empty"):
        kinds.write("parquet", runs(), out)
    assert files_below(out.parent) == {"out", "out/theirs"}


def test_experiments_and_labs_that_have_nothing(export, called, out, tmp_path):
    said = export(out, "toi", "--format", "parquet", code=1)
    assert said == "jestlab: no experiment 'toi' in the store: did you mean 'toy'?\n"
    said = called(out, "--format", "parquet", code=1)
    assert "no results store" in said or "no store" in said, said
    assert not (tmp_path / "lab").exists()
    Store.open(Lab.find(tmp_path / "lab").store_url).close()
    said = called(out, "--format", "parquet", code=1)
    assert said == "jestlab: there are no runs to export: launch a study first\n"
    assert files_below(out.parent) == set()


@pytest.mark.parametrize("kind", FORMATS)
def test_checkpoints_are_for_archives(export, out, kind):
    said = export(out, "--format", kind, "--with-checkpoints", code=2)
    assert said.startswith(f"jestlab: --with-checkpoints: only an archive holds files of runs, {kind} none")
    assert files_below(out.parent) == set()


def test_an_archive_is_a_file(export, out):
    out.mkdir()
    for arguments in ([out], [out, "toy", "--format", "archive"]):
        said = export(*arguments, code=1)
        assert (
            said == f"jestlab: {out} is a folder: name an archive, .tar.zst or .tar.gz, or give a --format\n"
        )
    assert files_below(out.parent) == {"out"}
    told = json.loads(export(out / "toy.tar.gz", "toy", "--json"))
    assert (told["experiments"], told["runs"]) == (["toy"], 4)
    assert files_below(out) == {"toy.tar.gz"}


def test_unknown_formats(export, out):
    said = export(out, "--format", "wandb", code=2)
    assert all(name in said for name in FORMATS)
    assert files_below(out.parent) == set()
