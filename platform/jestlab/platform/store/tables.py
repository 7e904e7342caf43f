"""The store's tables, and how rows get into them. `views.py` holds what readers should use.

Times are UTC without a zone. JSON is kept as text, so that every database treats it alike. A metric that is
not a number is NULL (SQLite knows no other NaN); infinities stay infinities.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, TypeVar

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Connection,
    Double,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
    bindparam,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from jestlab.platform.store.records import RunState

_STATES = "state IN ({})".format(", ".join(f"'{state}'" for state in RunState))
_STEP = BigInteger().with_variant(Integer(), "sqlite")  # whose INTEGER has 64 bits
_ONE_SUBJECT = "(experiment IS NULL) <> (run_id IS NULL)"
_KEY_DIGITS = 15  # 60 bits


class Base(DeclarativeBase):
    """Declares the metadata; constraints have predictable names, by which they can be changed."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Text(), float: Double(), int: Integer()}  # noqa: RUF012


class Identity(Base):
    """Which store this is: one row with a random text, which no other store has. See `identity.py`."""

    __tablename__ = "identity"

    id: Mapped[str] = mapped_column(primary_key=True)
    place: Mapped[str | None]  # which file or database it is in; a copy finds another one there than its own


class Experiment(Base):
    """A study as it was last launched."""

    __tablename__ = "experiment"

    name: Mapped[str] = mapped_column(primary_key=True)
    question: Mapped[str]
    paper: Mapped[str | None]
    scale: Mapped[str | None]
    spec: Mapped[str]  # the resolved study, JSON
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    origin: Mapped[str | None]  # from which archive it came, JSON; None for what was launched here
    owner: Mapped[str | None]  # user who launched it last; None where unknown
    host: Mapped[str | None]  # machine that it was launched from; None where unknown


class KnownLab(Base):
    """A lab whose launchers use this store: `jestlab.platform.lab.identity` says which it is."""

    __tablename__ = "lab"

    uid: Mapped[str] = mapped_column(primary_key=True)  # from the file in its root
    address: Mapped[str]  # where it was last: a folder, or the URL of a bucket's
    host: Mapped[str | None]  # the machine of a folder
    seen_at: Mapped[datetime]  # when a launcher of it was entered last


class Launcher(Base):
    """A controller that launches runs; alive as long as its heartbeat changes."""

    __tablename__ = "launcher"

    name: Mapped[str] = mapped_column(primary_key=True)  # host, process id and its start
    heartbeat_at: Mapped[datetime]
    lab: Mapped[str | None] = mapped_column(ForeignKey("lab.uid", ondelete="SET NULL"))  # None: unknown


class Run(Base):
    """One scientific config, whatever studies it belongs to."""

    __tablename__ = "run"
    __table_args__ = (
        CheckConstraint(_STATES, name="state"),
        Index(None, "state", "updated_at", "step"),  # what has changed is asked for every second
    )

    id: Mapped[int] = mapped_column(_STEP, primary_key=True, autoincrement=False)  # see `run_key`
    fingerprint: Mapped[str] = mapped_column(unique=True)
    program: Mapped[str]
    config: Mapped[str]  # JSON
    seed: Mapped[int] = mapped_column(BigInteger)
    directory: Mapped[str] = mapped_column(unique=True)  # relative to the lab's root
    state: Mapped[str]
    reason: Mapped[str | None]
    step: Mapped[int] = mapped_column(_STEP, default=0)
    total_steps: Mapped[int | None] = mapped_column(_STEP)
    failures: Mapped[int] = mapped_column(default=0)  # attempts that FAILED since the run was last launched
    stop_reason: Mapped[str | None]  # why its user wants it to stop; None while it may run
    created_at: Mapped[datetime]
    # When anything of it changed: its state, why, whether it shall stop, or how far it is.
    updated_at: Mapped[datetime] = mapped_column(onupdate=lambda: now())


class Member(Base):
    """A run's place in an experiment."""

    __tablename__ = "member"
    __table_args__ = (Index(None, "run_id"),)

    experiment: Mapped[str] = mapped_column(
        ForeignKey("experiment.name", onupdate="CASCADE", ondelete="CASCADE"), primary_key=True
    )
    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str]
    label: Mapped[str] = mapped_column(primary_key=True)  # a run may stand in a study under several
    point: Mapped[str]  # values on the axes, JSON
    needed: Mapped[int]  # 1 if other runs of the experiment refer to this name, else 0
    position: Mapped[int]


class Need(Base):
    """`run_id` needs the result of `needs_id`, which its config names at the path `role`."""

    __tablename__ = "need"
    __table_args__ = (Index(None, "needs_id"),)

    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    needs_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"))


class Attempt(Base):
    """One attempt at a run: claimed by a launcher, taken up by a worker, with the provenance of its code.

    Its state is PENDING from the claim until its worker begins, then RUNNING, then one that stays. While it
    is PENDING or RUNNING no other attempt at the run can be made, and a worker writes only while its own is
    RUNNING: the attempt is the lease, its id the fencing token.
    """

    __tablename__ = "attempt"
    __table_args__ = (UniqueConstraint("run_id", "number"), CheckConstraint(_STATES, name="state"))

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"))
    number: Mapped[int]  # 1, 2, … within the run
    state: Mapped[str]
    reason: Mapped[str | None]
    launcher: Mapped[str | None] = mapped_column(ForeignKey("launcher.name", ondelete="SET NULL"))
    executor: Mapped[str]  # local, vertex, kubernetes, slurm
    handle: Mapped[str | None]  # the executor's name of the job; None until it is launched
    token: Mapped[str | None]  # a secret that the job bears, and no copy of the store; None: no job of ours
    first_step: Mapped[int] = mapped_column(BigInteger, default=0)  # where the run was when this was claimed
    chips: Mapped[int] = mapped_column(default=0)  # accelerator chips that it occupies
    lease_seconds: Mapped[float] = mapped_column(default=90.0)  # for how long its worker may be silent
    claimed_at: Mapped[datetime]
    started_at: Mapped[datetime | None]  # when its worker began
    heartbeat_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    host: Mapped[str | None]
    pid: Mapped[int | None]
    exit_code: Mapped[int | None]  # minus the signal's number when a signal ended it
    log: Mapped[str]  # relative to the lab's root
    git_commit: Mapped[str | None]  # of jestlab's own checkout
    git_patch: Mapped[str | None]  # what was not committed there
    code_commit: Mapped[str | None]  # of the repository of the user's own code
    code_patch: Mapped[str | None]  # what was not committed there
    sources: Mapped[str | None]  # files of the user's own code → SHA-256, JSON; None: unknown, or no code
    inputs: Mapped[str | None]  # other files that the spec names → SHA-256, JSON; None: unknown, or none
    versions: Mapped[str | None]  # package → version, JSON
    device: Mapped[str | None]
    environment: Mapped[str | None]  # variables that may matter, JSON; no secrets
    # Where its time went, as its worker last said: `Spent`. None: unknown.
    startup_seconds: Mapped[float | None]
    compilation_seconds: Mapped[float | None]
    training_seconds: Mapped[float | None]
    evaluation_seconds: Mapped[float | None]
    checkpoint_seconds: Mapped[float | None]
    winddown_seconds: Mapped[float | None]
    resumed_step: Mapped[int | None] = mapped_column(BigInteger)
    reached_step: Mapped[int | None] = mapped_column(BigInteger)
    saved_step: Mapped[int | None] = mapped_column(BigInteger)
    saved_seconds: Mapped[float | None]
    # In which lab its files are; None: unknown.
    lab: Mapped[str | None] = mapped_column(ForeignKey("lab.uid", ondelete="SET NULL"))


class MetricName(Base):
    """Names of metrics, kept once."""

    __tablename__ = "metric_name"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class Metric(Base):
    """A value at a step; the last write wins."""

    __tablename__ = "metric"
    # One curve is one contiguous range of the table.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_name.id"), primary_key=True)
    step: Mapped[int] = mapped_column(_STEP, primary_key=True)
    value: Mapped[float | None]


class Evaluation(Base):
    """A score on a dataset at a step; the last write wins."""

    __tablename__ = "evaluation"
    __table_args__ = (
        Index(None, "run_id", "step"),
        ForeignKeyConstraint(["run_id", "attempt"], ["attempt.run_id", "attempt.number"], ondelete="CASCADE"),
    )

    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(_STEP, primary_key=True)
    value: Mapped[float | None]
    examples_seen: Mapped[int | None] = mapped_column(BigInteger)  # None: unknown, as in the two below
    flops_total: Mapped[float | None]
    seconds: Mapped[float | None]
    attempt: Mapped[int]  # number of the attempt that recorded it


class Source(Base):
    """The text of a file of users' code, without secrets, kept once."""

    __tablename__ = "source"

    sha256: Mapped[str] = mapped_column(primary_key=True)  # of the file as it was
    text: Mapped[str]


class Acceptance(Base):
    """Somebody's word that some differences between the runs of an experiment do not matter."""

    __tablename__ = "acceptance"

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment: Mapped[str] = mapped_column(
        ForeignKey("experiment.name", onupdate="CASCADE", ondelete="CASCADE")
    )
    accepted: Mapped[str]  # what differs → values that count as equal, JSON
    reason: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]


class Registration(Base):
    """What a study claimed, and how it was to be judged, before its first run."""

    __tablename__ = "registration"
    __table_args__ = (Index(None, "experiment"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment: Mapped[str]  # its name: it is not there before its first launch
    content: Mapped[str]  # JSON: see `jestlab.analysis.claims.registration`
    digest: Mapped[str]  # SHA-256 of the content
    git_commit: Mapped[str | None]  # of jestlab's checkout
    author: Mapped[str]
    created_at: Mapped[datetime]


class Retraction(Base):
    """Somebody's word that a run's results are wrong, until an attempt after `number` completes it again."""

    __tablename__ = "retraction"
    __table_args__ = (Index(None, "run_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"))
    number: Mapped[int]  # of the run's last attempt at that time
    reason: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]


class Cost(Base):
    """Planned FLOPs of a whole run, by component: `jestlab.analysis.costs.EXECUTED`.

    Adopted runs have one component "learner" in the place of both towers and the loss.
    """

    __tablename__ = "cost"

    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    component: Mapped[str] = mapped_column(primary_key=True)
    flops: Mapped[float]


class Artifact(Base):
    """A file or folder that a run left."""

    __tablename__ = "artifact"

    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    uri: Mapped[str]  # relative to the lab's root
    size: Mapped[int] = mapped_column(BigInteger)  # bytes
    sha256: Mapped[str]


class Budget(Base):
    """What a run was planned to occupy; without a row nobody knows."""

    __tablename__ = "budget"

    run_id: Mapped[int] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    chip: Mapped[str]  # v5e, v6e, …; gpu; local: chips are not counted, and a run counts as one
    chips: Mapped[int]
    chip_hours: Mapped[float]
    dollars: Mapped[float | None]


class Note(Base):
    """What somebody wrote about an experiment or a run."""

    __tablename__ = "note"
    __table_args__ = (CheckConstraint(_ONE_SUBJECT, name="subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment: Mapped[str | None] = mapped_column(
        ForeignKey("experiment.name", onupdate="CASCADE", ondelete="CASCADE")
    )
    run_id: Mapped[int | None] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"))
    text: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]


class Tag(Base):
    """A word that an experiment or a run is found by; `keep` protects it from being collected."""

    __tablename__ = "tag"
    __table_args__ = (
        CheckConstraint(_ONE_SUBJECT, name="subject"),
        UniqueConstraint("experiment", "name"),
        UniqueConstraint("run_id", "name"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment: Mapped[str | None] = mapped_column(
        ForeignKey("experiment.name", onupdate="CASCADE", ondelete="CASCADE")
    )
    run_id: Mapped[int | None] = mapped_column(_STEP, ForeignKey("run.id", ondelete="CASCADE"))
    name: Mapped[str]
    created_at: Mapped[datetime]
    author: Mapped[str | None]  # None: unknown


class SavedQuery(Base):
    """An SQL text that somebody saved under a name."""

    __tablename__ = "saved_query"

    name: Mapped[str] = mapped_column(primary_key=True)
    sql: Mapped[str]
    author: Mapped[str]
    updated_at: Mapped[datetime]


class Published(Base):
    """A cell of a table that somebody has published. What its columns mean says `v_published`."""

    __tablename__ = "published"

    source: Mapped[str] = mapped_column(primary_key=True)
    table_name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    group_name: Mapped[str]
    method: Mapped[str]
    variant: Mapped[str]
    data: Mapped[str]
    citation: Mapped[str]
    citation_key: Mapped[str]
    ours: Mapped[int]  # 1 or 0, as all that is yes or no
    baseline: Mapped[int]
    accounting: Mapped[str]
    quantity: Mapped[str] = mapped_column(primary_key=True)
    printed: Mapped[str]
    value: Mapped[float]
    unit: Mapped[str]
    bold: Mapped[int]
    note: Mapped[str]
    updated_at: Mapped[datetime]  # when it came in as it is


# ---- rows

Value = TypeVar("Value")

_CHUNK = 10_000  # SQLite takes 32,766 parameters


def run_key(fingerprint: str) -> int:
    """Return the key of a run: the first 60 bits of its fingerprint, the same in every store.

    Metrics have millions of rows. With a text key they would need three times the space.
    """
    return int(fingerprint[:_KEY_DIGITS], 16)


def now() -> datetime:
    """The time as the store keeps it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def to_json(value: Any, *, sort_keys: bool = True) -> str:
    """JSON text as the store keeps it: keys sorted, nothing superfluous; tuples and the like become lists."""
    return json.dumps(value, ensure_ascii=False, sort_keys=sort_keys, separators=(",", ":"), default=list)


def insert(connection: Connection, table: type[Any]) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def execute_many(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    """Execute a statement for each row; without rows, not at all."""
    if rows:
        connection.execute(statement, rows)


def upsert(
    connection: Connection,
    table: Any,
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    changed: Sequence[str],
    newest: str | None = None,
) -> None:
    """Insert many rows at once; rows whose keys exist are changed.

    Args:
        connection: In a write transaction.
        table: Mapped class.
        rows: All with the same columns; of several with the same keys the last counts.
        keys: Columns of a primary key or unique constraint.
        changed: Columns that take the new value.
        newest: A column; an existing row with a greater value in it stays as it is.
    """
    if not rows:
        return
    its_key = itemgetter(*keys)
    last = list({its_key(row): row for row in rows}.values())
    names = tuple(last[0])
    server = connection.dialect.name == "postgresql"
    values = {name: _array(table, name, last) for name in names} if server else last
    connection.execute(_upsert(server, table, names, tuple(keys), tuple(changed), newest), values)


def _array(table: Any, name: str, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return a column's values as PostgreSQL takes them: an array must not mix whole numbers with others."""
    values = [row[name] for row in rows]
    if isinstance(table.__table__.c[name].type, Float):
        return [None if value is None else float(value) for value in values]
    return values


@functools.cache  # building one takes as long as executing it
def _upsert(
    server: bool,
    table: Any,
    names: tuple[str, ...],
    keys: tuple[str, ...],
    changed: tuple[str, ...],
    newest: str | None,
) -> Any:
    statement: Any = (postgresql if server else sqlite).insert(table)
    if server:
        # One array a column: one statement for all rows, where `executemany` sends one a row.
        columns = {name: table.__table__.columns[name] for name in names}
        arrays = [bindparam(name, type_=ARRAY(column.type)) for name, column in columns.items()]
        given = func.unnest(*arrays).table_valued(*names, name="given").render_derived()
        statement = statement.from_select(list(names), select(*(given.c[name] for name in names)))
    there = getattr(table, newest) if newest else None
    return statement.on_conflict_do_update(
        index_elements=list(keys),
        set_={name: statement.excluded[name] for name in changed},
        where=None if there is None else there <= statement.excluded[newest],
    )


def chunks(values: Iterable[Value], size: int = _CHUNK) -> Iterator[list[Value]]:
    """Values in lists short enough for one `IN (…)`."""
    everything = list(values)
    for start in range(0, len(everything), size):
        yield everything[start : start + size]
