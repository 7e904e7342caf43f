"""Handing the chosen examples of a super-batch, which lie anywhere, to the devices that train on them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np

LARGEST_BYTES = 1 << 28
"""Of what a device holds at a time for the exchange."""


def take_rows(rows: Mapping[str, jax.Array], chosen: jax.Array, axis: str) -> dict[str, jax.Array]:
    """Rows of arrays that are split over devices; to be called under `jax.shard_map`.

    Every device offers those that it has, zeros for the others, and the sum is scattered, in parts that stay
    small: at the paper's batch of 32,768 images of 256 px the whole would be 6 GB on each device. All arrays
    go as the bytes of one, so that nothing else is on its way at the same time (see `step`).

    Letters: P devices, b chosen.

    Args:
        rows: Arrays [B / P, …] of this device.
        chosen: int32 [b], positions in the whole batch, the same on every device; P divides b.
        axis: Name of the mesh's axis.

    Returns:
        Arrays [b / P, …]: device d gets the rows at `chosen[d · b/P : (d + 1) · b/P]`.
    """
    devices = jax.lax.axis_size(axis)
    if devices == 1:
        return {name: x[chosen] for name, x in rows.items()}
    each, local_rows = chosen.shape[0] // devices, next(iter(rows.values())).shape[0]
    first = jax.lax.axis_index(axis) * local_rows
    bytes_of = jnp.concatenate([_as_bytes(x) for x in rows.values()], axis=1)
    parts = next(
        k for k in range(1, each + 1) if each % k == 0 and _fits(each // k, devices * bytes_of.shape[1])
    )

    def given(wanted: jax.Array) -> jax.Array:
        local = wanted - first
        here = (local >= 0) & (local < local_rows)
        offered = jnp.where(here[:, None], bytes_of[jnp.clip(local, 0, local_rows - 1)], jnp.uint8(0))
        scattered: jax.Array = jax.lax.psum_scatter(offered, axis, scatter_dimension=0, tiled=True)
        return scattered

    wanted = chosen.reshape(devices, parts, each // parts).swapaxes(0, 1).reshape(parts, -1)
    taken: jax.Array = jax.lax.map(given, wanted)
    columns = np.cumsum([_as_bytes_width(x) for x in rows.values()])[:-1]
    split = jnp.split(taken.reshape(each, -1), columns, axis=1)
    return {name: _from_bytes(part, x) for part, (name, x) in zip(split, rows.items(), strict=True)}


def _as_bytes(x: jax.Array) -> jax.Array:
    """Rows of an array as uint8 [rows, bytes]."""
    return jax.lax.bitcast_convert_type(x, jnp.uint8).reshape(x.shape[0], -1)


def _as_bytes_width(x: jax.Array) -> int:
    return math.prod(x.shape[1:]) * x.dtype.itemsize


def _from_bytes(rows: jax.Array, like: jax.Array) -> jax.Array:
    """uint8 [rows, bytes] as rows of an array of the same form."""
    shape = (rows.shape[0], *like.shape[1:])
    if like.dtype.itemsize > 1:
        shape = (*shape, like.dtype.itemsize)
    return jax.lax.bitcast_convert_type(rows.reshape(shape), like.dtype)


def _fits(rows: int, row_bytes: int) -> bool:
    return rows == 1 or rows * row_bytes <= LARGEST_BYTES
