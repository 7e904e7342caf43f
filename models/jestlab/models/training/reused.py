"""Keep what a forward pass over a super-batch computed, and differentiate the rows of it that were chosen.

`jax.vjp` returns the backward pass as a pytree: its leaves are what the forward pass keeps for it, and its
structure is the program that reads them. Traced for b rows instead of B, the program is the same but for the
shapes. So the leaves of the pass over B rows, cut down to the rows that were chosen, are the leaves of a pass
over these alone, which then need not be computed. An example costs F(B/b) + 2F = F(2 + B/b), as the paper
counts, in place of F(3 + B/b).

Letters: B rows of the super-batch, b chosen rows, F FLOPs of an example's forward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Function = Callable[[Any, Any], Any]
"""`function(parameters, rows) → outputs`: a row of outputs depends on the same row of the input alone."""


class KeptPass:
    """A forward pass over B rows, and what it keeps for the backward pass.

    Attributes:
        outputs: Of all B rows.
    """

    def __init__(self, function: Function, parameters: Any, rows: Any) -> None:
        """Compute the forward pass.

        Args:
            function: What to compute. It must join rows with further axes, if at all, rows first:
                [B, L, D] → [B · L, D].
            parameters: What is differentiated.
            rows: Arrays [B, …].
        """
        self._function, self._parameters, self._rows = function, parameters, rows
        self.outputs, self._backward = jax.vjp(lambda p: function(p, rows), parameters)

    def gradient(self, chosen: jax.Array, cotangents: Any) -> Any:
        """Differentiate the chosen rows.

        Args:
            chosen: int32 [b], which rows.
            cotangents: Of the outputs, [b, …].

        Returns:
            The gradient with respect to the parameters, summed over the chosen rows.

        Raises:
            ValueError: The function joins rows with other axes in another way than it must.
        """
        few = jax.tree.map(lambda x: x[chosen], self._rows)
        shapes = jax.eval_shape(
            lambda p, some: jax.vjp(lambda q: self._function(q, some), p)[1], self._parameters, few
        )
        wanted, program = jax.tree.flatten(shapes)
        count = jax.tree.leaves(self._rows)[0].shape[0]
        kept = [
            _chosen(leaf, like.shape, count, chosen)
            for leaf, like in zip(jax.tree.leaves(self._backward), wanted, strict=True)
        ]
        return jax.tree.unflatten(program, kept)(cotangents)[0]


def _chosen(leaf: jax.Array, shape: tuple[int, ...], count: int, chosen: jax.Array) -> jax.Array:
    """Take the chosen rows of what was kept; what does not depend on rows stays as it is.

    Args:
        leaf: [B · k, …], or with other axes before that one.
        shape: What is wanted: b · k in its place.
        count: B.
        chosen: int32 [b].
    """
    axes = [axis for axis, (ours, theirs) in enumerate(zip(leaf.shape, shape, strict=True)) if ours != theirs]
    if not axes:
        return leaf
    axis, each = axes[0], leaf.shape[axes[0]] // count
    if len(axes) > 1 or (count * each, len(chosen) * each) != (leaf.shape[axis], shape[axis]):
        raise ValueError(f"an array {leaf.shape} that is kept does not have {count} rows on one axis")
    rows = leaf.reshape(*leaf.shape[:axis], count, each, *leaf.shape[axis + 1 :])
    return jnp.take(rows, chosen, axis=axis).reshape(shape)
