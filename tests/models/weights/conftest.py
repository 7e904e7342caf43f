"""Small towers with random weights, in several formats."""

import numpy as np
import pytest

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.data.tokenizer import train_tokenizer
from jestlab.models.weights.parameters import parameter_shapes
from jestlab.models.weights.sources import Weights, write

TOWERS = TwoTowers(
    vision=VisionTower(image_size=16, patch_size=8, width=24, depth=2, heads=3, mlp_dim=40),
    text=TextTower(vocabulary_size=64, length=6, width=16, depth=3, heads=2, mlp_dim=64),
    embedding_dim=24,
)


@pytest.fixture(scope="session")
def towers():
    """Towers that all formats can represent."""
    return TOWERS


@pytest.fixture(scope="session")
def make_weights(tmp_path_factory):
    """A maker of random weights in memory."""

    def make(model=TOWERS, seed=0):
        rng = np.random.default_rng(seed)
        shapes = parameter_shapes(model)
        tensors = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
        return Weights(tmp_path_factory.getbasetemp(), "run", model, None, tensors.items)

    return make


@pytest.fixture(scope="session")
def tensors(make_weights):
    """Name → parameter of those towers."""
    return make_weights().tensors()


@pytest.fixture
def npz(tmp_path, tensors):
    """A maker of .npz files: the tensors, changed; a value None leaves one out."""

    def make(changes=None, base=tensors):
        path = tmp_path / "siglip.npz"
        np.savez(path, **{name: x for name, x in {**base, **(changes or {})}.items() if x is not None})
        return path

    return make


@pytest.fixture
def huggingface(tmp_path, make_weights):
    """A folder in Hugging Face's format with the tensors."""
    write(make_weights(), tmp_path / "hf", "huggingface")
    return tmp_path / "hf"


@pytest.fixture(scope="session")
def pieces():
    """A serialized tokenizer of at most 64 pieces."""
    return train_tokenizer(["a red circle", "a blue square", "a photo of a dog"], 64).model
