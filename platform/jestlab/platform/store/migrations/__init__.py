"""Alembic migrations of the store, one file a revision."""
