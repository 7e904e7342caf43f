"""Small icon sets as npm packages."""

import base64
import hashlib
import io
import json
import tarfile
from typing import Any

from jestlab.models.data.icons.make import IconSet

SHAPES = (
    "<circle cx='8' cy='8' r='{r}' fill='{c}'/>",
    "<rect x='2' y='3' width='{r}' height='9' fill='{c}'/>",
)
COLORS = ("red", "green", "blue", "#fa0", "black", "purple")


def of_names(name: str, names: list[str], groups: dict[str, list[str]] | None = None) -> bytes:
    """An Iconify package, as npm packs it, with different icons and two invisible ones."""
    icons: dict[str, dict[str, Any]] = {
        each: {"body": SHAPES[i % 2].format(r=3 + i % 5, c=COLORS[i % 6])} for i, each in enumerate(names)
    }
    icons["white"] = {"body": "<rect width='16' height='16' fill='white'/>"}
    icons["old"] = {"body": SHAPES[0].format(r=4, c="red"), "hidden": True}
    license = {"title": "MIT", "spdx": "MIT"}
    files = {
        "package.json": {"name": f"@iconify-json/{name}", "version": "1.0.0"},
        "icons.json": {"prefix": "x", "icons": icons, "width": 16, "height": 16},
        "info.json": {"name": f"{name} Set", "license": license, "author": {"name": "A"}, "palette": True},
        "metadata.json": {"categories": groups or {}},
    }
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for path, value in files.items():
            data = json.dumps(value).encode()
            member = tarfile.TarInfo(f"package/{path}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def icon_set(name: str, content: bytes, part: Any = "web", kind: str = "emoji") -> IconSet:
    """A set with the checksum of a package's file."""
    sha512 = base64.b64encode(hashlib.sha512(content).digest()).decode()
    return IconSet(name, "1.0.0", part, kind, "MIT", len(content), sha512)
