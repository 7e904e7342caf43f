"""The application: which page answers which address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.serve import actions, compare, experiment, experiments, published, run, runs, sql
from jestlab.platform.serve.access import BODY_BYTES, Access, Guard
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
    "/run/{fingerprint}/batch/{step}": run.batch,
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
    routes = [Route(path, partial(_page, labs, page)) for path, page in PAGES.items()]
    routes += [Route(path, partial(_action, labs), methods=["POST"]) for path in _ACTIONS]
    routes.append(Route("/static/{name}", _static))
    return Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, access=access),
            Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5),
        ],
        exception_handlers={404: _not_found},
    )


_ACTIONS = ("/{kind:str}/{name:str}/{action:str}", "/{kind:str}/{action:str}")


async def _action(labs: Labs, request: Request) -> Response:
    try:
        body = await request.body()
    except ClientDisconnect:
        return _told(request, 413, f"The form is longer than {BODY_BYTES:,} bytes.")
    form = dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
    given = request.path_params
    if given["kind"] not in ("run", "experiment", "sql"):
        return _not_found(request)
    act = partial(actions.act, labs, given["kind"], given.get("name", ""), given["action"], form)
    return await _answered(request, act, form)


async def _page(labs: Labs, page: Page, request: Request) -> Response:
    return await _answered(request, partial(page, labs, request))


async def _answered(
    request: Request, answer: Callable[[], Any], form: Mapping[str, str] | None = None
) -> Response:
    """Answer in a thread, and tell in a line what is wrong with the address, the form, or a lab's files."""
    given = chain([request.scope["path"]], *request.query_params.multi_items(), *(form or {}).items())
    if any("\0" in text for text in given):
        return _told(request, 400, "The address or the form has a NUL character, which no text has here.")
    try:
        said = await run_in_threadpool(answer)
    except Missing as error:
        return _told(request, 404, str(error))
    except (StoreUnreachable, OSError) as error:
        return _told(request, 503, f"{error}. This page tries again by itself.", {"retry-after": "5"})
    except (UserError, ValueError, OverflowError) as error:
        return _told(request, 400, str(error))
    except RecursionError:
        return _told(request, 400, "The condition, or the config of a run, is nested too deep.")
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


def _not_found(request: Request, error: Exception | None = None) -> Response:
    return _told(request, 404, f"There is no page {request.scope['path']!r}.")


def _static(request: Request) -> Response:
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return PlainTextResponse("There is no such file.", 404)
    kept = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(asset.content, media_type=asset.media_type, headers=kept)
