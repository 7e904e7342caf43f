"""What containers have printed, as the API server reads it from a node: `/containerLogs/NS/POD/CONTAINER`."""

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster.kubernetes.certificates import Signed

Finder = Callable[[str, str], Path | None]


class LogServer:
    """The HTTPS server of all nodes. It answers those alone whose certificate the cluster has signed."""

    def __init__(self, port: int, files: Signed, authority: Path) -> None:
        self.find: Finder = lambda namespace, pod: None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(*map(str, files))
        server = _Server(("127.0.0.1", port), _handler(self))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: the other side gave up."""


def _handler(logs: LogServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path).path.strip("/").split("/")
            found = logs.find(parts[1], parts[2]) if parts[0] == "containerLogs" and len(parts) == 4 else None
            if found is None or not found.exists():
                self.send_error(404, "container not found")
                return
            said = found.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
