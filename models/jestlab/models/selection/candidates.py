"""A super-batch whose rows are split over devices, seen as one.

Under `jax.shard_map` every device runs the same program on its own rows, and agrees with the others by
messages, one at a time (see `training.step`). Nothing here depends on the number of devices: a largest value
is exact in any order, ties go to the smaller global index, and fetched rows are copies.

Letters: B super-batch, P devices, R = B / P rows here.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

Tree = TypeVar("Tree")


MOST = 1 << 24
"""Examples of a super-batch: float32 holds their indices exactly."""


class Candidates:
    """Where the rows of a super-batch lie.

    Attributes:
        count: B.
    """

    def __init__(self, rows: int, axis: str | None) -> None:
        """Describe it.

        Args:
            rows: R.
            axis: Name of the mesh's axis under `jax.shard_map`; None: all rows are here.

        Raises:
            ValueError: B is beyond what float32 can count.
        """
        if rows * (1 if axis is None else jax.lax.axis_size(axis)) > MOST:
            raise ValueError(f"a super-batch of more than {MOST:,} examples cannot be selected from")
        self._rows = rows
        self._axis = axis
        self._devices = 1 if axis is None else jax.lax.axis_size(axis)
        self.count = rows * self._devices

    def here(self, array: jax.Array) -> jax.Array:
        """This device's rows [R, …] of an array [B, …] that every device holds."""
        return jax.lax.dynamic_slice_in_dim(array, self._first(), self._rows)

    def marked(self, indices: jax.Array) -> jax.Array:
        """bool [R]: which of this device's rows are among global indices int32 [k]."""
        local = indices - self._first()
        # Rows of others: out of range, and dropped. Negative ones would count from the end.
        local = jnp.where(local < 0, self._rows, local)
        return jnp.zeros(self._rows, bool).at[local].set(True, mode="drop")

    def largest(self, values: jax.Array) -> jax.Array:
        """float32 []: the largest of all devices' values [R]."""
        top = jnp.max(values)
        return top if self._axis is None else jax.lax.pmax(top, self._axis)

    def top(self, values: jax.Array, k: int, sums: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The k largest of all values, and sums over devices, in one message.

        Args:
            values: float32 [R].
            k: How many, at most B.
            sums: float32 [2], this device's shares.

        Returns:
            int32 [k], global indices, the largest value first, of equals the smaller index; float32 [2].
        """
        found, indices = jax.lax.top_k(values, min(k, self._rows))
        indices = indices.astype(jnp.int32) + self._first()
        if self._axis is None or self._devices == 1:
            return indices, sums
        # As the bytes of one array; floats travel as integers, which nothing on the way may round or flush.
        message = jnp.concatenate(
            [indices, *(jax.lax.bitcast_convert_type(x, jnp.int32) for x in (found, sums))]
        )
        everyones = jax.lax.all_gather(message, self._axis)
        indices, values, all_sums = jnp.split(everyones, [len(found), 2 * len(found)], axis=1)
        values, all_sums = (jax.lax.bitcast_convert_type(x, jnp.float32) for x in (values, all_sums))
        _, places = jax.lax.top_k(values.reshape(-1), k)
        return indices.reshape(-1)[places], all_sums.sum(axis=0)

    def rows(self, tree: Tree, indices: jax.Array) -> tuple[Tree, jax.Array]:
        """Rows at global indices, from whichever devices hold them, in one message.

        Args:
            tree: float32 arrays [R, E].
            indices: int32 [k].

        Returns:
            Arrays [k, E]; and the indices again, out of the same message: whoever goes on from them waits
            for it, also where the rows are not needed before.
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
