"""Public weights in and out: big_vision's .npz, Hugging Face's SigLIP, a run's own checkpoint.

found = open_weights(Path("siglip.npz"))    sources.py: recognised, checked by its headers; needs no JAX
found.model, found.digest()                 its towers; its content hash, the same in every format
found.parameters()                          the tree that `two_towers.embed` takes
write(found, Path("out"), "huggingface")    writing.py
"""

from .digest import content_hash
from .sources import Weights, open_weights, run_weights
from .writing import FORMATS, write

__all__ = ["FORMATS", "Weights", "content_hash", "open_weights", "run_weights", "write"]
