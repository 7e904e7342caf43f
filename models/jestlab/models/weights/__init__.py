"""Read and write weights of big_vision, of Hugging Face, and of runs.

    weights = open_weights(Path("siglip.npz"))    check the headers; imports no JAX
    weights.model, weights.digest()               the towers; the content hash, the same in every format
    unflatten(weights.tensors())                  the tree that `two_towers.embed` takes
    write(weights, Path("out"), "huggingface")    the same weights in another format

sources.py        opens, hashes, and writes weights
formats.py        the table of each format: its names and storage of our parameters
layout.py         our names and shapes
files.py          reads .npz and safetensors files
huggingface.py    config.json and the files of `AutoProcessor`
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
