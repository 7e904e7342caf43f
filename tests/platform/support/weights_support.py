"""A small checkpoint in SigLIP's format, with random parameters, and its tokenizer."""

import functools
from pathlib import Path

import numpy as np

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.data.tokenizer import train_tokenizer
from jestlab.models.weights.parameters import parameter_shapes

TOWERS = TwoTowers(
    vision=VisionTower(image_size=16, patch_size=8, width=16, depth=2, heads=2, mlp_dim=32),
    text=TextTower(vocabulary_size=64, length=8, width=16, depth=1, heads=2, mlp_dim=32),
    embedding_dim=16,
)


def make_tensors(towers: TwoTowers, seed: int = 0) -> dict[str, np.ndarray]:
    """Draw parameters; the temperature is 100, and the bias -12.5."""
    rng = np.random.default_rng(seed)
    tensors = {name: rng.normal(size=s).astype(np.float32) for name, s in parameter_shapes(towers).items()}
    return tensors | {"t": np.log(np.array([100.0], np.float32)), "b": np.array([-12.5], np.float32)}


def save(folder: Path, towers: TwoTowers = TOWERS, seed: int = 0, **changes: np.ndarray) -> None:
    """Write `siglip.npz`, with these tensors changed, and its tokenizer, `spiece.model`."""
    tensors = make_tensors(towers, seed) | changes
    parameters = {f"params/{name}": tensor for name, tensor in tensors.items()}
    np.savez(folder / "siglip.npz", allow_pickle=False, **parameters)
    (folder / "spiece.model").write_bytes(tokenizer())


@functools.cache
def tokenizer() -> bytes:
    return train_tokenizer(["a red circle", "a blue square"], 64).model
