"""Tokens: SigLIP's form, whole words, the same model for the same captions."""

import numpy as np
import pytest

from jestlab.models.config import ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.files import DERIVED
from jestlab.models.data.tokenizer import EOS, UNKNOWN, ensure_tokenizer


@pytest.fixture(scope="module")
def tokenizer(web):
    return ensure_tokenizer(web, 256)


def test_captions_are_cut_ended_and_padded(tokenizer):
    tokens = tokenizer(["Large RED circle", "large red circle", "", "a " * 50], 12)
    assert tokens.shape == (4, 12) and tokens.dtype == np.int32
    assert np.array_equal(tokens[0], tokens[1])  # lower case
    assert (tokens[0, 3:] == EOS).all() and (tokens[0, :3] > UNKNOWN).all()  # end token, then padding by it
    assert (tokens[2] == EOS).all()
    assert (tokens[3, :11] > UNKNOWN).all() and tokens[3, 11] == EOS  # cut, and still ended
    assert tokens.max() < tokenizer.pieces.size <= 256


def test_each_word_of_a_caption_is_one_token(tokenizer, benchmark_folder):
    captions = load_benchmark(benchmark_folder, 16).retrieval["shapes_retrieval"].captions
    tokens = tokenizer(captions, 24)
    assert (tokens != EOS).sum(axis=1).tolist() == [len(caption.split()) for caption in captions]
    assert len({row.tobytes() for row in tokens}) == len(captions)


def test_training_is_deterministic_and_repeated_for_other_shards(own_web):
    first = ensure_tokenizer(own_web, 64)
    (stored,) = (own_web / DERIVED).glob("tokenizer-64-*.model")
    assert stored.read_bytes() == first.model
    stored.unlink()
    assert ensure_tokenizer(own_web, 64).digest == first.digest
    shapes.make_web(own_web, ShapesWeb(examples=700, shard_size=300), seed=99)
    assert ensure_tokenizer(own_web, 64).digest != first.digest
    with pytest.raises(ValueError, match=r"vocabulary_size: no tokenizer of 8 pieces .*captions of "):
        ensure_tokenizer(own_web, 8)
