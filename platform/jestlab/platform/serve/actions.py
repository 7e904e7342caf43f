"""Writes with `--write` and the token: notes, tags, acceptances, queries, cancel, and retry.

Cancel and retry run `jestlab cancel` and `jestlab retry` in processes that outlive the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from starlette.responses import RedirectResponse, Response

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import detached
from jestlab.platform.planning.changes import changes_of
from jestlab.platform.serve.labs import Labs
from jestlab.platform.serve.rendering import address
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

LONGEST_NAME = 100

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
    """Start a command that outlives the server."""
    started = detached.start(lab, f"{verb} {name}", [verb, name, "--root", lab.address])
    if started.code:
        lines = started.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"jestlab {verb} ended with exit code {started.code}"
        raise UserError(last.removeprefix("jestlab: "))
