"""The first released schema: every table of the store.

Stores of the schemas 0001 and 0002 were made during development; a store at 0003 is up to date. What stands
here is not to follow `tables.py`: whatever changes there gets a migration of its own.
"""

import uuid
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = None

INT, BIG, TEXT, TIME = sa.Integer(), sa.BigInteger(), sa.Text(), sa.DateTime()
REAL: sa.Double[float] = sa.Double()
STEP = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

_STATE = (
    "state IN ('PENDING', 'BLOCKED', 'RUNNING', 'COMPLETED', 'FAILED', 'CANCELLED', 'PREEMPTED', 'SKIPPED')"
)
_ONE_SUBJECT = "(experiment_id IS NULL) <> (run_id IS NULL)"

References = dict[str, tuple[str, str | None]]

_RUN: References = {"run_id": ("run", "CASCADE")}
_EXPERIMENT: References = {"experiment_id": ("experiment", "CASCADE")}
_ATTEMPT: References = {"attempt_id": ("attempt", "CASCADE")}


def _or_null(kind: Any) -> tuple[Any, bool]:
    """A column that may be NULL."""
    return kind, True


def _make(
    table: str,
    *,
    key: tuple[str, ...] = ("id",),
    unique: tuple[tuple[str, ...], ...] = (),
    refers: References | None = None,
    check: tuple[str, str] | None = None,
    options: dict[str, Any] | None = None,
    **columns: Any,
) -> sa.Table:
    """Create a table whose constraints are named by the metadata's convention.

    Args:
        table: Its name.
        key: Columns of the primary key; "id" is added to the columns.
        unique: Columns of each unique constraint.
        refers: Column → the table whose id it refers to, and what happens when that row is deleted.
        check: Name and condition of a check constraint.
        options: Of the table.
        **columns: Name → type, or (type, whether it may be NULL).
    """
    columns = {"id": INT, **columns} if key == ("id",) else columns
    made = [
        sa.Column(
            name, *((kind[0],) if isinstance(kind, tuple) else (kind,)), nullable=isinstance(kind, tuple)
        )
        for name, kind in columns.items()
    ]
    constraints: list[Any] = [sa.PrimaryKeyConstraint(*key), *(sa.UniqueConstraint(*each) for each in unique)]
    for column, (other, on_delete) in (refers or {}).items():
        constraints.append(sa.ForeignKeyConstraint([column], [f"{other}.id"], ondelete=on_delete))
    if check is not None:
        constraints.append(sa.CheckConstraint(check[1], name=check[0]))
    return op.create_table(table, *made, *constraints, **(options or {}))


def upgrade() -> None:
    """Make every table, and give the store its id."""
    identity = op.create_table(
        "identity", sa.Column("id", TEXT, nullable=False), sa.PrimaryKeyConstraint("id")
    )
    op.bulk_insert(identity, [{"id": uuid.uuid4().hex}])
    _make(
        "experiment", unique=(("name",),),
        name=TEXT, question=TEXT, paper=_or_null(TEXT), scale=_or_null(TEXT), spec=TEXT, created_at=TIME,
        updated_at=TIME,
    )  # fmt: skip
    _make("launcher", unique=(("name",),), name=TEXT, heartbeat_at=TIME)
    _make(
        "run", unique=(("fingerprint",), ("directory",)), check=("state", _STATE),
        fingerprint=TEXT, program=TEXT, config=TEXT, seed=BIG, directory=TEXT, state=TEXT,
        reason=_or_null(TEXT), step=STEP, total_steps=_or_null(STEP), failures=INT,
        stop_reason=_or_null(TEXT), created_at=TIME, updated_at=TIME,
    )  # fmt: skip
    _make(
        "member", key=("experiment_id", "run_id", "label"), refers=_EXPERIMENT | _RUN,
        experiment_id=INT, run_id=INT, name=TEXT, label=TEXT, point=TEXT, needed=INT, position=INT,
    )  # fmt: skip
    op.create_index("ix_member_run_id", "member", ["run_id"])
    _make(
        "need", key=("run_id", "role"), refers=_RUN | {"needs_id": ("run", "CASCADE")},
        run_id=INT, role=TEXT, needs_id=INT,
    )  # fmt: skip
    op.create_index("ix_need_needs_id", "need", ["needs_id"])
    _make(
        "attempt", unique=(("run_id", "number"),), refers=_RUN | {"launcher_id": ("launcher", "SET NULL")},
        check=("state", _STATE),
        run_id=INT, number=INT, state=TEXT, reason=_or_null(TEXT), launcher_id=_or_null(INT), executor=TEXT,
        handle=_or_null(TEXT), first_step=BIG, chips=INT, lease_seconds=REAL, claimed_at=TIME,
        started_at=_or_null(TIME), heartbeat_at=TIME, ended_at=_or_null(TIME), host=_or_null(TEXT),
        pid=_or_null(INT), exit_code=_or_null(INT), log=TEXT, git_commit=_or_null(TEXT),
        git_patch=_or_null(TEXT), versions=_or_null(TEXT), device=_or_null(TEXT), environment=_or_null(TEXT),
    )  # fmt: skip
    _make("metric_name", unique=(("name",),), name=TEXT)
    _make(
        "metric", key=("run_id", "name_id", "step"), options={"sqlite_with_rowid": False},
        refers=_RUN | {"name_id": ("metric_name", None)} | _ATTEMPT,
        run_id=INT, name_id=INT, step=STEP, value=_or_null(REAL), attempt_id=INT,
    )  # fmt: skip
    _make(
        "evaluation", key=("run_id", "dataset", "metric", "step"), refers=_RUN | _ATTEMPT,
        run_id=INT, dataset=TEXT, metric=TEXT, step=STEP, value=_or_null(REAL), examples_seen=BIG,
        flops_total=REAL, attempt_id=INT,
    )  # fmt: skip
    op.create_index("ix_evaluation_run_id_step", "evaluation", ["run_id", "step"])
    _make("cost", key=("run_id", "component"), refers=_RUN, run_id=INT, component=TEXT, flops=REAL)
    _make(
        "artifact", key=("run_id", "name"), refers=_RUN,
        run_id=INT, name=TEXT, uri=TEXT, size=BIG, sha256=TEXT,
    )  # fmt: skip
    _make(
        "budget", key=("run_id",), refers=_RUN,
        run_id=INT, chip=TEXT, chips=INT, chip_hours=REAL, dollars=_or_null(REAL),
    )  # fmt: skip
    subject: dict[str, Any] = {"experiment_id": _or_null(INT), "run_id": _or_null(INT)}
    about = _EXPERIMENT | _RUN
    one = ("subject", _ONE_SUBJECT)
    _make("note", refers=about, check=one, **subject, text=TEXT, author=TEXT, created_at=TIME)
    _make(
        "tag", unique=(("experiment_id", "name"), ("run_id", "name")), refers=about, check=one, **subject,
        name=TEXT, created_at=TIME,
    )  # fmt: skip
    _make(
        "published", unique=(("source", "table_name", "position", "quantity"),),
        source=TEXT, table_name=TEXT, position=INT, group_name=TEXT, method=TEXT, variant=TEXT, data=TEXT,
        citation=TEXT, citation_key=TEXT, ours=INT, baseline=INT, accounting=TEXT, quantity=TEXT,
        printed=TEXT, value=REAL, unit=TEXT, bold=INT, note=TEXT, updated_at=TIME,
    )  # fmt: skip
