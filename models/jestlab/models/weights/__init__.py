"""Read and write weights of big_vision, of Hugging Face, and of runs.

    weights = sources.open_weights(Path("siglip.npz"))    check the headers; imports no JAX
    weights.model, weights.digest()                       the towers; the content hash, equal in every format
    parameters.unflatten(weights.tensors())               the tree that `two_towers.embed` takes
    sources.write(weights, Path("out"), "huggingface")    the same weights in another format

sources.py        opens, hashes, and writes weights
formats.py        the table of each format: its names and storage of our parameters
parameters.py     our names and shapes
files.py          reads .npz and safetensors files
huggingface.py    config.json and the files of `AutoProcessor`
"""
