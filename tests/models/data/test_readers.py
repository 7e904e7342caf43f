"""Data that a reader of one's own yields: written as shards once, and read like any other."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.models.support import own_code

from jestlab.models.config import Code, Data, EmbedConfig
from jestlab.models.data import packing
from jestlab.models.data.curation import count_examples
from jestlab.models.data.datasets import MADE, ensure_web, path_digest
from jestlab.models.data.metadata import load_metadata, metadata_columns
from jestlab.models.data.packing import write_shards
from jestlab.models.data.shards import ShardIndex

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "JPEG")
    return file.getvalue()


def data(**train) -> Data:
    return Data.model_validate(
        {"train": {"kind": "reader", "function": f"{own_code.MODULE}:squares", **train}}
    )


def test_images_of_every_form_and_metadata_of_some_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "EXAMPLES_A_SHARD", 2)
    images = [PIXELS, jpeg(), Image.fromarray(PIXELS), PIXELS, PIXELS]
    rows: list[dict[str, float]] = [{"n": 1}, {"n": 2}, {}, {"n": 4, "score": 0.5}, {"score": 0.1}]
    examples = ({"image": image, "caption": "x", **row} for image, row in zip(images, rows, strict=True))
    write_shards(tmp_path, examples, "r")
    assert len(ShardIndex.load(tmp_path)) == 5
    assert load_metadata(tmp_path, ["n", "score"]) == {
        "n": [1, 2, None, 4, None],
        "score": [None, None, None, 0.5, 0.1],
    }
    assert "score" in metadata_columns(tmp_path) and count_examples(tmp_path, "score < 1") == 2


def test_a_web_is_made_once_and_named_by_what_makes_it(tmp_path):
    code = {f"{own_code.MODULE}:squares": Code(digest="d")}
    web = ensure_web(data(options={"count": 40}).train, 0, tmp_path, code)
    assert len(ShardIndex.load(web)) == 40
    assert MADE.fullmatch(web.name)
    before = web.stat().st_mtime_ns
    assert ensure_web(data(options={"count": 40}, examples=7).train, 3, tmp_path, code) == web
    assert web.stat().st_mtime_ns == before
    others = [
        ensure_web(data(options={"count": 41}).train, 0, tmp_path, code),
        ensure_web(
            data(options={"count": 40}).train, 0, tmp_path, {f"{own_code.MODULE}:squares": Code(digest="e")}
        ),
    ]
    assert len({web, *others}) == 3


def test_what_is_read_counts_by_its_content(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "folder" / "b.txt"
    second.parent.mkdir()
    for file in (first, second):
        file.write_text("red blue")
    trains = [
        data(path=str(file), path_digest=path_digest(file), options={"count": 8}) for file in (first, second)
    ]
    one, other = (EmbedConfig(reference="r", data=each).identity() for each in trains)
    assert one == other
    assert ensure_web(trains[0].train, 0, tmp_path) == ensure_web(trains[1].train, 0, tmp_path)
    first.write_text("red")
    with pytest.raises(ValueError, match=r"a.txt: changed since the run was planned: launch again"):
        ensure_web(trains[0].train, 0, tmp_path / "elsewhere")
    before = path_digest(second.parent)
    (second.parent / ".hidden").write_text("x")
    assert path_digest(second.parent) == before
    linked = tmp_path / "linked"
    linked.mkdir()
    (second.parent / "more").symlink_to(linked)
    assert path_digest(second.parent) == before
    (linked / "d.txt").write_text("x")
    assert path_digest(second.parent) != before
    (linked / "d.txt").unlink()
    second.rename(second.with_name("c.txt"))
    assert path_digest(second.parent) != before


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "reader r yields no examples"),
        ([3], "reader r: example 0 must be a mapping"),
        (
            [{"image": PIXELS, "caption": "x"}, {"image": PIXELS}],
            "example 1 must be a mapping with `image`, `ca",
        ),
        ([{"image": PIXELS, "caption": 3}], "example 0 must have a str as `caption`"),
        ([{"image": PIXELS, "caption": "x", "key": None}], "example 0 has metadata 'key', which shards use"),
        ([{"image": PIXELS, "caption": "x", 1: "a"}], "or a name that isn't a str: rename it"),
        ([{"image": "a.jpg", "caption": "x"}], "example 0 has no valid image: expected bytes of a JPEG"),
        ([{"image": PIXELS[..., :1], "caption": "x"}], "no valid image"),
        ([{"image": PIXELS[..., None], "caption": "x"}], "no valid image"),
        ([{"image": PIXELS / 2, "caption": "x"}], "no valid image"),
        ([{"image": PIXELS, "caption": "x", "n": [1]}], "example 0 has metadata 'n' that no table can store"),
        ([{"image": PIXELS, "caption": "x", "n": 2**63}], "metadata 'n' .* a number of at most 64 bits"),
        ([{"image": PIXELS, "caption": "\ud800"}], "metadata 'caption' .* a text without surrogates"),
        (
            [{"image": PIXELS, "caption": "x", "n": n} for n in (1, "a")],
            "metadata of one name must be of one",
        ),
    ],
)
def test_what_is_no_example_is_told_with_its_number(tmp_path: Path, examples, message):
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path, examples, "reader r")
