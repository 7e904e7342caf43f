"""What who has the token may do with `--write`: annotate, accept, cancel, retry; each says who, and when.

Cancelling and retrying are `jestlab cancel` and `jestlab retry`, each in a process of its own that does not
end with the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

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
"""What a form holds, by the names of its fields."""


def act(labs: Labs, kind: str, name: str, action: str, form: Form) -> Response:
    """Do what a form asks for, and send the browser back to the page that it was on.

    Args:
        labs: All labs.
        kind: "experiment", "run", or "sql" for saved queries.
        name: The experiment, or the run's fingerprint.
        action: What is to be done.
        form: Its fields: `by` is who does it, the server's user where it is empty.

    Raises:
        UserError: It cannot be done; says why.
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
    does = _ACTIONS.get(action)
    if does is None or (action == "accept" and kind == "run"):
        raise UserError(f"no action {action!r} on a page of a{'n' if kind[0] == 'e' else ''} {kind}")
    with closing(Store.open(served.lab.store_url, create=False)) as store:
        does(served.lab, store, subject, _who(form), form)
    return RedirectResponse(address(kind, name, lab=lab), 303)


def _who(form: Form) -> str:
    """Return who acts, on one line."""
    return " ".join(form.get("by", "").split())[:LONGEST_NAME] or person()


def _note(lab: Lab, store: Store, subject: Subject, who: str, form: Form) -> None:
    add_note(store, subject, form.get("text", ""), who)


def _tag(lab: Lab, store: Store, subject: Subject, who: str, form: Form) -> None:
    add_tags(store, subject, form.get("names", "").replace(",", " ").split(), who)


def _untag(lab: Lab, store: Store, subject: Subject, who: str, form: Form) -> None:
    remove_tags(store, subject, form.get("names", "").replace(",", " ").split())


def _accept(lab: Lab, store: Store, subject: Subject, who: str, form: Form) -> None:
    assert subject.experiment is not None  # the caller's condition
    values = changes_of(store, subject.experiment).values
    if not values:
        raise UserError("nothing to accept: no difference of code, data or versions is known")
    accept(store, subject.experiment, values, form.get("reason", ""), who)


def _launch(verb: str, done: str, lab: Lab, store: Store, subject: Subject, who: str, form: Form) -> None:
    """Begin a command that goes on without the server, and note who began it."""
    what = subject.experiment or subject.fingerprint
    assert what is not None  # a subject is one of both
    begun = detached.start(lab, f"{verb} {what}", [verb, what, "--root", lab.address])
    if begun.code:
        said = begun.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise UserError(
            said[-1].removeprefix("jestlab: ") if said else f"jestlab {verb} ended with {begun.code}"
        )
    add_note(store, subject, f"{done} in `jestlab serve`", who)


_ACTIONS: dict[str, Callable[[Lab, Store, Subject, str, Form], None]] = {
    "note": _note,
    "tag": _tag,
    "untag": _untag,
    "accept": _accept,
    "cancel": partial(_launch, "cancel", "cancelled"),
    "retry": partial(_launch, "retry", "retried"),
}


def _query(served: Served, action: str, form: Form) -> Response:
    """Save a query, or forget one."""
    name, sql = form.get("name", ""), form.get("q", "")
    with closing(Store.open(served.lab.store_url, create=False)) as store:
        if action == "save":
            save_query(store, name, sql, _who(form))
        elif action == "forget":
            delete_query(store, name)
        else:
            raise UserError(f"no action {action!r} on queries")
    return RedirectResponse(address("sql", q=sql, lab=form.get("lab")), 303)
