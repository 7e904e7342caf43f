"""Handing the chosen examples of a super-batch, which lie anywhere, to the devices that train on them."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
import jax.numpy as jnp

LARGEST_BYTES = 1 << 28
"""Of what a device holds at a time for the exchange."""


def take_rows(rows: Mapping[str, jax.Array], chosen: jax.Array, axis: str) -> dict[str, jax.Array]:
    """Rows of arrays that are split over devices; to be called under `jax.shard_map`.

    Every device offers those that it has, zeros for the others, and the sum is scattered, in parts that stay
    small: at the paper's batch of 32,768 images of 256 px the whole would be 6 GB on each device.

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
    each = chosen.shape[0] // devices
    first = jax.lax.axis_index(axis) * next(iter(rows.values())).shape[0]

    def scattered(x: jax.Array, wanted: jax.Array) -> jax.Array:
        local = wanted - first
        here = (local >= 0) & (local < x.shape[0])
        found = x[jnp.clip(local, 0, x.shape[0] - 1)]
        offered = jnp.where(here.reshape(-1, *[1] * (x.ndim - 1)), found, jnp.zeros((), x.dtype))
        given: jax.Array = jax.lax.psum_scatter(offered, axis, scatter_dimension=0, tiled=True)
        return given

    def taken(x: jax.Array) -> jax.Array:
        row_bytes = math.prod(x.shape[1:]) * x.dtype.itemsize
        parts = next(k for k in range(1, each + 1) if each % k == 0 and _fits(each // k, devices * row_bytes))
        wanted = chosen.reshape(devices, parts, each // parts).swapaxes(0, 1).reshape(parts, -1)
        parts_of_x: jax.Array = jax.lax.map(lambda part: scattered(x, part), wanted)
        return parts_of_x.reshape(each, *x.shape[1:])

    return {name: taken(x) for name, x in rows.items()}


def _fits(rows: int, row_bytes: int) -> bool:
    return rows == 1 or rows * row_bytes <= LARGEST_BYTES
