"""The tables, by name."""

from __future__ import annotations

from .claims import claims_table
from .finals import MEANS, Finals, Mean, finals
from .named import NAMES, default_name, table
from .paper import LAYOUTS, paper_table
from .speedups import speedup_table
from .summary import summary

__all__ = [
    "LAYOUTS",
    "MEANS",
    "NAMES",
    "Finals",
    "Mean",
    "claims_table",
    "default_name",
    "finals",
    "paper_table",
    "speedup_table",
    "summary",
    "table",
]
