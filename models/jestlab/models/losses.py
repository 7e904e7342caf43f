"""The contrastive losses: sigmoid (Eq. 2 of the JEST paper) and softmax (CLIP; Eq. 1).

The sigmoid loss is that of SigLIP (Zhai et al., 2023). Selection scores pairs by the same losses without a
matrix of all pairs: see `selection.scores`.

Each loss has two forms: dense, for one device, and a ring over devices. In the ring, texts travel from device
to device, and no device stores more than the logits of its images with one device's texts. Functions with an
`axis`, the name of the mesh's axis, are called under `jax.shard_map` with the embeddings of this device's
n / P pairs; t and b are the same on every device. They return its share of the loss, float32 []. The shares
sum to the dense loss, and so do their gradients.

Custom losses need no edit here (docs/how-to/extend-training.md). To add a loss here, add both forms to
`LOSSES` and the name to `config.base`. Selection then scores by "sigmoid", unless `config.base.ScoringLoss`
and `selection.jax._SCORES` list the loss, too. Only custom losses get the reference's embeddings.

Letters: n batch, P devices, z^im and z^txt unit embeddings, t temperature (the paper's α), b bias,
s_ij = t z^im_i · z^txt_j.

The paper's equation writes the logit as α z^im·z^txt − β, its pseudo-code as α z^im·z^txt + β. Here the sign
is that of the code, as in SigLIP's public code: b is −β of the equation, and starts at −10. The second
denominator in the paper's Eq. 1 is printed with the indices of the first; here it has its indices swapped, so
that both directions count.
"""

import functools
import inspect
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.selection import Embeddings
from jestlab.models.selection.criteria import Criterion
from jestlab.models.selection.scores import own_similarity, resolve, similarity

Loss = Callable[..., jax.Array]
"""A function of a batch's `Embeddings`, and optionally of `reference`, the reference's embeddings of the same
pairs; it returns a scalar."""


def takes_reference(loss: Loss) -> bool:
    """Return whether a custom loss also takes the reference's embeddings."""
    return "reference" in inspect.signature(loss).parameters


def pairwise_sigmoid_loss(z: Embeddings) -> jax.Array:
    """Compute the sigmoid loss of every image with every text of a batch.

    ℓ[i, j] = −log σ(m_ij (s_ij + b)), with m_ij = 1 on the diagonal and −1 off it, computed as
    softplus(−m_ij (s_ij + b)), which doesn't overflow.

    Returns:
        float32 [n, n]; rows are images, columns are texts.
    """
    logits = similarity(z.image, z.text, z.temperature) + z.bias
    m = 2.0 * jnp.eye(len(logits)) - 1.0
    return jax.nn.softplus(-m * logits)


def sigmoid_loss(z: Embeddings) -> jax.Array:
    """Compute the mean over images of the sum over texts, float32 []: divided by n, not by n²."""
    return pairwise_sigmoid_loss(z).sum(axis=-1).mean()


def score_matrix(
    criterion: str | Criterion, learner: Embeddings | None, reference: Embeddings | None
) -> jax.Array:
    """Compute S, the sigmoid scores of every image with every text, without gain; for display.

    Args:
        criterion: See `selection.scores.resolve`, also for the errors raised.
        learner: Embeddings of n pairs.
        reference: Embeddings of the same pairs by the reference.

    Returns:
        float32 [n, n]; rows are images, columns are texts, the diagonal has the pairs' own scores.
    """
    g, models = resolve(criterion, learner, reference)
    scores: jax.Array = g(**{name: pairwise_sigmoid_loss(z) for name, z in models.items()})
    return scores


def softmax_loss(z: Embeddings) -> jax.Array:
    """Compute the mean cross-entropy of both directions: −½ (2 s_ii − log Σ_j e^s_ij − log Σ_j e^s_ji).

    The bias isn't used.
    """
    s = similarity(z.image, z.text, z.temperature)
    both = jax.nn.logsumexp(s, axis=1) + jax.nn.logsumexp(s, axis=0)
    return jnp.mean(0.5 * both - jnp.diagonal(s))


def ring_sigmoid_loss(z: Embeddings, axis: str) -> jax.Array:
    """Compute a device's share of the `sigmoid_loss`: the sum over its images, divided by n."""
    n, devices = z.image.shape[0], jax.lax.axis_size(axis)
    eye = jnp.eye(n)

    @jax.checkpoint  # the backward pass recomputes a block's logits instead of storing all of them
    def block(total: jax.Array, texts: jax.Array, hop: jax.Array) -> jax.Array:
        m = jnp.where(hop == 0, 2.0 * eye, 0.0) - 1.0  # the matching pairs meet before the first hop
        logits = similarity(z.image, texts, z.temperature) + z.bias
        return total + jax.nn.softplus(-m * logits).sum()

    def hop(carry: tuple[jax.Array, jax.Array], k: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        total, texts = carry
        return (block(total, texts, k), _next_device(texts, axis)), None

    start = jax.lax.pcast(jnp.float32(0.0), axis, to="varying")
    (total, _), _ = jax.lax.scan(hop, (start, z.text), jnp.arange(devices))
    share: jax.Array = total / (n * devices)
    return share


def ring_softmax_loss(z: Embeddings, axis: str) -> jax.Array:
    """Compute a device's share of the `softmax_loss`: over its images and the texts that end here, over n.

    Texts travel with their running log Σ_j e^s_ji, which is complete when they have met all images. They
    count on the last device that they visit, one hop before home. The hop home would be a message that no
    computation waits for, and that waits for none in the backward pass (see `training.step`).
    """
    n, devices = z.image.shape[0], jax.lax.axis_size(axis)

    @jax.checkpoint
    def block(texts: jax.Array) -> tuple[jax.Array, jax.Array]:
        s = similarity(z.image, texts, z.temperature)
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
    losses = 0.5 * (of_images + travelling[:, -1]) - own_similarity(z)
    share: jax.Array = losses.sum() / (n * devices)
    return share


def gathered_loss(z: Embeddings, loss: Loss, axis: str, reference: Embeddings | None = None) -> jax.Array:
    """Compute a device's share of any loss: it gathers the whole batch, and counts 1/P of the whole loss.

    Unlike a ring, this stores all n² logits on every device, if the loss uses them.

    Args:
        z: Embeddings of this device's pairs.
        loss: A function of the embeddings of all n pairs.
        reference: The reference's embeddings of this device's pairs, if the loss uses them.
    """
    models = {"z": z} if reference is None else {"z": z, "reference": reference}
    rows = [array for model in models.values() for array in (model.image, model.text)]
    gathered = jax.lax.all_gather(jnp.concatenate(rows, axis=1), axis, tiled=True)  # one message
    whole = iter(jnp.split(gathered, np.cumsum([array.shape[1] for array in rows])[:-1], axis=1))
    models = {name: model._replace(image=next(whole), text=next(whole)) for name, model in models.items()}
    return loss(models.pop("z"), **models) / jax.lax.axis_size(axis)


LOSSES = {"sigmoid": (sigmoid_loss, ring_sigmoid_loss), "softmax": (softmax_loss, ring_softmax_loss)}
"""The built-in losses by name: dense, and as a ring."""


def loss_function(kind: str | Loss, devices: int, axis: str) -> Loss:
    """Return the function for a device's share of the loss of a split batch; on one device, the whole loss.

    Args:
        kind: "sigmoid", "softmax", or a custom loss of a whole batch: see `Loss`.

    Raises:
        ValueError: The loss is unknown.
    """
    if callable(kind):
        return kind if devices == 1 else functools.partial(gathered_loss, loss=kind, axis=axis)
    if kind not in LOSSES:
        raise ValueError(f"unknown loss {kind!r}: expected {' or '.join(LOSSES)}")
    dense, ring = LOSSES[kind]
    return dense if devices == 1 else functools.partial(ring, axis=axis)


def _next_device(x: jax.Array, axis: str) -> jax.Array:
    """Send an array to the next device of the ring."""
    devices = jax.lax.axis_size(axis)
    received: jax.Array = jax.lax.ppermute(x, axis, [(i, (i + 1) % devices) for i in range(devices)])
    return received
