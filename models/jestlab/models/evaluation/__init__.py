"""How good a model is: zero-shot and 10-shot classification, image→text and text→image retrieval."""

from .evaluator import Evaluator

__all__ = ["Evaluator"]
