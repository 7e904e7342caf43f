"""Decoding: the same pixels as slower ways, from any image file, or a clear error."""

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import cbook
from PIL import Image, ImageOps

from jestlab.models.data import images
from jestlab.models.data.images import decode


def encoded(pixels, form="JPEG", mode=None, **options):
    file = io.BytesIO()
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(file, form, **options)
    return file.getvalue()


def gradient(height, width):
    y, x = np.mgrid[:height, :width]
    return np.stack([255 * x / width, 255 * y / height, 0 * x + 128], -1).astype(np.uint8)


def full_decode(file, size):
    """What big_vision would do: the whole picture resized, here by PIL with antialiasing."""
    with Image.open(io.BytesIO(file)) as image:
        return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)).astype(int)


def photograph(height, width, seed=0):
    """Noise of all scales, which has the spectrum of photographs."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for scale in (2, 4, 8, 16, 32, 64, 128):
        layer = Image.fromarray(rng.integers(0, 256, (scale, scale, 3), np.uint8))
        layer = layer.resize((width, height), Image.Resampling.BICUBIC)
        pixels += (np.asarray(layer) - 128.0) * 2 / scale**0.7
    return (128 + pixels).clip(0, 255).astype(np.uint8)


def real_photograph(height, width):
    """The portrait that Matplotlib brings along."""
    with Image.open(str(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))) as image:
        return np.asarray(image.convert("RGB").resize((width, height), Image.Resampling.LANCZOS))


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 2), (3, 2), (1, 40), (700, 1), (9, 9)])
def test_images_of_a_few_pixels(shape):
    assert np.abs(decode(encoded(np.full((*shape, 3), 90, np.uint8)), 16).astype(int) - 90).max() < 3


@pytest.mark.parametrize("make", [photograph, real_photograph, gradient])
@pytest.mark.parametrize("options", [{"quality": 95}, {"quality": 80, "progressive": True}])
def test_scaling_while_decoding_hardly_changes_pixels(make, options):
    for shape in ((256, 256), (201, 503), (130, 127)):
        file = encoded(make(*shape), **options)
        for size in (64, 16):
            difference = np.abs(decode(file, size) - full_decode(file, size))
            assert difference.mean() < 2.1, (shape, size)
            assert np.percentile(difference, 99) <= 9, (shape, size)


def test_no_scaling_no_difference():
    """An image of less than twice the size is decoded whole: the same pixels as PIL's, within rounding."""
    file = encoded(photograph(120, 100), quality=90, subsampling=0)
    assert np.abs(decode(file, 64) - full_decode(file, 64)).max() <= 2


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_turned_as_exif_says(form):
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        file = encoded(gradient(48, 96), form, exif=exif, **({} if form == "PNG" else {"quality": 95}))
        with Image.open(io.BytesIO(file)) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
        expected = np.asarray(upright.resize((16, 16), Image.Resampling.BILINEAR)).astype(int)
        assert np.abs(decode(file, 16) - expected).max() <= 3, orientation


@pytest.mark.parametrize("before", [0, 3_000, 5_000, 200_000])
def test_orientation_is_found_after_any_other_segment(before):
    """Some cameras and editors write colour profiles and previews first."""
    file, fill = with_exif(), b""
    while len(fill) < before:
        fill += b"\xff\xe2" + struct.pack(">H", 2_002) + bytes(2_000)
    assert np.array_equal(decode(file[:2] + fill + file[2:], 16), decode(file, 16))
    assert not np.array_equal(decode(file, 16), decode(encoded(gradient(32, 32)), 16))


def test_orientation_in_xmp():
    """ImageOps.exif_transpose heeds it."""
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    plain = encoded(gradient(32, 32), quality=95)
    file = plain[:2] + b"\xff\xe1" + struct.pack(">H", len(xmp) + 2) + xmp + plain[2:]
    assert np.array_equal(decode(file, 16), np.rot90(decode(plain, 16), -1))


def test_damaged_exif_leaves_the_picture_as_it_lies():
    file = with_exif()
    upright, turned = gradient(16, 16).astype(int), np.rot90(gradient(16, 16), -1).astype(int)
    assert np.abs(decode(file, 16) - turned).mean() < 10
    start = file.index(b"Exif\0\0") + 6
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(file)
        for place in start + rng.integers(0, 40, 3):
            broken[place] = rng.integers(0, 256)
        pixels = decode(bytes(broken), 16)
        assert min(np.abs(pixels - way).mean() for way in eight_ways(upright)) < 10
    broken[start : start + 8] = b"\xff" * 8
    assert np.abs(decode(bytes(broken), 16) - upright).mean() < 10


def eight_ways(pixels):
    """A square picture in every orientation."""
    for side in (pixels, pixels[:, ::-1]):
        yield from (np.rot90(side, turns) for turns in range(4))


def test_grey():
    grey = gradient(32, 32)[..., 0]
    for form in ("JPEG", "PNG"):
        pixels = decode(encoded(grey, form), 16).astype(int)
        assert (np.ptp(pixels, axis=-1) == 0).all()
        assert np.abs(pixels[..., 0] - gradient(16, 16)[..., 0]).mean() < 10


def test_sixteen_bits_keep_their_upper_byte():
    """PIL's own conversion would give a white picture."""
    grey = gradient(16, 16)[..., 0]
    assert np.array_equal(decode(encoded(grey.astype(np.uint16) * 257, "PNG"), 16)[..., 0], grey)
    # Three colours: a PNG that PIL cannot write.
    colours = np.random.default_rng(0).integers(0, 2**16, (8, 8, 3)).astype(">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in colours)
    parts = (
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
    assert np.abs(decode(file, 8) - (colours >> 8).astype(int)).max() <= 1


@pytest.mark.parametrize("form", ["PNG", "WEBP"])
def test_what_is_transparent_shows_white(form):
    pixels = np.dstack([gradient(16, 16), np.full((16, 16), 255, np.uint8)])
    pixels[:, 8:, 3] = 0
    found = decode(encoded(pixels, form, **({"lossless": True} if form == "WEBP" else {})), 16)
    assert (found[:, 8:] == 255).all()
    assert np.array_equal(found[:, :8], gradient(16, 16)[:, :8])


def test_a_palette_with_a_transparent_colour():
    image = Image.fromarray(gradient(16, 16)).quantize(8)
    file = io.BytesIO()
    image.save(file, "PNG", transparency=0)
    clear = np.asarray(image) == 0
    found = decode(file.getvalue(), 16)
    assert clear.any() and (found[clear] == 255).all()
    assert np.array_equal(found[~clear], np.asarray(image.convert("RGB"))[~clear])


def test_cmyk_has_the_right_colours():
    """Adobe writes the values inverted and says so in a marker, which not every decoder heeds."""
    flat = np.full((32, 32, 3), (200, 60, 20), np.uint8)
    cmyk = Image.fromarray(flat).convert("CMYK")
    file = io.BytesIO()
    cmyk.save(file, "JPEG", quality=95)
    assert b"Adobe" in file.getvalue()  # as PIL, too, writes it
    assert np.abs(decode(file.getvalue(), 16).astype(int) - flat[:16, :16]).max() < 12


@pytest.mark.parametrize("form", ["GIF", "BMP"])
def test_other_files_of_the_web(form):
    flat = np.full((32, 32, 3), (255, 0, 0), np.uint8)
    assert np.array_equal(decode(encoded(flat, form), 16), flat[:16, :16])


def test_of_an_animation_the_first_frame():
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    assert (decode(file.getvalue(), 16) == (255, 0, 0)).all()


WHOLE = encoded(photograph(64, 64), quality=90)


def bitten(file):
    """A file with a hundred bytes of its picture lost to noise."""
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
        encoded(photograph(32, 32), "EPS"),  # PIL would start Ghostscript
    ],
)
def test_unreadable_bytes(bad):
    with pytest.raises(ValueError, match="not a readable image") as caught:
        decode(bad, 16)
    assert " at 0x" not in str(caught.value)


RESTARTS = encoded(photograph(64, 64), quality=90, restart_marker_blocks=2)


@pytest.mark.parametrize(
    "file",
    [
        RESTARTS.replace(b"\xff\xd3", b"\xff\xd5", 1),
        RESTARTS.replace(b"\xff\xd3", b"", 1),
        WHOLE[:-2] + bytes(range(200)) + WHOLE[-2:],
        RESTARTS[:-2] + b"\x11" * 64 + RESTARTS[-2:],
        bitten(WHOLE),
    ],
)
def test_jpegs_that_libjpeg_warns_about_are_read_as_pillow_reads_them(file):
    with pytest.raises(ValueError):  # with the message that is only a warning for Pillow
        simplejpeg.decode_jpeg(file)
    assert np.abs(decode(file, 64) - full_decode(file, 64)).max() <= 2
    assert np.abs(decode(file, 16) - full_decode(file, 16)).mean() < 2.1


@given(st.binary(max_size=20), st.integers(0, 60), st.sampled_from([WHOLE, RESTARTS]))
def test_every_damaged_jpeg_that_pillow_reads_is_read(other, cut, file):
    """Bytes before the end replaced by others, none, or more."""
    damaged = file[: len(file) - 2 - cut] + other + file[-2:]
    try:
        expected = full_decode(damaged, 64)
    except OSError:
        with pytest.raises(ValueError, match="not a readable image"):
            decode(damaged, 64)
    else:
        assert np.abs(decode(damaged, 64) - expected).max() <= 2


MODES = {
    "RGB": lambda pixels: Image.fromarray(pixels),
    "P": lambda pixels: Image.fromarray(pixels).quantize(16),
    "L": lambda pixels: Image.fromarray(pixels).convert("L"),
    "LA": lambda pixels: Image.fromarray(pixels).convert("LA"),
    "RGBA": lambda pixels: Image.fromarray(np.dstack([pixels, pixels[..., 0]])),
    "16 bits": lambda pixels: Image.fromarray(pixels[..., 0].astype(np.uint16) * 257),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(260, 131), (1, 9_000), (9_000, 1), (97, 97)])
def test_large_images_are_reduced_in_tiles_to_nearly_the_same_pixels(monkeypatch, mode, shape):
    file = io.BytesIO()
    MODES[mode](photograph(*shape)).save(file, "PNG", **({"transparency": 3} if mode == "P" else {}))
    whole = decode(file.getvalue(), 16).astype(int)
    monkeypatch.setattr(images, "_LARGE", 0)
    monkeypatch.setattr(images, "_TILE", 30)
    assert np.abs(decode(file.getvalue(), 16) - whole).mean() < 2.5


_DECODE_WITHIN = """
import resource, struct, sys, zlib
import psutil
from PIL import Image
from jestlab.models.data import images
from jestlab.models.data.images import decode

side, kind, depth, row_bytes, interlaced, allowed = map(int, sys.argv[1:])
packed = zlib.compressobj(1)
rows = b"".join(packed.compress(b"\\0" + bytes(row_bytes)) for _ in range(2 * side if interlaced else side))
header = struct.pack(">IIBBBBB", side, side, depth, kind, 0, 0, interlaced)
parts = [(b"IHDR", header), (b"PLTE", bytes(768)), (b"tRNS", b"\\0" * 4)][: 3 if kind == 3 else 1]
parts += [(b"IDAT", rows + packed.flush()), (b"IEND", b"")]
file = b"\\x89PNG\\r\\n\\x1a\\n" + b"".join(
    struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    for name, content in parts
)
Image.preinit()
limit = psutil.Process().memory_info().vms + allowed
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
assert decode(file, 32).shape == (32, 32, 3)
"""


@pytest.mark.parametrize(
    ("kind", "depth", "row_bytes", "interlaced", "bytes_per_pixel"),
    [(3, 8, 1, 0, 1), (3, 8, 1, 1, 1), (0, 16, 2, 0, 2), (4, 8, 2, 0, 4), (6, 8, 4, 0, 4)],
    ids=["palette", "interlaced palette", "16 bits", "grey and alpha", "RGBA"],
)
def test_a_large_image_takes_little_more_than_its_own_pixels(
    kind, depth, row_bytes, interlaced, bytes_per_pixel
):
    side = 6_000
    allowed = bytes_per_pixel * side**2 + 100_000_000  # a copy as RGBA would be 144 MB
    numbers = (side, kind, depth, row_bytes * side, interlaced, allowed)
    done = subprocess.run(
        [sys.executable, "-c", _DECODE_WITHIN, *map(str, numbers)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@given(st.data())
def test_whatever_the_bytes_pixels_or_a_clear_error(data):
    file = bytearray(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, min(len(file), 700) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert decode(bytes(file), 8).shape == (8, 8, 3)
    except ValueError as error:
        assert str(error).startswith("not a readable image")


def with_exif():
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "maker"
    return encoded(gradient(32, 32), exif=exif)


FILES = [
    WHOLE,
    with_exif(),
    encoded(gradient(16, 16), "PNG"),
    encoded(gradient(16, 16), "PNG", "P"),
    encoded(gradient(16, 16)[..., 0].astype(np.uint16), "PNG"),
    encoded(gradient(16, 16), "WEBP"),
    encoded(gradient(16, 16), "JPEG", "CMYK"),
]
