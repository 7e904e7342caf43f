"""The results store: SQLite or PostgreSQL through SQLAlchemy, read through views.

Nothing is imported here: `store.records` is read by the plan, which must not wait for SQLAlchemy.
"""
