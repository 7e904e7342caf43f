"""Tar files: what is written, `tarfile` reads; what `tarfile` writes, is scanned; damage is found."""

import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.data.tars import CUT_SHORT, UNREADABLE, Fault, Member, TarWriter, scan

CONTENTS = {"000000000.jpg": b"x" * 700, "000000000.txt": b"", "a/b.json": b"y" * 512}


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
        raw = path.read_bytes()
        with tarfile.open(path) as tar:
            expected = [Member(m.name, m.offset_data, m.size) for m in tar]
        assert list(scan(path)) == expected
        assert {m.name: raw[m.offset : m.offset + m.size] for m in expected} == contents


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tars_of_others_are_scanned(tmp_path, form):
    names = ["plain.jpg", "deep/" * 10 + "name.txt", "x" * 95 + ".json", "last.txt"]
    if form != tarfile.USTAR_FORMAT:
        names[2:2] = ["long/" * 30 + "name.txt", "naïve.txt"]
    with tarfile.open(tmp_path / "0.tar", "w", format=form) as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            tar.addfile(info, io.BytesIO(name.encode("latin1")))
    with tarfile.open(tmp_path / "0.tar") as tar:
        expected = [Member(m.name, m.offset_data, m.size) for m in tar]
    assert list(scan(tmp_path / "0.tar")) == expected
    assert [member.name for member in expected] == names


def test_members_have_their_kind(tmp_path):
    kinds = {
        "a/": (tarfile.DIRTYPE, "folder"),
        "a/b.jpg": (tarfile.SYMTYPE, "link or special file"),
        "a/c.jpg": (tarfile.LNKTYPE, "link or special file"),
        "a/d": (tarfile.FIFOTYPE, "link or special file"),
        "a/e.txt": (tarfile.REGTYPE, "file"),
    }
    with tarfile.open(tmp_path / "0.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        for name, (kind, _) in kinds.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "x"
            tar.addfile(info)
    found = [(member.name, member.kind) for member in scan(tmp_path / "0.tar") if isinstance(member, Member)]
    assert found == [(name, kind) for name, (_, kind) in kinds.items()]


def damaged(path, change):
    """Write the archive, with its bytes changed; return the names and the faults that are found."""
    write(path)
    path.write_bytes(change(path.read_bytes()))
    return scanned(path)


def scanned(path):
    found = list(scan(path))
    faults = [tuple(one) for one in found if isinstance(one, Fault)]
    return [one.name for one in found if isinstance(one, Member)], faults


# The archive: headers at 0 (.jpg), 1536 (.txt, empty) and 2048 (.json); its end at 3072.
@pytest.mark.parametrize(
    "kept, whole, offset",
    [
        (0, 0, 0),
        (100, 0, 0),  # in a header
        (600, 0, 0),  # in a member's content
        (1300, 1, 1300),  # in its padding
        (1536, 1, 1536),  # between two members
        (2048, 2, 2048),
        (2049, 2, 2048),
        (2560, 2, 2048),
        (3072, 3, 3072),  # before the end-of-archive marker
    ],
)
def test_a_tar_cut_short_keeps_its_whole_members(tmp_path, kept, whole, offset):
    found = damaged(tmp_path / "0.tar", lambda raw: raw[:kept])
    assert found == ([*CONTENTS][:whole], [("shard cut short", offset)])


def forged(*fields):
    """A header block with fields that no writer would write."""
    block = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.USTAR_FORMAT))
    for at, value in fields:
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


NOISE = b"\xff" * 512
OLDEST = b"".join(forged((0, name), (257, bytes(8))) for name in (b"b", b"c"))  # without "ustar"


@pytest.mark.parametrize(
    ("start", "end", "content", "whole", "fault"),
    [
        (1536, 2048, NOISE, ["000000000.jpg", "a/b.json"], (UNREADABLE, 1536)),
        # This isn't the end: `tarfile` would silently drop what follows.
        (1536, 2048, bytes(512), ["000000000.jpg", "a/b.json"], (UNREADABLE, 1536)),
        # Content that resembles a header, after a header that can't be read.
        (0, 774, NOISE + b"y" * 257 + b"ustar", ["000000000.txt", "a/b.json"], (UNREADABLE, 0)),
        (0, 9999, NOISE + OLDEST + bytes(1024), ["b.txt", "c.txt"], (UNREADABLE, 0)),
        (0, 9999, bytes(3 << 20), [], (CUT_SHORT, 0)),  # reserved for a download that has not finished
        (0, 9999, b"\x1f\x8b" + bytes(range(256)) * 40, [], (UNREADABLE, 0)),  # no tar
    ],
)
def test_the_scan_continues_after_a_fault(tmp_path, start, end, content, whole, fault):
    def change(raw):
        return raw[:start] + content + raw[end:]

    assert damaged(tmp_path / "0.tar", change) == (whole, [fault])


def test_zeros_at_the_end_are_no_fault(tmp_path):
    assert damaged(tmp_path / "0.tar", lambda raw: raw + bytes(1 << 20)) == ([*CONTENTS], [])


@pytest.mark.parametrize(
    "size", [b"-0000001000\0", b"77777777777\0", b"\x80" + b"\x7f" * 11, b"abc\0\0\0\0\0\0\0\0\0"]
)
def test_sizes_that_cannot_be_end_the_scan_and_not_the_program(tmp_path, size):
    names, faults = damaged(tmp_path / "0.tar", lambda raw: forged((124, size)) + bytes(1024))
    assert not names and len(faults) == 1


@pytest.mark.parametrize(
    "content",
    [b"9999 path=x\n", b"x" * 40, b"11 path=ab", b"13 size=-100\n", b"9" * 5000 + b" path=x\n", b"6 abc\n"],
)
def test_a_damaged_pax_header_is_a_fault_and_the_file_after_it_is_kept(tmp_path, content):
    header = tarfile.TarInfo("PaxHeaders/a")
    header.type, header.size = tarfile.XHDTYPE, len(content)
    with tarfile.open(tmp_path / "0.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(header, io.BytesIO(content))
        tar.addfile(tarfile.TarInfo("b.txt"))
    assert scanned(tmp_path / "0.tar") == (["b.txt"], [(UNREADABLE, 0)])


@given(st.binary(max_size=6000), st.integers(0, 3071))
def test_whatever_the_bytes_the_scan_ends(noise, place):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.tar"
        damaged(path, lambda raw: raw[:place] + noise + raw[place + len(noise) :])
        for member in scan(path):
            if isinstance(member, Member):
                assert 0 <= member.offset <= member.offset + member.size <= path.stat().st_size


def test_names_that_do_not_fit_are_refused(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar, pytest.raises(ValueError, match="too long a name"):
        tar.add("x" * 101, b"")
