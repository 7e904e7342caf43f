"""What people add to results: notes, tags, saved queries, registered claims, acceptances, and retractions.

None of them changes or deletes a result.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, text

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now, one_of, to_json, upsert
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import (
    AcceptanceRow,
    AttemptRow,
    ExperimentRow,
    MemberRow,
    NoteRow,
    RegistrationRow,
    RetractionRow,
    RunRow,
    SavedQueryRow,
    TagRow,
    run_key,
)

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


def all_tags(store: Store) -> dict[str, list[str]]:
    """Return the tags of tagged experiments by name, and of tagged runs by fingerprint, each in order."""
    subject = func.coalesce(TagRow.experiment, RunRow.fingerprint)
    query = select(subject, TagRow.name).outerjoin(RunRow, RunRow.id == TagRow.run_id)
    found: dict[str, list[str]] = {}
    for named, tag in store.rows(query.order_by(TagRow.name)):
        found.setdefault(named, []).append(tag)
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


# ---- registered claims


def register(
    store: Store,
    experiment: str,
    content: dict[str, Any],
    runs: Collection[str],
    *,
    author: str,
    commit: str | None,
) -> bool:
    """Register the claims of a study before its first run.

    Args:
        store: The store.
        experiment: Name of the study.
        content: Returned by `registration.content_of`; False is returned if it is registered already.
        runs: Fingerprints of its runs, with all seeds that it may have.
        author: Who registers it.
        commit: Of jestlab's checkout; None if it is installed otherwise.

    Raises:
        UserError: One of its runs has started.
    """
    from jestlab.analysis.claims.registration import digest_of  # imports pandas

    digest = digest_of(content)
    with store.writing() as connection:
        of_study = select(RegistrationRow.digest).where(RegistrationRow.experiment == experiment)
        if connection.scalar(of_study.order_by(RegistrationRow.created_at.desc()).limit(1)) == digest:
            return False
        attempted = select(AttemptRow.run_id).where(one_of(AttemptRow.run_id, map(run_key, runs))).distinct()
        started = len(connection.scalars(attempted).all())
        if started:
            raise UserError(
                f"{started} of the runs of {experiment} have started: register a study before its first run, "
                "or in a new lab (--root)"
            )
        row = {
            "experiment": experiment, "created_at": now(), "content": to_json(content), "digest": digest,
            "git_commit": commit, "author": author,
        }  # fmt: skip
        connection.execute(insert(RegistrationRow).values(**row))
        return True


# ---- accepted differences


@dataclass(frozen=True)
class AcceptanceEntry:
    """An acceptance: item that differs → values that count as equal, and why. Its time is UTC."""

    accepted: Mapping[str, Sequence[str]]
    reason: str
    author: str
    created_at: datetime


def accept(
    store: Store, experiment: str, values: Mapping[str, Sequence[str]], reason: str, author: str
) -> None:
    """Accept differences between the completed runs of an experiment, in every study that has these runs.

    `values` maps each item that differs to the values that count as equal from now on.

    Raises:
        UserError: No such experiment, or no reason.
    """
    if not reason.strip():
        raise UserError('give a reason why the difference does not matter: --reason "…"')
    with store.writing() as connection:
        of_experiment(connection, experiment, ExperimentRow.name)
        completed = (
            select(RunRow.id)
            .join(MemberRow, MemberRow.run_id == RunRow.id)
            .where(MemberRow.experiment == experiment, RunRow.state == RunState.COMPLETED)
            .distinct()
        )
        row = {"created_at": now(), "accepted": to_json(values), "reason": reason, "author": author}
        rows = [row | {"run_id": key} for key in connection.scalars(completed)]
        upsert(connection, AcceptanceRow, rows)


def acceptances(store: Store, experiment: str) -> list[AcceptanceEntry]:
    """Return the differences that were accepted for runs of an experiment, the oldest first."""
    columns = (AcceptanceRow.accepted, AcceptanceRow.reason, AcceptanceRow.author, AcceptanceRow.created_at)
    query = (
        select(*columns)
        .join(MemberRow, MemberRow.run_id == AcceptanceRow.run_id)
        .where(MemberRow.experiment == experiment)
        .distinct()
        .order_by(AcceptanceRow.created_at)
    )
    return [AcceptanceEntry(json.loads(accepted), *others) for accepted, *others in store.rows(query)]


# ---- retractions


@dataclass(frozen=True)
class Retracted:
    """A run whose results are retracted, at one place in an experiment.

    Attributes:
        reason: Why the results are wrong.
        author: Who retracted them.
        created_at: When, UTC.
        origin: Fingerprint of the run that was retracted: this one, or one that it depends on.
    """

    fingerprint: str
    experiment: str
    label: str
    seed: int
    reason: str
    author: str
    created_at: str
    origin: str


def retract(store: Store, fingerprint: str, reason: str, author: str) -> None:
    """Retract the results of a run until it is completed again.

    Raises:
        UserError: No reason is given, or the run has no results.
    """
    if not reason.strip():
        raise UserError('give a reason why the results are wrong: jestlab retract RUN "wrong shards"')
    key = run_key(fingerprint)
    with store.writing() as connection:
        number = connection.scalar(select(func.max(AttemptRow.number)).where(AttemptRow.run_id == key))
        if number is None:
            raise UserError(f"run {fingerprint[:8]} was never attempted: it has no results")
        row = {"run_id": key, "created_at": now(), "number": number, "reason": reason, "author": author}
        connection.execute(insert(RetractionRow).values(**row))


def undo_retraction(store: Store, fingerprint: str) -> None:
    """Remove the retractions of a run.

    Raises:
        UserError: The run itself is not retracted; names the dependency that is.
    """
    rows = [row for row in retracted(store) if row.fingerprint == fingerprint]
    if rows and all(row.origin != fingerprint for row in rows):
        raise UserError(
            f"run {fingerprint[:8]} depends on run {rows[0].origin[:8]}, which is retracted: "
            f"jestlab retract {rows[0].origin[:8]} --undo"
        )
    if not rows:
        raise UserError(f"run {fingerprint[:8]} is not retracted")
    with store.writing() as connection:
        connection.execute(delete(RetractionRow).where(RetractionRow.run_id == run_key(fingerprint)))


def retracted(store: Store) -> list[Retracted]:
    """Return all runs with retracted results or dependencies, by experiment, label, and seed."""
    columns = ", ".join(Retracted.__dataclass_fields__)
    query = text(f"SELECT {columns} FROM v_retractions ORDER BY experiment, label, seed, created_at")
    rows = map(dict, (row._mapping for row in store.rows(query)))
    return [Retracted(**row | {"created_at": str(row["created_at"])}) for row in rows]
