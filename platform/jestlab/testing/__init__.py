"""Contract tests for code of one's own, as jestlab's own pass them.

Each function checks one piece of code with its options, and raises `AssertionError` that says what is wrong:

    from jestlab import testing
    from my_package import clipped

    def test_clipped():
        testing.check_criterion(clipped, floor=0.1)

They need no framework; under pytest, each is one line of a test. Only what is used is imported: a figure is
checked without JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jestlab.platform.contracts.executors import check_executor
    from jestlab.platform.contracts.results import check_figure, check_table
    from jestlab.platform.contracts.training import (
        check_criterion,
        check_evaluation,
        check_loss,
        check_reader,
        check_rule,
        check_tower,
    )

__all__ = [
    "check_criterion",
    "check_evaluation",
    "check_executor",
    "check_figure",
    "check_loss",
    "check_reader",
    "check_rule",
    "check_table",
    "check_tower",
]

_ELSEWHERE = {"check_executor": "executors", "check_figure": "results", "check_table": "results"}


def __getattr__(name: str) -> Any:
    """Import a contract test when it is asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"jestlab.platform.contracts.{_ELSEWHERE.get(name, 'training')}"
    return getattr(importlib.import_module(module), name)
