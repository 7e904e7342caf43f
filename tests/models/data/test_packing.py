"""Shards of examples; a folder of images with a CSV file of captions, as shards and as benchmarks."""

import io
import shutil
from csv import writer as write_csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from jestlab.models.data import packing
from jestlab.models.data.benchmarks import ClassificationSet, load_benchmark
from jestlab.models.data.metadata import load_metadata, metadata_columns
from jestlab.models.data.packing import Captioned, write_shards
from jestlab.models.data.shards import ShardIndex


def picture(shade: int, form: str = "JPEG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (9, 7), (shade, 0, 255 - shade)).save(file, form)
    return file.getvalue()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    (folder / "a.jpg").write_bytes(picture(10))
    (folder / "b.png").write_bytes(picture(90, "PNG"))
    (folder / "more" / "c.webp").write_bytes(picture(200, "WEBP"))
    return folder


def csv(folder: Path, text: str) -> Path:
    path = folder.parent / "captions.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    return path


def test_shards_hold_the_files_unchanged_with_typed_metadata(photos, tmp_path):
    rows = """image,caption,width,note,good
a.jpg,"a dog, running",9,x,true
b.png,"two
lines",8,,false
more/c.webp,café,7,z,true
"""
    (tmp_path / "alias").symlink_to(photos)
    Captioned(tmp_path / "alias", csv(photos, rows)).write_shards(tmp_path / "web")
    web, numbers = ShardIndex.load(tmp_path / "web"), np.arange(3)
    assert web.captions(numbers) == ["a dog, running", "two\nlines", "café"]
    files = ["a.jpg", "b.png", "more/c.webp"]
    assert web.images(numbers) == [(photos / name).read_bytes() for name in files]
    found = load_metadata(tmp_path / "web", ["width", "file", "note", "good"])
    assert found["width"] == [9, 8, 7] and found["file"] == files
    assert found["note"][0] == "x" and found["good"] == [True, False, True]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        ("007 12", ["007", "12"]),
        ("9223372036854775808 5", ["9223372036854775808", "5"]),
        ("9223372036854775807 -5", [2**63 - 1, -5]),
        ("1234567890123456 0.5", ["1234567890123456", "0.5"]),
        ("0x1F 3", ["0x1F", "3"]),
        ("00.5 1", ["00.5", "1"]),
        ("1_000 \u0661", ["1_000", "\u0661"]),
        ("1.50 .5", [1.5, 0.5]),
        ("1e-3 -inf", [0.001, float("-inf")]),
        ("True FALSE", [True, False]),
        ("1 true", ["1", "true"]),
    ],
)
def test_columns_are_numbers_if_nothing_is_lost(photos, tmp_path, cells, values):
    one, other = cells.split()
    rows = f"file,caption,n\na.jpg,x,{one}\nb.png,y,{other}\nmore/c.webp,z,\n"
    Captioned(photos, csv(photos, rows)).write_shards(tmp_path / "web")
    assert load_metadata(tmp_path / "web", ["n"])["n"] == [*values, None]


def test_rows_of_the_same_image_are_all_its_captions(photos, tmp_path):
    long = "a dog " * 100_000  # more than the csv module reads by default
    rows = f"file,caption\na.jpg,one\nb.png,two\na.jpg,{long}\n"
    Captioned(photos, csv(photos, rows)).write_retrieval(tmp_path / "bench" / "mine")
    found = load_benchmark(tmp_path / "bench", 8).retrieval["mine"]
    assert found.captions == ("one", long.strip(), "two")
    assert found.image_of_caption.tolist() == [0, 0, 1]
    assert len(found.images) == 2


@pytest.mark.parametrize("taken", ["key", "image"])
def test_columns_with_names_that_shards_use_are_refused(photos, tmp_path, taken):
    """As metadata they would replace the image, or the key that metadata are found by."""
    pairs = Captioned(photos, csv(photos, f"file,caption,{taken}\na.jpg,x,5\nb.png,y,6\n"))
    with pytest.raises(ValueError, match=rf"captions\.csv: column '{taken}' has a name that shards use"):
        pairs.write_shards(tmp_path / "web")
    pairs.write_retrieval(tmp_path / "bench" / "mine")  # which has no metadata
    assert len(load_benchmark(tmp_path / "bench", 8).retrieval["mine"].images) == 2


def classified(photos: Path, rows: str) -> ClassificationSet:
    """A CSV of labels, packed and read."""
    folder = photos.parent / "bench" / "pets"
    Captioned(photos, csv(photos, rows)).write_classification(folder, ["a\n{c}"])
    return load_benchmark(folder.parent, 8).classification["pets"]


def test_labels_and_splits_make_a_classification(photos):
    (photos / "link.jpg").symlink_to("a.jpg")
    rows = """file,label,split
a.jpg,"cat
fish",test
more/../a.jpg,"cat  fish ",
link.jpg,cat fish,test
b.png,ant,train
more/c.webp,ant,test
"""
    found = classified(photos, rows)
    assert found.class_names == ("ant", "cat fish") and found.templates == ("a {c}",)
    assert (found.labels.tolist(), found.train_labels.tolist()) == ([1, 0], [0])


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)


@given(st.lists(TEXTS, min_size=3, max_size=3))
def test_packed_labels_are_read_as_they_were(photos, labels):
    text = io.StringIO()
    names = ["a.jpg", "b.png", "more/c.webp"]
    write_csv(text).writerows([["file", "label"], *zip(names, labels, strict=True)])
    shutil.rmtree(photos.parent / "bench", ignore_errors=True)
    try:
        found = classified(photos, text.getvalue())
    except ValueError as error:  # such as an empty label, or two that are the same in prompts
        assert "captions.csv" in str(error)
    else:
        of_rows = [found.class_names[label] for label in found.labels]
        assert of_rows == [" ".join(label.split()) for label in labels]


@pytest.mark.parametrize("name", ["../outside.png", "link.png", "up/outside.png", "/"])
def test_files_outside_the_folder_are_refused(photos, name):
    outside = photos.parent / "outside.png"
    outside.write_bytes(picture(7, "PNG"))
    (photos / "link.png").symlink_to(outside)
    (photos / "up").symlink_to("..")
    rows = f"file,caption\na.jpg,x\n{outside if name == '/' else name},y\n"
    with pytest.raises(ValueError, match=r"captions\.csv, line 3: .*, outside .*photos: copy it"):
        Captioned(photos, csv(photos, rows))


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("file,caption", "", r"captions\.csv: has a header and no rows"),
        ("file,words", "a.jpg,x", "has no column 'caption' or 'text' or 'title': it has 'file', 'words'"),
        ("picture,caption", "a.jpg,x", "has no column 'file' or 'image'"),
        ("file,caption,caption", "a.jpg,x,y", "two columns have the same name"),
        ("file,caption", "a.jpg,x\nd.jpg,y\ne.jpg,z", r"line 3: no image 'd\.jpg' in .*, and in 1 more rows"),
        ("file,caption", "a.jpg,x\n\nd.jpg,y", "line 4: no image 'd"),
        ("file,caption", "a.jpg,x\na\0.jpg,y", r"line 3: no image 'a\\x00\.jpg' in .*photos"),
        ("file,caption", f"a.jpg,x\n{'a' * 5000},y", "line 3: no image 'aaaa"),
        ("file,caption", "a.jpg,x\nb.png,", r"captions\.csv, line 3: has no caption"),
        ("file,caption", "a.jpg,x,y", r"captions\.csv: not a CSV file with a header"),
        ("file,caption", 'a.jpg,x\nb.png,"y\na.jpg,z', "after line 2: unexpected end.*close each quote"),
        ("file,caption", 'a.jpg,"5" pipe"', "after line 1: ',' expected after '\"'"),
        ("file,caption", "a.jpg,caf\udce9", r"captions\.csv: not UTF-8"),
        ("file,caption", "bad.jpg,x", r"line 2: .*bad\.jpg: not a readable image.*--skip-damaged"),
        ("file,caption", "drawing.gif,x", r"line 2: .*drawing\.gif: has no valid image: expected bytes"),
        ("file,label", "a.jpg,", "line 2: has no label"),
        ("file,label,split", "a.jpg,x,dev", "line 2: split 'dev' must be one of test, train"),
        ("file,label", "a.jpg,dog\na.jpg,cat", r"line 3: .*a\.jpg has another label or split in an earlier"),
        ("file,label,split", "a.jpg,dog,\na.jpg,dog,train", "line 3: .* another label or split"),
        ("file,label", "a.jpg,C#\nb.png,C++", r"captions\.csv: class.* in prompts.*name"),
        ("file,label,split", "a.jpg,x,train", "no row is of the split 'test'"),
    ],
)
def test_mistakes_are_reported_with_their_row(photos, tmp_path, header, rows, message):
    (photos / "bad.jpg").write_bytes(picture(1)[:60])
    (photos / "drawing.gif").write_bytes(picture(1, "GIF"))
    with pytest.raises(ValueError, match=message):
        pairs = Captioned(photos, csv(photos, f"{header}\n{rows}\n"))
        if "label" in header:
            pairs.write_classification(tmp_path / "bench", ["{c}"])
        pairs.write_shards(tmp_path / "web")


def test_damaged_images_are_left_out_if_asked(photos, tmp_path):
    (photos / "bad.jpg").write_bytes(b"no image")
    pairs = Captioned(photos, csv(photos, "file,caption\na.jpg,x\nbad.jpg,y\n"), skip_damaged=True)
    seen: list[int] = []
    pairs.progress = seen.append
    pairs.write_shards(tmp_path / "web")
    assert ShardIndex.load(tmp_path / "web").captions(np.arange(1)) == ["x"]
    assert len(pairs.damaged) == 1 and "line 3" in pairs.damaged[0]
    assert sum(seen) == 2
    none = Captioned(photos, csv(photos, "file,caption\nbad.jpg,y\n"), skip_damaged=True)
    with pytest.raises(ValueError, match="every image is damaged"):
        none.write_shards(tmp_path / "none")


PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)


def example(**changes):
    return {"image": PIXELS, "caption": "x", **changes}


def test_images_of_every_form_and_metadata_of_some_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "EXAMPLES_A_SHARD", 2)
    examples = [
        example(n=1),
        example(n=2, image=picture(9)),
        example(image=Image.fromarray(PIXELS)),
        example(n=4, score=0.5),
        example(score=0.1),
    ]
    write_shards(tmp_path, examples, "r")
    assert len(ShardIndex.load(tmp_path)) == 5
    found = load_metadata(tmp_path, ["n", "score"])
    assert found == {"n": [1, 2, None, 4, None], "score": [None, None, None, 0.5, 0.1]}
    assert "score" in metadata_columns(tmp_path)


@pytest.mark.parametrize(
    ("examples", "message"),
    [
        ([], "reader r yields no examples"),
        ([3], "reader r: example 0 must be a mapping"),
        ([example(), {"image": PIXELS}], "example 1 must be a mapping with `image`, `ca"),
        ([example(caption=3)], "example 0 must have a str as `caption`"),
        ([example(key=None)], "example 0 has metadata 'key', which shards use"),
        ([{**example(), 1: "a"}], "or a name that isn't a str: rename it"),
        ([example(image="a.jpg")], "example 0 has no valid image: expected bytes of a JPEG"),
        ([example(image=PIXELS[..., :1])], "no valid image"),
        ([example(image=PIXELS[..., None])], "no valid image"),
        ([example(image=PIXELS / 2)], "no valid image"),
        ([example(n=[1])], "example 0 has metadata 'n' that no table can store"),
        ([example(n=2**63)], "metadata 'n' .* a number of at most 64 bits"),
        ([example(caption="\ud800")], "metadata 'caption' .* a text without surrogates"),
        ([example(n=1), example(n="a")], "metadata of one name must be of one"),
    ],
)
def test_invalid_examples_are_reported_with_their_number(tmp_path, examples, message):
    with pytest.raises(ValueError, match=message):
        write_shards(tmp_path, examples, "reader r")
