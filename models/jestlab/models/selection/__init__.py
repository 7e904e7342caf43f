"""Select the sub-batch of a super-batch: arrays in, indices out. It needs nothing else of jestlab.

The modules torch, jax, and numpy each have a function `select` with the same arguments, and import only their
array library. The names of this package itself are those of `jax`, imported at first use.

criteria.py  what selection is told, for arrays of any library: embeddings or losses, a criterion, a rule
numpy.py     in float64, to be read first: every formula once
torch.py     PyTorch, on one process or several
batches.py   wraps a PyTorch loader of super-batches, and yields sub-batches
cache.py     the reference's embeddings in files, looked up by the examples' keys
jax.py       JAX, on one device or several: score → draw a chunk → condition the scores on it → next chunk
scores.py    for JAX: the losses, and their sums over pairs without a matrix of all pairs
sampling.py  for JAX: draws without replacement from candidates that are split over devices

It is published on its own, too, as `jestlab-select`; hence its imports of itself are relative.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .jax import CRITERIA, RULES, Candidates, Embeddings, Selected, SuperBatch, select

__all__ = ["CRITERIA", "RULES", "Candidates", "Embeddings", "Selected", "SuperBatch", "select"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.jax"), name)
