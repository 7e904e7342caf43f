"""Tokens: SigLIP's form, whole words, the same model each time."""

import numpy as np
import pytest

from jestlab.models.config import ShapesWeb
from jestlab.models.data import shapes
from jestlab.models.data.benchmarks import load_benchmark
from jestlab.models.data.files import DERIVED
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tokenizer import EOS, UNKNOWN, ensure_tokenizer, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(web):
    return ensure_tokenizer(web, 256)


def test_form(tokenizer):
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
    lengths = (tokens != EOS).sum(axis=1)
    assert lengths.tolist() == [len(caption.split()) for caption in captions]
    assert lengths.max() <= 11
    assert len({row.tobytes() for row in tokens}) == len(captions)


def test_same_captions_give_the_same_model(web, tokenizer):
    source = ShardIndex.load(web)
    again = train_tokenizer(source.captions(np.arange(len(source))), 256)
    assert again.digest == tokenizer.digest
    assert train_tokenizer(["other words altogether"] * 3, 256).digest != tokenizer.digest


def test_kept_with_the_shards_and_trained_again_for_other_shards(own_web):
    first = ensure_tokenizer(own_web, 64)
    (kept,) = (own_web / DERIVED).glob("tokenizer-64-*.model")
    assert kept.read_bytes() == first.model
    shapes.make_web(own_web, ShapesWeb(examples=700, shard_size=300), seed=99)
    assert ensure_tokenizer(own_web, 64).digest != first.digest


def test_too_small_a_vocabulary_is_a_clear_error(web):
    with pytest.raises(
        ValueError, match=r"model\.text\.vocabulary_size: no tokenizer of 8 pieces .*captions of "
    ):
        ensure_tokenizer(web, 8)
