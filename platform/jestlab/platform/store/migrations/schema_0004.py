"""A store knows where it lies, jobs bear a token of their attempt, and studies say where they came from."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add the columns. Jobs of older attempts can no longer be found, and end by themselves."""
    op.add_column("identity", sa.Column("place", sa.Text(), nullable=True))
    op.add_column("attempt", sa.Column("token", sa.Text(), nullable=True))
    op.add_column("experiment", sa.Column("origin", sa.Text(), nullable=True))
