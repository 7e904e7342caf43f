"""Recall at k against sorting, as big_vision does it, where nothing ties; pessimism where something does."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jestlab.models import evaluation
from jestlab.models.evaluation import recalls


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def published(images, captions, image_of_caption):
    """`image_text_retrieval.py` on the whole distance matrix, in float64."""
    distance = -(images.astype(float) @ captions.astype(float).T)
    by_image, by_text = distance.argsort(axis=1), distance.argsort(axis=0)
    result = {}
    for k in (1, 5, 10):
        found = image_of_caption[by_image[:, :k]] == np.arange(len(images))[:, None]
        result[f"i2t_r{k}"] = found.any(axis=1).mean()
        result[f"t2i_r{k}"] = (by_text[:k] == image_of_caption[None]).any(axis=0).mean()
    return result


def dataset(rng, n, most, noise):
    """n images with 1 to `most` captions each, in any order."""
    image_of_caption = rng.permutation(np.repeat(np.arange(n), rng.integers(1, most + 1, n)))
    images = unit(rng.normal(size=(n, 8)))
    captions = unit(images[image_of_caption] + noise * rng.normal(size=(len(image_of_caption), 8)))
    return images, captions, image_of_caption


def decides_rounding(images, captions, image_of_caption):
    """Whether a wrong target is as near as the right one, but for rounding in float32."""
    similarity = images.astype(float) @ captions.astype(float).T
    belongs = image_of_caption == np.arange(len(images))[:, None]
    for s, is_own in ((similarity, belongs), (similarity.T, belongs.T)):
        best = np.where(is_own, s, -np.inf).max(axis=1, keepdims=True)
        if (np.abs(np.where(is_own, np.inf, s) - best) < 1e-6).any():
            return True
    return False


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 6), st.sampled_from([1, 50, 2**23]))
def test_recalls_are_the_published_ones_whatever_the_blocks(seed, n, most, block):
    data = dataset(np.random.default_rng(seed), n, most, 0.6)
    assume(not decides_rounding(*data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "PRODUCTS_AT_ONCE", block)
        assert recalls(*data) == published(*data)


def test_recalls_grow_with_k_up_to_one():
    found = recalls(*dataset(np.random.default_rng(0), 200, 5, 0.6))
    for way in ("i2t", "t2i"):
        assert 0.05 < found[f"{way}_r1"] < found[f"{way}_r5"] < found[f"{way}_r10"] < 1


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_collapsed_or_diverged_model_retrieves_nothing(value):
    same = np.full((40, 4), value / 2, np.float32)
    assert set(recalls(same, same, np.arange(40)).values()) == {0.0}
    assert set(recalls(same[:20], same, np.repeat(np.arange(20), 2)).values()) == {0.0}


def test_captions_of_one_image_do_not_count_against_each_other_and_ties_do():
    images = np.eye(3, dtype=np.float32)
    image_of_caption = np.array([0, 0, 0, 1, 2])
    captions = images[[0, 0, 0, 1, 1]]  # the last is wrong, and ties with the right one of image 1
    found = recalls(images, captions, image_of_caption)
    assert found == pytest.approx(
        {"i2t_r1": 1 / 3, "i2t_r5": 1.0, "i2t_r10": 1.0, "t2i_r1": 4 / 5, "t2i_r5": 1.0, "t2i_r10": 1.0}
    )
    # A tie counts against, too.
    images = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    found = recalls(images, images, np.arange(3))
    assert found["i2t_r1"] == found["t2i_r1"] == 1 / 3  # images 0 and 1 share a point
    assert found["i2t_r5"] == found["t2i_r5"] == 1.0
