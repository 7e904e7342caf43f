"""The first released schema: the tables of `tables.py`. Stores of older schemas cannot be upgraded.

Before the tables change for the first time, write this schema out here (`alembic.autogenerate`), and put the
change into a migration of its own: a test compares the tables with those of this schema.
"""

import uuid

from alembic import op

from jestlab.platform.store.tables import Base, Identity

revision = "0003"
down_revision = None


def upgrade() -> None:
    """Create every table, and give the store its id."""
    Base.metadata.create_all(op.get_bind())
    op.bulk_insert(Base.metadata.tables[Identity.__tablename__], [{"id": uuid.uuid4().hex}])
