"""The store's tables. Readers should use the views in `views.py`.

Times are UTC without a zone. JSON is kept as text, so that every database treats it the same. A metric that
is not a number is NULL (SQLite has no other NaN); infinities are kept.

Rows have natural keys where possible, so that they are the same in every store: a run is identified by its
fingerprint, a study by its name, an attempt by its run and its number.
"""

import re
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now

_STATES = "state IN ({})".format(", ".join(f"'{state}'" for state in RunState))
_INT64 = BigInteger().with_variant(Integer(), "sqlite")  # SQLite's INTEGER has 64 bits
_ONE_SUBJECT = "(experiment IS NULL) <> (run_id IS NULL)"
_KEY_DIGITS = 15  # 60 bits


def run_key(fingerprint: str) -> int:
    """Return the key of a run: the first 60 bits of its fingerprint, the same in every store.

    A text key would make a table of metrics three times as large as this one.
    """
    return int(fingerprint[:_KEY_DIGITS], 16)


def _of_run(**options: Any) -> Any:
    return mapped_column(_INT64, ForeignKey("run.id", ondelete="CASCADE"), **options)


def _of_experiment(**options: Any) -> Any:
    cascade = ForeignKey("experiment.name", onupdate="CASCADE", ondelete="CASCADE")
    return mapped_column(cascade, **options)


class Base(DeclarativeBase):
    """Holds the metadata. Constraints have predictable names, so that migrations can refer to them."""

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

    @declared_attr.directive
    def __tablename__(cls) -> str:
        """The name of the class: MetricNameRow is the table `metric_name`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()


class IdentityRow(Base):
    """The identity of this store: one row with a random ID. See `identity.py`."""

    id: Mapped[str] = mapped_column(primary_key=True)
    place: Mapped[str | None]  # identifies the file or database; differs in a copy


class ExperimentRow(Base):
    """A study as of its last launch."""

    name: Mapped[str] = mapped_column(primary_key=True)
    question: Mapped[str]
    paper: Mapped[str | None]
    scale: Mapped[str | None]
    spec: Mapped[str]  # the resolved study, JSON
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    origin: Mapped[str | None]  # the archive that it was imported from, JSON; None if it was launched here
    owner: Mapped[str | None]  # user who launched it last; None if unknown
    host: Mapped[str | None]  # machine that it was launched from; None if unknown


class KnownLabRow(Base):
    """A lab whose launchers use this store."""

    __tablename__ = "lab"

    uid: Mapped[str] = mapped_column(primary_key=True)  # from the file in its root
    address: Mapped[str]  # its last known folder, or the URL of its bucket
    host: Mapped[str | None]  # the machine of the folder
    seen_at: Mapped[datetime]  # when a launcher of it was last entered


class LauncherRow(Base):
    """A controller that launches runs. It is alive as long as its heartbeat changes."""

    name: Mapped[str] = mapped_column(primary_key=True)  # host, process ID, and start time
    heartbeat_at: Mapped[datetime]
    lab: Mapped[str | None] = mapped_column(ForeignKey("lab.uid", ondelete="SET NULL"))  # None: unknown


class RunRow(Base):
    """One scientific config, which any number of studies can share."""

    __table_args__ = (CheckConstraint(_STATES, name="state"),)

    id: Mapped[int] = mapped_column(_INT64, primary_key=True, autoincrement=False)  # see `run_key`
    fingerprint: Mapped[str] = mapped_column(unique=True)
    program: Mapped[str]
    config: Mapped[str]  # JSON
    seed: Mapped[int] = mapped_column(BigInteger)
    directory: Mapped[str] = mapped_column(unique=True)  # relative to the lab's root
    state: Mapped[str]
    reason: Mapped[str | None]
    step: Mapped[int] = mapped_column(_INT64, default=0)
    total_steps: Mapped[int | None] = mapped_column(_INT64)
    failures: Mapped[int] = mapped_column(default=0)  # attempts that FAILED since the run was last launched
    stop_reason: Mapped[str | None]  # why its user wants it to stop; None while it may run
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime] = mapped_column(onupdate=now)


class MemberRow(Base):
    """A run's place in an experiment."""

    __table_args__ = (Index(None, "run_id"),)

    experiment: Mapped[str] = _of_experiment(primary_key=True)
    run_id: Mapped[int] = _of_run(primary_key=True)
    name: Mapped[str]
    label: Mapped[str] = mapped_column(primary_key=True)  # a study can list a run under several labels
    point: Mapped[str]  # values on the axes, JSON
    needed: Mapped[int]  # 1 if other runs of the experiment refer to this name, else 0
    position: Mapped[int]


class NeedRow(Base):
    """`run_id` depends on the result of `needs_id`, to which its config refers at the path `role`."""

    __table_args__ = (Index(None, "needs_id"),)

    run_id: Mapped[int] = _of_run(primary_key=True)
    role: Mapped[str] = mapped_column(primary_key=True)
    needs_id: Mapped[int] = _of_run()


class AttemptRow(Base):
    """One attempt at a run: claimed by a launcher, started by a worker, with the provenance of its code.

    Its state is PENDING from the claim until its worker starts, then RUNNING, then a final one. While it is
    PENDING or RUNNING, no other attempt at the run can be made. A worker can write only while its attempt
    is RUNNING: the attempt is the lease, its ID the fencing token.
    """

    __table_args__ = (UniqueConstraint("run_id", "number"), CheckConstraint(_STATES, name="state"))

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = _of_run()
    number: Mapped[int]  # 1, 2, … within the run
    state: Mapped[str]
    reason: Mapped[str | None]
    launcher: Mapped[str | None] = mapped_column(ForeignKey("launcher.name", ondelete="SET NULL"))
    executor: Mapped[str]  # local, vertex, kubernetes, slurm
    handle: Mapped[str | None]  # the executor's name of the job; None until it is launched
    token: Mapped[str | None]  # a secret of the job, which no copy of the store has
    first_step: Mapped[int] = mapped_column(BigInteger, default=0)  # the run's step at the time of the claim
    chips: Mapped[int] = mapped_column(default=0)  # number of accelerator chips that it occupies
    lease_seconds: Mapped[float] = mapped_column(default=90.0)  # silence after which its worker is lost
    claimed_at: Mapped[datetime]
    started_at: Mapped[datetime | None]  # when its worker started
    heartbeat_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    host: Mapped[str | None]
    pid: Mapped[int | None]
    exit_code: Mapped[int | None]  # minus the signal's number when a signal ended it
    log: Mapped[str]  # relative to the lab's root
    git_commit: Mapped[str | None]  # of jestlab's own checkout
    git_patch: Mapped[str | None]  # its uncommitted changes
    code_commit: Mapped[str | None]  # of the repository of the user's code
    code_patch: Mapped[str | None]  # its uncommitted changes
    sources: Mapped[str | None]  # files of the user's code → SHA-256, JSON; None: unknown, or no code
    inputs: Mapped[str | None]  # other files that the spec names → SHA-256, JSON; None: unknown, or none
    versions: Mapped[str | None]  # package → version, JSON
    device: Mapped[str | None]
    environment: Mapped[str | None]  # variables that may matter, JSON; no secrets
    # How its time was spent, as last reported by its worker: see `Spent`. None: unknown.
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
    # The lab that has its files; None: unknown.
    lab: Mapped[str | None] = mapped_column(ForeignKey("lab.uid", ondelete="SET NULL"))


class MetricNameRow(Base):
    """Names of metrics, each stored once."""

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class MetricRow(Base):
    """A value at a step; the last write counts."""

    # One curve is one contiguous range of the table.
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012

    run_id: Mapped[int] = _of_run(primary_key=True)
    name_id: Mapped[int] = mapped_column(ForeignKey("metric_name.id"), primary_key=True)
    step: Mapped[int] = mapped_column(_INT64, primary_key=True)
    value: Mapped[float | None]


class EvaluationRow(Base):
    """A score on a dataset at a step; the last write counts."""

    __table_args__ = (
        Index(None, "run_id", "step"),
        ForeignKeyConstraint(["run_id", "attempt"], ["attempt.run_id", "attempt.number"], ondelete="CASCADE"),
    )

    run_id: Mapped[int] = _of_run(primary_key=True)
    dataset: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(_INT64, primary_key=True)
    value: Mapped[float | None]
    examples_seen: Mapped[int | None] = mapped_column(BigInteger)  # None: unknown, as in the next two
    flops_total: Mapped[float | None]
    seconds: Mapped[float | None]
    attempt: Mapped[int]  # number of the attempt that recorded it


class SourceRow(Base):
    """The text of a file of the user's code, without secrets, stored once."""

    sha256: Mapped[str] = mapped_column(primary_key=True)  # of the original file
    text: Mapped[str]


class AcceptanceRow(Base):
    """A statement that some differences between a run and others do not matter, in any study."""

    run_id: Mapped[int] = _of_run(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(primary_key=True)
    accepted: Mapped[str]  # item that differs → values that count as equal, JSON
    reason: Mapped[str]
    author: Mapped[str]


class RegistrationRow(Base):
    """The claims of a study and how they will be judged, registered before its first run."""

    experiment: Mapped[str] = mapped_column(primary_key=True)  # not a reference: it may not be launched yet
    created_at: Mapped[datetime] = mapped_column(primary_key=True)
    content: Mapped[str]  # JSON: see `jestlab.analysis.claims.registration`
    digest: Mapped[str]  # SHA-256 of the content
    git_commit: Mapped[str | None]  # of jestlab's checkout
    author: Mapped[str]


class RetractionRow(Base):
    """A statement that a run's results are wrong, until an attempt after `number` completes it again."""

    run_id: Mapped[int] = _of_run(primary_key=True)
    created_at: Mapped[datetime] = mapped_column(primary_key=True)
    number: Mapped[int]  # of the run's last attempt at that time
    reason: Mapped[str]
    author: Mapped[str]


class CostRow(Base):
    """Planned FLOPs of a whole run by component: see `jestlab.analysis.costs.EXECUTED`.

    Adopted runs have one component "learner" instead of both towers and the loss.
    """

    run_id: Mapped[int] = _of_run(primary_key=True)
    component: Mapped[str] = mapped_column(primary_key=True)
    flops: Mapped[float]


class ArtifactRow(Base):
    """A file or folder that a run recorded."""

    run_id: Mapped[int] = _of_run(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    uri: Mapped[str]  # relative to the lab's root
    size: Mapped[int] = mapped_column(BigInteger)  # bytes
    sha256: Mapped[str]


class BudgetRow(Base):
    """The accelerator time that a run was planned to occupy; unknown without a row."""

    run_id: Mapped[int] = _of_run(primary_key=True)
    chip: Mapped[str]  # v5e, v6e, …; gpu; local: chips are not counted, and a run counts as one
    chips: Mapped[int]
    chip_hours: Mapped[float]
    dollars: Mapped[float | None]


class NoteRow(Base):
    """A note about an experiment or a run."""

    __table_args__ = (CheckConstraint(_ONE_SUBJECT, name="subject"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment: Mapped[str | None] = _of_experiment()
    run_id: Mapped[int | None] = _of_run()
    text: Mapped[str]
    author: Mapped[str]
    created_at: Mapped[datetime]


class TagRow(Base):
    """A tag of an experiment or a run. The tag `keep` protects it from `jestlab gc`."""

    __table_args__ = (
        CheckConstraint(_ONE_SUBJECT, name="subject"),
        UniqueConstraint("experiment", "name"),
        UniqueConstraint("run_id", "name"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    experiment: Mapped[str | None] = _of_experiment()
    run_id: Mapped[int | None] = _of_run()
    name: Mapped[str]
    created_at: Mapped[datetime]
    author: Mapped[str | None]  # None: unknown


class SavedQueryRow(Base):
    """An SQL query that was saved under a name."""

    name: Mapped[str] = mapped_column(primary_key=True)
    sql: Mapped[str]
    author: Mapped[str]
    updated_at: Mapped[datetime]


class PublishedRow(Base):
    """A cell of a published table. Its columns are explained in the view `v_published`."""

    source: Mapped[str] = mapped_column(primary_key=True)
    table_name: Mapped[str] = mapped_column(primary_key=True)
    position: Mapped[int] = mapped_column(primary_key=True)
    group_name: Mapped[str]
    method: Mapped[str]
    variant: Mapped[str]
    data: Mapped[str]
    citation: Mapped[str]
    citation_key: Mapped[str]
    ours: Mapped[int]  # 1 or 0, like `baseline` and `bold`
    baseline: Mapped[int]
    accounting: Mapped[str]
    quantity: Mapped[str] = mapped_column(primary_key=True)
    printed: Mapped[str]
    value: Mapped[float]
    unit: Mapped[str]
    bold: Mapped[int]
    note: Mapped[str]
    updated_at: Mapped[datetime]  # when it was last imported with a change
