"""Tar files: what is written, `tarfile` reads; what `tarfile` writes, is scanned; damage is found."""

import io
import tarfile
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.data.tars import FILE, Fault, Member, TarWriter, scan

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
        assert {m.name: raw[m.offset : m.offset + m.size] for m in scan(path)} == contents


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
    assert [member for member in scan(tmp_path / "0.tar") if member.kind == FILE] == expected
    assert [member.name for member in expected][1:] == names


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
    """Write the archive, with its bytes changed by a function of them."""
    write(path)
    raw = bytearray(path.read_bytes())
    changed = change(raw)
    path.write_bytes(raw if changed is None else changed)
    return list(scan(path))


def names(found):
    return [member.name for member in found if isinstance(member, Member)]


def faults(found):
    return [tuple(fault) for fault in found if isinstance(fault, Fault)]


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
    assert names(found) == list(CONTENTS)[:whole]
    assert faults(found) == [("shard cut short", offset)]


def test_the_scan_continues_after_a_damaged_header(tmp_path):
    """A block of zeros in the middle isn't the end: `tarfile` would silently drop what follows."""
    path = tmp_path / "0.tar"
    for block in (bytes(512), b"\xff" * 512):
        found = damaged(path, lambda raw, block=block: raw[:1536] + block + raw[2048:])
        assert names(found) == ["000000000.jpg", "a/b.json"]
        assert faults(found) == [("unreadable tar header", 1536)]
    # The oldest tars have no "ustar" in their headers.
    oldest = [b"\xff" * 512, *(forged(name=(0, name), ustar=(257, bytes(8)))[:512] for name in (b"b", b"c"))]
    (path := tmp_path / "1.tar").write_bytes(b"".join(oldest) + bytes(1024))
    assert names(scan(path)) == ["b.txt", "c.txt"]
    # Content that resembles a header, after a header that can't be read.
    found = damaged(path, lambda raw: b"\xff" + raw[1:769] + b"ustar" + raw[774:])
    assert names(found) == ["000000000.txt", "a/b.json"]
    assert faults(found) == [("unreadable tar header", 0)]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (bytes(3 << 20), ("shard cut short", 0)),  # reserved for a download that has not finished
        (b"\x1f\x8b" + bytes(range(256)) * 40, ("unreadable tar header", 0)),  # no tar
    ],
)
def test_other_content_is_one_fault(tmp_path, content, expected):
    assert faults(damaged(tmp_path / "0.tar", lambda raw: content)) == [expected]
    assert not faults(damaged(tmp_path / "0.tar", lambda raw: raw + bytes(1 << 20)))  # mere padding


def forged(**fields):
    """An archive whose first header says what no writer would."""
    info = tarfile.TarInfo("a.txt")
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    for at, value in fields.values():
        block[at : at + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + bytes(1024)


@pytest.mark.parametrize(
    "field", [b"-0000001000\0", b"77777777777\0", b"\x80" + b"\x7f" * 11, b"abc\0\0\0\0\0\0\0\0\0"]
)
def test_sizes_that_cannot_be_end_the_scan_and_not_the_program(tmp_path, field):
    (tmp_path / "0.tar").write_bytes(forged(size=(124, field)))
    found = list(scan(tmp_path / "0.tar"))
    assert not names(found) and len(faults(found)) == 1


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
    found = list(scan(tmp_path / "0.tar"))
    assert names(found) == ["b.txt"] and faults(found) == [("unreadable tar header", 0)]


@given(st.binary(max_size=6000), st.integers(0, 3071))
def test_whatever_the_bytes_the_scan_ends(noise, place):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "0.tar"
        found = damaged(path, lambda raw: raw[:place] + noise + raw[place + len(noise) :])
        length = path.stat().st_size
        for member in found:
            if isinstance(member, Member):
                assert 0 <= member.offset <= member.offset + member.size <= length


def test_names_that_do_not_fit_are_refused(tmp_path):
    with TarWriter(tmp_path / "0.tar") as tar, pytest.raises(ValueError, match="too long a name"):
        tar.add("x" * 101, b"")
