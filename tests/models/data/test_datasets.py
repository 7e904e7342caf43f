"""Made once, whole or not at all; known by content, not by place."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.models.support import own_code

from jestlab.models import config
from jestlab.models.data.datasets import MADE, digest, ensure_benchmark, ensure_web, path_digest
from jestlab.models.data.files import build_once, write_whole
from jestlab.models.data.shards import ShardIndex

MAKE = (
    "import sys; from pathlib import Path; from jestlab.models.config import Data, DataConfig, ShapesWeb;"
    "from jestlab.models.data.datasets import ensure_web;"
    "from jestlab.models.data.tokenizer import ensure_tokenizer;"
    "web = ShapesWeb(examples=3000, shard_size=300);"
    "folder = ensure_web(DataConfig(data=Data(train=web), seed=4), Path(sys.argv[1]));"
    "print(folder, ensure_tokenizer(folder, 128).digest)"
)


DIES = """
import os, signal
from jestlab.models.data import shapes
write = shapes._write_shard
def write_two(path, *rest):
    write(path, *rest)
    if path.name == "00001":
        os.kill(os.getpid(), signal.SIGKILL)
shapes._write_shard = write_two
"""


def run(train, seed=0, **options):
    return config.DataConfig(data=config.Data(train=train), seed=seed, **options)


def listing(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("0*.tar")}


def test_processes_at_once_make_it_once_even_after_one_that_was_killed(tmp_path):
    def start():
        command = [sys.executable, "-c", MAKE, str(tmp_path)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    killed = subprocess.run([sys.executable, "-c", DIES + MAKE, str(tmp_path)])
    assert killed.returncode == -signal.SIGKILL
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())  # nothing looks whole
    running = [start() for _ in range(3)]
    assert len({process.communicate(timeout=120)[0] for process in running}) == 1
    assert [process.returncode for process in running] == [0] * 3
    (folder,) = tmp_path.iterdir()  # and no temporary folder, no lock
    before = listing(folder)
    assert len(before) == 10
    assert ensure_web(run(config.ShapesWeb(examples=3000, shard_size=300), 4), tmp_path) == folder
    assert listing(folder) == before


def test_a_full_disk_is_named_and_leaves_nothing(tmp_path):
    full = OSError(errno.ENOSPC, "No space left on device")

    def build(folder):
        (folder / "half").touch()
        raise full

    def parts():
        yield b"half"
        raise full

    for make in (lambda path: build_once(path, build), lambda path: write_whole(path, parts())):
        with pytest.raises(OSError, match=r"No space left on device: '.*/data'$"):
            make(tmp_path / "data")
        assert [path.name for path in tmp_path.iterdir()] == [".data.lock"]
    build_once(tmp_path / "data", lambda folder: (folder / "whole").touch())
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["whole"]


def test_the_name_tells_content_apart(tmp_path):
    small = config.ShapesWeb(examples=20, image_size=8)
    changes: list[tuple[dict[str, Any], int]] = [
        ({}, 0),
        ({}, 1),
        ({"noise": config.NoiseRates(blank=0)}, 0),
        ({"examples": 21}, 0),
        ({"seed": 1}, 7),  # the web's own seed wins
    ]
    folders = [ensure_web(run(small.model_copy(update=change), seed), tmp_path) for change, seed in changes]
    assert len(set(folders)) == 4 and folders[4] == folders[1]
    benchmark = config.ShapesBenchmark(classification_examples=48, retrieval_examples=8)
    folder = ensure_benchmark(benchmark, tmp_path)
    assert {path.name for path in folder.iterdir()} == {"shapes_classification", "shapes_retrieval"}
    before = listing(tmp_path)
    assert ensure_benchmark(benchmark, tmp_path) == folder and listing(tmp_path) == before


READER = f"{own_code.MODULE}:squares"


def reader(**train):
    return config.Data.model_validate({"train": {"kind": "reader", "function": READER, **train}})


def test_a_web_of_a_reader_is_made_once_and_named_by_what_makes_it(tmp_path):
    def ensure(count, code="d", seed=0, **train):
        settings = reader(options={"count": count}, **train).train
        return ensure_web(run(settings, seed, code={READER: config.Code(digest=code)}), tmp_path)

    web = ensure(40)
    assert len(ShardIndex.load(web)) == 40 and MADE.fullmatch(web.name)
    before = web.stat().st_mtime_ns
    assert ensure(40, seed=3, examples=7) == web
    assert web.stat().st_mtime_ns == before
    assert len({web, ensure(41), ensure(40, code="e")}) == 3


def test_what_a_reader_reads_counts_by_its_content(tmp_path):
    files = first, second = tmp_path / "a.txt", tmp_path / "folder" / "b.txt"
    second.parent.mkdir()
    for file in files:
        file.write_text("red blue")
    one, other = (reader(path=str(f), path_digest=path_digest(f), options={"count": 8}) for f in files)
    identities = [config.EmbedConfig(reference="r", data=data).identity() for data in (one, other)]
    assert identities[0] == identities[1]
    assert ensure_web(run(one.train), tmp_path) == ensure_web(run(other.train), tmp_path)
    first.write_text("red")
    with pytest.raises(ValueError, match=r"a.txt: changed since the run was planned: launch again"):
        ensure_web(run(one.train), tmp_path / "elsewhere")
    digests = [path_digest(second.parent)]
    second.write_text("red")
    digests.append(path_digest(second.parent))
    second.rename(second.with_name("c.txt"))
    assert len({*digests, path_digest(second.parent)}) == 3


def test_digest_is_of_content_and_not_of_place(web, own_web):
    ShardIndex.load(own_web)  # derived files do not count
    for path in own_web.glob("*.tar"):
        os.utime(path, (1, 1))
    assert digest(own_web) == digest(web)
    for path in own_web.glob("*.tar"):
        path.unlink()
    with pytest.raises(FileNotFoundError, match=r"no \.tar"):
        digest(own_web)


@pytest.mark.parametrize("name", ["00001.tar", "00001.parquet"])
def test_digest_sees_a_change_after_it_was_kept(own_web, name, monkeypatch):
    before = digest(own_web)
    with monkeypatch.context() as patch:
        patch.setattr("jestlab.models.data.datasets.file_sha256", None)  # unchanged files aren't read again
        assert digest(own_web) == before
    raw = bytearray((own_web / name).read_bytes())
    raw[len(raw) // 2] ^= 1
    (own_web / name).write_bytes(raw)
    os.utime(own_web / name, (1, 1))  # clocks are coarse
    changed = digest(own_web)
    (own_web / "00002.tar").unlink()
    assert len({before, changed, digest(own_web)}) == 3


@pytest.mark.parametrize(
    ("settings", "changed"),
    [(config.ShardFolder, "00002.tar"), (config.BenchmarkFolder, "shapes_classification/classnames.txt")],
)
def test_a_folder_of_the_user_is_checked(web, benchmark_folder, tmp_path, settings, changed):
    if settings is config.ShardFolder:
        given, ensure = web, lambda folder: ensure_web(run(folder), tmp_path)
    else:
        given, ensure = benchmark_folder, partial(ensure_benchmark, cache=tmp_path)
    folder = Path(shutil.copytree(given, tmp_path / "own"))
    recorded = settings(path=str(folder), digest=digest(given))
    assert ensure(recorded) == folder
    (folder / changed).unlink()
    with pytest.raises(ValueError, match="its content changed"):
        ensure(recorded)
    assert ensure(settings(path=str(folder))) == folder
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ensure(settings(path=str(tmp_path / "nowhere")))


def test_files_of_killed_writers_are_deleted(tmp_path):
    old, young = tmp_path / "index.npz.1.part", tmp_path / "index.npz.2.part"
    for path in (old, young):
        path.touch()
    folder = tmp_path / ".index.part"  # of a killed builder
    folder.mkdir()
    for path in (old, folder):
        os.utime(path, (1, 1))
    assert write_whole(tmp_path / "index.npz", b"x")
    assert not old.exists() and young.exists() and folder.exists()
