"""The results store: SQLite through SQLAlchemy, migrated by Alembic, read through views.

Nothing is imported here: `store.records` is read by the plan, which must not wait for SQLAlchemy.
"""
