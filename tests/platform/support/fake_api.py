"""The base of fake servers: a real HTTP server in a thread, whose answers a test can spoil."""

import contextlib
import json
import socket
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
        self.connections: list[socket.socket] = []
        self.lock = threading.RLock()
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
        server = _Server(("127.0.0.1", getattr(self, "_port", 0)), _handler(self))
        self._port = server.server_address[1]
        self._server = server
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            with self.lock:
                for connection in self.connections:  # those that clients keep open, too
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                self.connections.clear()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # the other side gave up
            super().handle_error(request, client_address)


def _handler(api: FakeApi) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer is one packet: two would wait 40 ms for an acknowledgement

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            parts = urlsplit(self.path)
            lose = False
            try:
                with api.lock:
                    api.requests.append((self.command, parts.path))
                    if api.faults:
                        raise Refused(api.faults.pop(0), "as the test wants it")
                    found = api.answer(
                        self.command,
                        parts.path,
                        dict(parse_qsl(parts.query)),
                        json.loads(raw) if raw else None,
                    )
                    lose, api.lost = api.lost > 0, max(api.lost - 1, 0)
                status = api.created if self.command == "POST" else 200
            except Refused as refused:
                found, status = api.error(refused), refused.status
            time.sleep(api.delay_seconds)
            if lose:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
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

        def handle(self) -> None:
            with api.lock:
                api.connections.append(self.connection)
            super().handle()

    return Handler
