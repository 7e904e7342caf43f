"""Leases, launchers, budgets, notes and tags; and which store this is."""

import uuid
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"

_ONE_SUBJECT = "(experiment_id IS NULL) <> (run_id IS NULL)"

_STEPS = (("run", "step"), ("run", "total_steps"), ("metric", "step"), ("evaluation", "step"))
_LEASE: dict[str, type[TypeEngine[Any]]] = {
    "launcher_id": sa.Integer,
    "executor": sa.Text,
    "handle": sa.Text,
    "chips": sa.Integer,
    "lease_seconds": sa.Double,
    "first_step": sa.BigInteger,
    "claimed_at": sa.DateTime,
    "environment": sa.Text,
}
_UNKNOWN_UNTIL_IT_BEGINS: dict[str, type[TypeEngine[Any]]] = {
    "started_at": sa.DateTime,
    "host": sa.Text,
    "pid": sa.Integer,
    "versions": sa.Text,
    "device": sa.Text,
}


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, nullable=False)


def _subject(table: str) -> list[SchemaItem]:
    """An experiment or a run, exactly one of them."""
    return [
        sa.Column("experiment_id", sa.Integer),
        sa.Column("run_id", sa.Integer),
        sa.ForeignKeyConstraint(
            ["experiment_id"],
            ["experiment.id"],
            name=f"fk_{table}_experiment_id_experiment",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=f"fk_{table}_run_id_run", ondelete="CASCADE"),
        sa.CheckConstraint(_ONE_SUBJECT, name=op.f(f"ck_{table}_subject")),
    ]


def _step_type(kind: type[sa.Integer], before: type[sa.Integer]) -> None:
    """Steps of 64 bits, which SQLite's integers have anyway."""
    if op.get_bind().dialect.name == "sqlite":
        return
    for table, column in _STEPS:
        op.alter_column(table, column, type_=kind(), existing_type=before())


def upgrade() -> None:
    """Attempts become leases; runs remember failures and their user's wish to stop."""
    identity = op.create_table(
        "identity",
        sa.Column("id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_identity"),
    )
    op.bulk_insert(identity, [{"id": uuid.uuid4().hex}])
    op.create_table(
        "launcher",
        _id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("heartbeat_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_launcher"),
        sa.UniqueConstraint("name", name="uq_launcher_name"),
    )
    # In two goes: rows that are there get a value, and new ones have to bring theirs.
    op.add_column("run", sa.Column("failures", sa.Integer))
    op.add_column("run", sa.Column("stop_reason", sa.Text))
    op.execute("UPDATE run SET failures = 0")
    with op.batch_alter_table("run") as run:
        run.alter_column("failures", existing_type=sa.Integer(), nullable=False)
    for name, kind in _LEASE.items():
        op.add_column("attempt", sa.Column(name, kind))
    op.execute(
        "UPDATE attempt SET executor = 'local', chips = 0, lease_seconds = 90, first_step = 0, "
        "claimed_at = started_at"
    )
    with op.batch_alter_table("attempt") as attempt:
        for name in ("executor", "chips", "lease_seconds", "first_step", "claimed_at"):
            attempt.alter_column(name, existing_type=_LEASE[name](), nullable=False)
        for name, kind in _UNKNOWN_UNTIL_IT_BEGINS.items():
            attempt.alter_column(name, existing_type=kind(), nullable=True)
        attempt.create_foreign_key(
            "fk_attempt_launcher_id_launcher", "launcher", ["launcher_id"], ["id"], ondelete="SET NULL"
        )
    _step_type(sa.BigInteger, sa.Integer)
    op.create_table(
        "budget",
        sa.Column("run_id", sa.Integer, nullable=False),
        sa.Column("chip", sa.Text, nullable=False),
        sa.Column("chips", sa.Integer, nullable=False),
        sa.Column("chip_hours", sa.Double, nullable=False),
        sa.Column("dollars", sa.Double),
        sa.PrimaryKeyConstraint("run_id", name="pk_budget"),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name="fk_budget_run_id_run", ondelete="CASCADE"),
    )
    op.create_table(
        "note",
        _id(),
        *_subject("note"),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_note"),
    )
    op.create_table(
        "tag",
        _id(),
        *_subject("tag"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tag"),
        sa.UniqueConstraint("experiment_id", "name", name="uq_tag_experiment_id_name"),
        sa.UniqueConstraint("run_id", "name", name="uq_tag_run_id_name"),
    )


def downgrade() -> None:
    """Back to attempts without leases. A claim that no worker took up is lost: there is no place for it."""
    for table in ("tag", "note", "budget", "identity"):
        op.drop_table(table)
    op.execute("DELETE FROM attempt WHERE started_at IS NULL")
    op.execute(
        "UPDATE attempt SET host = COALESCE(host, ''), pid = COALESCE(pid, 0), "
        "versions = COALESCE(versions, '{}'), device = COALESCE(device, '')"
    )
    with op.batch_alter_table("attempt") as attempt:
        attempt.drop_constraint("fk_attempt_launcher_id_launcher", type_="foreignkey")
        for name in _LEASE:
            attempt.drop_column(name)
        for name, kind in _UNKNOWN_UNTIL_IT_BEGINS.items():
            attempt.alter_column(name, existing_type=kind(), nullable=False)
    with op.batch_alter_table("run") as run:
        run.drop_column("stop_reason")
        run.drop_column("failures")
    _step_type(sa.Integer, sa.BigInteger)
    op.drop_table("launcher")
