"""Which examples of a super-batch the learner trains on.

`select` goes from embeddings to indices, without a matrix of all pairs: scores come from the embeddings of
learner and reference (`criteria`, `conditional`), a rule draws from them (`rules`, `sampling`), on any number
of devices (`candidates`). `dense` is the same as the paper writes it.
"""

from .rules import RULES, Selected
from .select import select

__all__ = ["RULES", "Selected", "select"]
