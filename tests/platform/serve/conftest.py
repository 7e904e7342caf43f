"""The application of `jestlab serve`, asked in this process or served to a browser."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlencode

import plans_support as plans
import pytest
import uvicorn
from starlette.types import ASGIApp, Message
from tests.browser_support import Opened, open_url, tabs

from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.serve.access import Access
from jestlab.platform.serve.app import application
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.server import listening
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.store import Store

TOKEN = "a-token-of-the-tests-0123"
HOST = "127.0.0.1:8270"
STUDY = {
    "name": "toy",
    "program": "toy_programs:loop",
    "base": {"steps": 10},
    "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 12}},
    "seeds": 2,
    "question": "Is it faster?",
    "reports": [{"table": {"baseline": "uniform"}}],
    "metrics": {"toy/*": {"goal": "max", "unit": "percent"}},
}


def record(lab: Lab, study: dict[str, Any]) -> dict[str, str]:
    """Record a study whose runs have all completed; return LABEL/SEED → fingerprint."""
    planned = plan(StudySpec.parse(study))
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, planned)
        for number, run in enumerate(planned.runs):
            attempt = plans.begun(store, run, lab.root / run.directory)
            for step in range(1, 10 + 1):
                attempt.log(step, {"loss": 1 / step + number, "examples_seen": 64 * step})
            attempt.evaluation(10, 64 * 10, 1e6 * 10, {"toy/score": 0.5 + number / 20})
            attempt.progress(10, run.config["steps"])
            attempt.complete()
    return {f"{run.label}/{run.seed}": run.fingerprint for run in planned.runs}


@dataclass
class Answer:
    """A response of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """Sends requests to an application in this process, as uvicorn would. Headers have _ for -."""

    http_version = "1.1"

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, b"", headers)

    def post(self, path: str, form: dict[str, str] | bytes, **headers: str) -> Answer:
        """Submit a form like the server's own page in a browser with the token."""
        body = form if isinstance(form, bytes) else urlencode(form).encode()
        own = {"origin": f"http://{HOST}", "cookie": f"jestlab-token={TOKEN}"}
        return self.request("POST", path, body, own | headers)

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        """Send one request; headers without a value are left out."""
        where, _, query = path.partition("?")
        given = {"host": HOST} | (headers or {})
        encoded = [(key.replace("_", "-").encode(), text.encode()) for key, text in given.items() if text]
        scope = {
            "type": "http", "http_version": self.http_version, "scheme": "http", "method": method,
            "root_path": "", "path": unquote(where), "raw_path": where.encode(),
            "query_string": query.encode(), "headers": encoded, "asgi": {"spec_version": "2.4"},
        }  # fmt: skip
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            sent.append(message)

        asyncio.run(self._app(scope, receive, send))  # type: ignore[arg-type]
        start, *rest = sent
        found = {key.decode(): value.decode() for key, value in start["headers"]}
        return Answer(start["status"], found, b"".join(message["body"] for message in rest))


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """Create clients of applications over labs."""
    with ExitStack() as stack:

        def create(
            *labs: Lab, host: str = "127.0.0.1", writes: bool = False, names: tuple[str, ...] = ()
        ) -> Client:
            served = stack.enter_context(closing(Labs(labs, writes)))
            return Client(application(served, Access.of(host, TOKEN, writes=writes, names=names)))

        yield create


@pytest.fixture
def serving() -> Iterator[Callable[[Lab], str]]:
    """Start servers over labs, which can be written; return their URLs."""
    with ExitStack() as stack:
        yield lambda lab: stack.enter_context(_served(lab))


@contextmanager
def _served(lab: Lab) -> Iterator[str]:
    with closing(Labs([lab], writes=True)) as labs:
        app = application(labs, Access.of("127.0.0.1", TOKEN, writes=True))
        opened = listening("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", access_log=False))
        thread = threading.Thread(target=server.run, args=([opened],), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{opened.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def visited(browser: Any) -> Iterator[Callable[..., Opened]]:
    """Open addresses in a browser, which are closed after the test."""
    with tabs(browser, open_url) as opening:
        yield opening


@pytest.fixture
def lab(tmp_path: Path, sqlite_url: str) -> Lab:
    """A lab whose store is empty."""
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab", sqlite_url)


@pytest.fixture
def runs(lab: Lab) -> dict[str, str]:
    """Record a study in the lab whose runs have all completed; return LABEL/SEED → fingerprint."""
    return record(lab, STUDY)
