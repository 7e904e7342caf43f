"""Attempts say where their time went."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the columns. Where the time of older attempts went stays unknown."""
    for name in ("startup", "compilation", "training", "evaluation", "checkpoint", "winddown"):
        op.add_column("attempt", sa.Column(f"{name}_seconds", sa.Double(), nullable=True))
    for name in ("resumed_step", "reached_step", "saved_step"):
        op.add_column("attempt", sa.Column(name, sa.BigInteger(), nullable=True))
    op.add_column("attempt", sa.Column("saved_seconds", sa.Double(), nullable=True))
