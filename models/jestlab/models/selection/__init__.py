"""Which examples of a super-batch the learner trains on.

Scores come from the embeddings of learner and reference (`scores`), a rule draws indices from them (`rules`);
`select` is both in one call.
"""

from .rules import select
from .scores import score_matrix

__all__ = ["score_matrix", "select"]
