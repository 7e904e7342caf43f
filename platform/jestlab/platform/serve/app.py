"""The application: the page of each address, the forms that write, and the responses to errors."""

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from jestlab.analysis.report.html import as_json
from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import detached
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.serve import compare, experiment, experiments, run, search
from jestlab.platform.serve.access import Access
from jestlab.platform.serve.labs import Labs, Missing
from jestlab.platform.serve.rendering import address, assets, render
from jestlab.platform.store.annotations import (
    Subject,
    accept,
    add_note,
    add_tags,
    delete_query,
    remove_tags,
    save_query,
)
from jestlab.platform.store.store import Store
from jestlab.platform.whoami import person

Page = Callable[[Labs, Request], Any]
"""Returns the answer to a request: HTML, a mapping for JSON, or a response. Called in a thread."""

PAGES: dict[str, Page] = {
    "/": experiments.page,
    "/experiment/{name}": experiment.page,
    "/experiment/{name}/losses": experiment.losses,
    "/experiment/{name}/results": experiment.results,
    "/experiment/{name}/figure/{study}/{figure}": experiment.figure,
    "/experiment/{name}/file/{file}": experiment.file,
    "/run/{fingerprint}": run.page,
    "/run/{fingerprint}/curves": run.curves,
    "/run/{fingerprint}/log": run.log,
    "/run/{fingerprint}/batch/{step}": run.batch,
    "/compare": compare.page,
    "/runs": search.runs,
    "/sql": search.sql,
    "/sql.csv": search.sql_csv,
}
"""Address → page. Addresses are stable, because people share them."""

_ACTIONS = ("/{kind:str}/{name:str}/{action:str}", "/{kind:str}/{action:str}")


def application(labs: Labs, access: Access) -> Starlette:
    """Create the application for labs."""
    routes = [Route(path, partial(_page, labs, page)) for path, page in PAGES.items()]
    routes += [Route(path, partial(_action, labs), methods=["POST"]) for path in _ACTIONS]
    routes.append(Route("/static/{name}", _static))
    gzip = Middleware(GZipMiddleware, minimum_size=1_000, compresslevel=5)
    return Starlette(
        routes=routes, middleware=[*access.middleware(), gzip], exception_handlers={404: _not_found}
    )


async def _page(labs: Labs, page: Page, request: Request) -> Response:
    return await _response(request, partial(page, labs, request))


async def _action(labs: Labs, request: Request) -> Response:
    form = dict(parse_qsl((await request.body()).decode(errors="replace"), keep_blank_values=True))
    given = request.path_params
    if given["kind"] not in ("run", "experiment", "sql"):
        return _not_found(request)
    perform = partial(act, labs, given["kind"], given.get("name", ""), given["action"], form)
    return await _response(request, perform, form)


async def _response(
    request: Request, answer: Callable[[], Any], form: Mapping[str, str] | None = None
) -> Response:
    """Call a function in a thread, and convert its answer or its error to a response."""
    given = chain([request.scope["path"]], *request.query_params.multi_items(), *(form or {}).items())
    if any("\0" in text for text in given):
        return _error(request, 400, "The address or the form contains a NUL character.")
    try:
        content = await run_in_threadpool(answer)
    except Missing as error:
        return _error(request, 404, str(error))
    except (StoreUnreachable, OSError) as error:
        return _error(request, 503, f"{error}. This page reloads automatically.", {"retry-after": "5"})
    except (UserError, ValueError, OverflowError) as error:
        return _error(request, 400, str(error))
    except RecursionError:
        return _error(request, 400, "The condition, or the config of a run, is nested too deeply.")
    if isinstance(content, Response):
        return content
    if isinstance(content, str):
        return HTMLResponse(content)
    return Response(as_json(content), media_type="application/json")


def _error(request: Request, code: int, text: str, headers: dict[str, str] | None = None) -> Response:
    """Return an error: a page for browsers, one line of text for scripts."""
    line = " ".join(text.split())
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(render("error.html.j2", text=line, code=code, here=""), code, headers)
    return PlainTextResponse(line, code, headers)


def _not_found(request: Request, error: Exception | None = None) -> Response:
    return _error(request, 404, f"No page has the address {request.scope['path']!r}.")


def _static(request: Request) -> Response:
    asset = assets().get(request.path_params["name"])
    if asset is None:
        return PlainTextResponse("File not found.", 404)
    content, media_type = asset
    kept = {"cache-control": "public, max-age=31536000, immutable"}
    return Response(content, media_type=media_type, headers=kept)


# ---- writes, which need `--write` and the token

LONGEST_NAME = 100
"""Maximum length of the name of an author."""

Form = Mapping[str, str]
"""Field → value."""


def act(labs: Labs, kind: str, name: str, action: str, form: Form) -> Response:
    """Perform the action of a form, and redirect the browser to the page of the form.

    Args:
        kind: "experiment", "run", or "sql" for saved queries.
        name: Name of the experiment, or start of the run's fingerprint.
        form: The form's fields; `by` is the author, by default the server's user.

    Raises:
        UserError: The action is not possible.
    """
    lab, author = form.get("lab") or None, " ".join(form.get("by", "").split())[:LONGEST_NAME] or person()
    tags = form.get("names", "").replace(",", " ").split()
    subject = Subject()
    if kind == "sql":
        served, *others = labs.among(lab)
        if others:
            raise UserError(f"several labs have queries: give one: {', '.join(each.name for each in labs)}")
        page = address("sql", q=form.get("q", ""), lab=lab)
    elif kind == "run":
        served, name = labs.with_run(name, lab)
        subject, page = Subject(fingerprint=name), address(kind, name, lab=lab)
    else:
        served = labs.with_experiment(name, lab)
        subject, page = Subject(experiment=name), address(kind, name, lab=lab)
    with closing(Store.open(served.lab.store_url, create=False)) as store:
        match kind, action:
            case "sql", "save":
                save_query(store, form.get("name", ""), form.get("q", ""), author)
            case "sql", "forget":
                delete_query(store, form.get("name", ""))
            case "run" | "experiment", "note":
                add_note(store, subject, form.get("text", ""), author)
            case "run" | "experiment", "tag":
                add_tags(store, subject, tags, author)
            case "run" | "experiment", "untag":
                remove_tags(store, subject, tags)
            case "run" | "experiment", "cancel" | "retry":
                _run_verb(action, served.lab, name)
                past = {"cancel": "cancelled", "retry": "retried"}[action]
                add_note(store, subject, f"{past} in `jestlab serve`", author)
            case "experiment", "accept":
                if not (values := changes_of(store, name).values):
                    raise UserError("nothing to accept: no known difference of code, data, or versions")
                accept(store, name, values, form.get("reason", ""), author)
            case _:
                raise UserError(f"no action {action!r} for {kind}")
    return RedirectResponse(page, 303)


def _run_verb(verb: str, lab: Lab, name: str) -> None:
    """Start `jestlab cancel` or `jestlab retry` in a process that outlives the server."""
    started = detached.start(lab, f"{verb} {name}", [verb, name, "--root", lab.address])
    if started.exit_code:
        lines = started.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"jestlab {verb} ended with exit code {started.exit_code}"
        raise UserError(last.removeprefix("jestlab: "))
