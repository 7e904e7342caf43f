"""Whatever lies in a folder of shards, training gets good batches or one clear line; all on real files."""

from __future__ import annotations

import io
import itertools
import os
import tarfile

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tokenizer import ensure_tokenizer

GOOD = 100


def picture(colour, form="JPEG", mode="RGB"):
    file = io.BytesIO()
    Image.new("RGB", (40, 40), colour).convert(mode).save(file, form)
    return file.getvalue()


def add(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def folder(tmp_path):
    """A shard of a hundred good pairs, to which tests add their own."""
    with tarfile.open(tmp_path / "00000.tar", "w") as tar:
        for i in range(GOOD):
            add(tar, f"{i:05d}.jpg", picture((2 * i, 100, 50)))
            add(tar, f"{i:05d}.txt", f"a flat picture, number {i}".encode())
    return tmp_path


def add_pair(folder, image, caption, key="bad"):
    with tarfile.open(folder / "00001.tar", "w") as tar:
        add(tar, f"{key}.jpg", image)
        add(tar, f"{key}.txt", caption)


def epoch(folder, **options):
    """Every row of one epoch: its batches, joined."""
    index = ShardIndex.load(folder)
    batches = training_batches(
        folder,
        filter=None,
        tokenizer=ensure_tokenizer(folder, 64),
        image_size=16,
        text_length=8,
        batch_size=1,
        seed=0,
        **options,
    )
    rows = list(itertools.islice(batches, len(index)))
    return {part: np.stack([row[part] for row in rows]).squeeze() for part in rows[0]}


def test_a_truncated_tar(folder):
    """What lies before the cut is trained on."""
    whole = epoch(folder)
    with tarfile.open(folder / "00000.tar") as tar:
        cut = tar.getmember(f"{GOOD // 2:05d}.txt").offset_data + 3
    os.truncate(folder / "00000.tar", cut)
    found = epoch(folder, damaged_share=0.05)
    assert sorted(found["index"]) == list(range(GOOD // 2))
    for row, example in enumerate(found["index"]):
        assert np.array_equal(found["image"][row], whole["image"][whole["index"] == example][0])
    assert ShardIndex.load(folder).damaged == {"shard cut short": 1, "no caption": 1}
    with pytest.raises(ValueError, match=r"above runtime\.damaged_share 1\.00%.*00000\.tar: byte \d+"):
        epoch(folder)


def test_an_unreadable_header_amid_a_tar(folder):
    with tarfile.open(folder / "00000.tar") as tar:
        header = tar.getmember("00030.txt").offset
    with (folder / "00000.tar").open("r+b") as file:
        file.seek(header + 20)
        file.write(b"\xff" * 60)
    assert sorted(epoch(folder, damaged_share=0.02)["index"]) == list(range(GOOD - 1))
    assert ShardIndex.load(folder).damaged == {"unreadable tar header": 1, "no caption": 1}


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_broken_jpeg(folder, share):
    jpeg = picture("red")
    add_pair(folder, jpeg[: int(share * len(jpeg))], b"broken")
    found = epoch(folder)
    assert set(found["index"]) <= set(range(GOOD)) and found["damaged"].sum() == 1


@pytest.mark.parametrize("caption", [b"", b" \n", b"\xff\xfe\x00caption", b"caf\xe9", b"x" * (2 << 20)])
def test_captions_that_say_nothing_or_are_no_captions(folder, caption):
    add_pair(folder, picture("red"), caption)
    assert sorted(epoch(folder)["index"]) == list(range(GOOD))
    assert sum(ShardIndex.load(folder).damaged.values()) == 1


def sixteen_bits():
    file = io.BytesIO()
    Image.fromarray(np.full((40, 40), 128 * 257, np.uint16)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    "image, colour",
    [
        (picture((200, 60, 20), mode="CMYK"), (200, 60, 20)),
        (sixteen_bits(), (128, 128, 128)),
        (picture((200, 60, 20), form="PNG", mode="P"), (200, 60, 20)),
        (picture((200, 200, 200), mode="L"), (200, 200, 200)),
        (picture((200, 60, 20), form="WEBP"), (200, 60, 20)),
    ],
    ids=["cmyk", "16-bit", "palette", "grey", "webp"],
)
def test_images_of_other_kinds_keep_their_colours(folder, image, colour):
    add_pair(folder, image, b"other")  # some are no JPEGs, whatever their name says
    found = epoch(folder)
    (row,) = np.flatnonzero(found["index"] == GOOD)
    assert np.abs(found["image"][row].astype(int) - colour).max() < 30
    assert found["damaged"].sum() == 0


@pytest.mark.parametrize("key", ["../../escaped", "/tmp/escaped", "a/../../escaped"])
def test_a_member_that_would_leave_the_archive(folder, key):
    before = sorted(folder.parent.rglob("*escaped*"))
    add_pair(folder, picture("red"), b"escaped", key)
    found = epoch(folder, damaged_share=0.02)
    assert sorted(found["index"]) == list(range(GOOD))
    assert ShardIndex.load(folder).damaged == {"path outside the shard": 2}
    assert sorted(folder.parent.rglob("*escaped*")) == before


def test_links_and_devices_are_no_examples(folder):
    with tarfile.open(folder / "00001.tar", "w") as tar:
        for name, kind in (
            ("x.jpg", tarfile.SYMTYPE),
            ("x.txt", tarfile.LNKTYPE),
            ("y.jpg", tarfile.CHRTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    assert sorted(epoch(folder)["index"]) == list(range(GOOD))


def test_a_tar_that_is_none(folder):
    (folder / "00001.tar").write_bytes(b"<html>404</html>" * 100)
    assert sorted(epoch(folder)["index"]) == list(range(GOOD))
    assert ShardIndex.load(folder).damaged == {"unreadable tar header": 1}
