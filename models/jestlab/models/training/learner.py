"""The learner's part of a step: embed the super-batch for scoring; loss and gradient of the sub-batch.

Letters: B super-batch, b sub-batch, P devices, λ share trained on approximately, F FLOPs of one example's
forward pass.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.config import TrainConfig
from jestlab.models.devices import AXIS, parts_of
from jestlab.models.selection import Embeddings
from jestlab.models.transformer import Execution
from jestlab.models.two_towers import (
    FULL,
    Parameters,
    TwoTowerModel,
    View,
    embed,
    example_keys,
    temperature_and_bias,
)

Rows = tuple[jax.Array, jax.Array, jax.Array | None]
"""Images, tokens, and with PatchDrop a key for each row."""

Forward = Callable[[Any, Any], Any]
"""`forward(parameters, rows) → outputs`; a row of the outputs depends only on the same row of the input."""

Pass = tuple[Any, Callable[[Any], tuple[Any]]]
"""The outputs of a forward pass, and `backward(cotangents) → (gradient of the parameters,)`."""


class Learner:
    """The learner's towers as one device trains them.

    Attributes:
        model: The towers.
        view: The approximation's view of an image: larger patches, or some of the patches.
        scoring_view: The view in which images are scored.
        largest_part: Number of rows to embed at a time without a gradient: those of a microbatch, if any.
    """

    def __init__(self, config: TrainConfig, devices: int) -> None:
        """Arrange the rows of the sub-batch on each of P devices.

        Raises:
            ValueError: `runtime.microbatches` does not divide the rows of a device.
        """
        runtime, parts = config.runtime, config.runtime.microbatches
        self.model = TwoTowerModel(config.model, Execution(remat=runtime.remat, scan=runtime.scan_layers))
        if config.approximation.method == "flexi":
            self.view = View(patch_size=config.approximate_patch_size)
        else:
            self.view = View(keep=config.approximation.keep)
        self.scoring_view = self.view if config.approximation.score else FULL
        rows, approximate = config.batch_size // devices, config.approximate_size // devices
        if rows % parts or approximate % parts:
            raise ValueError(
                f"runtime.microbatches {parts} does not divide the {rows} examples that a device "
                f"trains on, {approximate} of them approximately"
            )
        self._microbatches, self._part_size = parts, rows // parts
        self.largest_part = self._part_size if parts > 1 else config.super_batch_size
        self._approximate = approximate // parts

    def rows(self, batch: Mapping[str, jax.Array], key: jax.Array) -> Rows:
        """Return this device's rows; keys depend on a row's position in the whole batch."""
        keys, count = None, len(batch["image"])
        if self.view.keep < 1.0:
            keys = example_keys(key, jax.lax.axis_index(AXIS) * count + jnp.arange(count))
        return batch["image"], batch["text"], keys

    def arrange(self, rows: Any) -> Any:
        """Order the rows [b / P, …] of each microbatch: first those in full view, then the others."""
        if not self._approximate:
            return rows
        starts = np.arange(self._microbatches)[:, None] * self._part_size
        order = starts + spread(self._part_size, self._approximate)
        return jax.tree.map(lambda x: x[order.reshape(-1)], rows)

    def train_pass(self, parameters: Parameters, rows: Rows) -> Pass:
        """Embed the arranged rows of the sub-batch."""
        if self._microbatches > 1:
            return in_microbatches(self.forward, parameters, rows, self._microbatches)
        return jax.vjp(lambda p: self.forward(p, rows), parameters)

    def forward(self, parameters: Parameters, rows: Rows) -> tuple[jax.Array, jax.Array]:
        """Embed arranged rows of one microbatch, some of the images approximately; two float32 [n, E]."""
        images, tokens, keys = rows
        full = len(images) - self._approximate

        def embed_images(part: slice, view: View) -> Any:
            seen = (images[part], view, None if keys is None else keys[part])
            return self.model.apply({"params": parameters}, *seen, method=TwoTowerModel.embed_images)

        parts = ((slice(full), FULL), (slice(full, None), self.view))
        image = [embed_images(part, view) for part, view in parts if len(images[part])]
        text: Any = self.model.apply({"params": parameters}, tokens, method=TwoTowerModel.embed_texts)
        return jnp.concatenate(image), text


def embed_in_parts(
    model: TwoTowerModel, parameters: Parameters, rows: Rows, size: int, view: View = FULL
) -> Embeddings:
    """Embed rows without a gradient, at most `size` at a time."""

    def embed_part(rows: Rows) -> tuple[jax.Array, jax.Array]:
        z = embed(model, parameters, rows[0], rows[1], view, rows[2])
        return z.image, z.text

    parts = parts_of(len(rows[0]), size)
    if parts == 1:
        image, text = embed_part(rows)
    else:
        image, text = jax.tree.map(_joined, jax.lax.map(embed_part, _split(rows, parts)))
    return Embeddings(image, text, *temperature_and_bias(parameters))


def in_microbatches(forward: Forward, parameters: Parameters, rows: Any, count: int) -> Pass:
    """Compute a forward pass in parts whose activations are not kept (GradCache, Gao et al., 2021).

    The backward pass computes the activations of each part again. The loss is that of all outputs, so
    negatives come from all parts. `rows` are arrays [b, …], and the number of parts divides b.
    """
    parts = _split(rows, count)
    outputs = jax.lax.map(lambda part: forward(parameters, part), parts)

    def backward(cotangents: Any) -> tuple[Any]:
        def accumulate(total: Parameters, part: Any) -> tuple[Parameters, None]:
            rows, cotangents = part
            _, of_part = jax.vjp(lambda p: forward(p, rows), parameters)
            return jax.tree.map(jnp.add, total, of_part(cotangents)[0]), None

        zeros = jax.tree.map(jnp.zeros_like, parameters)
        return (jax.lax.scan(accumulate, zeros, (parts, _split(cotangents, count)))[0],)

    return jax.tree.map(_joined, outputs), backward


def reusable_pass(forward: Forward, parameters: Any, rows: Any) -> tuple[Any, Callable[[jax.Array], Pass]]:
    """Compute a forward pass over the super-batch whose backward pass can be that of chosen rows alone.

    `jax.vjp` returns the backward pass as a pytree: its leaves are the stored activations, its structure is
    the program that reads them. Traced for b rows instead of B, the program differs only in shapes. So the
    activations of all B rows, reduced to the chosen rows, are those of a pass over the chosen rows. An
    example costs F(B/b) + 2F = F(2 + B/b) instead of F(3 + B/b).

    Args:
        forward: The function to differentiate. If it joins the axis of rows with others, rows come first:
            [B, L, D] → [B · L, D].
        parameters: Its first argument.
        rows: Arrays [B, …].

    Returns:
        The outputs of all B rows, and a function from int32 [b], chosen rows, to their outputs and backward
        pass. It raises ValueError if activations don't have the rows on one axis.
    """
    outputs, backward = jax.vjp(lambda p: forward(p, rows), parameters)
    count = jax.tree.leaves(rows)[0].shape[0]

    def of_rows(chosen: jax.Array) -> Pass:
        def take(tree: Any) -> Any:
            return jax.tree.map(lambda x: x[chosen], tree)

        shapes, program = jax.tree.flatten(
            jax.eval_shape(lambda p, some: jax.vjp(lambda q: forward(q, some), p)[1], parameters, take(rows))
        )
        activations = [
            _chosen_rows(x, like.shape, count, chosen)
            for x, like in zip(jax.tree.leaves(backward), shapes, strict=True)
        ]
        return take(outputs), jax.tree.unflatten(program, activations)

    return outputs, of_rows


def _chosen_rows(x: jax.Array, shape: tuple[int, ...], count: int, chosen: jax.Array) -> jax.Array:
    """Reduce activations [B · k, …], on any one axis, to `shape`, [b · k, …]; return others as given."""
    axes = [axis for axis, (ours, theirs) in enumerate(zip(x.shape, shape, strict=True)) if ours != theirs]
    if not axes:
        return x
    axis, each = axes[0], x.shape[axes[0]] // count
    if len(axes) > 1 or (count * each, len(chosen) * each) != (x.shape[axis], shape[axis]):
        raise ValueError(f"an array {x.shape} of activations does not have {count} rows on one axis")
    rows = x.reshape(*x.shape[:axis], count, each, *x.shape[axis + 1 :])
    return jnp.take(rows, chosen, axis=axis).reshape(shape)


def loss_and_gradients(
    loss: Callable[[Embeddings], jax.Array], parameters: Parameters, forward_pass: Pass
) -> tuple[jax.Array, Parameters]:
    """Compute the loss, float32 [], of the outputs of a forward pass, and its gradient."""
    outputs, backward = forward_pass
    value, (*cotangents, scalar_gradients) = jax.value_and_grad(
        lambda image, text, scalars: loss(Embeddings(image, text, *temperature_and_bias(scalars))),
        argnums=(0, 1, 2),
    )(*outputs, {name: parameters[name] for name in ("t", "b")})
    # The towers depend on neither t nor b.
    return value, backward(tuple(cotangents))[0] | scalar_gradients


def spread(size: int, marked: int) -> np.ndarray:
    """Return positions 0 … size − 1, int [size], with an evenly spread part of them last.

    `marked` is the size of that part: for 4 and 2, the result is [0, 2, 1, 3].
    """
    is_marked = np.diff(np.arange(size + 1) * marked // size)
    return np.argsort(is_marked, kind="stable")


def _split(tree: Any, parts: int) -> Any:
    """Split the rows of arrays: [n, …] → [parts, n / parts, …]."""
    return jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), tree)


def _joined(x: jax.Array) -> jax.Array:
    """Join the rows of parts: [parts, n / parts, …] → [n, …]."""
    return x.reshape(-1, *x.shape[2:])
