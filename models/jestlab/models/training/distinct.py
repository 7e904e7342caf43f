"""Estimate how many distinct examples a run has trained on, from 16 KiB of state.

HyperLogLog (Flajolet et al., 2007): examples' numbers are hashed, and each of m registers stores the longest
run of leading zeros among its hashes. The standard error of the estimate is 1.04/√m, 0.8%. The maximum of the
registers of several processes, or of parts of a run, gives the registers of the whole.
"""

import math

import numpy as np
import numpy.typing as npt

_BITS = 14
REGISTERS = 1 << _BITS
_REST = 64 - _BITS - 1  # bits of a hash below those of its register, few enough to be exact in float64

Registers = npt.NDArray[np.uint8]


class Distinct:
    """Counts distinct numbers approximately.

    Attributes:
        registers: uint8 [`REGISTERS`], the whole state.
    """

    def __init__(self, registers: Registers | None = None) -> None:
        """Start from a copy of registers, or from none."""
        self.registers = np.zeros(REGISTERS, np.uint8) if registers is None else registers.copy()

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        """Count nonnegative numbers, int64 [k]; repeated numbers change nothing."""
        # SplitMix64 (Steele et al., 2014): each bit of the hash depends on all bits of the number.
        hashed = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        hashed ^= hashed >> np.uint64(31)
        places = (hashed >> np.uint64(64 - _BITS)).astype(np.int64)
        rest = hashed & np.uint64((1 << _REST) - 1)
        zeros = _REST - np.frexp(rest.astype(np.float64))[1]  # the exponent is the number of bits
        np.maximum.at(self.registers, places, (zeros + 1).astype(np.uint8))

    @property
    def count(self) -> float:
        """The estimate, by algorithm 6 of Ertl (arXiv:1702.01284) without its term for full registers."""
        filled = self.registers[self.registers > 0].astype(float)
        empty = 1 - len(filled) / REGISTERS
        # Empty registers add m σ(x) to the sum: σ(x) = x + Σ 2^(k−1) x^(2^k) over k > 0, and σ(1) = ∞.
        # Sums are exact, so that a resumed run and an uninterrupted one agree to the last bit.
        terms = (2.0**k * empty ** (2.0 ** (k + 1)) for k in range(63))
        sigma = empty + math.fsum(terms) if empty < 1 else math.inf
        return REGISTERS**2 / (2 * math.log(2) * (REGISTERS * sigma + math.fsum(np.exp2(-filled))))
