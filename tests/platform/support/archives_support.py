"""Archives that are not to be believed: written anew, their members changed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

Contents = dict[str, bytes]
Change = Callable[[Contents], object]


def members(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as tar:
        return [(member, content.read()) for member in tar if (content := tar.extractfile(member))]


def rewrite(path: Path, change: Change, honest: bool = True) -> None:
    """Write an archive anew, its members changed, with checksums that are right again."""
    contents = {member.name: content for member, content in members(path)}
    change(contents)
    if honest:
        checksums = {n: hashlib.sha256(c).hexdigest() for n, c in contents.items() if n != "checksums.json"}
        contents.pop("checksums.json")
        contents["checksums.json"] = json.dumps(checksums).encode()
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def put(table: str, **columns: Any) -> Change:
    """Change the first row of a table."""

    def change(contents: Contents) -> None:
        first, _, rest = contents[f"tables/{table}.jsonl"].partition(b"\n")
        contents[f"tables/{table}.jsonl"] = json.dumps(json.loads(first) | columns).encode() + b"\n" + rest

    return change


def head(**values: Any) -> Change:
    def change(contents: Contents) -> None:
        contents["jestlab.json"] = json.dumps(json.loads(contents["jestlab.json"]) | values).encode()

    return change


def add(name: str, content: bytes = b"x") -> Change:
    def change(contents: Contents) -> None:
        contents[name] = content

    return change
