"""The base of fake servers: a real HTTP server in a thread, whose answers a test can spoil."""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit


class Refused(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class FakeApi:
    """A server at `url`; `answer` computes the answer to a request.

    Attributes:
        faults: Statuses with which the next requests fail.
        lost: How many of the next requests are carried out, and their answers lost.
        delay_seconds: Before each answer.
        requests: Method and path of every request so far.
        created: Status of the answer to a POST.
    """

    created = 200

    def __init__(self) -> None:
        self.faults: list[int] = []
        self.lost = 0
        self.delay_seconds = 0.0
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.RLock()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> Any:
        """A JSON value, or bytes.

        Raises:
            Refused: An error.
        """
        raise NotImplementedError

    def error(self, refused: Refused) -> Any:
        """An error as this API words it."""
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; at the same address as before, if it was stopped."""
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = _Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # the other side gave up
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of each connection."""

    api: FakeApi

    def _do(self) -> None:
        api, lose, parts = self.api, False, urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            with api.lock:
                api.requests.append((self.command, parts.path))
                if api.faults:
                    raise Refused(api.faults.pop(0), "as the test wants it")
                body = json.loads(raw) if raw else None
                found = api.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
                lose, api.lost = api.lost > 0, max(api.lost - 1, 0)
            status = api.created if self.command == "POST" else 200
        except Refused as refused:
            found, status = api.error(refused), refused.status
        time.sleep(api.delay_seconds)
        if lose:
            return
        data = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(found, bytes) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = _do

    def log_message(self, format: str, *args: Any) -> None:
        pass
