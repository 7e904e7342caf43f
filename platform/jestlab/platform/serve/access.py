"""Access control of the web server: host names, the token, and requests from other pages in a browser.

Any page in the user's browser can send requests to a server on this machine. The server rejects

* requests for host names that an attacker points to 127.0.0.1 (DNS rebinding): it serves only known `Host`
  headers;
* forms of other pages (CSRF): a write needs this server's origin, and the token in a cookie that browsers
  send only with requests from this server's pages;
* writes without the token; also reads without it, if other machines can reach the server, directly or through
  a proxy.
"""

import hmac
import ipaddress
import socket
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "jestlab-token"
BODY_BYTES = 64 * 1024
"""Maximum size of a request's body: a note, or a query."""

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))
_READS = frozenset(("GET", "HEAD"))
_FORWARDED = ("forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "x-original-", "cf-connecting")
"""Prefixes of the headers of proxies, whose clients may be on other machines."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would send `Origin: null` with forms of this server, which `_is_own` rejects.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """The server's rules for access.

    Attributes:
        token: The secret for writing, and for reading unless the server is open.
        writes: Whether writing is allowed.
        hosts: Host names of the server, in lower case and without a port; an IPv6 address in brackets.
        open: Whether reading needs no token: the server is on loopback, without a proxy.
    """

    token: str = field(repr=False)
    writes: bool = False
    hosts: frozenset[str] = _LOOPBACK
    open: bool = True

    @classmethod
    def of(cls, host: str, token: str, *, writes: bool, names: tuple[str, ...] = ()) -> "Access":
        """Return the rules for a server that listens at `host`.

        `names` are other host names of the server, such as that of a proxy.
        """
        hosts = {bracketed(name.lower()) for name in (*names, host)}
        if is_loopback(host) or {"0.0.0.0", "[::]"} & hosts:
            hosts |= _LOOPBACK
        if {"0.0.0.0", "[::]"} & hosts:
            hosts |= _own_addresses()
        is_open = is_loopback(host) and all(map(is_loopback, names))
        return cls(token, writes, frozenset(hosts), is_open)

    def matches(self, token: str | None) -> bool:
        """Return whether a token is the server's."""
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())

    def middleware(self) -> list[Middleware]:
        """Return the middleware that applies these rules."""
        return [
            Middleware(TrustedHostMiddleware, allowed_hosts=[*self.hosts], www_redirect=False),
            Middleware(RequestBodyLimitMiddleware, max_body_size=BODY_BYTES),
            Middleware(Guard, access=self),
        ]


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Write a host as in URLs: IPv6 addresses in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _own_addresses() -> set[str]:
    """Return the name and the addresses of this machine."""
    import psutil

    addresses = (each.address for found in psutil.net_if_addrs().values() for each in found
                 if each.family in (socket.AF_INET, socket.AF_INET6))  # fmt: skip
    return {socket.gethostname().lower(), *(bracketed(each.partition("%")[0]) for each in addresses)}


class Guard:
    """Middleware that rejects requests without access, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; only HTTP is served."""
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        app = self._rejection(Request(scope, receive)) or self._app
        await app(scope, receive, send_with_headers)

    def _rejection(self, request: Request) -> Response | None:
        """Return the response to a request without access; None for an allowed request."""
        access, is_read = self._access, request.method in _READS
        if is_read and _is_embedded(request):
            return PlainTextResponse("Other pages may only link to this server.", 403)
        if is_read and (token := request.query_params.get("token")) is not None:
            return self._with_cookie(request, token)
        is_known = access.matches(_token_of(request))
        if is_read and (is_known or (access.open and not _is_forwarded(request))):
            return None
        if not is_read and request.method != "POST":
            return PlainTextResponse("Method not allowed.", 405)
        if not is_read and not access.writes:
            return PlainTextResponse("This server is read-only: start it with `jestlab serve --write`.", 403)
        if not is_known:
            return PlainTextResponse("Open the address with the token that `jestlab serve` has printed.", 401)
        return None if _is_own(request) else PlainTextResponse("This form is from another server.", 403)

    def _with_cookie(self, request: Request, token: str) -> Response:
        """Move the token from the address to a cookie, so that shared addresses don't contain it."""
        if not self._access.matches(token):
            return PlainTextResponse("Wrong token: use the one that `jestlab serve` has printed.", 401)
        others = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        address = "/" + quote(request.scope["path"].lstrip("/")) + (f"?{urlencode(others)}" if others else "")
        response = RedirectResponse(address, 303)
        is_secure = request.scope["scheme"] == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=is_secure)
        return response


def _token_of(request: Request) -> str | None:
    """Return the token of a request: programs send it in a header, browsers in a cookie."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE)


def _is_forwarded(request: Request) -> bool:
    """Return whether a request comes from a proxy."""
    is_old = request.scope["http_version"] == "1.0"  # sent by nginx by default, never by browsers
    return is_old or any(name.startswith(_FORWARDED) for name in request.headers)


def _is_embedded(request: Request) -> bool:
    """Return whether a page of another origin sent a request, unless the user followed a link there."""
    headers = request.headers
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    # Frames and prefetches have the mode "navigate", too.
    is_shown = headers.get("sec-fetch-dest", "document") == "document" and "sec-purpose" not in headers
    return not is_shown or headers.get("sec-fetch-mode") != "navigate"


def _is_own(request: Request) -> bool:
    """Return whether a write comes from a page of this server, or from a program that sends the token."""
    if (origin := request.headers.get("origin")) is not None:
        return origin.lower().partition("://")[2] == request.headers.get("host", "").strip().lower()
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    return request.headers.get("authorization") is not None
