"""Leases, launchers, budgets, notes and tags."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ONE_SUBJECT = "(experiment_id IS NULL) <> (run_id IS NULL)"


def _id() -> sa.Column[int]:
    return sa.Column("id", sa.Integer, nullable=False)


def _subject(table: str) -> list[Any]:
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


def upgrade() -> None:
    """Attempts become leases; runs remember failures and their user's wish to stop."""
    op.create_table(
        "launcher",
        _id(),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("heartbeat_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_launcher"),
        sa.UniqueConstraint("name", name="uq_launcher_name"),
    )
    with op.batch_alter_table("run") as run:
        run.add_column(sa.Column("failures", sa.Integer, nullable=False, server_default="0"))
        run.add_column(sa.Column("stop_reason", sa.Text))
    with op.batch_alter_table("attempt") as attempt:
        attempt.add_column(sa.Column("launcher_id", sa.Integer))
        attempt.add_column(sa.Column("executor", sa.Text, nullable=False, server_default="local"))
        attempt.add_column(sa.Column("handle", sa.Text))
        attempt.add_column(sa.Column("chips", sa.Integer, nullable=False, server_default="0"))
        attempt.add_column(sa.Column("claimed_at", sa.DateTime))
        attempt.add_column(sa.Column("environment", sa.Text))
        for name, kind in (
            ("started_at", sa.DateTime()),
            ("host", sa.Text()),
            ("pid", sa.Integer()),
            ("versions", sa.Text()),
            ("device", sa.Text()),
        ):
            attempt.alter_column(name, existing_type=kind, nullable=True)
        attempt.create_foreign_key(
            "fk_attempt_launcher_id_launcher", "launcher", ["launcher_id"], ["id"], ondelete="SET NULL"
        )
    op.execute("UPDATE attempt SET claimed_at = started_at")
    with op.batch_alter_table("attempt") as attempt:
        attempt.alter_column("claimed_at", existing_type=sa.DateTime(), nullable=False)
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
    """Back to attempts without leases. A claim that no worker took up has no place there."""
    for table in ("tag", "note", "budget"):
        op.drop_table(table)
    op.execute("DELETE FROM attempt WHERE started_at IS NULL")
    with op.batch_alter_table("attempt") as attempt:
        attempt.drop_constraint("fk_attempt_launcher_id_launcher", type_="foreignkey")
        for name in ("launcher_id", "executor", "handle", "chips", "claimed_at", "environment"):
            attempt.drop_column(name)
        for name, kind in (
            ("started_at", sa.DateTime()),
            ("host", sa.Text()),
            ("pid", sa.Integer()),
            ("versions", sa.Text()),
            ("device", sa.Text()),
        ):
            attempt.alter_column(name, existing_type=kind, nullable=False)
    with op.batch_alter_table("run") as run:
        run.drop_column("stop_reason")
        run.drop_column("failures")
    op.drop_table("launcher")
