"""`jestlab import` of archives that would fill the disk or the memory: an error in one line."""

import gzip
import io
import json
import shutil
import tarfile
from collections import namedtuple
from pathlib import Path

import plans_support as plans
import pyarrow as pa
import pytest
import stores_support as stores
from archives_support import add, export, members, rewrite, take

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import archive_write as exporting
from jestlab.platform.exchange import unpacking
from jestlab.platform.exchange.limits import LIMITS, Limits
from jestlab.platform.exchange.unpacking import archived_rows, unpack
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def path(copy: Lab, tmp_path: Path) -> Path:
    """An archive of an empty lab."""
    export(copy, tmp_path / "lab.tar.gz")
    return tmp_path / "lab.tar.gz"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def check_refused(path, out, match, limits=LIMITS):
    with pytest.raises(UserError, match=match) as error:
        unpack(path, out, limits)
    assert "\n" not in str(error.value)
    shutil.rmtree(out)
    out.mkdir()


def tar_of(files) -> bytes:
    """Return a tar of files without the end marker."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, content in files:
            tar.addfile(member, io.BytesIO(content))
        end = raw.tell()
    return raw.getvalue()[:end]


def append_header(path, size, content=b"", kind=tarfile.REGTYPE, /, **pax):
    """Replace the last file of an archive by one whose header claims a size."""
    member = tarfile.TarInfo("runs/a/checkpoint")
    member.size, member.type, member.pax_headers = size, kind, pax
    header = member.tobuf(tarfile.GNU_FORMAT if size >= 8**11 else tarfile.PAX_FORMAT)
    path.write_bytes(gzip.compress(tar_of(members(path)[:-1]) + header + content))


@pytest.mark.parametrize("size", [2**62, 2**40, 2 * LIMITS.small])
def test_a_file_cannot_claim_more_than_the_archive_may_contain(copy, path, size):
    append_header(path, size, bytes(1 << 20))
    assert path.stat().st_size < 6_000
    with pytest.raises(UserError, match="would unpack to more than 200 times its size"):
        take(copy, path)
    assert {p.name for p in copy.root.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}


def test_an_archive_cannot_unpack_to_more_than_a_multiple_of_its_size(path, out):
    zeros = path.with_name("zeros.tar.zst")
    with (
        pa.CompressedOutputStream(str(zeros), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="w|") as tar,
    ):
        for member, data in members(path)[:-1]:
            tar.addfile(member, io.BytesIO(data))
        for number in range(5):
            member = tarfile.TarInfo(f"runs/a/{number}")
            member.size = 1 << 20
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    assert zeros.stat().st_size < 20_000
    check_refused(zeros, out, "would unpack to more than 200 times its size", Limits(small=4 << 20))
    check_refused(zeros, out, "is cut short", Limits(small=6 << 20))


def test_sparse_files_long_names_and_long_headers_are_refused(path, out):
    original = path.read_bytes()
    sparse = {"GNU.sparse.size": str(2**62), "GNU.sparse.map": "0,0"}
    too_long = "name or attributes are too long"  # tarfile reads a header completely into memory
    for arguments, pax, match in (
        ((512, bytes(512), tarfile.GNUTYPE_SPARSE), {}, "does not belong there"),
        ((0,), sparse, "does not belong there|damaged"),
        ((0,), {"path": "runs/a/" + "x" * 2_000}, "does not belong there"),
        ((0,), {"path": "runs/a/" + "x" * (1 << 20)}, too_long),
        ((2**40, bytes(1 << 20), tarfile.XHDTYPE), {}, too_long),
    ):
        path.write_bytes(original)
        append_header(path, *arguments, **pax)
        check_refused(path, out, match)


def test_many_files_are_refused(path, out):
    rewrite(path, lambda contents: [add(f"runs/a/{i}")(contents) for i in range(50)])
    count = len(members(path))
    check_refused(path, out, f"more than {count - 1} files", Limits(members=count - 1))
    unpack(path, out, Limits(members=count))


def test_long_rows_are_refused(out):
    (out / "tables").mkdir()
    (out / "tables" / "run.jsonl").write_bytes(b'{"a":"b"}\n')
    assert list(archived_rows(out, "run", Limits(line=10))) == [{"a": "b"}]
    with pytest.raises(UserError, match="a line of run is longer than 9 bytes"):
        list(archived_rows(out, "run", Limits(line=9)))


def test_long_curves_are_exported_in_parts(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_POINTS", 4)
    store = Store.open(copy.store_url)
    store.record(plans.plan(run := plans.run("long")))
    stores.attempt(store, run, loss=tuple(range(10)))
    export(copy, tmp_path / "lab.tar.gz")
    [lines] = [data for member, data in members(tmp_path / "lab.tar.gz") if "metric" in member.name]
    assert [json.loads(line)["steps"] for line in lines.splitlines()] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]


def test_a_reserve_of_the_disk_stays_free(path, out, monkeypatch):
    free = iter([LIMITS.reserve * 2] * 3 + [LIMITS.reserve - 1] * 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, next(free)))
    check_refused(path, out, r"too little space on the disk of .*268\.4 MB have to stay free: make room")


def test_the_archives_own_description_is_short(path, out, monkeypatch):
    monkeypatch.setattr(unpacking, "_HEAD_BYTES", 1_000)
    rewrite(path, add("jestlab.json", b"{}" + b" " * 999))
    check_refused(path, out, "jestlab.json has 1,001 bytes")
