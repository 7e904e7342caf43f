"""The contrastive losses: sigmoid (Eq. 2 of the JEST paper) and softmax (CLIP; Eq. 1).

The sigmoid loss is that of SigLIP (Zhai et al., 2023).

Selection scores pairs by the same losses without a matrix of all pairs: see `selection.scores`, and the
kernel in `selection.fused`.

Each is written twice: densely, for one device, and as a ring over devices, in which texts travel from device
to device and no device ever holds more than the logits of its own images with one device's texts. In the ring
each device gets its share of the loss, and the shares sum to the dense loss; so do their gradients.

Letters: n batch, P devices, z^im and z^txt unit embeddings, t temperature (the paper's α), b bias,
s_ij = t z^im_i · z^txt_j.

The paper's equation writes the logit as α z^im·z^txt − β, its pseudo-code as α z^im·z^txt + β. The code's
sign is the one of SigLIP's public code and is used here: b here is −β of the equation, and starts at −10.
The paper's Eq. 1 prints the exponent of its second denominator with the indices of the first's; both
directions are meant, and are here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.two_towers import Embeddings

Loss = Callable[..., jax.Array]
"""Of the embeddings of a batch, and maybe of the reference's of the same pairs, as `reference`; a number."""


def takes_reference(loss: Loss) -> bool:
    """Return whether a loss of one's own looks at the reference's embeddings, too."""
    inner = getattr(loss, "function", loss)  # of an `Own`
    return "reference" in inspect.signature(inner).parameters


def pairwise_sigmoid_loss(z: Embeddings) -> jax.Array:
    """Compute the sigmoid loss of every image with every text of a batch.

    ℓ[i, j] = −log σ(m_ij (s_ij + b)), with m_ij = 1 on the diagonal and −1 off it, as
    softplus(−m_ij (s_ij + b)), which overflows nowhere.

    Returns:
        float32 [n, n]; rows are images, columns are texts.
    """
    logits = _similarity(z, z.text) + z.bias
    n = logits.shape[0]
    m = 2.0 * jnp.eye(n, dtype=logits.dtype) - 1.0
    return jax.nn.softplus(-m * logits)


def sigmoid_loss(z: Embeddings) -> jax.Array:
    """Compute the mean over images of the sum over texts, float32 []: divided by n, not by n²."""
    return pairwise_sigmoid_loss(z).sum(axis=-1).mean()


def softmax_loss(z: Embeddings) -> jax.Array:
    """Compute the mean cross-entropy of both directions: −½ (2 s_ii − log Σ_j e^s_ij − log Σ_j e^s_ji).

    The bias has no part in it.
    """
    s = _similarity(z, z.text)
    own = jnp.diagonal(s)
    return jnp.mean(0.5 * (jax.nn.logsumexp(s, axis=1) + jax.nn.logsumexp(s, axis=0)) - own)


def ring_sigmoid_loss(z: Embeddings, axis: str) -> jax.Array:
    """Compute a device's share of the `sigmoid_loss` of a split batch; called under `jax.shard_map`.

    Args:
        z: Embeddings of this device's n / P pairs; t and b the same everywhere.
        axis: Name of the mesh's axis.

    Returns:
        float32 []: the sum over this device's images, divided by n.
    """
    n = z.image.shape[0]
    eye = jnp.eye(n, dtype=jnp.float32)

    @jax.checkpoint  # the backward pass computes a block's logits again instead of keeping all of them
    def block(total: jax.Array, texts: jax.Array, hop: jax.Array) -> jax.Array:
        m = jnp.where(hop == 0, 2.0 * eye, 0.0) - 1.0  # the pairs themselves meet at home, before any hop
        return total + jax.nn.softplus(-m * (_similarity(z, texts) + z.bias)).sum()

    def hop(carry: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        total, texts = carry
        return (block(total, texts, k), _next_device(texts, axis)), None

    devices = jax.lax.axis_size(axis)
    start = jax.lax.pcast(jnp.float32(0.0), axis, to="varying")
    (total, _), _ = jax.lax.scan(hop, (start, z.text), jnp.arange(devices))
    share: jax.Array = total / (n * devices)
    return share


def ring_softmax_loss(z: Embeddings, axis: str) -> jax.Array:
    """Compute a device's share of the `softmax_loss` of a split batch; called under `jax.shard_map`.

    Texts travel with their own running log Σ_j e^s_ji, which is whole when they have met all images. They are
    counted where they are then, one hop from home: the way back would be a message that nothing waits for,
    backwards one that waits for nothing (see `training.step`).

    Args:
        z: Embeddings of this device's n / P pairs; t the same everywhere.
        axis: Name of the mesh's axis.

    Returns:
        float32 []: the sum over this device's images and the texts that end up here, divided by n.
    """
    n = z.image.shape[0]
    devices = jax.lax.axis_size(axis)

    @jax.checkpoint
    def block(texts: jax.Array) -> tuple[jax.Array, jax.Array]:
        s = _similarity(z, texts)
        return jax.nn.logsumexp(s, axis=1), jax.nn.logsumexp(s, axis=0)

    def hop(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        of_images, travelling = carry  # [n], and texts with their sums, [n, E + 1]
        travelling = _next_device(travelling, axis)
        texts, of_texts = travelling[:, :-1], travelling[:, -1]
        over_texts, over_images = block(texts)
        of_images, of_texts = jnp.logaddexp(of_images, over_texts), jnp.logaddexp(of_texts, over_images)
        return (of_images, jnp.concatenate([texts, of_texts[:, None]], axis=1)), None

    of_images, of_texts = block(z.text)
    carry = (of_images, jnp.concatenate([z.text, of_texts[:, None]], axis=1))
    (of_images, travelling), _ = jax.lax.scan(hop, carry, None, length=devices - 1)
    of_texts = travelling[:, -1]
    own = z.temperature * (z.image * z.text).sum(axis=-1)
    share: jax.Array = (0.5 * (of_images + of_texts) - own).sum() / (n * devices)
    return share


def gathered_loss(z: Embeddings, loss: Loss, axis: str, reference: Embeddings | None = None) -> jax.Array:
    """Compute a device's share of any loss of a split batch; called under `jax.shard_map`.

    Every device gathers the whole batch and computes the whole loss, of which each counts a P-th: the shares
    sum to the loss, and what flows back through the gathering sums to its gradient. So unlike a ring, this
    holds all n² logits on every device, if the loss looks at them.

    Args:
        z: Embeddings of this device's n / P pairs; t and b the same everywhere.
        loss: Of the embeddings of all n pairs, float32 [].
        axis: Name of the mesh's axis.
        reference: The reference's embeddings of this device's pairs, if the loss looks at them.
    """
    models = [z] if reference is None else [z, reference]
    rows = [array for model in models for array in (model.image, model.text)]
    everyones = jax.lax.all_gather(jnp.concatenate(rows, axis=1), axis, tiled=True)  # one message
    whole = jnp.split(everyones, np.cumsum([array.shape[1] for array in rows])[:-1], axis=1)
    z = z._replace(image=whole[0], text=whole[1])
    if reference is None:
        found = loss(z)
    else:
        found = loss(z, reference=reference._replace(image=whole[2], text=whole[3]))
    share: jax.Array = found / jax.lax.axis_size(axis)
    return share


def loss_function(kind: str | Loss, devices: int, axis: str) -> Loss:
    """Return the function for a device's share of the loss of a split batch; on one device, the whole loss.

    Args:
        kind: "sigmoid" or "softmax", or the function of a loss of one's own, of a whole batch: see `Loss`.
        devices: P.
        axis: Name of the mesh's axis.

    Raises:
        ValueError: An unknown loss.
    """
    if not isinstance(kind, str):
        return kind if devices == 1 else functools.partial(gathered_loss, loss=kind, axis=axis)
    if kind not in ("sigmoid", "softmax"):
        raise ValueError(f"unknown loss {kind!r}: expected sigmoid or softmax")
    if devices == 1:
        return sigmoid_loss if kind == "sigmoid" else softmax_loss
    ring = ring_sigmoid_loss if kind == "sigmoid" else ring_softmax_loss
    return functools.partial(ring, axis=axis)


def _similarity(z: Embeddings, texts: jax.Array) -> jax.Array:
    """Return s, float32 [images, texts], in full float32 even where the hardware would round."""
    products = jnp.dot(z.image, texts.T, precision="highest", preferred_element_type=jnp.float32)
    return z.temperature * products


def _next_device(x: jax.Array, axis: str) -> jax.Array:
    """Pass an array on to the next device of the ring."""
    devices = jax.lax.axis_size(axis)
    passed: jax.Array = jax.lax.ppermute(x, axis, [(i, (i + 1) % devices) for i in range(devices)])
    return passed
