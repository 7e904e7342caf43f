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
    step: Mapped[int] = mapped_column(default=0)
    total_steps: Mapped[int | None]
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
    """One worker's go at a run, with all that is needed to know what code did it, where."""

    __tablename__ = "attempt"
    __table_args__ = (UniqueConstraint("run_id", "number"), CheckConstraint(_STATES, name="state"))

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    number: Mapped[int]  # 1, 2, … within the run
    state: Mapped[str]
    reason: Mapped[str | None]
    started_at: Mapped[datetime]
    heartbeat_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    host: Mapped[str]
    pid: Mapped[int]
    exit_code: Mapped[int | None]  # minus the signal's number when a signal ended it
    log: Mapped[str]  # relative to the lab's root
    git_commit: Mapped[str | None]
    git_patch: Mapped[str | None]  # what was not committed
    versions: Mapped[str]  # package → version, JSON
    device: Mapped[str]


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
    step: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"))


class Evaluation(Base):
    """A score on a dataset at a step; the last write wins."""

    __tablename__ = "evaluation"
    __table_args__ = (Index(None, "run_id", "step"),)

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    examples_seen: Mapped[int] = mapped_column(BigInteger)
    flops_total: Mapped[float]
    attempt_id: Mapped[int] = mapped_column(ForeignKey("attempt.id", ondelete="CASCADE"))


class Cost(Base):
    """Planned FLOPs of a whole run, by component: learner, scoring, reference_scoring."""

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
