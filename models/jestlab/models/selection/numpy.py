"""Select a sub-batch with NumPy in float64, to be read first: every formula once, clear before fast.

Nothing is split over devices or into blocks of rows; as in the other modules, no matrix of all pairs exists.
The other modules are tested against this one: with the same noise, they select the same examples, up to near
ties. For the departures from the paper's printed algorithms, see `jax`.

Letters: B super-batch, b sub-batch, N chunks, c chunk, C the chosen examples, s_ij = t z^im_i · z^txt_j,
bias β, g criterion.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .criteria import CRITERIA, RULES, Criterion, Embeddings, inputs_of, rounds_of

__all__ = ["CRITERIA", "RULES", "Embeddings", "Selected", "select"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Selected(NamedTuple):
    """A sub-batch and how it was selected."""

    indices: Ints
    """int64 [b], distinct indices into the super-batch: in the order of the draws, ascending in each."""
    own: Floats
    """float64 [B], the scores before anything is chosen."""
    effective: Floats
    """float64 [draws], the effective number of candidates at the start of each draw, 1 / Σ p²."""


def select(
    random: np.random.Generator | Floats | None,
    learner: Embeddings | tuple[Any, ...] | npt.ArrayLike | None,
    reference: Embeddings | tuple[Any, ...] | npt.ArrayLike | None,
    *,
    batch_size: int,
    rule: str = "joint",
    criterion: str | Criterion = "learnability",
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
) -> Selected:
    """Select the sub-batch to train on (Algorithm 1 of the paper).

    Args:
        random: The source of the noise, or Gumbel noise [draws, B]; not used by "greedy".
        learner: Embeddings of the B pairs by the learner: image [B, E], text [B, E], t, β. Or the losses of B
            examples that don't depend on each other, such as sequences or tokens: [B], for "uniform",
            "independent", or "greedy". None if the criterion doesn't use them.
        reference: The same by the reference; embeddings have any width.
        batch_size: b.
        rule: One of `RULES`.
        criterion: One of `CRITERIA`, or an elementwise function of the losses `learner` and `reference`.
        loss: The loss to score pairs with: "sigmoid" or "softmax".
        chunks: N, for "joint".
        gain: Factor on the scores before sampling, the inverse of a temperature. The paper's 100 is for the
            losses of pairs; losses of other units need another.

    Raises:
        ValueError: b > B, N > b, an unknown rule, criterion, or loss, or inputs that don't fit together.
    """
    given = [x if x is None or isinstance(x, tuple) else np.asarray(x) for x in (learner, reference)]
    g, models = inputs_of(criterion, *given)
    scoring = _scoring(g, models, loss)
    own = scoring.own()
    rounds = rounds_of(
        rule,
        batch_size=batch_size,
        super_batch=len(own),
        chunks=chunks,
        gain=gain,
        by_losses=isinstance(scoring, _Losses),
    )
    noise = np.zeros((len(rounds.sizes), len(own)))
    if rounds.has_noise:
        if isinstance(random, np.random.Generator):
            random = random.gumbel(size=noise.shape)
        noise, shape = np.asarray(random, np.float64), noise.shape
        if noise.shape != shape:
            raise ValueError(f"noise must be {list(shape)}, not {list(noise.shape)}")
    scores, chosen = own, np.zeros(len(own), bool)
    indices, effective = [], []
    for number, size in enumerate(rounds.sizes):
        # b successive draws in proportion to exp(gain × score) are the b highest of score + Gumbel noise.
        relative = rounds.gain * (scores - scores[~chosen].max())
        p = np.exp(np.where(chosen, -np.inf, relative))
        effective.append(p.sum() ** 2 / np.square(p).sum() if rounds.has_noise else 1.0)
        perturbed = np.where(chosen, -np.inf, relative + noise[number])
        chunk = np.sort(np.argsort(-perturbed, kind="stable")[:size])
        indices.append(chunk)
        chosen[chunk] = True
        if number < len(rounds.sizes) - 1:
            scores = scoring.given(chunk)
    return Selected(np.concatenate(indices), own, np.array(effective))


class _Losses:
    """Scores by losses of single examples."""

    def __init__(self, g: Criterion, models: dict[str, Any]) -> None:
        self._g, self._models = g, {name: np.asarray(x, np.float64) for name, x in models.items()}

    def own(self) -> Floats:
        """Return g(ℓ_i)."""
        return np.asarray(self._g(**self._models))

    def given(self, _: Ints) -> Floats:
        """Return the scores given that a chunk is chosen, too."""
        return self.own()


class _Pairs:
    """Scores by a contrastive loss: what both losses need of each model."""

    def __init__(self, g: Criterion, models: dict[str, Embeddings]) -> None:
        self.g = g
        self.models = {k: Embeddings(*(np.asarray(x, np.float64) for x in z)) for k, z in models.items()}
        self.s_ii = {k: z.temperature * (z.image * z.text).sum(axis=1) for k, z in self.models.items()}

    def similarities(self, name: str, chunk: Ints) -> tuple[Floats, Floats]:
        """Return s_ij and s_ji of all candidates i with the examples j of a chunk, [B, c] each."""
        z = self.models[name]
        return z.temperature * z.image @ z.text[chunk].T, z.temperature * z.text @ z.image[chunk].T


class _Sigmoid(_Pairs):
    """ℓ_ij = softplus(s_ij + β) off the diagonal, ℓ_ii = softplus(−s_ii − β) on it; S = g(ℓ)."""

    _sum: Floats | float = 0.0

    def own(self) -> Floats:
        """Return S_ii."""
        losses = {name: softplus(-(self.s_ii[name] + z.bias)) for name, z in self.models.items()}
        return np.asarray(self.g(**losses))

    def given(self, chunk: Ints) -> Floats:
        """Return S_ii + Σ_{j ∈ C} (S_ij + S_ji) after adding a chunk to C."""
        both = {
            name: [softplus(s + z.bias) for s in self.similarities(name, chunk)]
            for name, z in self.models.items()
        }
        for direction in (0, 1):
            self._sum = self._sum + self.g(**{name: x[direction] for name, x in both.items()}).sum(axis=1)
        return self.own() + self._sum


class _Softmax(_Pairs):
    """ℓ_i = −s_ii + ½ (log Σ_j e^s_ij + log Σ_j e^s_ji), j over C and i itself; −s_ii if C is empty."""

    def own(self) -> Floats:
        """Return g(−s_ii)."""
        self._sums = {name: [s, s] for name, s in self.s_ii.items()}  # over i itself
        return np.asarray(self.g(**{name: -s for name, s in self.s_ii.items()}))

    def given(self, chunk: Ints) -> Floats:
        """Return g(ℓ_i) after adding a chunk to C."""
        for name, sums in self._sums.items():
            both = zip(sums, self.similarities(name, chunk), strict=True)
            self._sums[name] = [np.logaddexp(x, np.logaddexp.reduce(s, axis=1)) for x, s in both]
        return np.asarray(
            self.g(**{name: sum(sums) / 2 - self.s_ii[name] for name, sums in self._sums.items()})
        )


def _scoring(g: Criterion, models: dict[str, Any], loss: str) -> _Losses | _Sigmoid | _Softmax:
    if not isinstance(next(iter(models.values())), Embeddings):
        return _Losses(g, models)
    if loss not in ("sigmoid", "softmax"):
        raise ValueError(f"unknown loss {loss!r}: expected sigmoid or softmax")
    return _Sigmoid(g, models) if loss == "sigmoid" else _Softmax(g, models)


def softplus(x: Floats) -> Floats:
    """Return log(1 + e^x)."""
    return np.logaddexp(0.0, x)
