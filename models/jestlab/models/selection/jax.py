"""Select a sub-batch with JAX: from embeddings to indices, without a matrix of all pairs.

Joint selection (Algorithm 1 of the paper) goes chunk by chunk:

    score → draw a chunk → condition the scores on it → draw the next chunk → …

Uniform, independent, and greedy selection differ only in gain and number of chunks (see `criteria`). Gibbs
sampling instead resamples one member of the sub-batch after another.

Departures from the printed algorithms, and why:

* The print's first `choice(logits_ii, n)` draws values at random. Here indices are drawn in proportion to
  exp(score), as the text says.
* The print samples each chunk with replacement from unnormalized, overflowing `exp(logits)`. Here a chunk is
  drawn without replacement by Gumbel top-k, which is exactly successive draws in proportion to exp(score)
  (Plackett–Luce) and needs no exponential.
* Chosen examples are excluded by −inf. Subtracting 1e8, as printed, would lose the scores' digits.
* `int(B (1 − f) / N)` loses examples to floating-point error (2047 instead of 2048 at f = .8). Here b is
  given, and the first b mod N chunks have one example more than the others.
* The text has 1/b inside the exponent, the code multiplies the sum by `softmax_score_gain` = 100. Here the
  gain is an explicit factor on the sum, applied after the largest score is subtracted.
* The text's conditional is one-directional. Like the code, this counts both directions (image→text,
  text→image).
* For the softmax variant, see `scores.SoftmaxScores`.

Letters: B super-batch, R = B / P of them on this device, b sub-batch, N chunks, c chunk.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from . import criteria
from .criteria import CRITERIA, Criterion, Embeddings, check_size, chunk_sizes, rounds_of
from .sampling import Candidates, Draw, draw
from .scores import Accumulated, GivenLosses, Models, SigmoidScores, SoftmaxScores, resolve

Function = TypeVar("Function", bound=Callable[..., Any])

__all__ = ["CRITERIA", "RULES", "Candidates", "Embeddings", "Selected", "SuperBatch", "select"]

RULES = (*criteria.RULES, "gibbs")

Rule = Callable[..., "jax.Array | Selected"]
"""A custom rule: `rule(key, batch, *, batch_size, gain, …)` → int32 [b], distinct global indices, the same on
every device. `batch` is the `SuperBatch`, which draws, conditions, and fetches on any number of devices.
Further keyword arguments are the rule's options. A rule may return a `Selected` to report effective sample
sizes. Its optional attribute `flops(batch_size, super_batch_size, embedding_dims, **options)` counts its
FLOPs for a super-batch.

A rule with a parameter `concepts` gets int32 [B, K]: the numbers of each candidate's concepts, padded with
−1. A rule `rule(key, concepts, *, batch_size, …)` without `batch` uses no scores."""

Trace = jax.Array | bool | None
"""bool []: whether to compute the sub-batch's score; None: never, and nothing is compiled for it."""


class Selected(NamedTuple):
    """A sub-batch and how it was selected; the same on every device unless stated otherwise."""

    indices: jax.Array
    """int32 [b], distinct global indices into the super-batch: in the order of the chunks, ascending in each
    chunk (the order of draws within a chunk depends on the last bit of near ties). After Gibbs sampling, slot
    by slot."""
    own: jax.Array
    """float32 [R], the scores of this device's candidates before anything is chosen."""
    effective: jax.Array
    """float32 [draws], the effective number of candidates at the first draw of each chunk, 1 / Σ p²."""
    score: jax.Array
    """float32 [draws], this device's share of the sub-batch's score (its learnability) after each draw; their
    sum over devices is the score. Empty if `trace` is None. The last is wrong if `trace` is false."""


_SCORES: dict[str, type[SigmoidScores | SoftmaxScores]] = {"sigmoid": SigmoidScores, "softmax": SoftmaxScores}
_LARGEST_GAIN = float(np.finfo(np.float32).max)
_STATIC = ("batch_size", "rule", "criterion", "loss", "chunks", "gain", "sweeps", "axis")


def _compiled(function: Function) -> Function:
    return cast(Function, jax.jit(function, static_argnames=_STATIC))


@_compiled
def select(
    key: jax.Array,
    learner: Embeddings | jax.Array | None,
    reference: Embeddings | jax.Array | None,
    *,
    batch_size: int,
    rule: str | Rule = "joint",
    criterion: str | Criterion = "learnability",
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
    sweeps: int = 4,
    axis: str | None = None,
    trace: Trace = None,
    concepts: jax.Array | None = None,
) -> Selected:
    """Select the sub-batch to train on.

    The largest temporary arrays are blocks of logits (see `scores`) and the embeddings of one chunk. Scores
    are float32 for embeddings of any dtype.

    Args:
        key: PRNG key; under `jax.shard_map` the same on every device.
        learner: Embeddings of the B pairs by the learner; under `jax.shard_map` this device's rows. None if
            the criterion doesn't use them. Or the losses of B examples that don't depend on each other, such
            as sequences or tokens: an array [B], for "uniform", "independent", or "greedy".
        reference: The same by the reference, at any width.
        batch_size: b, at most B.
        rule: "uniform"; "independent" (by each pair's own score); "joint" (Algorithm 1: N chunks, each by the
            scores given the earlier chunks); "greedy" (one by one, the highest score each time, no noise);
            "gibbs" (brute force, for diagnosis). Or a hashable function: see `Rule`.
        criterion: "learnability", "easy_reference", or "hard_learner"; or a hashable function of the losses:
            see `scores.Criterion`.
        loss: The loss to score with: "sigmoid" or "softmax".
        chunks: N, for "joint", at most b.
        gain: Factor on the scores before sampling, the inverse of a temperature (the paper's
            `softmax_score_gain`). "uniform" and "greedy" don't use it.
        sweeps: For "gibbs": the number of sweeps of b draws each.
        axis: Name of the mesh axis that the rows are split over; None if all rows are on this device.
        trace: Whether to compute the sub-batch's score after each draw. This costs as much as one more chunk
            (with one chunk, as much as joint selection).
        concepts: For custom rules that take them: see `Rule`. Without embeddings, the rule gets nothing else.

    Returns:
        The selection, identical for any number of devices up to the effect of rounding on near ties.

    Raises:
        ValueError: b > B, N > b, an unknown rule, criterion, or loss, embeddings that are missing or of
            different shapes, or a custom rule that doesn't return b indices.
    """
    if learner is None and reference is None and concepts is not None and callable(rule):
        check_size(batch_size, len(concepts))
        nothing = jnp.zeros(0, jnp.float32)
        indices = _as_indices(rule(key, concepts=concepts, batch_size=batch_size), batch_size)
        return Selected(indices, nothing, nothing, nothing)
    g, models = resolve(criterion, learner, reference)
    if loss not in _SCORES:
        raise ValueError(f"unknown loss {loss!r}: expected {' or '.join(_SCORES)}")
    if not 0 < gain <= _LARGEST_GAIN or sweeps < 1:
        raise ValueError(f"gain {gain} and sweeps {sweeps} must be positive and finite in float32")
    first = next(iter(models.values()))
    by_losses = not isinstance(first, Embeddings)
    scores = GivenLosses(g, models) if by_losses else _SCORES[loss](g, models)
    batch = SuperBatch(Candidates((first if by_losses else first.image).shape[0], axis), scores)
    if callable(rule) and not by_losses:
        check_size(batch_size, batch.candidates.count)
        options = {} if concepts is None else {"concepts": concepts}
        chosen = rule(key, batch, **options, batch_size=batch_size, gain=gain)
        return _complete(chosen, batch, batch_size, trace)
    if rule == "gibbs" and not by_losses:
        check_size(batch_size, batch.candidates.count)
        return by_gibbs(key, batch, batch_size=batch_size, sweeps=sweeps, gain=gain, trace=trace)
    rounds = rounds_of(
        rule,
        batch_size=batch_size,
        super_batch=batch.candidates.count,
        chunks=chunks,
        gain=gain,
        by_losses=by_losses,
    )
    return in_chunks(
        key if rounds.has_noise else None,
        batch,
        batch_size=batch_size,
        chunks=len(rounds.sizes),
        gain=rounds.gain,
        trace=None if by_losses else trace,
    )


class State(NamedTuple):
    """The state of a selection: the scores given the examples chosen so far."""

    scores: jax.Array  # float32 [R], of this device's candidates
    accumulated: Accumulated  # the contribution of the chosen examples
    chosen: jax.Array  # bool [R]


class SuperBatch(NamedTuple):
    """The candidates, on one device or several, and their scores."""

    candidates: Candidates
    scores: Any  # SigmoidScores, SoftmaxScores, or GivenLosses

    def unconditioned(self) -> State:
        """Score the candidates before anything is chosen."""
        own = self.scores.own()
        return State(own, self.scores.nothing(), jnp.zeros_like(own, bool))

    def draw(self, state: State, key: jax.Array | None, size: int, gain: float | jax.Array) -> Draw:
        """Draw candidates that are not chosen yet, by their scores; without a key, the highest scores."""
        return draw(key, self.candidates, state.scores, state.chosen, gain, size)

    def condition(self, state: State, indices: jax.Array) -> State:
        """Condition the scores on newly chosen examples, too."""
        chunk, _ = self.embeddings(indices)
        accumulated = self.scores.add(state.accumulated, chunk)
        chosen = state.chosen | self.candidates.mask(indices)
        return State(self.scores.given(accumulated), accumulated, chosen)

    def embeddings(self, indices: jax.Array) -> tuple[Models, jax.Array]:
        """Return each model's embeddings of the examples at global indices, and the received indices."""
        rows = {name: (z.image, z.text) for name, z in self.scores.models.items()}
        rows, received = self.candidates.fetch(rows, indices)
        models = self.scores.models.items()
        return {name: Embeddings(*rows[name], z.temperature, z.bias) for name, z in models}, received

    def score(self, state: State, size: float | jax.Array) -> jax.Array:
        """Return float32 []: this device's share of the score of the `size` chosen examples."""
        return jnp.sum(self.scores.shares(state.accumulated), where=state.chosen) / size

    def conclude(
        self, state: State, indices: jax.Array, size: float | jax.Array, trace: Trace
    ) -> tuple[jax.Array, jax.Array]:
        """Return the last chosen indices, and the score of the whole sub-batch, float32 [1]; [0] untraced.

        The scores are conditioned on the last examples only for the trace, because nothing is drawn after
        them. The indices come out of the message, so that no other message is sent at the same time.
        """
        if trace is None:
            return indices, state.scores[:0]
        chosen = state.chosen | self.candidates.mask(indices)
        chunk, indices = self.embeddings(indices)
        accumulated = jax.lax.cond(
            trace, lambda: self.scores.add(state.accumulated, chunk), lambda: state.accumulated
        )
        return indices, self.score(State(state.scores, accumulated, chosen), size)[None]


def in_chunks(
    key: jax.Array | None,
    batch: SuperBatch,
    *,
    batch_size: int,
    chunks: int,
    gain: float | jax.Array,
    trace: Trace = None,
) -> Selected:
    """Select chunk by chunk, each by the scores given the chunks before it (Algorithm 1).

    The arguments are those of `select`; without a key, each chunk has the highest scores.
    """
    sizes = chunk_sizes(batch_size, chunks)
    keys = None if key is None else jax.random.split(key, chunks)
    rounds = (keys, jnp.cumsum(jnp.array(sizes, jnp.float32)))
    start = batch.unconditioned()

    def draw_chunk(state: State, round_key: jax.Array, size: int) -> Draw:
        drawn = batch.draw(state, round_key, size, gain)
        return drawn._replace(indices=jnp.sort(drawn.indices))

    def one_round(
        size: int, state: State, this_round: tuple[jax.Array, jax.Array]
    ) -> tuple[State, tuple[jax.Array, ...]]:
        round_key, chosen_so_far = this_round
        indices, effective = draw_chunk(state, round_key, size)
        state = batch.condition(state, indices)
        score = start.scores[:0] if trace is None else batch.score(state, chosen_so_far)
        return state, (indices, effective, score)

    state, results, first = start, [], 0
    for size in dict.fromkeys(sizes[:-1]):  # one loop for the larger chunks, one for the others
        stop = first + sizes[:-1].count(size)
        these = jax.tree.map(lambda x, a=first, b=stop: x[a:b], rounds)
        state, found = jax.lax.scan(functools.partial(one_round, size), state, these)
        results.append(found)
        first = stop
    last_key, chosen_so_far = jax.tree.map(lambda x: x[-1], rounds)
    indices, effective = draw_chunk(state, last_key, sizes[-1])
    indices, score = batch.conclude(state, indices, chosen_so_far, trace)
    parts = zip(*results, (indices, effective, score), strict=True)
    indices, effective, score = (jnp.concatenate([x.reshape(-1) for x in each]) for each in parts)
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

    By the sigmoid loss, a conditional score is the full change of Σ_ij S_ij by a candidate. So this samples
    sub-batches in proportion to exp(gain × Σ_ij S_ij), with the gain in place of the text's 1/b. By the
    softmax loss, as in joint selection, the score omits a candidate's effect on the other denominators. The
    arguments are those of `select`.
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


def _complete(chosen: Any, batch: SuperBatch, batch_size: int, trace: Trace) -> Selected:
    """Check what a custom rule returned, and add the scores."""
    start = batch.unconditioned()
    effective = start.scores[:0]
    if isinstance(chosen, Selected):
        chosen, effective = chosen.indices, chosen.effective
    indices, score = batch.conclude(start, _as_indices(chosen, batch_size), batch_size, trace)
    return Selected(indices, start.scores, effective, score)


def _as_indices(chosen: object, batch_size: int) -> jax.Array:
    """Return the result of a custom rule as int32 [b]; raise ValueError if it isn't b integers."""
    indices = jnp.asarray(chosen)
    if indices.shape != (batch_size,) or not jnp.issubdtype(indices.dtype, jnp.integer):
        raise ValueError(
            f"a rule must return {batch_size} integers, the indices of its sub-batch, not "
            f"{indices.dtype} {list(indices.shape)}"
        )
    return indices.astype(jnp.int32)
