"""Small icon sets as npm packages, and a local registry that real npm fetches them from."""

import base64
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from jestlab.models.data.icons.packages import IconSet

SHAPES = (
    "<circle cx='8' cy='8' r='{r}' fill='{c}'/>",
    "<rect x='2' y='3' width='{r}' height='9' fill='{c}'/>",
)
COLOURS = ("red", "green", "blue", "#fa0", "black", "purple")


def icons_json(names: list[str]) -> dict[str, Any]:
    """Different icons, and two invisible ones: one is white, one was hidden by its authors."""
    bodies: dict[str, dict[str, Any]] = {
        name: {"body": SHAPES[i % 2].format(r=3 + i % 5, c=COLOURS[i % 6])} for i, name in enumerate(names)
    }
    bodies["white"] = {"body": "<rect width='16' height='16' fill='white'/>"}
    bodies["old"] = {"body": SHAPES[0].format(r=4, c="red"), "hidden": True}
    return {"prefix": "x", "icons": bodies, "width": 16, "height": 16}


def package(files: dict[str, Any]) -> bytes:
    """A package's file, as npm packs it."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, value in files.items():
            data = value if isinstance(value, bytes) else json.dumps(value).encode()
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def sha512(content: bytes) -> str:
    return base64.b64encode(hashlib.sha512(content).digest()).decode()


def icon_set(name: str, content: bytes, part: str = "web", kind: str = "emoji", **more: Any) -> IconSet:
    """A set whose checksum is that of a package's file."""
    known: dict[str, Any] = {"version": "1.0.0", "license": "MIT", "bytes": len(content)} | more
    return IconSet(name=name, part=part, kind=kind, sha512=sha512(content), **known)  # type: ignore[arg-type]


def of_names(name: str, names: list[str], groups: dict[str, list[str]] | None = None) -> bytes:
    """A package of Iconify."""
    info = {"name": f"{name} Set", "license": {"title": "MIT", "spdx": "MIT"}, "author": {"name": "A"}}
    return package(
        {
            "package.json": {"name": f"@iconify-json/{name}", "version": "1.0.0"},
            "icons.json": icons_json(names),
            "info.json": info | {"palette": True},
            "metadata.json": {"categories": groups or {}},
        }
    )


@dataclass
class Registry:
    """A registry of npm packages.

    Attributes:
        served: File name → what is sent for it.
        asked: Paths that were asked for.
    """

    url: str = ""
    published: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    served: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def publish(self, one: IconSet, content: bytes) -> None:
        """Publish a package; the file that is sent can be changed in `served`."""
        self.published[f"@iconify-json/{one.name}"] = (one.version, content)
        self.served[f"{one.name}.tgz"] = content


@contextmanager
def serving() -> Iterator[Registry]:
    """Context with a registry on this machine."""
    here = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path)
            here.asked.append(path)
            name = path.rpartition("/")[2]
            if name in here.served:
                self._send(here.served[name], "application/octet-stream")
            elif path.lstrip("/") in here.published:
                version, content = here.published[path.lstrip("/")]
                dist = {
                    "tarball": f"{here.url}/{name}.tgz",
                    "integrity": f"sha512-{sha512(content)}",
                    "shasum": hashlib.sha1(content).hexdigest(),
                }
                about = {"name": path.lstrip("/"), "version": version, "dist": dist}
                told = {
                    "name": path.lstrip("/"),
                    "dist-tags": {"latest": version},
                    "versions": {version: about},
                }
                self._send(json.dumps(told).encode(), "application/json")
            else:
                self.send_error(404)

        def _send(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    here.url = f"http://127.0.0.1:{server.server_port}"
    yield here
    server.shutdown()
    server.server_close()
