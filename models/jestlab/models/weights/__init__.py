"""Read and write public weights: those of big_vision and Hugging Face and of our own runs.

found = open_weights(Path("siglip.npz"))    sources.py: recognised, checked by its headers; needs no JAX
found.model, found.digest()                 its towers; its content hash, the same in every format
unflatten(found.tensors())                  the tree that `two_towers.embed` takes
write(found, Path("out"), "huggingface")    the same weights in another format
"""

from jestlab.models.weights.layout import unflatten
from jestlab.models.weights.sources import (
    CHECKPOINTS,
    FORMATS,
    Weights,
    content_hash,
    open_weights,
    read_tokenizer,
    run_weights,
    write,
)

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
