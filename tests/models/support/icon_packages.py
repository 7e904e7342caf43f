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
COLORS = ("red", "green", "blue", "#fa0", "black", "purple")


def of_names(name: str, names: list[str], groups: dict[str, list[str]] | None = None) -> bytes:
    """An Iconify package, as npm packs it, with different icons and two invisible ones."""
    icons: dict[str, dict[str, Any]] = {
        each: {"body": SHAPES[i % 2].format(r=3 + i % 5, c=COLORS[i % 6])} for i, each in enumerate(names)
    }
    icons["white"] = {"body": "<rect width='16' height='16' fill='white'/>"}
    icons["old"] = {"body": SHAPES[0].format(r=4, c="red"), "hidden": True}
    files = {
        "package.json": {"name": f"@iconify-json/{name}", "version": "1.0.0"},
        "icons.json": {"prefix": "x", "icons": icons, "width": 16, "height": 16},
        "info.json": {
            "name": f"{name} Set",
            "license": {"title": "MIT", "spdx": "MIT"},
            "author": {"name": "A"},
            "palette": True,
        },
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


def sha512(content: bytes) -> str:
    return base64.b64encode(hashlib.sha512(content).digest()).decode()


def icon_set(name: str, content: bytes, part: Any = "web", kind: str = "emoji") -> IconSet:
    """A set with the checksum of a package's file."""
    return IconSet(name, "1.0.0", part, kind, "MIT", len(content), sha512(content))


@dataclass
class Registry:
    """A registry of npm packages.

    Attributes:
        served: Path → content of the response.
        asked: Requested paths.
    """

    url: str = ""
    served: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def publish(self, one: IconSet, content: bytes) -> None:
        """Publish a package; `served` can be changed afterwards."""
        name, path = f"@iconify-json/{one.name}", f"{one.name}.tgz"
        dist = {"tarball": f"{self.url}/{path}", "integrity": f"sha512-{sha512(content)}"}
        version = {"name": name, "version": one.version, "dist": dist}
        about = {"name": name, "dist-tags": {"latest": one.version}, "versions": {one.version: version}}
        self.served |= {name: json.dumps(about).encode(), path: content}


@contextmanager
def serving() -> Iterator[Registry]:
    """Context with a registry on this machine."""
    here = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(self.path).lstrip("/")
            here.asked.append(path)
            if path not in here.served:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(here.served[path])))
            self.end_headers()
            self.wfile.write(here.served[path])

        def log_message(self, format: str, *args: Any) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    here.url = f"http://127.0.0.1:{server.server_port}"
    yield here
    server.shutdown()
    server.server_close()
