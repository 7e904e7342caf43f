"""The front door: from embeddings to the indices of a sub-batch."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from ..two_towers import Embeddings
from .blocks import BLOCKS, Sums
from .candidates import Candidates
from .conditional import conditional_scores
from .criteria import Terms, terms
from .rules import RULES, Selected, Trace, by_gibbs, in_rounds
from .sampling import gumbel

_STATIC = ("loss", "signs", "rule", "batch_size", "chunks", "sweeps", "axis", "sums")


def select(
    key: jax.Array,
    learner: Embeddings | None,
    reference: Embeddings | None,
    *,
    batch_size: int,
    rule: str = "joint",
    criterion: str = "learnability",
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
    sweeps: int = 4,
    axis: str | None = None,
    trace: bool | jax.Array = False,
    sums: Sums = BLOCKS,
) -> Selected:
    """Choose what to train on.

    No matrix of all pairs exists: the largest temporary arrays are blocks of logits (`blocks`) and the
    embeddings of one chunk. Scores are float32, whatever the embeddings are.

    Args:
        key: PRNG key; under `jax.shard_map` the same on every device.
        learner: Embeddings of the B pairs by the learner; under `jax.shard_map` this device's rows. Not
            looked at by criterion "easy_reference".
        reference: The same by the reference, at any width. Not looked at by "hard_learner".
        batch_size: b, at most B.
        rule: "uniform"; "independent" (by each pair's own score); "joint" (Algorithm 1: in N chunks, each by
            scores given those before it); "greedy" (one by one, the highest score each time, no noise);
            "gibbs" (brute force, for diagnosis).
        criterion: "learnability", "easy_reference" or "hard_learner".
        loss: "sigmoid" or "softmax": the one that scores, as a rule the one trained with.
        chunks: N, of "joint", at most b; the first b mod N chunks hold one example more than the others.
        gain: Factor on scores before sampling, the inverse of a temperature (the paper's
            `softmax_score_gain`); "uniform" and "greedy" have no use for it.
        sweeps: Of "gibbs": b draws each.
        axis: Name of the mesh's axis that the rows are split over; None: all rows are here.
        trace: Whether to follow the batch's score from draw to draw, for the work of another chunk: of the
            whole sub-batch with one chunk, as much as joint selection's. An array decides it step by step.
        sums: How to sum over pairs: the same to rounding.

    Returns:
        The choice: identical for any number of devices, up to what rounding does to near ties.

    Raises:
        ValueError: b > B, N > b, an unknown rule, criterion or loss, embeddings that are missing or of
            different numbers of examples, or (where their values are known, that is, not under
            transformations) not finite.
    """
    found = terms(criterion, learner, reference)
    super_batch = found.models[0].image.shape[0] * (1 if axis is None else jax.lax.axis_size(axis))
    if rule not in RULES:
        raise ValueError(f"unknown selection rule {rule!r}: known are {', '.join(RULES)}")
    if not 0 < batch_size <= super_batch:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} from a super-batch of {super_batch}")
    if rule == "joint" and not 0 < chunks <= batch_size:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} in {chunks} chunks")
    if not 0 < gain < math.inf or sweeps < 1:
        raise ValueError(f"gain {gain} and sweeps {sweeps} have to be positive and finite")
    _check_finite(found)
    selected: Selected = _select(
        key,
        found.models,
        gain,
        None if trace is False else jnp.asarray(trace),
        loss=loss,
        signs=found.signs,
        rule=rule,
        batch_size=batch_size,
        chunks=chunks,
        sweeps=sweeps,
        axis=axis,
        sums=sums,
    )
    return selected


@functools.partial(jax.jit, static_argnames=_STATIC)
def _select(
    key: jax.Array,
    models: tuple[Embeddings, ...],
    gain: float,
    trace: Trace,
    *,
    loss: str,
    signs: tuple[float, ...],
    rule: str,
    batch_size: int,
    chunks: int,
    sweeps: int,
    axis: str | None,
    sums: Sums,
) -> Selected:
    models = tuple(Embeddings(*(x.astype(jnp.float32) for x in z)) for z in models)
    candidates = Candidates(models[0].image.shape[0], axis)
    scores = conditional_scores(loss, signs, sums)
    if rule == "gibbs":
        return by_gibbs(
            key, candidates, scores, models, batch_size=batch_size, sweeps=sweeps, gain=gain, trace=trace
        )
    number, factor, noise = {
        "uniform": (1, 0.0, gumbel),
        "independent": (1, gain, gumbel),
        "joint": (chunks, gain, gumbel),
        "greedy": (batch_size, 1.0, None),
    }[rule]
    return in_rounds(
        key,
        candidates,
        scores,
        models,
        batch_size=batch_size,
        chunks=number,
        gain=factor,
        noise=noise,
        trace=trace,
    )


def _check_finite(found: Terms) -> None:
    """ValueError where embeddings are known and not finite."""
    for z in found.models:
        for name, array in zip(z._fields, z, strict=True):
            if isinstance(array, jax.core.Tracer):
                continue
            with jax.ensure_compile_time_eval():  # also where the call itself is being traced
                is_finite = bool(jnp.isfinite(array).all())
            if not is_finite:
                raise ValueError(
                    f"embeddings are not finite: look at `{name}`, and at the model that made it"
                )
