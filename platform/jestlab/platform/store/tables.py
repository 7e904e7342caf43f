"""The store's tables. `views.py` holds what readers should use; `migrations/` makes both.

Times are UTC without a zone. JSON is kept as text, so that every database treats it alike. A metric that is
not a number is NULL (SQLite knows no other NaN); infinities stay infinities.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from jestlab.platform.store.states import RunState

_STATES = "state IN ({})".format(", ".join(f"'{state}'" for state in RunState))
_STEP = BigInteger().with_variant(Integer(), "sqlite")  # whose INTEGER has 64 bits
_ONE_SUBJECT = "(experiment_id IS NULL) <> (run_id IS NULL)"


class Base(DeclarativeBase):
    """Declares the metadata; constraints have predictable names, so that migrations can change them."""

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
    """Which store this is: one row with a random text, which no other store has."""

    __tablename__ = "identity"

    id: Mapped[str] = mapped_column(primary_key=True)


class Experiment(Base):
    """A study as it was last launched."""

    __tablename__ = "experiment"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    question: Mapped[str]
    paper: Mapped[str | None]
    scale: Mapped[str | None]
    spec: Mapped[str]  # the resolved study, JSON
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class Launcher(Base):
    """A controller that launches runs; alive as long as its heartbeat changes."""

    __tablename__ = "launcher"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)  # host, process id and its start
    heartbeat_at: Mapped[datetime]


class Run(Base):
    """One scientific config, whatever studies it belongs to."""

    __tablename__ = "run"
    __table_args__ = (CheckConstraint(_STATES, name="state"),)

    id: Mapped[int] = mapped_column(primary_key=True)
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
    updated_at: Mapped[datetime]


class Member(Base):
    """A run's place in an experiment."""

    __tablename__ = "member"
    __table_args__ = (Index(None, "run_id"),)

    experiment_id: Mapped[int] = mapped_column(
        ForeignKey("experiment.id", ondelete="CASCADE"), primary_key=True
    )
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str]
    label: Mapped[str] = mapped_column(primary_key=True)  # a run may stand in a study under several
    point: Mapped[str]  # values on the axes, JSON
    needed: Mapped[int]  # 1 if other runs of the experiment refer to this name, else 0
    position: Mapped[int]


class Need(Base):
    """`run_id` needs the result of `needs_id`, which its config names at the path `role`."""

    __tablename__ = "need"
    __table_args__ = (Index(None, "needs_id"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    needs_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))


class Attempt(Base):
    """One go at a run: claimed by a launcher, taken up by a worker, with all that is needed to know what code
    did it, where.

    Its state is PENDING from the claim until its worker begins, then RUNNING, then one that stays. While it
    is PENDING or RUNNING no other attempt at the run can be made, and a worker writes only while its own is
    RUNNING: the attempt is the lease, its id the fencing token.
    """

    __tablename__ = "attempt"
    __table_args__ = (UniqueConstraint("run_id", "number"), CheckConstraint(_STATES, name="state"))

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    number: Mapped[int]  # 1, 2, … within the run
    state: Mapped[str]
    reason: Mapped[str | None]
    launcher_id: Mapped[int | None] = mapped_column(ForeignKey("launcher.id", ondelete="SET NULL"))
    executor: Mapped[str]  # local, vertex, kubernetes
    handle: Mapped[str | None]  # the executor's name of the job; None until it is launched
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
    git_commit: Mapped[str | None]
    git_patch: Mapped[str | None]  # what was not committed
    versions: Mapped[str | None]  # package → version, JSON
    device: Mapped[str | None]
    environment: Mapped[str | None]  # variables that may matter, JSON; no secrets


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

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_name.id"), primary_key=True)
    step: Mapped[int] = mapped_column(_STEP, primary_key=True)
    value: Mapped[float | None]
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"))


class Evaluation(Base):
    """A score on a dataset at a step; the last write wins."""

    __tablename__ = "evaluation"
    __table_args__ = (Index(None, "run_id", "step"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(_STEP, primary_key=True)
    value: Mapped[float | None]
    examples_seen: Mapped[int] = mapped_column(BigInteger)
    flops_total: Mapped[float]
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"))


class Cost(Base):
    """Planned FLOPs of a whole run, by component: `jestlab.analysis.costs.EXECUTED`.

    Rows of older code have one component "learner" in the place of both towers and the loss.
    """

    __tablename__ = "cost"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    component: Mapped[str] = mapped_column(primary_key=True)
    flops: Mapped[float]


class Artifact(Base):
    """A file or folder that a run left."""

    __tablename__ = "artifact"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    uri: Mapped[str]  # relative to the lab's root
    size: Mapped[int] = mapped_column(BigInteger)  # bytes
    sha256: Mapped[str]


class Budget(Base):
    """What a run was planned to occupy; without a row nobody knows."""

    __tablename__ = "budget"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    chip: Mapped[str]  # v5e, v6e, …; local: a process of the launching machine, one chip whatever it is
    chips: Mapped[int]
    chip_hours: Mapped[float]
    dollars: Mapped[float | None]


class Note(Base):
    """What somebody wrote about an experiment or a run."""

    __tablename__ = "note"
    __table_args__ = (CheckConstraint(_ONE_SUBJECT, name="subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    text: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]


class Tag(Base):
    """A word that an experiment or a run is found by; `keep` protects it from being collected."""

    __tablename__ = "tag"
    __table_args__ = (
        CheckConstraint(_ONE_SUBJECT, name="subject"),
        UniqueConstraint("experiment_id", "name"),
        UniqueConstraint("run_id", "name"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment_id: Mapped[int | None] = mapped_column(ForeignKey("experiment.id", ondelete="CASCADE"))
    run_id: Mapped[int | None] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    name: Mapped[str]
    created_at: Mapped[datetime]


class Published(Base):
    """A cell of a table that somebody has published. What its columns mean says `v_published`."""

    __tablename__ = "published"
    __table_args__ = (UniqueConstraint("source", "table_name", "position", "quantity"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    source: Mapped[str]
    table_name: Mapped[str]
    position: Mapped[int]
    group_name: Mapped[str]
    method: Mapped[str]
    variant: Mapped[str]
    data: Mapped[str]
    citation: Mapped[str]
    citation_key: Mapped[str]
    ours: Mapped[int]  # 1 or 0, as all that is yes or no
    baseline: Mapped[int]
    accounting: Mapped[str]
    quantity: Mapped[str]
    printed: Mapped[str]
    value: Mapped[float]
    unit: Mapped[str]
    bold: Mapped[int]
    note: Mapped[str]
    updated_at: Mapped[datetime]  # when it came in as it is
