"""Contract tests for custom code. jestlab's built-in code passes them too.

Each function checks a piece of custom code with keyword options, and raises `AssertionError` with the reason
if the code isn't valid:

    from jestlab import testing
    from my_package import clipped

    def test_clipped():
        testing.check_criterion(clipped, floor=0.1)

The functions work with any test framework. Modules are imported on first use, so figures don't require JAX.

training.py   criteria, rules, losses, evaluations, readers, and towers
results.py    figures and tables, on a small study with made-up results
executors.py  executors, with real jobs (job.py)
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jestlab.testing.executors import check_executor
    from jestlab.testing.results import check_figure, check_table
    from jestlab.testing.training import (
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

_MODULES = {"check_executor": "executors", "check_figure": "results", "check_table": "results"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES.get(name, 'training')}"), name)
