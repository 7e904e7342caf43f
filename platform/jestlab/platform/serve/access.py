"""Who may ask the server what: hosts, the token, and what keeps other pages of a browser out.

A browser sends requests for every page that it shows, so a server on one's own machine is open to all pages
unless it looks closely:

* a name that an attacker points to 127.0.0.1 (DNS rebinding): the `Host` header has to be one that we serve;
* a form of another page (CSRF): what writes has to come from our own origin, with the token in a cookie that
  browsers send with no other page's requests;
* anyone who can reach the port: without the token nothing is written, and where other machines can reach the
  port, themselves or through a proxy, nothing is read.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "jestlab-token"
BODY_BYTES = 64 * 1024
"""The longest body of a request: a note, or a query."""

_LOOPBACK = frozenset(("localhost", "127.0.0.1", "[::1]"))
_READS = frozenset(("GET", "HEAD"))
_FORWARDED = ("forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "x-original-", "cf-connecting")
"""How headers begin by which a proxy says that it asks for somebody else, who may be on another machine."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with that, browsers send `Origin: null` with our own forms, and `_is_own` rejects them.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Access:
    """What the server allows.

    Attributes:
        token: The secret that writing takes, and reading too unless the server is open.
        writes: Whether anything may be written.
        hosts: Names by which browsers may ask for the server, lower case and without a port; an IPv6 address
            in brackets.
        open: Whether reading takes no token: the server is on loopback, and no proxy is before it.
    """

    token: str = field(repr=False)
    writes: bool = False
    hosts: frozenset[str] = _LOOPBACK
    open: bool = True

    @classmethod
    def of(cls, host: str, token: str, *, writes: bool, names: tuple[str, ...] = ()) -> Access:
        """Return what a server at an address allows.

        Args:
            host: The address that it listens at.
            token: The secret.
            writes: Whether anything may be written.
            names: Further names by which it is asked for, such as that of a proxy before it.
        """
        own = frozenset(bracketed(name.lower()) for name in (*names, host))
        on_loopback = is_loopback(host)
        is_open = on_loopback and all(map(is_loopback, names))
        return cls(token, writes, own | _LOOPBACK if on_loopback else own, is_open)

    def serves(self, host: str) -> bool:
        """Whether a `Host` header names this server; any number does where it listens on all addresses."""
        name = host_of(host)
        if name in self.hosts:
            return True
        return bool({"0.0.0.0", "[::]"} & self.hosts) and _address(name) is not None

    def knows(self, token: str | None) -> bool:
        """Whether a token is the server's."""
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def host_of(header: str) -> str:
    """Return the name in a `Host` header, lower case and without the port."""
    host = header.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def bracketed(host: str) -> str:
    """Return a host as addresses write it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a name is in numbers, which nobody can point elsewhere; None for others."""
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


class Guard:
    """ASGI middleware that answers what `Access` does not allow, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """Guard an application."""
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope, receive)
        refused = self._refused(request)
        if refused is not None:
            await refused(scope, receive, sending)
            return
        await self._app(scope, _limited(receive), sending)

    def _refused(self, request: Request) -> Response | None:
        """Return the answer to a request that is not allowed; None for one that is."""
        access, host = self._access, request.headers.get("host", "")
        if not access.serves(host):
            name = host_of(host)
            said = f"This server is not called {name!r}. If it is yours: jestlab serve --name {name}"
            return PlainTextResponse(said, 421)
        if request.method in _READS and _is_embedded(request):
            return PlainTextResponse("Other pages may link to this server, and nothing else.", 403)
        if (given := request.query_params.get("token")) is not None and request.method in _READS:
            return self._with_cookie(request, given)
        known = access.knows(_token_of(request))
        if request.method in _READS:
            if known or (access.open and not _is_forwarded(request)):
                return None
            return PlainTextResponse("Open the address with the token that `jestlab serve` has printed.", 401)
        if request.method != "POST":
            return PlainTextResponse("Not a method of this server.", 405)
        if not access.writes:
            return PlainTextResponse("This server only reads: start it with `jestlab serve --write`.", 403)
        if not known:
            return PlainTextResponse("Open the address with the token that `jestlab serve` has printed.", 401)
        return None if _is_own(request, host) else PlainTextResponse("This form is not of this server.", 403)

    def _with_cookie(self, request: Request, given: str) -> Response:
        """Put the token of an address into a cookie, so that it stays in no address that people share."""
        if not self._access.knows(given):
            return PlainTextResponse("This is not the token that `jestlab serve` has printed.", 401)
        others = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        answer = RedirectResponse(
            "/" + quote(request.scope["path"].lstrip("/")) + (f"?{urlencode(others)}" if others else ""), 303
        )
        answer.set_cookie(
            COOKIE, given, httponly=True, samesite="strict", secure=request.scope["scheme"] == "https"
        )
        return answer


def _token_of(request: Request) -> str | None:
    """Return the token that a request bears: a program's in a header, a browser's in a cookie."""
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else request.cookies.get(COOKIE)


def _is_forwarded(request: Request) -> bool:
    """Whether a proxy asks for somebody else."""
    is_old = request.scope["http_version"] == "1.0"  # no browser speaks it; nginx does unless told not to
    return is_old or any(name.startswith(_FORWARDED) for name in request.headers)


def _is_embedded(request: Request) -> bool:
    """Whether a page of another origin asks for something, other than by a link that somebody follows."""
    headers = request.headers
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return False
    # A frame navigates, too, and so does a page that a browser fetches before anybody follows its link.
    is_shown = headers.get("sec-fetch-dest", "document") == "document" and "sec-purpose" not in headers
    return not is_shown or headers.get("sec-fetch-mode") != "navigate"


def _is_own(request: Request, host: str) -> bool:
    """Whether a request that writes comes from a page of ours, or from no browser at all."""
    origin = request.headers.get("origin")
    if origin is not None:
        return origin.lower().partition("://")[2] == host.strip().lower()
    if (site := request.headers.get("sec-fetch-site")) is not None:
        return site in ("same-origin", "none")
    return request.headers.get("authorization") is not None


def _limited(receive: Receive) -> Callable[[], Awaitable[Message]]:
    """Receive a request's body; one that is too long ends as if its sender had left."""
    left = BODY_BYTES

    async def receiving() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        return message if left >= 0 else {"type": "http.disconnect"}

    return receiving
