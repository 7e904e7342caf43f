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
        "f/": (tarfile.REGTYPE, "folder"),  # as in the oldest tars
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


def forged(*fields):
    """A header block with fields that no writer would write."""
    block = bytearray(tarfile.TarInfo("a.txt").tobuf(tarfile.USTAR_FORMAT))
    for at, value in fields:
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


JPG, TXT, JSON = CONTENTS
NOISE = b"\xff" * 512
OLDEST = b"".join(forged((0, name), (257, bytes(8))) for name in (b"b", b"c"))  # without "ustar"
END = 1 << 20


# The archive: headers at 0 (.jpg), 1536 (.txt, empty) and 2048 (.json); its end at 3072.
@pytest.mark.parametrize(
    ("start", "stop", "content", "names", "fault"),
    [
        (0, END, b"", [], (CUT_SHORT, 0)),
        (100, END, b"", [], (CUT_SHORT, 0)),  # in a header
        (600, END, b"", [], (CUT_SHORT, 0)),  # in a member's content
        (1300, END, b"", [JPG], (CUT_SHORT, 1300)),  # in its padding
        (1536, END, b"", [JPG], (CUT_SHORT, 1536)),  # between two members
        (2048, END, b"", [JPG, TXT], (CUT_SHORT, 2048)),
        (2049, END, b"", [JPG, TXT], (CUT_SHORT, 2048)),
        (2560, END, b"", [JPG, TXT], (CUT_SHORT, 2048)),
        (3072, END, b"", [JPG, TXT, JSON], (CUT_SHORT, 3072)),  # before the end-of-archive marker
        (END, END, bytes(END), [JPG, TXT, JSON], None),  # mere padding
        (0, END, bytes(3 * END), [], (CUT_SHORT, 0)),  # reserved for a download that has not finished
        (0, END, b"\x1f\x8b" + bytes(range(256)) * 40, [], (UNREADABLE, 0)),  # no tar
        (1536, 2048, NOISE, [JPG, JSON], (UNREADABLE, 1536)),
        # This isn't the end: `tarfile` would silently drop what follows.
        (1536, 2048, bytes(512), [JPG, JSON], (UNREADABLE, 1536)),
        # Content that resembles a header, after a header that can't be read.
        (0, 774, NOISE + b"y" * 257 + b"ustar", [TXT, JSON], (UNREADABLE, 0)),
        (0, END, NOISE + OLDEST + bytes(1024), ["b.txt", "c.txt"], (UNREADABLE, 0)),
        # Sizes that cannot be end the scan and not the program.
        (0, END, forged((124, b"-0000001000\0")) + bytes(1024), [], (UNREADABLE, 0)),
        (0, END, forged((124, b"77777777777\0")) + bytes(1024), [], (CUT_SHORT, 0)),
        (0, END, forged((124, b"\x80" + b"\x7f" * 11)) + bytes(1024), [], (CUT_SHORT, 0)),
        (0, END, forged((124, b"abc".ljust(12, b"\0"))) + bytes(1024), [], (UNREADABLE, 0)),
    ],
)
def test_the_scan_reports_a_fault_and_continues(tmp_path, start, stop, content, names, fault):
    found = damaged(tmp_path / "0.tar", lambda raw: raw[:start] + content + raw[stop:])
    assert found == (names, [fault] if fault else [])


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
