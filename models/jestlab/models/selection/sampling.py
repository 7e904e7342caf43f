"""Draw without replacement, in proportion to exp(gain × score), from candidates that are split over devices.

Under `jax.shard_map` every device runs the same program on its own rows and exchanges messages with the
others, one at a time (see `training.step`). Nothing here depends on the number of devices: a maximum is exact
in any order, ties go to the smaller global index, and fetched rows are copies.

Letters: B super-batch, P devices, R = B / P rows on this device.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")

MAX_CANDIDATES = 1 << 24
"""Size of a super-batch whose indices float32 can hold exactly."""

MIN_LOGIT = float(np.finfo(np.float32).min) / 2
"""Smallest perturbed score of a candidate that may still be drawn; excluded ones have −inf."""


class Candidates:
    """The rows of a super-batch, wherever they are.

    Attributes:
        count: B.
    """

    def __init__(self, rows: int, axis: str | None) -> None:
        """Describe the super-batch.

        Args:
            rows: R.
            axis: Name of the mesh axis under `jax.shard_map`; None: all rows are on this device.

        Raises:
            ValueError: B is above `MAX_CANDIDATES`.
        """
        self._rows = rows
        self._axis = axis
        self._devices = 1 if axis is None else jax.lax.axis_size(axis)
        self.count = rows * self._devices
        if self.count > MAX_CANDIDATES:
            raise ValueError(f"super-batch of {self.count:,} examples: must be at most {MAX_CANDIDATES:,}")

    def local(self, array: jax.Array) -> jax.Array:
        """Return this device's rows [R, …] of an array [B, …] that every device holds."""
        return jax.lax.dynamic_slice_in_dim(array, self._first(), self._rows)

    def mask(self, indices: jax.Array) -> jax.Array:
        """Return bool [R]: which of this device's rows are among the global indices int32 [k]."""
        local = indices - self._first()
        # Rows of other devices are out of range and dropped. Negative ones would count from the end.
        local = jnp.where(local < 0, self._rows, local)
        return jnp.zeros(self._rows, bool).at[local].set(True, mode="drop")

    def maximum(self, values: jax.Array) -> jax.Array:
        """Return float32 []: the maximum over all devices' values float32 [R]."""
        top = jnp.max(values)
        return top if self._axis is None else jax.lax.pmax(top, self._axis)

    def top(self, values: jax.Array, k: int, sums: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Find the k largest of all values, and sum up numbers over devices, in one message.

        Args:
            values: float32 [R].
            k: How many, at most B.
            sums: float32 [2], this device's share.

        Returns:
            int32 [k], global indices in descending order of value, ties by ascending index; float32 [2].
        """
        found, indices = jax.lax.top_k(values, min(k, self._rows))
        indices = indices.astype(jnp.int32) + self._first()
        if self._axis is None or self._devices == 1:
            return indices, sums
        # One message of bytes. Floats travel as integers, so that nothing on the way can round or flush them.
        message = jnp.concatenate(
            [indices, *(jax.lax.bitcast_convert_type(x, jnp.int32) for x in (found, sums))]
        )
        gathered = jax.lax.all_gather(message, self._axis)
        indices, values, all_sums = jnp.split(gathered, [len(found), 2 * len(found)], axis=1)
        values, all_sums = (jax.lax.bitcast_convert_type(x, jnp.float32) for x in (values, all_sums))
        _, places = jax.lax.top_k(values.reshape(-1), k)
        return indices.reshape(-1)[places], all_sums.sum(axis=0)

    def rows(self, tree: Tree, indices: jax.Array) -> tuple[Tree, jax.Array]:
        """Fetch the rows at global indices from whichever devices hold them, in one message.

        Args:
            tree: float32 arrays [R, E].
            indices: int32 [k].

        Returns:
            Arrays [k, E]; and the indices again, taken from the same message, so that whatever uses them
            waits for it even where the rows are not needed yet.
        """
        if self._axis is None or self._devices == 1:
            here: Tree = jax.tree.map(lambda x: x[indices], tree)
            return here, indices
        leaves, structure = jax.tree.flatten(tree)
        local = indices - self._first()
        is_here = ((local >= 0) & (local < self._rows))[:, None]
        local = jnp.clip(local, 0, self._rows - 1)
        columns = [*(x[local] for x in leaves), indices[:, None].astype(jnp.float32)]
        taken = jax.lax.psum(jnp.where(is_here, jnp.concatenate(columns, axis=1), 0.0), self._axis)
        ends = [sum(x.shape[1] for x in leaves[: i + 1]) for i in range(len(leaves))]
        *rows, again = jnp.split(taken, ends, axis=1)
        everywhere: Tree = jax.tree.unflatten(structure, rows)
        return everywhere, again[:, 0].astype(jnp.int32)

    def _first(self) -> jax.Array | int:
        return 0 if self._axis is None else jax.lax.axis_index(self._axis) * self._rows


class Draw(NamedTuple):
    """The result of drawing k candidates."""

    indices: jax.Array  # int32 [k], global, in the order in which they were drawn
    effective: jax.Array  # float32 [], effective number of candidates for the first of them, 1 / Σ p_i²


def gumbel(key: jax.Array, count: int) -> jax.Array:
    """Return float32 [count]: Gumbel noise for all candidates, the same on every device."""
    return jax.random.gumbel(key, (count,), jnp.float32, mode="high")


def draw(
    candidates: Candidates,
    scores: jax.Array,
    excluded: jax.Array,
    noise: jax.Array | None,
    gain: float | jax.Array,
    k: int,
) -> Draw:
    """Draw k candidates by Gumbel top-k: exactly k successive draws in proportion to exp(gain × score).

    The maximum is subtracted from the scores before they are multiplied by the gain, so that a common offset
    costs no digits. (`jax.random.choice(replace=False)` would mostly give items of probability 0 where
    scores are far apart.)

    An excluded candidate is never drawn, and none is drawn twice, even where scores are not finite: then the
    choice is arbitrary, and the training loop stops at the score that it records.

    Args:
        candidates: The super-batch.
        scores: float32 [R], of this device's rows.
        excluded: bool [R], which of them cannot be drawn.
        noise: float32 [R], Gumbel noise; None: draw the k largest scores.
        gain: Factor on the scores, the inverse of a sampling temperature. 0: all are equally likely.
        k: How many to draw; no more than are not excluded.
    """
    relative = gain * (scores - candidates.maximum(jnp.where(excluded, -jnp.inf, scores)))
    relative = jnp.maximum(relative, MIN_LOGIT)
    weights = jnp.where(excluded, 0.0, jnp.exp(relative))
    perturbed = jnp.where(excluded, -jnp.inf, relative if noise is None else relative + noise)
    # NOTE: do not omit: top_k ranks a NaN whose sign bit is set below −inf, that is, below the excluded ones.
    perturbed = jnp.where(jnp.isnan(perturbed), MIN_LOGIT, perturbed)
    indices, (total, of_squares) = candidates.top(
        perturbed, k, jnp.stack([weights.sum(), jnp.square(weights).sum()])
    )
    return Draw(indices, jnp.ones_like(total) if noise is None else total**2 / of_squares)
