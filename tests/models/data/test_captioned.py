"""A folder of images with a CSV file of captions, packed as shards and as benchmarks."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.captioned import Captioned
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.shards import ShardSource


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
    path.write_text(text)
    return path


def test_shards_hold_the_files_unchanged_with_typed_metadata(photos, tmp_path):
    rows = """image,caption,width,note,good
a.jpg,"a dog, running",9,x,true
b.png,"two
lines",8,,false
more/c.webp,café,7,z,true
"""
    Captioned(photos, csv(photos, rows)).write_shards(tmp_path / "web")
    web, numbers = ShardSource(tmp_path / "web"), np.arange(3)
    assert web.captions(numbers) == ["a dog, running", "two\nlines", "café"]
    files = ["a.jpg", "b.png", "more/c.webp"]
    assert web.images(numbers) == [(photos / name).read_bytes() for name in files]
    found = load_metadata(tmp_path / "web", ["width", "file", "note", "good"])
    assert found["width"] == [9, 8, 7] and found["file"] == files
    assert found["note"][0] == "x" and found["good"] == [True, False, True]


def test_rows_of_the_same_image_are_all_its_captions(photos, tmp_path):
    rows = "file,caption\na.jpg,one\nb.png,two\na.jpg,three\n"
    Captioned(photos, csv(photos, rows)).write_retrieval(tmp_path / "bench" / "mine")
    found = load_benchmark(tmp_path / "bench", 8).retrieval["mine"]
    assert found.captions == ("one", "three", "two")
    assert found.image_of_caption.tolist() == [0, 0, 1]
    assert len(found.images) == 2


def test_labels_and_splits_make_a_zero_shot_dataset(photos, tmp_path):
    rows = "file,label,split\na.jpg,dog,test\nb.png,cat,train\nmore/c.webp,cat,\n"
    Captioned(photos, csv(photos, rows)).write_classification(tmp_path / "bench" / "pets", ["a {c}"])
    found = load_benchmark(tmp_path / "bench", 8).classification["pets"]
    assert (found.class_names, found.templates) == (("cat", "dog"), ("a {c}",))
    assert (found.labels.tolist(), found.train_labels.tolist()) == ([1, 0], [0])


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("file,caption\n", r"captions\.csv: has a header and no rows"),
        ("file,words\na.jpg,x\n", "has no column 'caption' or 'text' or 'title': it has 'file', 'words'"),
        ("picture,caption\na.jpg,x\n", "has no column 'file' or 'image'"),
        ("file,caption\na.jpg,x\nd.jpg,y\ne.jpg,z\n", r"row 3, and 1 more rows: no image .*d\.jpg"),
        ("file,caption\na.jpg,x\nb.png,\n", r"captions\.csv, row 3: has no caption"),
        ("file,caption\na.jpg,x,y\n", r"captions\.csv: not a CSV file with a header"),
        ("file,caption,caption\na.jpg,x,y\n", "two columns have the same name"),
        ("file,caption\nbad.jpg,x\n", r"row 2: .*bad\.jpg is not a readable image.*--skip-damaged"),
        ("file,caption\ndrawing.gif,x\n", r"row 2: .*drawing\.gif has an image that is bytes of no JPEG"),
        ("file,label\na.jpg,\n", "row 2: has no label"),
        ("file,label,split\na.jpg,x,dev\n", "row 2: split 'dev' is none of test, train"),
        ("file,label,split\na.jpg,x,train\n", "no row is of the split 'test'"),
    ],
)
def test_mistakes_are_told_with_their_row(photos, tmp_path, rows, said):
    (photos / "bad.jpg").write_bytes(picture(1)[:60])
    (photos / "drawing.gif").write_bytes(picture(1, "GIF"))
    with pytest.raises(ValueError, match=said):
        pairs = Captioned(photos, csv(photos, rows))
        if "label" in rows:
            pairs.write_classification(tmp_path / "bench", ["{c}"])
        pairs.write_shards(tmp_path / "web")


def test_damaged_images_are_left_out_if_asked(photos, tmp_path):
    (photos / "bad.jpg").write_bytes(b"no image")
    pairs = Captioned(photos, csv(photos, "file,caption\na.jpg,x\nbad.jpg,y\n"), skip_damaged=True)
    seen: list[int] = []
    pairs.write_shards(tmp_path / "web", seen.append)
    assert ShardSource(tmp_path / "web").captions(np.arange(1)) == ["x"]
    assert len(pairs.damaged) == 1 and "row 3" in pairs.damaged[0]
    assert sum(seen) == 2
    none = Captioned(photos, csv(photos, "file,caption\nbad.jpg,y\n"), skip_damaged=True)
    with pytest.raises(ValueError, match="every image is damaged"):
        none.write_shards(tmp_path / "none")
