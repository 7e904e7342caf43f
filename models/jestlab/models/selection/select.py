"""Select a sub-batch: from embeddings to indices, without a matrix of all pairs.

Joint selection (Algorithm 1 of the paper) goes chunk by chunk:

    score → draw a chunk → condition the scores on it → draw the next chunk → …

The other built-in rules are the same in another number of chunks: independent selection draws all in one,
uniform selection draws all in one with a gain of 0, greedy selection takes the best one by one. Gibbs
sampling resamples one member of the sub-batch after another instead.

Departures from the printed algorithms, and why:

* The print's first `choice(logits_ii, n)` draws values at random; here indices are drawn in proportion to
  exp(score), as the text says.
* The print samples each chunk with replacement from unnormalised, overflowing `exp(logits)`. Here a chunk is
  drawn without replacement by Gumbel top-k, which is exactly successive draws in proportion to exp(score)
  (Plackett–Luce) and needs no exponential.
* Chosen examples are excluded by −inf, not by subtracting 1e8, which would swallow the scores' digits.
* `int(B (1 − f) / N)` loses examples to floating error (2047 instead of 2048 at f = .8). Here b is given; the
  first b mod N chunks hold one example more than the others.
* The text puts 1/b inside the exponent, the code multiplies the sum by `softmax_score_gain` = 100. Here the
  gain is an explicit factor on the sum, applied after the largest score is subtracted.
* The text's conditional is one-directional; like the code, both directions count (image→text, text→image).
* The softmax variant: see `scores.SoftmaxScores`.

Letters: B super-batch, R = B / P of them on this device, b sub-batch, N chunks, c chunk.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jestlab.models.selection.sampling import Candidates, Draw, draw, gumbel
from jestlab.models.selection.scores import (
    BLOCKS,
    Accumulated,
    Criterion,
    Models,
    Scores,
    Sums,
    Terms,
    scores_by,
    terms,
)
from jestlab.models.two_towers import Embeddings

RULES = ("uniform", "independent", "joint", "greedy", "gibbs")

OwnRule = Callable[..., "jax.Array | Selected"]
"""A rule of one's own: `rule(key, batch, *, batch_size, gain, …)` → int32 [b], distinct global indices, the
same on every device. `batch` is the `SuperBatch`, which draws, conditions and fetches on any number of
devices; further keyword arguments are its options. One that returns a `Selected` also says among how many
candidates it chose. Attribute `flops(batch_size, super_batch_size, embedding_dims, **options)`, if it has
one, counts its FLOPs for a super-batch.

One that takes `concepts` gets int32 [B, K], the numbers of the concepts of every candidate on any device,
then −1. Without `batch`, as `rule(key, concepts, *, batch_size, …)`, it looks at no scores, and nothing is
scored for it."""

Noise = Callable[[jax.Array, int], jax.Array]
"""Key and B → float32 [B]."""

Trace = jax.Array | None
"""bool []: whether to follow the sub-batch's score; None: never, and nothing is compiled for it."""

_LARGEST_GAIN = float(np.finfo(np.float32).max)


class Selected(NamedTuple):
    """A sub-batch, and how it came about; the same on every device except where stated."""

    indices: jax.Array
    """int32 [b], distinct global indices into the super-batch: chunk after chunk as they were drawn, each
    chunk ascending (an order within a chunk would mean nothing and depend on the last bit of near ties).
    After Gibbs sampling, slot by slot."""
    own: jax.Array
    """float32 [R], the scores of this device's candidates before anything is chosen."""
    effective: jax.Array
    """float32 [draws], the effective number of candidates at the first draw of each chunk, 1 / Σ p²."""
    score: jax.Array
    """float32 [draws], the score of the sub-batch (its learnability) after each draw: this device's share, to
    be summed over devices. Empty if never traced; the last one is wrong if not traced this time."""


def select(
    key: jax.Array,
    learner: Embeddings | None,
    reference: Embeddings | None,
    *,
    batch_size: int,
    rule: str | OwnRule = "joint",
    criterion: str | Callable[..., jax.Array] = "learnability",
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
    sweeps: int = 4,
    axis: str | None = None,
    trace: bool | jax.Array = False,
    sums: Sums = BLOCKS,
    concepts: jax.Array | None = None,
) -> Selected:
    """Choose what to train on.

    The largest temporary arrays are blocks of logits (see `scores`) and the embeddings of one chunk. Scores
    are float32, whatever the embeddings are.

    Args:
        key: PRNG key; under `jax.shard_map` the same on every device.
        learner: Embeddings of the B pairs by the learner; under `jax.shard_map` this device's rows. Not used
            by criterion "easy_reference".
        reference: Embeddings of the same pairs by the reference, at any width. Not used by "hard_learner".
        batch_size: b, at most B.
        rule: "uniform"; "independent" (by each pair's own score); "joint" (Algorithm 1: in N chunks, each by
            the scores given those before it); "greedy" (one by one, the highest score each time, no noise);
            "gibbs" (brute force, for diagnosis). Or a hashable function: see `OwnRule`.
        criterion: "learnability", "easy_reference" or "hard_learner"; or a hashable function of the losses:
            see `scores.Criterion`.
        loss: "sigmoid" or "softmax": the one that scores, usually the one that is trained with.
        chunks: N, for "joint", at most b; the first b mod N chunks hold one example more than the others.
        gain: Factor on the scores before sampling, the inverse of a temperature (the paper's
            `softmax_score_gain`); "uniform" and "greedy" do not use it.
        sweeps: For "gibbs": the number of sweeps of b draws each.
        axis: Name of the mesh axis that the rows are split over; None: all rows are on this device.
        trace: Whether to follow the sub-batch's score from draw to draw. This costs as much as one more chunk
            (with one chunk, as much as joint selection). An array decides it step by step.
        sums: How to sum over pairs; all ways agree up to rounding.
        concepts: For a rule that takes them: see `OwnRule`.

    Returns:
        The choice. It is identical for any number of devices, up to the effect of rounding on near ties.

    Raises:
        ValueError: b > B, N > b, an unknown rule, criterion or loss, embeddings that are missing, of
            different numbers of examples, or (where their values are known, that is, outside transformations)
            not finite.
    """
    found = terms(criterion, learner, reference)
    super_batch = found.models[0].image.shape[0] * (1 if axis is None else jax.lax.axis_size(axis))
    if isinstance(rule, str) and rule not in RULES:
        raise ValueError(f"unknown selection rule {rule!r}: expected one of {', '.join(RULES)}")
    if not 0 < batch_size <= super_batch:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} from a super-batch of {super_batch}")
    if rule == "joint" and not 0 < chunks <= batch_size:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} in {chunks} chunks")
    if not 0 < gain < math.inf or sweeps < 1:
        raise ValueError(f"gain {gain} and sweeps {sweeps} must be positive and finite")
    _check_finite(found)
    selected: Selected = _select(
        key,
        found.models,
        min(gain, _LARGEST_GAIN),
        None if trace is False else jnp.asarray(trace),
        loss=loss,
        criterion=found.criterion,
        rule=rule,
        batch_size=batch_size,
        chunks=chunks,
        sweeps=sweeps,
        axis=axis,
        sums=sums,
        concepts=concepts,
    )
    return selected


@functools.partial(
    jax.jit, static_argnames=("loss", "criterion", "rule", "batch_size", "chunks", "sweeps", "axis", "sums")
)
def _select(
    key: jax.Array,
    models: tuple[Embeddings, ...],
    gain: float,
    trace: Trace,
    *,
    loss: str,
    criterion: Criterion,
    rule: str | OwnRule,
    batch_size: int,
    chunks: int,
    sweeps: int,
    axis: str | None,
    sums: Sums,
    concepts: jax.Array | None,
) -> Selected:
    models = tuple(Embeddings(*(x.astype(jnp.float32) for x in z)) for z in models)
    batch = SuperBatch(Candidates(models[0].image.shape[0], axis), models, scores_by(loss, criterion, sums))
    if not isinstance(rule, str):
        return by_function(key, batch, rule, batch_size=batch_size, gain=gain, trace=trace, concepts=concepts)
    if rule == "gibbs":
        return by_gibbs(key, batch, batch_size=batch_size, sweeps=sweeps, gain=gain, trace=trace)
    number, factor, noise = {
        "uniform": (1, 0.0, gumbel),
        "independent": (1, gain, gumbel),
        "joint": (chunks, gain, gumbel),
        "greedy": (batch_size, 1.0, None),
    }[rule]
    return in_chunks(key, batch, batch_size=batch_size, chunks=number, gain=factor, noise=noise, trace=trace)


class State(NamedTuple):
    """Where selection is: the scores given what is chosen so far."""

    scores: jax.Array  # float32 [R], of this device's candidates
    accumulated: Accumulated  # what the chosen contribute to them
    chosen: jax.Array  # bool [R]


class SuperBatch(NamedTuple):
    """The candidates: where they are, each model's embeddings of this device's rows, and how they score."""

    candidates: Candidates
    models: Models
    scores: Scores

    def unconditioned(self) -> State:
        """Score the candidates with nothing chosen."""
        own = self.scores.own(self.models)
        return State(own, self.scores.nothing(self.models), jnp.zeros_like(own, bool))

    def draw(
        self, state: State, key: jax.Array, size: int, gain: float | jax.Array, noise: Noise | None = gumbel
    ) -> Draw:
        """Draw candidates that are not chosen yet, by their scores."""
        noises = None if noise is None else self.candidates.local(noise(key, self.candidates.count))
        return draw(self.candidates, state.scores, state.chosen, noises, gain, size)

    def condition(self, state: State, indices: jax.Array) -> State:
        """Add newly chosen examples to what the scores are conditioned on."""
        chunk, _ = self.embeddings(indices)
        accumulated = self.scores.add(state.accumulated, self.models, chunk)
        chosen = state.chosen | self.candidates.mask(indices)
        return State(self.scores.given(accumulated, self.models), accumulated, chosen)

    def embeddings(self, indices: jax.Array) -> tuple[list[Embeddings], jax.Array]:
        """Return each model's embeddings of the examples at global indices; and the indices again."""
        pairs, again = self.candidates.rows([(z.image, z.text) for z in self.models], indices)
        chunk = [
            z._replace(image=image, text=text) for z, (image, text) in zip(self.models, pairs, strict=True)
        ]
        return chunk, again

    def score(self, state: State, size: float | jax.Array) -> jax.Array:
        """Return float32 []: this device's share of the score of the chosen, whose number is `size`."""
        return jnp.sum(self.scores.shares(state.accumulated, self.models), where=state.chosen) / size


def chunk_sizes(batch_size: int, chunks: int) -> list[int]:
    """Return the sizes of the N chunks: they sum to b, and the first b mod N are larger by one."""
    quotient, remainder = divmod(batch_size, chunks)
    return [quotient + 1] * remainder + [quotient] * (chunks - remainder)


def in_chunks(
    key: jax.Array,
    batch: SuperBatch,
    *,
    batch_size: int,
    chunks: int,
    gain: float | jax.Array,
    noise: Noise | None = gumbel,
    trace: Trace = None,
) -> Selected:
    """Select chunk by chunk, each drawn by the scores given the chunks before it (Algorithm 1).

    Arguments are those of `select`, and `noise`, which makes the noise of a draw; None: the highest scores
    are drawn.
    """
    sizes = chunk_sizes(batch_size, chunks)
    rounds = (jax.random.split(key, chunks), jnp.cumsum(jnp.array(sizes, jnp.float32)))
    start = batch.unconditioned()
    untraced = start.scores[:0]

    def one_round(
        size: int, state: State, this_round: tuple[jax.Array, jax.Array]
    ) -> tuple[State, tuple[Draw, jax.Array]]:
        round_key, chosen_so_far = this_round
        drawn = batch.draw(state, round_key, size, gain, noise)
        drawn = drawn._replace(indices=jnp.sort(drawn.indices))
        state = batch.condition(state, drawn.indices)
        score = untraced if trace is None else batch.score(state, chosen_so_far)
        return state, (drawn, score)

    def last_round(
        size: int, state: State, this_round: tuple[jax.Array, jax.Array]
    ) -> tuple[Draw, jax.Array]:
        """Draw without conditioning on it, except for the trace: nothing is drawn by the scores after it."""
        round_key, chosen_so_far = this_round
        drawn = batch.draw(state, round_key, size, gain, noise)
        drawn = drawn._replace(indices=jnp.sort(drawn.indices))
        if trace is None:
            return drawn, untraced
        chosen = state.chosen | batch.candidates.mask(drawn.indices)
        # The indices come out of the message, so that nothing else is sent while it is on its way.
        chunk, indices = batch.embeddings(drawn.indices)
        accumulated = jax.lax.cond(
            trace,
            lambda: batch.scores.add(state.accumulated, batch.models, chunk),
            lambda: state.accumulated,
        )
        state = State(state.scores, accumulated, chosen)
        return drawn._replace(indices=indices), batch.score(state, chosen_so_far)

    state, results, first = start, [], 0
    for size in sorted(set(sizes[:-1]), reverse=True):  # one loop for the larger chunks, one for the others
        stop = first + sizes[:-1].count(size)
        these = jax.tree.map(lambda x, a=first, b=stop: x[a:b], rounds)
        state, found = jax.lax.scan(functools.partial(one_round, size), state, these)
        results.append(found)
        first = stop
    found = last_round(sizes[-1], state, jax.tree.map(lambda x: x[-1], rounds))
    results.append(jax.tree.map(lambda x: x[None], found))
    indices, effective, score = (
        jnp.concatenate([x.reshape(-1) for x in parts])
        for parts in zip(*((drawn.indices, drawn.effective, score) for drawn, score in results), strict=True)
    )
    return Selected(indices, start.scores, effective, score)


def by_gibbs(
    key: jax.Array,
    batch: SuperBatch,
    *,
    batch_size: int,
    sweeps: int,
    gain: float | jax.Array,
    trace: Trace = None,
) -> Selected:
    """Select by brute force: starting from a uniform draw, resample one random slot after another.

    Each slot is drawn from all candidates outside the sub-batch, by the scores given all its other members,
    summed from scratch: one draw costs as much as all of `in_chunks`. For diagnosis.

    By the sigmoid loss a conditional score is all that a candidate changes in Σ_ij S_ij, so this samples
    sub-batches in proportion to exp(gain × Σ_ij S_ij), where the gain takes the place of the text's 1/b. By
    the softmax loss it is not: what a candidate changes in the others' denominators is left out, as it is in
    joint selection. Arguments are those of `select`.
    """
    start = batch.unconditioned()

    def resample(indices: jax.Array, draw_key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        slot_key, noise_key = jax.random.split(draw_key)
        slot = jax.random.randint(slot_key, (), 0, batch_size)
        others = jnp.where(jnp.arange(batch_size - 1) < slot, indices[:-1], indices[1:])
        state = batch.condition(start, others) if batch_size > 1 else start
        drawn = batch.draw(state, noise_key, 1, gain)
        score = start.scores[:0]
        if trace is not None:
            score = batch.score(batch.condition(state, drawn.indices), batch_size)
        return indices.at[slot].set(drawn.indices[0]), (drawn.effective, score)

    start_key, sampling_key = jax.random.split(key)
    uniform = batch.draw(start, start_key, batch_size, 0.0)
    keys = jax.random.split(sampling_key, sweeps * batch_size)
    indices, (effective, score) = jax.lax.scan(resample, uniform.indices, keys)
    return Selected(indices, start.scores, effective, score.reshape(-1))


def by_function(
    key: jax.Array,
    batch: SuperBatch,
    rule: OwnRule,
    *,
    batch_size: int,
    gain: float | jax.Array,
    trace: Trace = None,
    concepts: jax.Array | None = None,
) -> Selected:
    """Select by a rule of one's own; arguments are those of `select`.

    Raises:
        ValueError: It does not return b indices.
    """
    besides = {} if concepts is None else {"concepts": concepts}
    found = rule(key, batch, **besides, batch_size=batch_size, gain=gain)
    start = batch.unconditioned()
    untraced = start.scores[:0]
    indices = _indices(found.indices if isinstance(found, Selected) else found, batch_size)
    score = untraced
    if trace is not None:
        # As in `in_chunks`: the indices come out of the message, so that nothing else is sent meanwhile.
        chunk, indices = batch.embeddings(indices)
        accumulated = jax.lax.cond(
            trace,
            lambda: batch.scores.add(start.accumulated, batch.models, chunk),
            lambda: start.accumulated,
        )
        chosen = start.chosen | batch.candidates.mask(indices)
        score = batch.score(State(start.scores, accumulated, chosen), batch_size)[None]
    return Selected(
        indices, start.scores, found.effective if isinstance(found, Selected) else untraced, score
    )


def by_concepts(key: jax.Array, concepts: jax.Array, rule: OwnRule, *, batch_size: int) -> Selected:
    """Select by a rule of one's own that looks at concepts alone, without any score.

    Args:
        key: PRNG key; under `jax.shard_map` the same on every device.
        concepts: int32 [B, K]: see `OwnRule`.
        rule: The rule.
        batch_size: b.

    Returns:
        The choice; everything else about it is empty.

    Raises:
        ValueError: It does not return b indices, or b > B.
    """
    if batch_size > len(concepts):
        raise ValueError(f"cannot draw a sub-batch of {batch_size} from a super-batch of {len(concepts)}")
    nothing = jnp.zeros(0, jnp.float32)
    found = rule(key, concepts=concepts, batch_size=batch_size)
    return Selected(_indices(found, batch_size), nothing, nothing, nothing)


def _indices(found: object, batch_size: int) -> jax.Array:
    """Return what a rule of one's own has chosen as int32 [b]; ValueError if it is something else."""
    indices = jnp.asarray(found)
    if indices.shape != (batch_size,) or not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError(
            f"a rule must return {batch_size} whole numbers, the indices of its sub-batch; this one returns "
            f"{indices.dtype} {list(indices.shape)}"
        )
    return indices.astype(jnp.int32)


def _check_finite(found: Terms) -> None:
    """Raise ValueError if embeddings whose values are known are not finite."""
    for z in found.models:
        for name, array in zip(z._fields, z, strict=True):
            if isinstance(array, jax.core.Tracer):
                continue
            with jax.ensure_compile_time_eval():  # also where the call itself is being traced
                is_finite = bool(jnp.isfinite(array).all())
            if not is_finite:
                raise ValueError(f"embeddings are not finite: check `{name}` and the model that produced it")
