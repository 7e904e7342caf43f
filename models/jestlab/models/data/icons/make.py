"""Make the icons' data: curated pairs and a web as shards, and two benchmarks.

    curated/     pairs of three emoji styles, with their names as captions, without skin tones
    web/         pairs of all kinds, with those three styles, captioned as on web pages; skin tones and
                 redrawn ideas are near-duplicates
    validation/  benchmark of an emoji style that is in neither, for tuning
    benchmark/   benchmark of another such style, for results
    licenses.json, packages/

Each folder appears when it is complete. The same packages give the same bytes on every machine, with the
same versions of resvg-py and PyArrow.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import multiprocessing
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image

from jestlab.models.data.files import build_once, write_whole
from jestlab.models.data.icons.packages import Icon, IconSet, Part, read_package
from jestlab.models.data.packing import Target, write_classification, write_retrieval, write_shards
from jestlab.models.data.shards import ShardIndex

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
    """Return whether a folder has all of the data already.

    Raises:
        ValueError: The folder has data of other packages, or other files.
    """
    licenses = folder / _LICENSES
    if not licenses.exists():
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if others := [name for name in names if name != PACKAGES]:
            raise ValueError(f"{folder}: already has {others[0]!r}: name a new or an empty folder")
        return False
    if _identity(sets) not in licenses.read_text(encoding="utf-8"):
        raise ValueError(f"{folder}: was made from other versions of the packages: name a new folder")
    return all((folder / part).is_dir() for part in _PARTS)


def make(
    folder: Path, sets: Sequence[IconSet], progress: Callable[[int, int], object] = lambda done, total: None
) -> None:
    """Make the missing parts of the data.

    Args:
        folder: Folder of the data; its `packages/` has the packages of the sets.
        progress: Called with the number of drawn icons, and of all icons to draw.
    """
    icons = [icon for one in sets for icon in read_package(one, folder / PACKAGES)]
    parts = {part: [icon for icon in icons if _is_in(part, icon)] for part in _PARTS}
    known = {word for icon in parts["curated"] for word in _words(_clean(icon))}
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

    def pictures(part: Part) -> Iterator[tuple[Icon, bytes]]:
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


def _is_in(part: Part, icon: Icon) -> bool:
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


def _clean(icon: Icon) -> str:
    """Write a caption as a curator would: the words of the name."""
    return icon.name.replace("-", " ")


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


def _example(icon: Icon, png: bytes, part: Part, known: set[str]) -> dict[str, Any]:
    """Return a pair with its metadata; `known` are the words of curated captions."""
    caption = _clean(icon) if part == "curated" else caption_on_web(icon.name, icon.info["name"])
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


def _write_benchmark(folder: Path, pictures: Sequence[tuple[Icon, bytes]]) -> None:
    """Write the emoji of a style: some of them to retrieve by their names, all to classify by groups."""
    name = pictures[0][0].set.name
    # Flags have names of countries, which no curated style has.
    retrieved = [(png, "png", _clean(icon)) for icon, png in pictures if icon.group != "flags"][:_RETRIEVED]
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


def _draw_all(icons: Sequence[Icon]) -> Iterator[bytes | None]:
    """Draw icons in order: a few in this process, more on all cores, since resvg holds the interpreter."""
    if len(icons) <= _DRAWN_AT_ONCE:
        yield from map(_draw, icons)
        return
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_draw, icons, chunksize=_DRAWN_AT_ONCE)


def _draw(icon: Icon) -> bytes | None:
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
