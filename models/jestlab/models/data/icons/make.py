"""Make the icons' data: curated pairs and a web as shards, and two benchmarks.

    curated/     pairs of three emoji styles, with their names as captions, without skin tones
    web/         pairs of all kinds, those three styles too, captioned as on web pages; skin tones and
                 redrawn ideas are near-duplicates
    validation/  benchmark of an emoji style that is in neither: what is tuned is tuned on it
    benchmark/   benchmark of another one, for claims
    licenses.json, packages/

Each folder appears when it is complete. The same packages give the same bytes on every machine, with the
same versions of resvg-py and PyArrow.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jestlab.models.data.files import build_once, write_whole
from jestlab.models.data.icons import captions
from jestlab.models.data.icons.drawing import draw_all
from jestlab.models.data.icons.packages import Icon, read_package
from jestlab.models.data.icons.sets import IconSet, Part
from jestlab.models.data.packing import Target, write_classification, write_retrieval, write_shards
from jestlab.models.data.shards import ShardIndex

IMAGE_SIZE = 64
"""Side of the pictures, in pixels."""

PARTS: tuple[Part, ...] = ("curated", "web", "validation", "benchmark")
"""The folders that are made."""

_HELD_BY: dict[Part, tuple[Part, ...]] = {
    "curated": ("curated",),
    "web": ("curated", "web"),  # the curated pictures are on the web, too, with worse captions
    "validation": ("validation",),
    "benchmark": ("benchmark",),
}
"""Part → the sets that it holds."""

_LICENSES = "licenses.json"
_PACKAGES = "packages"
_VERSION = 1  # Raise it whenever the same packages would give other bytes.
_PROMPTS = ("{c}", "{c} icon")
_SHOTS = 16  # of a class's images, for few-shot probes
_RETRIEVED = 500

Progress = Callable[[int], None]


def packages_folder(folder: Path) -> Path:
    """Return where in the folder of the data the packages are kept."""
    return folder / _PACKAGES


def is_made(folder: Path, sets: Sequence[IconSet]) -> bool:
    """Return whether a folder holds all of the data already.

    Raises:
        ValueError: It holds the data of other packages, or something else.
    """
    kept = folder / _LICENSES
    if not kept.exists():
        found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if strange := [name for name in found if name != _PACKAGES]:
            raise ValueError(f"{folder}: holds {strange[0]!r} already: name a new or an empty folder")
        return False
    try:
        made_from = json.loads(kept.read_text(encoding="utf-8"))["made_from"]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{kept}: damaged: delete {folder}, or name a new folder") from None
    if made_from != _identity(sets):
        raise ValueError(f"{folder}: was made from other versions of the packages: name a new folder")
    return all((folder / part).is_dir() for part in PARTS)


class Icons:
    """The icons of all packages, sorted into the parts of the data."""

    def __init__(self, folder: Path, sets: Sequence[IconSet]) -> None:
        """Read the packages.

        Args:
            folder: Of the data; its `packages/` holds those of the sets.
            sets: What to read.

        Raises:
            ValueError: A package is not what it should be.
        """
        self._folder = folder
        self._sets = sets
        self._packages = {one.name: read_package(one, packages_folder(folder)) for one in sets}
        self._names = {
            name: frozenset(icon.name for icon in package.icons) for name, package in self._packages.items()
        }
        self._icons: dict[Part, list[Icon]] = {
            part: [
                icon
                for one in sets
                if one.part in _HELD_BY[part]
                for icon in self._packages[one.name].icons
                if part == "web" or not self._has_tone(icon)
            ]
            for part in PARTS
        }
        self._curated_words = {
            word for icon in self._icons["curated"] for word in captions.words(captions.clean(icon.name))
        }

    def __len__(self) -> int:
        """Return how many icons `make` will draw: those of the parts that are not there."""
        return sum(len(icons) for part, icons in self._icons.items() if not (self._folder / part).is_dir())

    def make(self, progress: Progress = lambda drawn: None) -> None:
        """Make the parts that are not there; calls `progress` with the number of icons just drawn."""
        content = {
            "made_from": _identity(self._sets),
            "sets": [
                {**one._asdict(), **{key: self._packages[one.name].info.get(key) for key in _INFORMATION}}
                for one in self._sets
            ],
        }
        write_whole(self._folder / _LICENSES, json.dumps(content, indent=1).encode())
        for part in PARTS:
            write = self._write_shards if part in ("curated", "web") else self._write_benchmark
            build_once(self._folder / part, partial(write, part=part, progress=progress))

    def _has_tone(self, icon: Icon) -> bool:
        """Return whether an emoji is one of several that differ by skin tones."""
        if icon.set.kind != "emoji":
            return False
        return captions.without_tones(icon.name, self._names[icon.set.name]) != icon.name

    def _write_shards(self, folder: Path, *, part: Part, progress: Progress) -> None:
        """Write pairs in an order that mixes the sets."""
        icons = sorted(self._icons[part], key=lambda icon: _hash(icon.set.name, icon.name))
        drawn = draw_all(icons, IMAGE_SIZE, progress)
        write_shards(folder, (self._example(part, *pair) for pair in drawn), "icons")
        ShardIndex.load(folder)

    def _example(self, part: Part, icon: Icon, png: bytes) -> dict[str, Any]:
        """Return a pair with its metadata."""
        info = self._packages[icon.set.name].info
        caption = captions.clean(icon.name)
        if part == "web":
            caption = captions.as_on_the_web(icon.name, str(info["name"]))
        return {
            "image": png,
            "caption": caption,
            "set": icon.set.name,
            "kind": icon.set.kind,
            "name": icon.name,
            "name_quality": captions.name_quality(caption, self._curated_words),
            "skin_tone": self._has_tone(icon),
            "palette": "colours" if info.get("palette") else "one colour",
            "license": icon.set.license,
        }

    def _write_benchmark(self, folder: Path, *, part: Part, progress: Progress) -> None:
        """Write the emoji of a style: some of them to retrieve by their names, all to classify by groups."""
        [name] = {icon.set.name for icon in self._icons[part]}
        groups = self._packages[name].groups
        icons = sorted(self._icons[part], key=lambda icon: _hash(name, icon.name))
        pictures = [(icon.name, png) for icon, png in draw_all(icons, IMAGE_SIZE, progress)]
        # Flags have names of countries, which no curated style holds.
        retrieved = [pair for pair in pictures if groups.get(pair[0]) != "flags"][:_RETRIEVED]
        write_retrieval(
            folder / f"{name}_retrieval", ((png, "png", captions.clean(of)) for of, png in retrieved)
        )
        by_group: dict[str, list[bytes]] = defaultdict(list)
        for of, png in pictures:
            if of in groups:
                by_group[groups[of]].append(png)
        large = sorted(group for group, members in by_group.items() if len(members) > 2 * _SHOTS)
        splits: dict[str, list[Target]] = {
            split: [(png, "png", str(k)) for k, group in enumerate(large) for png in by_group[group][members]]
            for split, members in (("train", slice(_SHOTS)), ("test", slice(_SHOTS, None)))
        }
        write_classification(folder / f"{name}_groups_classification", splits, large, _PROMPTS)


_INFORMATION = ("title", "author", "license")


def _hash(*parts: str) -> str:
    """Return a hash to order by: the same everywhere, and unlike any order of names."""
    return hashlib.sha256("/".join(parts).encode()).hexdigest()


def _identity(sets: Iterable[IconSet]) -> str:
    """Return what identifies the data."""
    content = json.dumps([_VERSION, IMAGE_SIZE, [[*one] for one in sets]])
    return hashlib.sha256(content.encode()).hexdigest()
