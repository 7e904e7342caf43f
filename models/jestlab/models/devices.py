"""The devices that a run computes on: a one-dimensional mesh over all processes, data parallel.

Parameters are replicated, batches are split by rows. A step runs under `jax.shard_map`, so that what each
device does, and what they exchange, stands in the code.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

_LOG = logging.getLogger(__name__)

AXIS = "data"
"""The mesh's one axis."""

Tree = TypeVar("Tree")


class Devices:
    """A mesh, and how arrays get onto it and back.

    Attributes:
        mesh: P devices along `AXIS`.
    """

    def __init__(self, devices: Sequence[jax.Device]) -> None:
        self.mesh = Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))

    @classmethod
    def for_sizes(cls, *sizes: int) -> Devices:
        """All devices, or, in one process, as many as divide every given size.

        Args:
            sizes: Numbers of rows that will be split over the devices.

        Raises:
            ValueError: There are several processes, and their devices do not divide the sizes.
        """
        devices = jax.devices()
        count = len(devices)
        if jax.process_count() > 1:
            if any(size % count for size in sizes):
                raise ValueError(
                    f"{count} devices of {jax.process_count()} processes do not divide the batches of "
                    f"{', '.join(map(str, sizes))} examples: choose sizes that are multiples of {count}"
                )
            return cls(devices)
        used = next(n for n in range(count, 0, -1) if not any(size % n for size in sizes))
        if used < count:
            _LOG.warning(
                "using %d of %d devices: batches of %s examples do not split over more",
                used,
                count,
                ", ".join(map(str, sizes)),
            )
        return cls(devices[:used])

    @property
    def count(self) -> int:
        """P."""
        return int(self.mesh.size)

    @functools.cached_property
    def replicated(self) -> NamedSharding:
        """Every device holds the whole array."""
        return NamedSharding(self.mesh, PartitionSpec())

    def rows(self, batch_size: int) -> slice:
        """The rows of each global batch that this process loads.

        Args:
            batch_size: Rows of the global batch.
        """
        mine = [i for i, d in enumerate(self.mesh.devices.flat) if d.process_index == jax.process_index()]
        each = batch_size // self.count
        return slice(mine[0] * each, (mine[-1] + 1) * each)

    def split(self, batch: Mapping[str, np.ndarray], axis: int = 0) -> dict[str, jax.Array]:
        """Put this process's rows of a batch on its devices.

        Args:
            batch: Arrays whose rows are those of `rows`.
            axis: The axis of the rows.

        Returns:
            Global arrays, split by rows over all devices.
        """
        sharding = NamedSharding(self.mesh, PartitionSpec(*[None] * axis, AXIS))
        return {
            name: jax.make_array_from_process_local_data(sharding, np.asarray(value))
            for name, value in batch.items()
        }

    def split_whole(self, array: np.ndarray) -> jax.Array:
        """Split an array that every process holds whole by rows over all devices."""
        return self.split({"": array[self.rows(len(array))]})[""]

    def replicate(self, tree: Tree) -> Tree:
        """Copy host values, the same in every process, to every device."""

        def put(leaf: Any) -> jax.Array:
            value = np.asarray(leaf)
            return jax.make_array_from_callback(value.shape, self.replicated, lambda index: value[index])

        replicated: Tree = jax.tree.map(put, tree)
        return replicated
