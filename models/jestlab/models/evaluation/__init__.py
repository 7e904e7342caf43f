"""How good a model is: zero-shot and 10-shot classification, image→text and text→image retrieval.

Each score is computed as big_vision does, which SigLIP and JEST report; departures are said where they are.
"""

from .evaluator import Evaluator

__all__ = ["Evaluator"]
