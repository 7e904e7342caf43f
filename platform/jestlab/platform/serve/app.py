"""The application: which page answers which address."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.serve import actions, compare, experiment, experiments, published, run, runs, sql
from jestlab.platform.serve.access import Access, Guard
from jestlab.platform.serve.labs import Labs, Missing
from jestlab.platform.serve.rendering import as_json, assets, rendered

Page = Callable[[Labs, Request], Any]
"""What answers a request: HTML as text, data as a mapping, or a whole response. Called in a thread."""

PAGES: dict[str, Page] = {
    "/": experiments.page,
    "/live/experiments": experiments.live,
    "/experiment/{name}": experiment.page,
    "/experiment/{name}/live": experiment.live,
    "/experiment/{name}/losses": experiment.losses,
    "/experiment/{name}/results": experiment.results,
    "/experiment/{name}/figure/{study}/{figure}": experiment.figure,
    "/experiment/{name}/file/{file}": experiment.file,
    "/run/{fingerprint}": run.page,
    "/run/{fingerprint}/live": run.live,
    "/run/{fingerprint}/curves": run.curves,
    "/run/{fingerprint}/log": run.log,
    "/run/{fingerprint}/batch/{step:int}": run.batch,
    "/runs": runs.page,
    "/compare": compare.page,
    "/sql": sql.page,
    "/published": published.page,
}
"""Address → page. Addresses stay: people write them into papers and messages."""


def application(labs: Labs, access: Access) -> Starlette:
    """Make the application that serves labs.

    Args:
        labs: They.
        access: Who may ask for what.
    """
    routes = [Route(path, _endpoint(labs, page)) for path, page in PAGES.items()]
    routes += [Route(path, _action(labs), methods=["POST"]) for path in _ACTIONS]
    routes.append(Route("/static/{name}", _static))
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, access=access),
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5),
        ],
        exception_handlers={404: _not_found},
    )


_ZIP = Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5)
_ACTIONS = ("/{kind:str}/{name:str}/{action:str}", "/{kind:str}/{action:str}")


def _action(labs: Labs) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))
        given = request.path_params
        if given["kind"] not in ("run", "experiment", "sql"):
            return _told(request, 404, f"There is no page {request.url.path!r}.")
        name = given.get("name", "")
        return await _answered(
            request, partial(actions.act, labs, given["kind"], name, given["action"], form)
        )

    return endpoint


def _endpoint(labs: Labs, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await _answered(request, partial(page, labs, request))

    return endpoint


async def _answered(request: Request, answer: Callable[[], Any]) -> Response:
    """Answer in a thread, and tell in a line what is wrong."""
    try:
        said = await run_in_threadpool(answer)
    except Missing as error:
        return _told(request, 404, str(error))
    except StoreUnreachable as error:
        return _told(request, 503, f"{error}. This page tries again by itself.", {"retry-after": "5"})
    except (UserError, ValueError) as error:
        return _told(request, 400, str(error))
    if isinstance(said, Response):
        return said
    if isinstance(said, str):
        return HTMLResponse(said)
    return Response(as_json(said), media_type="application/json")


def _told(request: Request, code: int, said: str, headers: dict[str, str] | None = None) -> Response:
    """Answer with what is wrong: as a page for people, as a line for scripts."""
    line = " ".join(said.split())
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(rendered("error.html.j2", said=line, code=code, here=""), code, headers)
    return PlainTextResponse(line, code, headers)


def _not_found(request: Request, error: Exception) -> Response:
    return _told(request, 404, f"There is no page {request.url.path!r}.")


def _static(request: Request) -> Response:
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return PlainTextResponse("There is no such file.", 404)
    kept = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(asset.content, media_type=asset.media_type, headers=kept)
