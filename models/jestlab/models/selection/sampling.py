"""Draw candidates without replacement in proportion to exp(gain × score), on one device or several.

Under `jax.shard_map`, every device runs this program on a part of the rows. Devices exchange one message at a
time (see `training.step`). The results don't depend on the number of devices: a maximum is exact in any
order, ties go to the smaller global index, and fetched rows are copies.

Letters: B super-batch, P devices, R = B / P rows on this device.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Tree = TypeVar("Tree")

MAX_CANDIDATES = 1 << 24
"""Size of a super-batch whose indices float32 can represent exactly."""

MIN_LOGIT = float(np.finfo(np.float32).min) / 2
"""Smallest perturbed score of a candidate that can be drawn; excluded candidates have −inf."""


@dataclass(frozen=True)
class Candidates:
    """The rows of a super-batch on one device or several.

    Attributes:
        rows: R.
        axis: Name of the mesh axis under `jax.shard_map`; None if all rows are on this device.
    """

    rows: int
    axis: str | None = None

    def __post_init__(self) -> None:
        """Raise ValueError if B exceeds `MAX_CANDIDATES`."""
        if self.count > MAX_CANDIDATES:
            raise ValueError(f"super-batch of {self.count:,} examples: must be at most {MAX_CANDIDATES:,}")

    @property
    def devices(self) -> int:
        """P."""
        return 1 if self.axis is None else jax.lax.axis_size(self.axis)

    @property
    def count(self) -> int:
        """B."""
        return self.rows * self.devices

    @property
    def first(self) -> jax.Array | int:
        """The global index of this device's first row."""
        return 0 if self.axis is None else jax.lax.axis_index(self.axis) * self.rows

    def local(self, array: jax.Array) -> jax.Array:
        """Return this device's rows [R, …] of an array [B, …]."""
        return jax.lax.dynamic_slice_in_dim(array, self.first, self.rows)

    def mask(self, indices: jax.Array) -> jax.Array:
        """Return bool [R]: which of this device's rows are among the global indices int32 [k]."""
        local = indices - self.first
        # Rows of other devices are out of range and dropped. Negative ones would count from the end.
        local = jnp.where(local < 0, self.rows, local)
        return jnp.zeros(self.rows, bool).at[local].set(True, mode="drop")

    def maximum(self, values: jax.Array) -> jax.Array:
        """Return float32 []: the maximum over all devices' values float32 [R]."""
        top = jnp.max(values)
        return top if self.axis is None else jax.lax.pmax(top, self.axis)

    def top(self, values: jax.Array, k: int, sums: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Find the k largest of all values, and sum further numbers over devices, in one message.

        Args:
            values: float32 [R].
            k: At most B.
            sums: float32 [2], this device's share.

        Returns:
            int32 [k], global indices in descending order of value, ties by ascending index; float32 [2].
        """
        values, indices = jax.lax.top_k(values, min(k, self.rows))
        indices = indices.astype(jnp.int32) + self.first
        if self.devices == 1:
            return indices, sums
        # One message of integers: floats are sent as their bits, so that none is rounded on the way.
        bits = [jax.lax.bitcast_convert_type(x, jnp.int32) for x in (values, sums)]
        gathered = jax.lax.all_gather(jnp.concatenate([indices, *bits]), self.axis)
        indices, *bits = jnp.split(gathered, [len(values), 2 * len(values)], axis=1)
        values, sums = (jax.lax.bitcast_convert_type(x, jnp.float32) for x in bits)
        _, places = jax.lax.top_k(values.reshape(-1), k)
        return indices.reshape(-1)[places], sums.sum(axis=0)

    def fetch(self, tree: Tree, indices: jax.Array) -> tuple[Tree, jax.Array]:
        """Fetch the rows at global indices from all devices, in one message.

        Args:
            tree: float32 arrays [R, E].
            indices: int32 [k].

        Returns:
            Arrays [k, E]; and the indices as received in the same message, so that a computation from them
            waits for the message even if it doesn't need the rows.
        """
        if self.devices == 1:
            here: Tree = jax.tree.map(lambda x: x[indices], tree)
            return here, indices
        leaves, structure = jax.tree.flatten(tree)
        local = indices - self.first
        is_here = ((local >= 0) & (local < self.rows))[:, None]
        local = jnp.clip(local, 0, self.rows - 1)
        columns = [*(x[local] for x in leaves), indices[:, None].astype(jnp.float32)]
        received = jax.lax.psum(jnp.where(is_here, jnp.concatenate(columns, axis=1), 0.0), self.axis)
        *rows, again = jnp.split(received, np.cumsum([x.shape[1] for x in leaves]), axis=1)
        everywhere: Tree = jax.tree.unflatten(structure, rows)
        return everywhere, again[:, 0].astype(jnp.int32)


class Draw(NamedTuple):
    """The result of drawing k candidates."""

    indices: jax.Array  # int32 [k], global, in the order of the draws
    effective: jax.Array  # float32 [], effective number of candidates for the first draw, 1 / Σ p_i²


def gumbel(key: jax.Array, count: int) -> jax.Array:
    """Return float32 [count]: Gumbel noise for all candidates, the same on every device."""
    return jax.random.gumbel(key, (count,), jnp.float32, mode="high")


def draw(
    key: jax.Array | None,
    candidates: Candidates,
    scores: jax.Array,
    excluded: jax.Array,
    gain: float | jax.Array,
    k: int,
) -> Draw:
    """Draw k different candidates: k successive draws in proportion to exp(gain × score), by Gumbel top-k.

    The maximum is subtracted before the multiplication by the gain, so that a common offset costs no digits.
    (`jax.random.choice(replace=False)` would mostly return items of probability 0 if scores are far apart.)

    An excluded candidate is never drawn, and none is drawn twice, even if scores are not finite. In that case
    the choice is arbitrary, and the training loop stops because of the recorded score.

    Args:
        key: PRNG key of the Gumbel noise; None to take the k highest scores.
        candidates: The super-batch.
        scores: float32 [R], of this device's rows.
        excluded: bool [R], the rows that can't be drawn.
        gain: Factor on the scores, the inverse of a sampling temperature. With 0, all are equally likely.
        k: At most the number of candidates that are not excluded.
    """
    relative = gain * (scores - candidates.maximum(jnp.where(excluded, -jnp.inf, scores)))
    relative = jnp.maximum(relative, MIN_LOGIT)
    weights = jnp.where(excluded, 0.0, jnp.exp(relative))
    noise = 0.0 if key is None else candidates.local(gumbel(key, candidates.count))
    perturbed = jnp.where(excluded, -jnp.inf, relative + noise)
    # NOTE: do not omit: top_k ranks a NaN with a sign bit below −inf, that is, below the excluded ones.
    perturbed = jnp.where(jnp.isnan(perturbed), MIN_LOGIT, perturbed)
    sums = jnp.stack([weights.sum(), jnp.square(weights).sum()])
    indices, (total, of_squares) = candidates.top(perturbed, k, sums)
    return Draw(indices, jnp.ones_like(total) if key is None else total**2 / of_squares)
