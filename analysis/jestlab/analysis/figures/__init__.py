"""The figures of an experiment, one function each: data first, then drawing."""

from .front import pareto
from .learning_curves import learning_curves

__all__ = ["learning_curves", "pareto"]
