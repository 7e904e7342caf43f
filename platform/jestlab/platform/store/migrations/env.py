"""What Alembic runs: the migrations, on the connection and in the transaction of `schema.migrate`."""

from alembic import context

from jestlab.platform.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
)
context.run_migrations()
