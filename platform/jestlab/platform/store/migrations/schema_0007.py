"""Launchers and attempts say of which lab they are: several labs may share a store."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add the table of labs, and columns that refer to it. Of older launchers and attempts it is unknown."""
    op.create_table(
        "lab",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=True),
        sa.Column("seen_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lab")),
        sa.UniqueConstraint("uid", name=op.f("uq_lab_uid")),
    )
    for name in ("launcher", "attempt"):
        with op.batch_alter_table(name) as table:
            table.add_column(sa.Column("lab_id", sa.Integer(), nullable=True))
            table.create_foreign_key(
                op.f(f"fk_{name}_lab_id_lab"), "lab", ["lab_id"], ["id"], ondelete="SET NULL"
            )
