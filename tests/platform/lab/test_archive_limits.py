"""`jestlab import` of archives that ask for too much: refused before the disk is full, in one line."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
from collections import namedtuple

import pyarrow as pa
import pytest
from archives_support import add, members, rewrite

from jestlab.platform.errors import UserError
from jestlab.platform.lab import exporting, merging, unpacking
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.limits import LIMITS, Limits
from jestlab.platform.store.store import Store

Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def lab(tmp_path):
    lab = Lab.find(tmp_path / "deep" / "lab")
    Store.open(lab.store_url)
    return lab


@pytest.fixture
def archive(tmp_path):
    """An archive of an empty lab."""
    theirs, path = Lab.find(tmp_path / "theirs"), tmp_path / "lab.tar.gz"
    exporting.write(theirs, Store.open(theirs.store_url), path)
    return path


def refused(lab, path, match):
    with pytest.raises(UserError, match=match) as error:
        merging.merge(lab, Store.open(lab.store_url), path)
    assert "\n" not in str(error.value)
    assert {p.name for p in lab.root.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}


def claim(archive, size, content=b"", kind=tarfile.REGTYPE, **pax):
    """Add a file that claims a size, whatever follows it, as the last thing in the archive."""
    found = members(archive)[:-1]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in found:
            tar.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo("runs/a/checkpoint")
        member.size, member.type, member.pax_headers = size, kind, pax
        raw.write(member.tobuf(tarfile.GNU_FORMAT if size >= 8**11 else tarfile.PAX_FORMAT))
        raw.write(content)
    archive.write_bytes(gzip.compress(raw.getvalue()))


@pytest.mark.parametrize("size", [2**62, 2**40, 2 * LIMITS.small])
def test_a_file_that_claims_more_than_the_archive_can_hold(lab, archive, size):
    claim(archive, size, bytes(1 << 20))
    assert archive.stat().st_size < 6_000
    refused(lab, archive, "would unpack to more than 200 times its size")


def test_a_sparse_file_holds_nothing_however_large(lab, archive):
    claim(archive, 512, bytes(512), tarfile.GNUTYPE_SPARSE)
    refused(lab, archive, "does not belong there")
    claim(archive, 0, **{"GNU.sparse.size": str(2**62), "GNU.sparse.map": "0,0"})
    refused(lab, archive, "does not belong there|damaged")


def test_zeros_that_were_squeezed(lab, archive, tmp_path):
    """The bytes are there, and each file is honest about its size."""
    path = tmp_path / "zeros.tar.zst"
    with (
        pa.CompressedOutputStream(str(path), "zstd") as stream,
        tarfile.open(fileobj=stream, mode="w|") as tar,
    ):
        for member, data in members(archive)[:-1]:
            tar.addfile(member, io.BytesIO(data))
        for number in range(5):
            member = tarfile.TarInfo(f"runs/a/{number}")
            member.size = 16 << 20
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    assert path.stat().st_size < 1 << 17
    refused(lab, path, "would unpack to more than 200 times its size")


def test_names_that_are_longer_than_names_are(lab, archive):
    claim(archive, 0, path="runs/a/" + "x" * 2_000)
    refused(lab, archive, "does not belong there")
    claim(archive, 0, path="runs/a/" + "x" * (1 << 20))
    refused(lab, archive, "name or attributes are too long")


def test_headers_that_claim_to_be_endless(lab, archive):
    """tarfile reads such a header whole, into memory."""
    claim(archive, 2**40, bytes(1 << 20), tarfile.XHDTYPE)
    refused(lab, archive, "name or attributes are too long")


def test_headers_that_are_nested(lab, archive):
    found = members(archive)[:-1]
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for member, data in found:
            tar.addfile(member, io.BytesIO(data))
    long = tarfile.TarInfo("x")
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 1
    raw.seek(-(raw.getbuffer().nbytes % tarfile.BLOCKSIZE) or 0, io.SEEK_END)
    end = raw.getvalue().rstrip(b"\0")
    end += bytes(-len(end) % tarfile.BLOCKSIZE)
    archive.write_bytes(gzip.compress(end + (long.tobuf() + b"a" + bytes(511)) * 5_000))
    refused(lab, archive, "name or attributes are too long|damaged")


def test_folders_that_are_deeper_than_folders_are(lab, archive):
    rewrite(archive, add("runs/" + "d/" * 100 + "x"))
    refused(lab, archive, "does not belong there")


def test_more_files_than_labs_have(tmp_path, archive):
    rewrite(archive, lambda contents: [add(f"runs/a/{i}")(contents) for i in range(50)])
    (tmp_path / "out").mkdir()
    with pytest.raises(UserError, match="more than 40 files"):
        unpacking.unpack(archive, tmp_path / "out", Limits(members=40))
    (tmp_path / "all").mkdir()
    unpacking.unpack(archive, tmp_path / "all")


def test_a_row_that_does_not_end(lab, archive, monkeypatch):
    rewrite(archive, add("tables/run.jsonl", b'{"fingerprint": "' + b"0" * (LIMITS.line + 1)))
    refused(lab, archive, "a line of run is longer than 33,554,432 bytes")


def test_long_curves_are_written_in_parts(tmp_path, monkeypatch):
    import plans_support as plans
    import stores_support as stores

    monkeypatch.setattr(exporting, "_POINTS", 4)
    theirs, path = Lab.find(tmp_path / "theirs"), tmp_path / "lab.tar.gz"
    store = Store.open(theirs.store_url)
    [run] = plans.plan(plans.run("long")).runs
    store.record(plans.plan(run))
    stores.attempt(store, run, loss=tuple(range(10)))
    exporting.write(theirs, store, path)
    [lines] = [data for member, data in members(path) if member.name == "tables/metric.jsonl"]
    assert [json.loads(line)["steps"] for line in lines.splitlines()] == [
        [1, 2, 3, 4],
        [5, 6, 7, 8],
        [9, 10],
    ]


def test_the_disk_keeps_a_reserve(lab, archive, monkeypatch):
    free = iter([LIMITS.reserve * 2] * 3 + [LIMITS.reserve - 1] * 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 0, next(free)))
    refused(lab, archive, r"too little space on the disk of .*268\.4 MB have to stay free: make room")


def test_a_checksum_list_and_a_head_are_short(lab, archive):
    rewrite(archive, add("jestlab.json", b"{}" + b" " * (1 << 25)))
    refused(lab, archive, "jestlab.json has 33,554,434 bytes")


def test_a_file_where_a_folder_is(lab, archive):
    def both(contents):
        add("runs/a/b")(contents)
        add("runs/a/b/c")(contents)

    rewrite(archive, both)
    refused(lab, archive, "is where another file is")


def test_what_export_writes_is_within_the_limits(lab, archive):
    merging.merge(lab, Store.open(lab.store_url), archive)
