"""A server of `jestlab serve` in a thread, over labs in real databases."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.browser_support import Opened, open_url, tabs

from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve.access import Access
from jestlab.platform.serve.app import application
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.server import listening

TOKEN = "a-token-of-the-tests-0123"


@dataclass
class Answer:
    """What the server has answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body."""
        return self.body.decode()

    @property
    def data(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


@dataclass
class Server:
    """A server that runs.

    Attributes:
        port: Where it listens, on loopback.
    """

    port: int

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str, **headers: str) -> Answer:
        """Ask for a page; headers with _ for -."""
        return self.ask("GET", path, None, headers)

    def post(self, path: str, form: dict[str, str] | bytes, **headers: str) -> Answer:
        """Send a form as the server's own page does in a browser with the token; headers say otherwise."""
        body = form if isinstance(form, bytes) else urllib.parse.urlencode(form).encode()
        own = {"origin": self.url, "cookie": f"jestlab-token={TOKEN}"}
        return self.ask("POST", path, body, own | headers)

    def ask(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """Send one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        given = {name.replace("_", "-"): value for name, value in headers.items() if value}
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        found = Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        )
        connection.close()
        return found


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    """Starts servers over labs; they end with the test."""
    running: list[tuple[uvicorn.Server, threading.Thread, Labs]] = []

    def serve(
        *labs: Lab, host: str = "127.0.0.1", writes: bool = False, names: tuple[str, ...] = ()
    ) -> Server:
        served = Labs(labs, writes)
        access = Access.of(host, TOKEN, writes=writes, names=names)
        opened = listening("127.0.0.1", 0)
        server = uvicorn.Server(
            uvicorn.Config(application(served, access), log_level="error", lifespan="off", access_log=False)
        )
        thread = threading.Thread(target=server.run, args=([opened],), daemon=True)
        thread.start()
        running.append((server, thread, served))
        return Server(opened.getsockname()[1])

    yield serve
    for server, thread, served in running:
        server.should_exit = True
        thread.join(10)
        served.close()


@pytest.fixture
def lab(tmp_path: Path, store_url: str) -> Lab:
    """A lab whose store is empty, on each kind of database."""
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab", store_url)


@pytest.fixture
def visited(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Opens addresses in a browser, which are closed after the test."""
    with tabs(browser, open_url) as opening:
        yield opening
