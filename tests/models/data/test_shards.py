"""Random access to shards: right bytes, a fresh index, damage left out and counted, clear errors."""

import io
import json
import os
import shutil
import tarfile
import tempfile
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rights import without_rights

from jestlab.models.data import shards
from jestlab.models.data.files import DERIVED
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tars import TarWriter


def small_folder(folder, count=3, tars=1):
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(tars):
        with TarWriter(folder / f"{number:05d}.tar") as tar:
            for i in range(count):
                tar.add(f"{i}.jpg", f"image {number} {i}".encode())
                tar.add(f"{i}.txt", f"caption {number} {i}".encode())
    return folder


def test_threads_read_any_examples_in_any_order(own_web):
    files: dict[str, bytes] = {}
    for path in own_web.glob("*.tar"):
        with tarfile.open(path) as tar:
            files |= {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    pairs = [(files[f"{key}.jpg"], files[f"{key}.txt"].decode()) for key in sorted({n[:9] for n in files})]
    index = ShardIndex.load(own_web)
    assert len(index) == len(pairs) == 700
    batches = [np.random.default_rng(i).integers(0, 700, 50) for i in range(40)]
    with ThreadPoolExecutor(8) as pool:
        for numbers, images in zip(batches, pool.map(index.images, batches), strict=True):
            assert [*zip(images, index.captions(numbers), strict=True)] == [pairs[i] for i in numbers]
    os.truncate(own_web / "00001.tar", 500_000)
    with pytest.raises(ValueError, match=r"00001\.tar, example '000010299': cut short, 0 of \d+ bytes"):
        index.images(np.array([0, 599]))


def kept_index(folder):
    (path,) = (folder / DERIVED).glob("index-*")
    return path


def test_index_is_stored_until_a_tar_changes(tmp_path, monkeypatch):
    folder = small_folder(tmp_path / "web", count=3, tars=2)
    first = ShardIndex.load(folder)
    with monkeypatch.context() as patch:
        patch.setattr(shards, "_build", None)  # a second load must not scan
        second = ShardIndex.load(folder)
    for part in ("starts", "spans"):
        assert np.array_equal(getattr(first, part), getattr(second, part)), part
    assert [second.keys(tar) for tar in range(2)] == [["0", "1", "2"]] * 2
    small_folder(folder, count=5)
    assert len(ShardIndex.load(folder)) == 8
    small_folder(folder, count=5, tars=3)
    assert len(ShardIndex.load(folder)) == 15
    kept_index(folder)  # is the only one


@pytest.mark.parametrize("name", ["index.json", "spans.int64", "keys.bytes"])
def test_damaged_index_is_built_again(tmp_path, name):
    expected = ShardIndex.load(small_folder(tmp_path)).captions(np.arange(3))
    for spoil in (Path.unlink, lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"x")):
        spoil(kept_index(tmp_path) / name)
        assert ShardIndex.load(tmp_path).captions(np.arange(3)) == expected


def peak_memory(call):
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_building_holds_one_tar_at_a_time(tmp_path):
    few, many = (small_folder(tmp_path / str(tars), count=150, tars=tars) for tars in (2, 12))
    ShardIndex.load(small_folder(tmp_path / "first"))  # what is imported and cached once does not count
    assert peak_memory(lambda: ShardIndex.load(many)) < 1.3 * peak_memory(lambda: ShardIndex.load(few))


def test_index_of_a_million_loads_at_once(tmp_path):
    """No file is read and no tar opened: the index stays on disk."""
    ShardIndex.load(small_folder(tmp_path))
    kept, n = kept_index(tmp_path), 1_000_000
    summary = json.loads((kept / "index.json").read_text())
    os.truncate(kept / "spans.int64", n * 48)
    (kept / "index.json").write_text(json.dumps(summary | {"starts": [0, n]}))
    assert peak_memory(lambda: ShardIndex.load(tmp_path)) < 1_000_000  # of 56 MB
    assert len(ShardIndex.load(tmp_path)) == n


def test_nested_and_linked_folders_are_one_dataset_and_each_is_read_once(tmp_path):
    web = tmp_path / "web"
    for folder, count in ((web / "a", 2), (web / ".hidden", 1), (tmp_path / "elsewhere" / "deep", 3)):
        small_folder(folder, count=count)
    (web / "b").symlink_to(tmp_path / "elsewhere")
    (web / "c").symlink_to(tmp_path / "elsewhere" / "deep")
    (web / "d").symlink_to(web)
    (tmp_path / "elsewhere" / "up").symlink_to(web)
    index = ShardIndex.load(web)
    assert index.tars == ("a/00000.tar", "b/deep/00000.tar")
    assert index.captions(np.arange(5))[1:3] == ["caption 0 1", "caption 0 0"]
    assert index.shard(np.array([0, 1, 2, 4])).tolist() == [0, 0, 1, 1]
    (web / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="gone: a broken link: restore its target or remove it"):
        ShardIndex.load(web)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become nobody")
def test_folders_that_cannot_be_written_are_read_and_those_that_cannot_be_read_are_errors(monkeypatch):
    with tempfile.TemporaryDirectory() as parent, tempfile.TemporaryDirectory() as temporary:
        Path(parent).chmod(0o755)
        Path(temporary).chmod(0o777)
        monkeypatch.setattr(tempfile, "tempdir", temporary)
        folder = small_folder(Path(parent) / "shared")
        with without_rights():
            assert len(ShardIndex.load(folder)) == 3
            assert not (folder / DERIVED).exists()
            with monkeypatch.context() as patch:  # the second time it need not scan
                patch.setattr(shards, "_build", None)
                assert len(ShardIndex.load(folder)) == 3
        small_folder(folder / "b").chmod(0)
        with without_rights(), pytest.raises(PermissionError, match="b"):
            ShardIndex.load(folder)


def write_tar(path, *members):
    """Write names, contents, and kinds of members, also repeated ones, between two good examples."""
    members = ("good.jpg", b"x"), ("good.txt", b"a"), *members, ("last.jpg", b"y"), ("last.txt", b"z")
    with tarfile.open(path, "w") as tar:
        for name, content, *kind in members:
            info = tarfile.TarInfo(name)
            info.size, info.linkname = len(content), "x"
            info.type = kind[0] if kind else tarfile.REGTYPE
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("image", "caption", "reason"),
    [
        (b"", b"x", "empty image"),
        (b"x", b"", "blank caption"),
        (b"x", b" \n\t\xe3\x80\x80", "blank caption"),
        (b"x", b"\0" * 20, "blank caption"),  # as of a file that was never written out
        (b"x", "\ufeff\u200b\n".encode(), "blank caption"),
        (b"x", "café".encode("latin1"), "caption not UTF-8"),
        (b"x", b"x" * (2 << 20), "caption too long"),
    ],
)
def test_a_damaged_example_is_left_out_and_counted(tmp_path, image, caption, reason):
    write_tar(tmp_path / "0.tar", ("bad.jpg", image), ("bad.txt", caption))
    for _ in ("built", "kept"):
        source = ShardIndex.load(tmp_path)
        assert source.captions(np.arange(len(source))) == ["a", "z"]
        assert source.damaged == {reason: 1}
        assert source.damaged_places == ["0.tar: example 'bad'"]


@pytest.mark.parametrize(
    ("names", "damaged"),
    [
        (["a.v1.jpg", "a.v1.txt", "a.v2.jpg", "a.v2.txt"], {"dot in the name": 2}),
        (["x/a.b.c.PNG", "x/a.b.c.txt", "x/a.b.c.json"], {"dot in the name": 1}),
        (["good.v2.jpg", "good.v2.txt"], {"dot in the name": 1}),
        (["2024.01.05.jpg", "2024.01.06.jpg"], {"no caption": 2}),
        (["a.txt", "b.json"], {"no image": 2}),
        (["a.v1.jpg", "a.txt"], {"no image": 1, "no caption": 1}),
        (["a.v1.jpg", "a.v1.caption.txt"], {"no caption": 1, "no image": 1}),
        (["a.jpg", "a.jpg.txt"], {"no caption": 1, "no image": 1}),
        (["good.seg.png", "good.2.json", "good.alt.txt"], {}),
        (["good.jpg"], {"repeated name": 1}),
        (["good.jpg", "good.txt", "good.JPG"], {"repeated name": 3}),
        (["a.v1.jpg", "a.v1.txt", "a.v1.jpg"], {"dot in the name": 1, "repeated name": 1}),
        (["../x.jpg", "a/../../x.txt", "/etc/x.jpg"], {"path outside the shard": 3}),
        (["good.png", "good.npy", "README", ".good.jpg", "._good.jpg", "jpg", "x/.txt"], {}),
    ],
)
def test_names_that_give_no_example_are_counted(tmp_path, names, damaged):
    write_tar(tmp_path / "0.tar", *((name, b"x") for name in names))
    index = ShardIndex.load(tmp_path)
    assert index.keys(0) == ["good", "last"]
    assert {reason.partition(" (")[0]: count for reason, count in index.damaged.items()} == damaged
    assert sum(index.members.values()) == len(names) + 4
    assert index.members["of examples"] == 4
    assert damaged or index.members["other file"] == len(names)


def test_a_shard_that_cannot_be_read_counts_as_many_examples_as_the_others_have(tmp_path, caplog):
    small_folder(tmp_path, tars=2)
    for name in ("00000.tar.gz", "more/7.tgz", "00003.tar.zst"):  # 00000.tar exists
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "1.tar").write_bytes(b"<html>404</html>" * 100)
    index = ShardIndex.load(tmp_path)
    assert len(index) == 6 and index.damaged_places[:2] == ["00003.tar.zst", "more/7.tgz"]
    with pytest.raises(ValueError, match=r"60\.00% .* 2 × shard in .*, 1 × unreadable tar .*at 00003\.tar"):
        index.check(0.5)
    index.check(0.6)
    assert "2 × shard in another form than .tar" in caplog.text


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ("7.tar.gz 7.TAR.XZ 7.tgz 7.txz 7.tlz 7.taz 7.tbz2 7.tzst 7.tar.7z", 1),
        ("7.tar.part 7.tar.tmp 7.tar_.gstmp 7.tar.1f2e3d4c.partial 7.tar.gz.part", 1),
        ("7.tar.aa 7.tar.001 7.tar.part_aa 7.tgz.part-1", 1),
        ("0.tar.part 0.tar.zst.tmp 0.txz 0.tar.idx 0.json 7.target 7.tarot.jpg 7.parquet", 0),
        ("7.tar.idx 7.tar.md5 7.tar.sha256 train.tar.txt shards.tar.json a.tar-sizes.json", 0),
    ],
)
def test_files_that_should_be_shards_are_counted_once_unless_their_tar_exists(tmp_path, names, count):
    write_tar(tmp_path / "0.tar")
    for name in names.split():
        (tmp_path / name).write_bytes(b"x")
        index = ShardIndex.load(tmp_path)
        assert (len(index), index.unread, [*index.damaged.values()]) == (2, count, [1] * count), name
        (tmp_path / name).unlink()
    for name in names.split():
        (tmp_path / name).write_bytes(b"x")
    assert ShardIndex.load(tmp_path).unread == count  # all of them are one shard


def test_a_shard_is_not_taken_for_a_part_of_another(tmp_path):
    write_tar(tmp_path / "web.tar.v1-00000.tar")
    (tmp_path / "web.tar.v1-00001.tar.part").write_bytes(b"x")
    assert ShardIndex.load(tmp_path).unread == 1


def test_a_shard_that_is_there_by_several_links_is_read_once(tmp_path):
    write_tar(tmp_path / "b.tar")
    (tmp_path / "c.tar").symlink_to("b.tar")
    (tmp_path / "a.tar").hardlink_to(tmp_path / "b.tar")
    index = ShardIndex.load(tmp_path)
    assert index.tars == ("a.tar",) and len(index) == 2
    assert index.damaged == {"link to another shard (which is read once)": 2}
    assert index.damaged_places == ["b.tar", "c.tar"] and not index.unread
    (tmp_path / "c.tar").unlink()
    shutil.copy2(tmp_path / "b.tar", tmp_path / "c.tar")
    assert ShardIndex.load(tmp_path).tars == ("a.tar", "c.tar")


KINDS = {tarfile.REGTYPE: "file", tarfile.CONTTYPE: "file", tarfile.DIRTYPE: "folder"}
KINDS |= dict.fromkeys([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE], "link or special file")
names = st.builds(
    "{}{}".format,
    st.sampled_from(["", "./", "../", "/", "in/" * 60, "in/" * 60, "\udcff/"]),
    st.sampled_from(["a", "b", "c", "ä", "a.b", ".a", "", "a.b.c", "caf\udce9", "n" * 99]),
)
extensions = st.sampled_from([".jpg", ".txt", ".json", "", ".JPG", ".png", ".cls", ".seg.png"])
contents = st.sampled_from([b"x", b"caption", b"y" * 512, b"y" * 700, b"{}", b"", b" ", b"\xff"])
files = st.tuples(extensions, contents, st.sampled_from([tarfile.REGTYPE] * 12 + [*KINDS]))
PAIR = [(".jpg", b"x", tarfile.REGTYPE), (".txt", b"caption", tarfile.REGTYPE)]
pairs = st.sampled_from([PAIR, [*PAIR, (".json", b"{}", tarfile.REGTYPE)]])
groups = st.tuples(names, st.one_of(pairs, st.lists(files, max_size=3)))


def pairs_of(members):
    """The pairs that webdataset makes of members, of a repeated name the first, and numbers of parts."""
    files: dict[str, dict[str, bytes]] = {}
    for name, content, kind in members:
        head, _, base = name.rpartition("/")
        stem, _, extension = base.partition(".")
        extension = extension.lower()
        key = os.fsencode(name.removesuffix(base) + stem).decode(errors="replace")
        is_safe = not name.startswith("/") and ".." not in head.split("/")
        is_part = stem and extension in ("jpg", "png", "txt", "json")
        if kind in tarfile.REGULAR_TYPES and is_part and is_safe:
            files.setdefault(key, {}).setdefault(extension, content)
    for key, parts in files.items():
        image, caption = parts.get("jpg", parts.get("png")), parts.get("txt", b"")
        if image and caption.strip() and caption != b"\xff" and parts.get("json", b"") in (b"", b"{}"):
            yield (key, image, caption.decode()), 2 + ("json" in parts)


@given(st.lists(groups, max_size=20))
def test_every_member_of_any_tar_is_in_an_example_or_counted(groups):
    """Its examples are those of webdataset."""
    members = [
        (stem + extension, content if kind in tarfile.REGULAR_TYPES else b"", kind)
        for stem, files in groups
        for extension, content, kind in files
    ]
    pairs = [*pairs_of(members)]
    with tempfile.TemporaryDirectory() as folder:
        write_tar(Path(folder) / "0.tar", *members)
        index = ShardIndex.load(Path(folder))
        numbers = np.arange(len(index))
        found = [*zip(index.keys(0), index.images(numbers), index.captions(numbers), strict=True)]
    assert found == [("good", b"x", "a"), *(pair for pair, _ in pairs), ("last", b"y", "z")]
    kinds, counted = Counter(KINDS[kind] for *_, kind in members), Counter(index.members)
    used, written = 4 + sum(parts for _, parts in pairs), 4 + kinds.pop("file", 0)
    damaged, other = counted.pop("damaged", 0), counted.pop("other file", 0)
    assert counted == kinds | {"of examples": used}
    assert used + damaged + other == written
    of_members = sum(index.damaged.values())
    assert of_members <= damaged <= 6 * of_members


def test_faults_of_a_tar_are_counted_with_their_place(tmp_path):
    """A tar cut short within a caption, a damaged header, and a file that isn't a tar."""
    small_folder(tmp_path, tars=2)  # each member is a block of header and one of content
    os.truncate(tmp_path / "00000.tar", 5 * 1024 + 515)
    with (tmp_path / "00001.tar").open("r+b") as file:
        file.seek(3 * 1024 + 20)
        file.write(b"\xff" * 60)
    (tmp_path / "00002.tar").write_bytes(b"<html>404</html>" * 100)
    source = ShardIndex.load(tmp_path)
    captions = ["caption 0 0", "caption 0 1", "caption 1 0", "caption 1 2"]
    assert source.captions(np.arange(len(source))) == captions
    assert source.damaged == {"no caption": 2, "unreadable tar header": 2, "shard cut short": 1}
    assert source.damaged_places == ["00000.tar: byte 5120", "00000.tar: example '2'", "00001.tar: byte 3072"]
    with pytest.raises(ValueError, match=r"cut short \(first at 00000\.tar: byte 5120, .* 3072, …\)"):
        source.check(0.01)


@pytest.mark.parametrize(
    "good, bad, share, passes",
    [
        (49, 1, 0.01, True),  # one of fifty is more than 1%, and still one alone
        (48, 2, 0.01, False),
        (198, 2, 0.01, True),
        (197, 3, 0.01, False),
        (50, 1, 0.0, False),
        (2, 9, 1.0, True),
        (50, 0, 0.0, True),
    ],
)
def test_the_share_that_may_be_damaged(tmp_path, caplog, good, bad, share, passes):
    images, captions = ([(f"{i}.{part}", b"x") for i in range(good - 2)] for part in ("jpg", "txt"))
    write_tar(tmp_path / "0.tar", *images, *captions, *((f"bad{i}.jpg", b"x") for i in range(bad)))
    index = ShardIndex.load(tmp_path)
    if passes:
        index.check(share)
        assert len(caplog.messages) == (bad > 0)
        return
    with pytest.raises(ValueError, match=r"damaged, above runtime\.damaged_share .*no caption.*0\.tar"):
        index.check(share)


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        ShardIndex.load(tmp_path / "nowhere")
    (tmp_path / "1.tar.gz").touch()
    with pytest.raises(FileNotFoundError, match=r"holds no \.tar shards, or only compressed ones"):
        ShardIndex.load(tmp_path)
    (tmp_path / "1.tar.gz").unlink()
    with TarWriter(tmp_path / "0.tar") as tar:
        tar.add("0.jpg", b"x")
    with pytest.raises(ValueError, match="no complete example in 1 tar shards: 1 × no caption"):
        ShardIndex.load(tmp_path)
