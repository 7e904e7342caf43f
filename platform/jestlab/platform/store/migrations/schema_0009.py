"""Tags say who added them, queries are saved, and what has changed is found without reading configs."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the author of tags, the table of saved queries, and an index of runs by state."""
    op.add_column("tag", sa.Column("author", sa.Text(), nullable=True))
    op.create_table(
        "saved_query",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sql", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_saved_query")),
        sa.UniqueConstraint("name", name=op.f("uq_saved_query_name")),
    )
    op.create_index(op.f("ix_run_state_updated_at_step"), "run", ["state", "updated_at", "step"])
