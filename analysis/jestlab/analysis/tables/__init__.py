"""The tables, by name."""

from __future__ import annotations

from .finals import MEANS, Mean
from .speedups import speedup_table
from .summary import summary

__all__ = ["MEANS", "Mean", "speedup_table", "summary"]
