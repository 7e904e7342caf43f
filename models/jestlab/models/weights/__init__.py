"""Public weights in and out: big_vision's .npz, Hugging Face's SigLIP, a run's own checkpoint.

found = open_weights(Path("siglip.npz"))    sources.py: recognised, checked by its headers; needs no JAX
found.model, found.digest()                 its towers; its content hash, the same in every format
unflatten(found.tensors())                  the tree that `two_towers.embed` takes
write(found, Path("out"), "huggingface")    writing.py
"""

from .digest import content_hash
from .sources import CHECKPOINTS, Weights, open_weights, run_weights
from .tokenizers import read as read_tokenizer
from .tree import unflatten
from .writing import FORMATS, write

__all__ = [
    "CHECKPOINTS",
    "FORMATS",
    "Weights",
    "content_hash",
    "open_weights",
    "read_tokenizer",
    "run_weights",
    "unflatten",
    "write",
]
