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
from jestlab.platform.serve.labs import Labs, Served
from jestlab.platform.serve.rendering import address
from jestlab.platform.store.annotations import (
    Subject,
    add_note,
    add_tags,
    delete_query,
    remove_tags,
    save_query,
)
from jestlab.platform.store.judgments import accept
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
    lab = form.get("lab") or None
    if kind == "sql":
        served, *others = labs.among(lab)
        if others:
            raise UserError(f"several labs have queries: give one: {', '.join(each.name for each in labs)}")
        return _query(served, action, form)
    if kind == "run":
        served, name = labs.with_run(name, lab)
        subject = Subject(fingerprint=name)
    else:
        served, subject = labs.with_experiment(name, lab), Subject(experiment=name)
    author = _author(form)
    with closing(Store.open(served.lab.store_url, create=False)) as store:
        match action:
            case "note":
                add_note(store, subject, form.get("text", ""), author)
            case "tag":
                add_tags(store, subject, _names(form), author)
            case "untag":
                remove_tags(store, subject, _names(form))
            case "accept" if subject.experiment is not None:
                _accept(store, subject.experiment, form.get("reason", ""), author)
            case "cancel" | "retry":
                _run_verb(action, served.lab, name)
                past = {"cancel": "cancelled", "retry": "retried"}[action]
                add_note(store, subject, f"{past} in `jestlab serve`", author)
            case _:
                raise UserError(f"no action {action!r} for {'an' if kind[0] == 'e' else 'a'} {kind}")
    return RedirectResponse(address(kind, name, lab=lab), 303)


def _query(served: Served, action: str, form: Form) -> Response:
    name, sql = form.get("name", ""), form.get("q", "")
    with closing(Store.open(served.lab.store_url, create=False)) as store:
        if action == "save":
            save_query(store, name, sql, _author(form))
        elif action == "forget":
            delete_query(store, name)
        else:
            raise UserError(f"no action {action!r} for queries")
    return RedirectResponse(address("sql", q=sql, lab=form.get("lab")), 303)


def _author(form: Form) -> str:
    return " ".join(form.get("by", "").split())[:LONGEST_NAME] or person()


def _names(form: Form) -> list[str]:
    return form.get("names", "").replace(",", " ").split()


def _accept(store: Store, experiment: str, reason: str, author: str) -> None:
    values = changes_of(store, experiment).values
    if not values:
        raise UserError("nothing to accept: no known difference of code, data, or versions")
    accept(store, experiment, values, reason, author)


def _run_verb(verb: str, lab: Lab, name: str) -> None:
    """Start a command that outlives the server."""
    started = detached.start(lab, f"{verb} {name}", [verb, name, "--root", lab.address])
    if started.code:
        lines = started.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"jestlab {verb} ended with exit code {started.code}"
        raise UserError(last.removeprefix("jestlab: "))
