"""Notes and tags of experiments and runs, and saved queries."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, insert, select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.store.rows import now, upsert
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import ExperimentRow, NoteRow, RunRow, SavedQueryRow, TagRow, run_key

KEEP = "keep"
"""The tag that protects an experiment or a run from `jestlab gc`."""

_LONGEST_TAG = 64
_NOT_IN_TAGS = re.compile(r"[\s,/\x00-\x1f]+")
_TAG = re.compile(rf"[^\s,/\x00-\x1f]{{1,{_LONGEST_TAG}}}")
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Subject:
    """The subject of a note or tag: an experiment by its name, or a run by its fingerprint."""

    experiment: str | None = None
    fingerprint: str | None = None


# ---- notes


class NoteEntry(NamedTuple):
    """A note; its time is UTC."""

    text: str
    author: str
    created_at: datetime


def add_note(store: Store, subject: Subject, text: str, author: str) -> None:
    """Write a note.

    Raises:
        UserError: The text is empty, or the subject doesn't exist.
    """
    if not text.strip():
        raise UserError("the note is empty: give its text")
    with store.writing() as connection:
        values = _columns(connection, subject) | {"text": text, "author": author, "created_at": now()}
        connection.execute(insert(NoteRow).values(**values))


def notes(store: Store, subject: Subject) -> list[NoteEntry]:
    """Return the notes about a subject, the oldest first."""
    query = select(NoteRow.text, NoteRow.author, NoteRow.created_at)
    with store.reading() as connection:
        rows = connection.execute(query.filter_by(**_columns(connection, subject)).order_by(NoteRow.id))
        return [NoteEntry(*row) for row in rows]


# ---- tags


def valid_tags(texts: Iterable[str]) -> list[str]:
    """Convert the tags of another tool: characters that a tag can't have become hyphens."""
    words = ("-".join(filter(None, _NOT_IN_TAGS.split(text)))[:_LONGEST_TAG] for text in texts)
    return [word for word in words if word and word != KEEP]


def add_tags(store: Store, subject: Subject, names: Sequence[str], author: str | None = None) -> None:
    """Tag a subject; existing tags are not changed.

    Raises:
        UserError: A name is not a valid tag, or the subject doesn't exist.
    """
    for name in names:
        if not _TAG.fullmatch(name):
            raise UserError(
                f"invalid tag {name!r}: expected one word without commas and slashes, "
                f"at most {_LONGEST_TAG} characters"
            )
    with store.writing() as connection:
        about = _columns(connection, subject) | {"author": author, "created_at": now()}
        rows = [about | {"name": name} for name in dict.fromkeys(names)]
        upsert(connection, TagRow, rows)


def remove_tags(store: Store, subject: Subject, names: Collection[str]) -> None:
    """Remove tags from a subject, all or none.

    Raises:
        UserError: The subject lacks one of the tags.
    """
    with store.writing() as connection:
        own = _columns(connection, subject)
        known = set(connection.scalars(select(TagRow.name).filter_by(**own)))
        if missing := sorted(set(names) - known):
            existing = f"its tags are {', '.join(sorted(known))}" if known else "it is untagged"
            raise UserError(f"no tag {missing[0]!r} to remove: {existing}")
        connection.execute(delete(TagRow).filter_by(**own).where(TagRow.name.in_(names)))


def tags(store: Store, subject: Subject) -> list[str]:
    """Return the tags of a subject, in alphabetical order."""
    with store.reading() as connection:
        own = select(TagRow.name).filter_by(**_columns(connection, subject))
        return sorted(connection.scalars(own))


def tags_of_experiments(store: Store) -> dict[str, list[str]]:
    """Return the tags of all tagged experiments, in alphabetical order."""
    query = select(TagRow.experiment, TagRow.name).where(TagRow.experiment.is_not(None))
    return _grouped(store, query.order_by(TagRow.name))


def tags_of_runs(store: Store, fingerprints: Collection[str]) -> dict[str, list[str]]:
    """Return the tags of those of these runs that are tagged, by fingerprint, in alphabetical order."""
    query = select(RunRow.fingerprint, TagRow.name).join(TagRow, TagRow.run_id == RunRow.id)
    found = _grouped(store, query.order_by(TagRow.name))
    return {run: names for run, names in found.items() if run in fingerprints}


def _grouped(store: Store, query: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for subject, tag in store.rows(query):
        found.setdefault(subject, []).append(tag)
    return found


def _columns(connection: Connection, subject: Subject) -> dict[str, Any]:
    """Return the column that identifies the subject, with its value."""
    if subject.fingerprint is None:
        return {"experiment": of_experiment(connection, subject.experiment or "", ExperimentRow.name)}
    if connection.scalar(select(RunRow.id).where(RunRow.fingerprint == subject.fingerprint)) is None:
        raise UserError(f"no run {subject.fingerprint[:8]} in the store")
    return {"run_id": run_key(subject.fingerprint)}


# ---- saved queries


class Saved(NamedTuple):
    """A saved query; its time is UTC."""

    name: str
    sql: str
    author: str
    updated_at: datetime


def save_query(store: Store, name: str, sql: str, author: str) -> None:
    """Save a query, replacing one with the same name.

    Raises:
        UserError: Name or query is empty, or the name is too long.
    """
    name = " ".join(name.split())
    if not name or not sql.strip() or len(name) > _LONGEST_NAME:
        raise UserError(f"expected a name of at most {_LONGEST_NAME} characters and an SQL query")
    row = {"name": name, "sql": sql.strip(), "author": author, "updated_at": now()}
    with store.writing() as connection:
        upsert(connection, SavedQueryRow, [row], ["name"], list(row))


def delete_query(store: Store, name: str) -> None:
    """Delete a saved query; UserError if the name is unknown."""
    with store.writing() as connection:
        if not connection.execute(delete(SavedQueryRow).where(SavedQueryRow.name == name)).rowcount:
            known = list(connection.scalars(select(SavedQueryRow.name)))
            raise UserError(f"no saved query {name!r}: {nearest(name, known)}")


def saved_queries(store: Store) -> list[Saved]:
    """Return all saved queries, in alphabetical order."""
    columns = (SavedQueryRow.name, SavedQueryRow.sql, SavedQueryRow.author, SavedQueryRow.updated_at)
    return [Saved(*row) for row in store.rows(select(*columns).order_by(SavedQueryRow.name))]
