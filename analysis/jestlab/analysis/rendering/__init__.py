"""One table in every format: Markdown, LaTeX, CSV, HTML, JSON."""

from __future__ import annotations

from .table import FORMATS, MISSING, Column, Format, Record, Table

__all__ = ["FORMATS", "MISSING", "Column", "Format", "Record", "Table"]
