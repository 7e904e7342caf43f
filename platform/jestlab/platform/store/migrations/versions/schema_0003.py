"""Published results."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_TEXTS = ("group_name", "method", "variant", "data", "citation", "citation_key")


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _flag(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False)


def upgrade() -> None:
    """Make the table of published cells."""
    op.create_table(
        "published",
        sa.Column("id", sa.Integer, nullable=False),
        *_texts("source", "table_name"),
        sa.Column("position", sa.Integer, nullable=False),
        *_texts(*_TEXTS),
        _flag("ours"),
        _flag("baseline"),
        *_texts("accounting", "quantity", "printed"),
        sa.Column("value", sa.Double, nullable=False),
        *_texts("unit"),
        _flag("bold"),
        *_texts("note"),
        sa.Column("updated_at", sa.DateTime, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_published"),
        sa.UniqueConstraint(
            "source",
            "table_name",
            "position",
            "quantity",
            name="uq_published_source_table_name_position_quantity",
        ),
    )


def downgrade() -> None:
    """Drop it: the old schema has no place for published results."""
    op.drop_table("published")
