"""Decode any image file: the same pixels as by slower ways, or a clear error; also images in tars."""

import io
import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import cbook
from PIL import Image, ImageOps

from jestlab.models.data import images
from jestlab.models.data.images import LazyImages, decode, store_within


def encoded(image, form="JPEG", mode=None, **options):
    file = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    (image.convert(mode) if mode else image).save(file, form, **options)
    return file.getvalue()


def deep_png(pixels):
    """A square PNG of 16-bit colors, which Pillow can't write, from >u2[s, s, 3]."""
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", len(pixels), len(pixels), 16, 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in parts
    )


def gradient(height, width):
    y, x = np.mgrid[:height, :width]
    return np.stack([255 * x / width, 255 * y / height, 0 * x + 128], -1).astype(np.uint8)


def resized(file, size):
    """The whole image resized by Pillow with antialiasing, as in big_vision."""
    with Image.open(io.BytesIO(file)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
        return np.asarray(upright.resize((size, size), Image.Resampling.BILINEAR)).astype(int)


def photograph(height, width):
    """A portrait that is part of Matplotlib."""
    with Image.open(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))) as image:
        return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS))


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2), (3, 2), (1, 40), (700, 1), (9, 9)])
def test_images_of_a_few_pixels(shape):
    assert np.abs(decode(encoded(np.full((*shape, 3), 90, np.uint8)), 16).astype(int) - 90).max() < 3


@pytest.mark.parametrize("make", [photograph, gradient])
@pytest.mark.parametrize("options", [{"quality": 95}, {"quality": 80, "progressive": True}])
def test_scaling_while_decoding_hardly_changes_pixels(make, options):
    for shape in ((256, 256), (201, 503), (130, 127)):
        file = encoded(make(*shape), **options)
        for size in (64, 16):
            difference = np.abs(decode(file, size) - resized(file, size))
            assert difference.mean() < 2.1, (shape, size)
            assert np.percentile(difference, 99) <= 9, (shape, size)


def test_images_of_less_than_twice_the_size_are_decoded_whole():
    file = encoded(photograph(120, 100), quality=90, subsampling=0)
    assert np.abs(decode(file, 64) - resized(file, 64)).max() <= 2


def exif(orientation, **options):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = orientation, "maker"
    return encoded(gradient(48, 96), exif=exif, **options)


@pytest.mark.parametrize("options", [{"quality": 95}, {"form": "PNG"}, {"form": "WEBP", "quality": 95}])
def test_images_are_turned_according_to_exif(options):
    for orientation in range(1, 9):
        file = exif(orientation, **options)
        assert np.abs(decode(file, 16) - resized(file, 16)).max() <= 3, orientation


def test_orientation_is_found_after_other_segments_and_in_xmp():
    plain, turned = encoded(gradient(48, 96)), exif(6)
    profile = b"\xff\xe2" + struct.pack(">H", 2_002) + bytes(2_000)  # also previews
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    xmp = b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp
    for file in (turned, turned[:2] + 100 * profile + turned[2:], plain[:2] + xmp + plain[2:]):
        assert np.array_equal(decode(file, 16), np.rot90(decode(plain, 16), -1))


@pytest.mark.parametrize("form", ["JPEG", "WEBP"])
def test_images_with_damaged_exif_count_as_upright(form):
    file = exif(6, form=form)
    start = file.index(b"MM\0*")
    broken = file[:start] + b"\xff" * 8 + file[start + 8 :]
    assert np.array_equal(decode(broken, 16), decode(exif(1, form=form), 16))


PIXELS = gradient(16, 16)
GRAY = np.repeat(PIXELS[..., :1], 3, axis=-1)
FLAT = np.full((16, 16, 3), (200, 60, 20), np.uint8)
DEEP = np.random.default_rng(0).integers(0, 2**16, (16, 16, 3)).astype(">u2")
CLEAR = np.dstack([PIXELS, np.full((16, 16), 255, np.uint8)])
CLEAR[:, 8:, 3] = 0
WHITE = np.where(CLEAR[..., 3:] == 0, np.uint8(255), PIXELS)
PALETTE = Image.fromarray(PIXELS).quantize(8)
FRAMES = [Image.new("RGB", (16, 16), color) for color in ("red", "blue")]
KINDS = {
    "gray JPEG": (encoded(GRAY[..., 0], quality=100), GRAY, 3),
    "gray PNG": (encoded(GRAY[..., 0], "PNG"), GRAY, 0),
    "16-bit gray": (encoded(GRAY[..., 0].astype(np.uint16) * 257, "PNG"), GRAY, 0),
    "16-bit color": (deep_png(DEEP), DEEP >> 8, 1),
    "transparent PNG": (encoded(CLEAR, "PNG"), WHITE, 0),
    "transparent WebP": (encoded(CLEAR, "WEBP", lossless=True), WHITE, 0),
    "transparent palette": (
        encoded(PALETTE, "PNG", transparency=0),
        np.where(np.asarray(PALETTE)[..., None] == 0, 255, np.asarray(PALETTE.convert("RGB"))),
        0,
    ),
    "CMYK, inverted by Adobe": (encoded(FLAT, "JPEG", "CMYK", quality=95), FLAT, 11),
    "GIF": (encoded(Image.new("RGB", (32, 32), "red"), "GIF"), [[[255, 0, 0]]], 0),
    "BMP": (encoded(FLAT, "BMP"), FLAT, 0),
    "first frame": (
        encoded(FRAMES[0], "WEBP", save_all=True, append_images=FRAMES[1:], lossless=True),
        [[[255, 0, 0]]],
        0,
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_image(kind):
    file, expected, tolerance = KINDS[kind]
    assert np.abs(decode(file, 16).astype(int) - np.asarray(expected).astype(int)).max() <= tolerance


WHOLE = encoded(photograph(64, 64), quality=90)


def bitten(file):
    """A file with a hundred bytes of its image replaced by noise."""
    noise = np.random.default_rng(0).integers(0, 256, 100, np.uint8).tobytes()
    return file[: len(file) // 2] + noise + file[len(file) // 2 + 100 :]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"not an image",
        WHOLE[:100],
        WHOLE[: len(WHOLE) // 2],
        WHOLE[:-2],
        b"\xff\xd8" + bytes(3000),
        encoded(gradient(32, 32), "PNG")[:80],
        bitten(encoded(photograph(32, 32), "PNG")),
        b"\x89PNG\r\n\x1a\n" + b"x" * 40,
        encoded(photograph(32, 32), "WEBP")[:200],
        encoded(photograph(32, 32), "EPS"),  # Pillow would start Ghostscript
    ],
)
def test_unreadable_bytes(bad):
    with pytest.raises(ValueError, match="not a readable image") as caught:
        decode(bad, 16)
    assert " at 0x" not in str(caught.value)


RESTARTS = encoded(photograph(64, 64), quality=90, restart_marker_blocks=2)
SLIGHTLY_DAMAGED = [
    WHOLE,
    RESTARTS,
    RESTARTS.replace(b"\xff\xd3", b"\xff\xd5", 1),
    RESTARTS.replace(b"\xff\xd3", b"", 1),
    bitten(WHOLE),
]


@given(st.binary(max_size=20), st.integers(0, 60), st.sampled_from(SLIGHTLY_DAMAGED))
def test_damaged_jpegs_are_read_if_pillow_reads_them(other, cut, file):
    """Bytes before the end are replaced by others, fewer, or more."""
    damaged = file[: len(file) - 2 - cut] + other + file[-2:]
    try:
        expected = resized(damaged, 64)
    except OSError:
        with pytest.raises(ValueError, match="not a readable image"):
            decode(damaged, 64)
    else:
        assert np.abs(decode(damaged, 64) - expected).max() <= 2
        assert np.abs(decode(damaged, 16) - resized(damaged, 16)).mean() < 2.1


@given(st.data())
def test_any_bytes_give_pixels_or_a_clear_error(data):
    file = bytearray(data.draw(st.sampled_from([WHOLE, exif(6), *(file for file, *_ in KINDS.values())])))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, min(len(file), 700) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert decode(bytes(file), 8).shape == (8, 8, 3)
    except ValueError as error:
        assert str(error).startswith("not a readable image")


@pytest.mark.parametrize("mode", ["RGB", "P", "LA", "RGBA"])
@pytest.mark.parametrize("shape", [(260, 131), (1, 9_000), (9_000, 1), (97, 97)])
def test_large_images_are_reduced_in_tiles_to_nearly_the_same_pixels(monkeypatch, mode, shape):
    file = encoded(photograph(*shape), "PNG", mode, **({"transparency": 3} if mode == "P" else {}))
    whole = decode(file, 16).astype(int)
    monkeypatch.setattr(images, "_LARGE", 0)
    monkeypatch.setattr(images, "_TILE", 30)
    assert np.abs(decode(file, 16) - whole).mean() < 2.5


_DECODE_WITHIN = """
import resource, sys
import psutil
from PIL import Image
from jestlab.models.data.images import decode

Image.preinit()
file = sys.stdin.buffer.read()
limit = psutil.Process().memory_info().vms + int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
assert decode(file, 32).shape == (32, 32, 3)
"""


@pytest.mark.parametrize(("mode", "bytes_per_pixel"), [("P", 1), ("I;16", 2), ("RGBA", 4)])
def test_large_images_take_little_more_memory_than_their_pixels(mode, bytes_per_pixel):
    file = encoded(Image.new(mode, (6_000, 6_000)), "PNG", **({"transparency": 3} if mode == "P" else {}))
    allowed = bytes_per_pixel * 6_000**2 + 100_000_000  # a copy as RGBA would take 144 MB
    command = [sys.executable, "-c", _DECODE_WITHIN, str(allowed)]
    done = subprocess.run(command, input=file, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


# ---- images that stay in tars: decoded some batches ahead, or once for all runs

N = 100
PIXELS_OF_ALL = np.random.default_rng(0).integers(0, 256, (N, 9, 7, 3), np.uint8)
CONTENTS = [encoded(pixels, "PNG") for pixels in PIXELS_OF_ALL]


@pytest.fixture
def make(tmp_path):
    """Makes images in two files of 60 and 40. They needn't be tars, because only locations are used."""
    paths, spans = (tmp_path / "0.tar", tmp_path / "1.tar"), []
    for path, part in zip(paths, (CONTENTS[:60], CONTENTS[60:]), strict=True):
        path.write_bytes(b"".join(part))
        ends = np.cumsum([len(content) for content in part]).tolist()
        spans += [(end - len(content), len(content)) for end, content in zip(ends, part, strict=True)]
    shard = np.repeat(np.array([0, 1], np.int64), [60, 40])
    keys = np.array([b"s%03d" % i for i in range(N)], np.bytes_)
    return lambda: LazyImages(paths, shard, keys, np.array(spans, np.int64), 8)


@given(st.lists(st.integers(0, N - 1), max_size=70), st.integers(1, 40), st.integers(1, 3), st.booleans())
def test_batches_are_the_decoded_images_in_order(make, indices, batch_size, threads, stored):
    lazy = make().take(np.array(indices, np.int64))
    if stored:
        lazy.store(threads)
    batches = list(lazy.batches(batch_size, threads))
    assert all(len(batch) == batch_size for batch in batches[:-1])
    found = [pixels for batch in batches for pixels in batch]
    np.testing.assert_array_equal(found, [decode(CONTENTS[i], 8) for i in indices])


@pytest.fixture
def decoded(monkeypatch):
    """The decoded images so far."""
    files: list[bytes] = []

    def counted(content, size):
        files.append(content)
        return decode(content, size)

    monkeypatch.setattr(images, "decode", counted)
    return files


def test_two_batches_at_most_are_decoded_ahead(make, decoded):
    batches = make().batches(10)
    next(batches)
    batches.close()  # waits for the started ones
    assert len(decoded) <= 30
    assert len(list(make().batches(10))) == 10


def test_stored_images_are_decoded_once_until_the_tars_change(make, decoded):
    lazy = make()
    for passes in (1, 2):
        list(lazy.batches(30))
        assert len(decoded) == passes * N
    for stored in (lazy, make()):
        stored.store()
        list(stored.batches(30))
        assert len(decoded) == 3 * N
    os.utime(lazy.folder / "0.tar", ns=(1, 1))
    make().store()
    assert len(decoded) == 4 * N
    assert len([*lazy.folder.rglob("decoded-*")]) == 1


def test_the_smallest_sets_are_stored_within_the_budget(make, decoded):
    sets = [make().take(np.arange(size)) for size in (45, 30, 20)]
    store_within(55 * 8 * 8 * 3, sets)
    for _ in range(2):
        for lazy in sets:
            list(lazy.batches(100))
    assert len(decoded) == 2 * 45 + 30 + 20


@pytest.mark.parametrize(
    ("content", "problem"), [(b"broken", "not a readable image"), (b"brok", "cut short, 4 of 6 bytes")]
)
def test_errors_name_the_damaged_example(tmp_path, content, problem):
    (tmp_path / "0.tar").write_bytes(content)
    keys, spans = np.array([b"a"], np.bytes_), np.array([[0, 6]], np.int64)
    lazy = LazyImages((tmp_path / "0.tar",), np.zeros(1, np.int64), keys, spans, 8)
    for read in (lambda: list(lazy.batches(4)), lazy.store):
        with pytest.raises(ValueError, match=rf"0\.tar, example 'a': {problem}"):
            read()
