"""The order in which examples are seen: a permutation an epoch, computed where asked for, never kept."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

_ROUNDS = 12

Words = npt.NDArray[np.uint64]


def examples_at(positions: npt.NDArray[np.int64], count: int, seed: int) -> npt.NDArray[np.int64]:
    """The examples at places of an endless order that holds each example once an epoch, shuffled anew.

    Args:
        positions: int64[k], counted from the start of training; epoch e begins at e · `count`.
        count: Number of examples, at least 1.
        seed: Of the order.

    Returns:
        int64[k], each from 0 to `count` − 1.
    """
    epochs, places = np.divmod(positions, count)
    examples = np.empty_like(places)
    for epoch in np.unique(epochs).tolist():
        within = epochs == epoch
        examples[within] = permute(places[within], count, seed, epoch)
    return examples


def permute(places: npt.NDArray[np.int64], count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """Where a permutation of 0 … `count` − 1 takes some of them.

    A Feistel network over pairs (i, j) with i < a, j < b and a · b just above `count`: each round adds a hash
    of one part to the other, which can be undone, so the network permutes all pairs. What it takes beyond
    `count` it takes on until it falls below, which is a permutation of the numbers below.

    Args:
        places: int64[k], each from 0 to `count` − 1.
        count: Size of the permuted set.
        seed: With `epoch`, decides the permutation.
        epoch: Any number.

    Returns:
        int64[k].

    Source:
        Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002: generalised Feistel network
        and cycle walking.
    """
    b = math.isqrt(count - 1) + 1
    a = -(-count // b)
    keys = _keys(seed, epoch)
    found = _network(places.astype(np.uint64), a, b, keys)
    while len(beyond := np.flatnonzero(found >= count)):
        found[beyond] = _network(found[beyond], a, b, keys)
    return found.astype(np.int64)


def _network(numbers: Words, a: int, b: int, keys: Words) -> Words:
    """All rounds of the network over a · b numbers."""
    i, j = np.divmod(numbers, np.uint64(b))
    for key_i, key_j in keys:
        i = (i + _hash(j, key_i)) % np.uint64(a)
        j = (j + _hash(i, key_j)) % np.uint64(b)
    return i * np.uint64(b) + j


def _hash(values: Words, key: np.uint64) -> Words:
    """32 bits that depend on all bits of value and key: the finaliser of splitmix64, cut short."""
    mixed = (values ^ key) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(32)


@functools.lru_cache(maxsize=16)
def _keys(seed: int, epoch: int) -> Words:
    """The keys of an epoch's rounds."""
    words = np.random.SeedSequence([seed, epoch]).generate_state(_ROUNDS, np.uint64)
    return words.astype(np.uint64).reshape(-1, 2)
