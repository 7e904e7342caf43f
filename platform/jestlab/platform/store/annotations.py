"""Notes and tags of experiments and runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, select

from jestlab.platform.errors import UserError
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import Experiment, Note, Run, Tag, execute_many, insert, now

KEEP = "keep"
"""The tag that protects an experiment or a run from `jestlab gc`."""

_LONGEST_TAG = 64
_NO_TAG = re.compile(r"[\s,/\x00-\x1f]+")
_TAG = re.compile(rf"[^\s,/\x00-\x1f]{{1,{_LONGEST_TAG}}}")


@dataclass(frozen=True)
class Subject:
    """What a note or tag is about: an experiment by its name, or a run by its fingerprint."""

    experiment: str | None = None
    fingerprint: str | None = None


class NoteRow(NamedTuple):
    """A note; its time is UTC."""

    text: str
    author: str
    created_at: datetime


def add_note(store: Store, subject: Subject, text: str, author: str) -> None:
    """Write a note.

    Raises:
        UserError: The text is empty, or there is no such subject.
    """
    if not text.strip():
        raise UserError("the note is empty: give its text")
    with store.writing() as connection:
        values = _columns(connection, subject) | {"text": text, "author": author, "created_at": now()}
        connection.execute(insert(connection, Note).values(**values))


def notes(store: Store, subject: Subject) -> list[NoteRow]:
    """Return the notes about a subject, oldest first."""
    with store.reading() as connection:
        rows = connection.execute(
            select(Note.text, Note.author, Note.created_at)
            .where(*_is(Note, _columns(connection, subject)))
            .order_by(Note.created_at, Note.id)
        ).all()
    return [NoteRow(*row) for row in rows]


def valid_tags(texts: Iterable[str]) -> list[str]:
    """Make tags of texts that another tool allowed: what a tag cannot hold becomes hyphens."""
    words = ("-".join(filter(None, _NO_TAG.split(text)))[:_LONGEST_TAG] for text in texts)
    return [word for word in words if word and word != KEEP]


def add_tags(store: Store, subject: Subject, names: Sequence[str], author: str | None = None) -> None:
    """Tag a subject, maybe in somebody's name; tags that it already has stay as they are.

    Raises:
        UserError: A name is not a valid tag, or there is no such subject.
    """
    for name in names:
        if not _TAG.fullmatch(name):
            raise UserError(
                f"invalid tag {name!r}: expected one word without commas and slashes, "
                f"{_LONGEST_TAG} characters at most"
            )
    with store.writing() as connection:
        columns = _columns(connection, subject)
        about: dict[str, Any] = {**columns, "author": author, "created_at": now()}
        rows = [about | {"name": name} for name in dict.fromkeys(names)]
        execute_many(connection, insert(connection, Tag).on_conflict_do_nothing(), rows)


def remove_tags(store: Store, subject: Subject, names: Collection[str]) -> None:
    """Remove tags from a subject, all or none.

    Raises:
        UserError: The subject lacks one of the tags.
    """
    with store.writing() as connection:
        own = _is(Tag, _columns(connection, subject))
        known = set(connection.scalars(select(Tag.name).where(*own)))
        if missing := sorted(set(names) - known):
            has = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise UserError(f"no tag {missing[0]!r} to remove: {has}")
        connection.execute(delete(Tag).where(*own, Tag.name.in_(names)))


def tags(store: Store, subject: Subject) -> list[str]:
    """Return the tags of a subject, in alphabetical order."""
    with store.reading() as connection:
        own = _is(Tag, _columns(connection, subject))
        return sorted(connection.scalars(select(Tag.name).where(*own)))


def tags_of_experiments(store: Store) -> dict[str, list[str]]:
    """Return the tags of all experiments that have some, in alphabetical order."""
    query = select(Experiment.name, Tag.name).join(Tag, Tag.experiment == Experiment.name)
    with store.reading() as connection:
        return _by_subject(connection.execute(query.order_by(Tag.name)).tuples().all())


def tags_of_runs(store: Store, fingerprints: Collection[str]) -> dict[str, list[str]]:
    """Return the tags of those of these runs that have some, by fingerprint, in alphabetical order."""
    query = select(Run.fingerprint, Tag.name).join(Tag, Tag.run_id == Run.id)
    with store.reading() as connection:
        rows = connection.execute(query.order_by(Tag.name)).tuples().all()
    return _by_subject([row for row in rows if row[0] in fingerprints])


def _by_subject(rows: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for subject, tag in rows:
        found.setdefault(subject, []).append(tag)
    return found


def _columns(connection: Connection, subject: Subject) -> dict[str, Any]:
    """Return the column that identifies the subject, with its value."""
    if subject.fingerprint is not None:
        found = connection.scalar(select(Run.id).where(Run.fingerprint == subject.fingerprint))
        if found is None:
            raise UserError(f"no run {subject.fingerprint[:8]} in the store")
        return {"run_id": found}
    return {"experiment": of_experiment(connection, subject.experiment or "", Experiment.name)}


def _is(table: Any, columns: dict[str, Any]) -> list[Any]:
    return [getattr(table, name) == value for name, value in columns.items()]
