"""How many different examples a run has trained on, in 16 KiB however many there are.

HyperLogLog (Flajolet et al., 2007): numbers are hashed, and each of m registers keeps the longest run of
zeros at the beginning of a hash that belongs to it. The standard error of the estimate is 1.04/√m, 0.8%.
The registers of several processes, or of parts of a run, make those of the whole by their maximum.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

_BITS = 14
REGISTERS = 1 << _BITS
_REST = 64 - _BITS - 1  # bits of a hash beyond its register; fewer than a float64 holds exactly

Registers = npt.NDArray[np.uint8]


class Distinct:
    """Counts different numbers approximately.

    Attributes:
        registers: uint8 [`REGISTERS`], all that is remembered.
    """

    def __init__(self, registers: Registers | None = None) -> None:
        """Go on from registers; None: nothing has been counted yet."""
        self.registers = np.zeros(REGISTERS, np.uint8) if registers is None else registers.copy()

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        """Count numbers, int64 [k], from 0 on; what was counted before changes nothing."""
        hashed = _hashed(numbers.astype(np.uint64))
        places = (hashed >> np.uint64(64 - _BITS)).astype(np.int64)
        rest = hashed & np.uint64((1 << _REST) - 1)
        zeros = _REST - np.frexp(rest.astype(np.float64))[1]  # the exponent is the number of bits
        np.maximum.at(self.registers, places, (zeros + 1).astype(np.uint8))

    @property
    def count(self) -> float:
        """About how many different numbers were counted (Ertl 2017, arXiv:1702.01284, algorithm 6).

        Its term for registers at their maximum is left out: they stay below it up to about 2⁶⁰ numbers.
        """
        filled = self.registers[self.registers > 0].astype(float)
        empty = 1 - len(filled) / REGISTERS
        # Empty registers add m σ(x) to the sum: σ(x) = x + Σ 2^(k−1) x^(2^k) over k > 0, and σ(1) = ∞.
        # Exact sums: those of a resumed run and of an undisturbed one must agree to the last bit.
        terms = (2.0**k * empty ** (2.0 ** (k + 1)) for k in range(63))
        sigma = empty + math.fsum(terms) if empty < 1 else math.inf
        return REGISTERS**2 / (2 * math.log(2) * (REGISTERS * sigma + math.fsum(np.exp2(-filled))))


def _hashed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix 64 bits (SplitMix64, Steele et al., 2014): each bit of the result depends on all."""
    with np.errstate(over="ignore"):
        mixed = words + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
