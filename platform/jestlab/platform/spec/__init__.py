"""The spec language: what a study is, how it is written in Python or YAML, how it is loaded and validated."""

from jestlab.platform.spec.authoring import (
    at_scale,
    cases,
    claim,
    curves,
    figure,
    grid,
    learnability,
    pareto,
    study,
    table,
    union,
    zip_,
)
from jestlab.platform.spec.errors import SpecError
from jestlab.platform.spec.load import load
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.xmanager import xmanager_main

__all__ = [
    "SpecError",
    "Study",
    "at_scale",
    "cases",
    "claim",
    "curves",
    "figure",
    "grid",
    "learnability",
    "load",
    "pareto",
    "study",
    "table",
    "union",
    "xmanager_main",
    "zip_",
]
