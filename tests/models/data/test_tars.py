"""Tar files: what is written, `tarfile` reads; what `tarfile` writes, is scanned; damage is an error."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.data.tars import Member, TarWriter, members

CONTENTS = {"000000000.jpg": b"x" * 700, "000000000.txt": b"", "a/b.json": b"y" * 512}


def content(tar, member):
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def write(path, contents=CONTENTS):
    with TarWriter(path) as tar:
        for name, content in contents.items():
            tar.add(name, content)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9_/]{1,90}\.txt", fullmatch=True), st.binary(max_size=1500), max_size=8
    )
)
def test_written_tars_are_read_by_tarfile(contents):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.tar"
        write(path, contents)
        with tarfile.open(path) as tar:
            assert {m.name: content(tar, m) for m in tar} == contents
        raw = path.read_bytes()
        assert {m.name: raw[m.offset : m.offset + m.size] for m in members(path)} == contents


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_others_are_scanned(tmp_path, form):
    names = ["plain.jpg", "deep/" * 10 + "name.txt", "x" * 95 + ".json", "last.txt"]
    if form != tarfile.USTAR_FORMAT:
        names.insert(2, "long/" * 30 + "name.txt")
        names.insert(3, "naïve.txt")
    with tarfile.open(tmp_path / "0.tar", "w", format=form) as tar:
        tar.addfile(folder := tarfile.TarInfo("deep"))
        folder.type = tarfile.DIRTYPE
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode("latin1")))
    with tarfile.open(tmp_path / "0.tar") as tar:
        expected = [Member(m.name, m.offset_data, m.size) for m in tar if m.isreg()]
    assert list(members(tmp_path / "0.tar")) == expected
    assert [member.name for member in expected][1:] == names


@pytest.mark.parametrize(
    "kept, reason",
    [
        (600, "cut short in member '000000000.jpg'"),  # in a member's content
        (1300, "not a readable tar"),  # in its padding
        (2049, "damaged header at byte 2048"),
    ],
)
def test_a_tar_cut_short_is_an_error(tmp_path, kept, reason):
    write(tmp_path / "0.tar")
    raw = (tmp_path / "0.tar").read_bytes()
    (tmp_path / "0.tar").write_bytes(raw[:kept])
    with pytest.raises(ValueError, match=rf"0\.tar: .*{reason}.*fetch the shard again"):
        list(members(tmp_path / "0.tar"))


def test_a_damaged_header_in_the_middle_is_an_error_and_not_the_end(tmp_path):
    write(tmp_path / "0.tar")
    raw = bytearray((tmp_path / "0.tar").read_bytes())
    raw[512 + 1024 + 3] ^= 0xFF  # in the second header
    (tmp_path / "0.tar").write_bytes(raw)
    with pytest.raises(ValueError, match="damaged header at byte 1536"):
        list(members(tmp_path / "0.tar"))


def test_names_that_do_not_fit_are_refused(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar, pytest.raises(ValueError, match="too long a name"):
        tar.add("x" * 101, b"")
