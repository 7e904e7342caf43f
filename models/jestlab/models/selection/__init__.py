"""Selection: which examples of a super-batch the learner trains on.

select.py    embeddings in, indices out: score → draw a chunk → condition the scores on it → next chunk
scores.py    the three criteria by either loss, and their sums over pairs: no matrix of all pairs exists
fused.py     the same sums as a Pallas kernel for TPU, where it works
sampling.py  draws without replacement from candidates that are split over devices
"""

from jestlab.models.selection.scores import Criterion
from jestlab.models.selection.select import RULES, Selected, State, SuperBatch, by_concepts, select

__all__ = ["RULES", "Criterion", "Selected", "State", "SuperBatch", "by_concepts", "select"]
