"""Select the sub-batch of a super-batch: arrays in, indices out. It needs nothing else of jestlab.

select.py    from embeddings to indices: score → draw a chunk → condition the scores on it → next chunk
scores.py    the three criteria by either loss, and their sums over pairs without a matrix of all pairs
sampling.py  draws without replacement from candidates that are split over devices
"""

from jestlab.models.selection.sampling import Candidates
from jestlab.models.selection.scores import CRITERIA, Embeddings
from jestlab.models.selection.select import RULES, Selected, SuperBatch, select

__all__ = ["CRITERIA", "RULES", "Candidates", "Embeddings", "Selected", "SuperBatch", "select"]
