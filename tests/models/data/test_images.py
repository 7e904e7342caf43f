"""Decode any image file: the same pixels as by slower ways, or a clear error."""

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


def encoded(image, form="JPEG", mode=None, **options):
    file = io.BytesIO()
    image = image if isinstance(image, Image.Image) else Image.fromarray(image)
    (image.convert(mode) if mode else image).save(file, form, **options)
    return file.getvalue()


def png(bits, kind, side, rows, *, interlaced=0, parts=()):
    """A square PNG from the bytes of its rows, also of kinds that Pillow can't write."""
    header = struct.pack(">IIBBBBB", side, side, bits, kind, 0, 0, interlaced)
    parts = [(b"IHDR", header), *parts, (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b"")]
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


def photograph(height, width, seed=0):
    """Noise of all scales, with the spectrum of photographs."""
    rng = np.random.default_rng(seed)
    pixels = np.zeros((height, width, 3))
    for scale in (2, 4, 8, 16, 32, 64, 128):
        layer = Image.fromarray(rng.integers(0, 256, (scale, scale, 3), np.uint8))
        layer = layer.resize((width, height), Image.Resampling.BICUBIC)
        pixels += (np.asarray(layer) - 128.0) * 2 / scale**0.7
    return (128 + pixels).clip(0, 255).astype(np.uint8)


def real_photograph(height, width):
    """A portrait that is part of Matplotlib."""
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


def with_segment(file, kind, content):
    return file[:2] + kind + struct.pack(">H", len(content) + 2) + content + file[2:]


def test_orientation_is_found_after_other_segments_and_in_xmp():
    plain, turned, far = encoded(gradient(48, 96)), exif(6), exif(6)
    for _ in range(100):  # color profiles and previews
        far = with_segment(far, b"\xff\xe2", bytes(2_000))
    xmp = b'http://ns.adobe.com/xap/1.0/\0<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    for file in (turned, far, with_segment(plain, b"\xff\xe1", xmp)):
        assert np.array_equal(decode(file, 16), np.rot90(decode(plain, 16), -1))


def test_images_with_damaged_exif_are_read_in_any_orientation():
    file, rng = exif(6), np.random.default_rng(0)
    upright = gradient(16, 16).astype(int)
    ways = [np.rot90(side, turns) for side in (upright, upright[:, ::-1]) for turns in range(4)]
    start = file.index(b"Exif\0\0") + 6
    for _ in range(300):
        broken = bytearray(file)
        for place in start + rng.integers(0, 40, 3):
            broken[place] = rng.integers(0, 256)
        pixels = decode(bytes(broken), 16)
        assert min(np.abs(pixels - way).mean() for way in ways) < 10
    broken[start : start + 8] = b"\xff" * 8
    assert np.abs(decode(bytes(broken), 16) - upright).mean() < 10


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
    "16-bit color": (png(16, 2, 16, b"".join(b"\0" + row.tobytes() for row in DEEP)), DEEP >> 8, 1),
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
def test_jpegs_with_warnings_of_libjpeg_are_decoded_by_pillow(file):
    with pytest.raises(ValueError):
        simplejpeg.decode_jpeg(file)
    assert np.abs(decode(file, 64) - resized(file, 64)).max() <= 2
    assert np.abs(decode(file, 16) - resized(file, 16)).mean() < 2.1


@given(st.binary(max_size=20), st.integers(0, 60), st.sampled_from([WHOLE, RESTARTS]))
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


FILES = [
    WHOLE,
    exif(6),
    encoded(PIXELS, "PNG"),
    encoded(PIXELS, "PNG", "P"),
    encoded(PIXELS[..., 0].astype(np.uint16), "PNG"),
    encoded(PIXELS, "WEBP"),
    encoded(PIXELS, "JPEG", "CMYK"),
]


@given(st.data())
def test_any_bytes_give_pixels_or_a_clear_error(data):
    file = bytearray(data.draw(st.sampled_from(FILES)))
    for _ in range(data.draw(st.integers(1, 4))):
        file[data.draw(st.integers(0, min(len(file), 700) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert decode(bytes(file), 8).shape == (8, 8, 3)
    except ValueError as error:
        assert str(error).startswith("not a readable image")


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
    file = encoded(MODES[mode](photograph(*shape)), "PNG", **({"transparency": 3} if mode == "P" else {}))
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


@pytest.mark.parametrize(
    ("kind", "bits", "interlaced", "bytes_per_pixel"),
    [(3, 8, 0, 1), (3, 8, 1, 1), (0, 16, 0, 2), (4, 8, 0, 4), (6, 8, 0, 4)],
    ids=["palette", "interlaced palette", "16 bits", "gray and alpha", "RGBA"],
)
def test_large_images_take_little_more_memory_than_their_pixels(kind, bits, interlaced, bytes_per_pixel):
    side, row_bytes = 6_000, 2 if kind == 4 else bytes_per_pixel
    rows = (b"\0" + bytes(row_bytes * side)) * (side * (1 + interlaced))
    palette = [(b"PLTE", bytes(768)), (b"tRNS", b"\0" * 4)] if kind == 3 else []
    file = png(bits, kind, side, rows, interlaced=interlaced, parts=palette)
    allowed = bytes_per_pixel * side**2 + 100_000_000  # a copy as RGBA would take 144 MB
    command = [sys.executable, "-c", _DECODE_WITHIN, str(allowed)]
    done = subprocess.run(command, input=file, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
