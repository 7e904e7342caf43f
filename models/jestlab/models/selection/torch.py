"""Select a sub-batch with PyTorch, in one process or several, without a matrix of all pairs.

    indices = select(generator, model(images, texts), reference(images, texts), batch_size=b).indices

Scores are float32 for embeddings of any data type, inside `torch.autocast` and with TF32 switched on, too.
`torch.compile` leaves `select` as it is: its loop over blocks of logits would become a graph of thousands of
nodes. No gradients are computed.

The formulas are those of `numpy`; for the departures from the paper's printed algorithms, see `jax`.

Letters: B super-batch, P processes, R = B / P candidates of this process, b sub-batch, N chunks, c chunk,
E embedding width.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.distributed
from torch import Tensor
from torch.nn.functional import softplus

from .criteria import (
    CRITERIA,
    LINEAR,
    RULES,
    Criterion,
    Embeddings,
    inputs_of,
    rounds_of,
)

__all__ = ["CRITERIA", "RULES", "Embeddings", "Selected", "exchange", "select"]

Group = Any  # torch.distributed.ProcessGroup

BLOCK_LOGITS = 1 << 18
"""Logits of one model and direction per block on the CPU: 1 MB, in up to six such arrays. The
fastest of 2^15 to 2^20."""

GPU_BLOCK_LOGITS = 1 << 24
"""The same on a GPU, where many small kernels would mostly wait; not measured."""

MIN_LOGIT = torch.finfo(torch.float32).min / 2
"""Smallest perturbed score of a candidate that can be drawn; chosen ones have −inf."""


class Selected(NamedTuple):
    """A sub-batch and how it was selected."""

    indices: Tensor
    """int64 [b], distinct indices into the super-batch, the same in all processes: in the order of the draws,
    ascending in each."""
    own: Tensor
    """float32 [B], the scores before anything is chosen."""
    effective: Tensor
    """float32 [draws], the effective number of candidates at the start of each draw, 1 / Σ p²."""


@torch.compiler.disable
@torch.no_grad()
def select(
    random: torch.Generator | Tensor | None,
    learner: Embeddings | tuple[Any, ...] | Tensor | None,
    reference: Embeddings | tuple[Any, ...] | Tensor | None,
    *,
    batch_size: int,
    rule: str = "joint",
    criterion: str | Criterion = "learnability",
    loss: str = "sigmoid",
    chunks: int = 16,
    gain: float = 100.0,
    group: Group | None = None,
) -> Selected:
    """Select the sub-batch to train on (Algorithm 1 of the paper).

    Args:
        random: The source of the noise, on any device; or Gumbel noise [draws, B]. "greedy" uses none.
        learner: Embeddings of the pairs by the learner: image [R, E] and text [R, E] of unit length, t, bias.
            Or the losses of examples that don't depend on each other, such as sequences or tokens: [R], for
            "uniform", "independent", or "greedy". None if the criterion doesn't use them.
        reference: The same by the reference, on the same device; embeddings have any width.
        batch_size: b.
        rule: One of `RULES`.
        criterion: One of `CRITERIA`, or an elementwise function of the losses `learner` and `reference`.
        loss: The loss to score pairs with: "sigmoid" or "softmax".
        chunks: N, for "joint".
        gain: Factor on the scores before sampling, the inverse of a temperature. The paper's 100 is for the
            losses of pairs; losses of other units need another.
        group: The processes that the super-batch is spread over, each with equally many rows: an index counts
            through the rows of rank 0, then of rank 1, and so on. The noise is that of rank 0. None for one
            process; `torch.distributed.group.WORLD` for all.

    Raises:
        ValueError: b > B, N > b, an unknown rule, criterion, or loss, or inputs that don't fit together.
    """
    g, models = inputs_of(criterion, learner, reference)
    first = next(iter(models.values()))
    by_losses = not isinstance(first, Embeddings)
    rows = _Rows(first if by_losses else first.image, group)
    rounds = rounds_of(
        rule,
        batch_size=batch_size,
        super_batch=rows.total,
        chunks=chunks,
        gain=gain,
        by_losses=by_losses,
    )
    noise = rows.noise(random, len(rounds.sizes)) if rounds.has_noise else None
    with _full_float32(rows.device):
        scoring = _scoring(g, models, loss, rows)
        scores = own = rows.gather(scoring.own())
        chosen = torch.zeros_like(own, dtype=torch.bool)
        indices, effective = [], []
        for number, size in enumerate(rounds.sizes):
            relative = rounds.gain * (scores - scores.masked_fill(chosen, -torch.inf).max())
            relative = relative.clamp(min=MIN_LOGIT)
            p = relative.exp().masked_fill(chosen, 0.0)
            effective.append(torch.ones_like(p[0]) if noise is None else p.sum() ** 2 / p.square().sum())
            perturbed = relative if noise is None else relative + noise[number]
            perturbed = perturbed.nan_to_num(nan=MIN_LOGIT).masked_fill(chosen, -torch.inf)
            # Stable: the lower index is the first of equal ones. (`topk` would return either.)
            chunk = perturbed.sort(descending=True, stable=True).indices[:size].sort().values
            indices.append(chunk)
            chosen[chunk] = True
            if number < len(rounds.sizes) - 1:
                scores = rows.gather(scoring.given(chunk))
    return Selected(torch.cat(indices), own, torch.stack(effective))


@torch.no_grad()
def exchange(rows: Tensor, indices: Tensor, group: Group | None) -> Tensor:
    """Return this process's share of a sub-batch: rows of a tensor that is spread over the processes.

    Every process gets b / P rows; if P doesn't divide b, the first ones get one more.

    Args:
        rows: [R, …], this process's rows of the super-batch, on the device that the group communicates from.
        indices: int64 [b], as `select` returns them: the same in all processes.
        group: As in `select`.
    """
    if group is None:
        return rows[indices.to(rows.device)]
    here, rank = len(rows), torch.distributed.get_rank(group)
    shares = indices.to(rows.device).tensor_split(torch.distributed.get_world_size(group))
    sent = [share[share // here == rank] - rank * here for share in shares]
    owners = shares[rank] // here
    counts = torch.bincount(owners, minlength=len(shares)).tolist()
    received = rows.new_empty(len(owners), *rows.shape[1:])
    torch.distributed.all_to_all_single(
        received, rows[torch.cat(sent)].contiguous(), counts, [len(x) for x in sent], group
    )
    # They arrive ordered by their owners.
    return received[owners.argsort(stable=True).argsort()]


class _Rows:
    """The candidates of this process, and those of the others."""

    def __init__(self, some: Tensor, group: Group | None) -> None:
        self.count, self.device, self._group = len(some), some.device, group
        self._rank, processes = 0, 1
        if group is not None:
            self._rank = torch.distributed.get_rank(group)
            processes = torch.distributed.get_world_size(group)
            counts = self.gather(torch.tensor([self.count], device=self.device)).tolist()
            if len(set(counts)) > 1:
                raise ValueError(f"each process must have equally many examples, not {counts}")
        self.total = self.count * processes

    def noise(self, random: torch.Generator | Tensor | None, draws: int) -> Tensor:
        """Return Gumbel noise, float32 [draws, B], the same in all processes."""
        shape = (draws, self.total)
        if isinstance(random, torch.Generator):
            # In float64: in float32 the largest noise would be 16.6.
            exponential = torch.empty(shape, dtype=torch.float64, device=random.device)
            noise = -exponential.exponential_(generator=random).log()
        elif random is None:
            raise ValueError("random is missing: a torch.Generator, or Gumbel noise")
        elif (noise := random).shape != shape:
            raise ValueError(f"noise must be {list(shape)}, not {list(noise.shape)}")
        noise = noise.to(self.device, torch.float32)
        if self._group is not None:
            noise = noise.contiguous()
            torch.distributed.broadcast(noise, group=self._group, group_src=0)
        return noise

    def gather(self, values: Tensor) -> Tensor:
        """Return the values [R] of all processes, [B]."""
        if self._group is None:
            return values
        parts = [torch.empty_like(values) for _ in range(torch.distributed.get_world_size(self._group))]
        torch.distributed.all_gather(parts, values.contiguous(), group=self._group)
        return torch.cat(parts)

    def fetch(self, values: Tensor, indices: Tensor) -> Tensor:
        """Return the rows at indices int64 [k] of an array that is spread over the processes, [k, E]."""
        if self._group is None:
            return values[indices]
        is_here = indices // self.count == self._rank
        found = values.new_zeros(len(indices), values.shape[1])
        found[is_here] = values[indices[is_here] - self._rank * self.count]
        torch.distributed.all_reduce(found, group=self._group)  # adds zeros: exact
        return found


@contextlib.contextmanager
def _full_float32(device: torch.device) -> Iterator[None]:
    """Compute in float32, within `torch.autocast` and where TF32 or bfloat16 may replace it."""
    full: str | bool
    with contextlib.ExitStack() as stack:
        for matmul in (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None)):
            if hasattr(matmul, "fp32_precision"):
                name, full = "fp32_precision", "ieee"
            elif hasattr(matmul, "allow_tf32"):  # before PyTorch 2.9
                name, full = "allow_tf32", False
            else:
                continue
            stack.callback(setattr, matmul, name, getattr(matmul, name))
            setattr(matmul, name, full)
        stack.enter_context(torch.autocast(device.type, enabled=False))
        yield


def _scoring(g: Criterion, models: dict[str, Any], loss: str, rows: _Rows) -> "_Losses | _Sigmoid | _Softmax":
    if not isinstance(next(iter(models.values())), Embeddings):
        return _Losses(g, {name: x.detach().float() for name, x in models.items()})
    if loss not in ("sigmoid", "softmax"):
        raise ValueError(f"unknown loss {loss!r}: expected sigmoid or softmax")
    in_float32 = {
        name: Embeddings(*(torch.as_tensor(x, dtype=torch.float32, device=rows.device).detach() for x in z))
        for name, z in models.items()
    }
    return (_Sigmoid if loss == "sigmoid" else _Softmax)(g, in_float32, rows)


@dataclass
class _Losses:
    """Scores by losses of single examples."""

    g: Criterion
    losses: dict[str, Tensor]

    def own(self) -> Tensor:
        """Return g(ℓ_i), float32 [R]."""
        scores: Tensor = self.g(**self.losses)
        return scores

    def given(self, _: Tensor) -> Tensor:
        """Return the scores given that a chunk is chosen, too."""
        return self.own()


class _Pairs:
    """Scores by a contrastive loss: what both losses need of each model."""

    def __init__(self, g: Criterion, models: dict[str, Embeddings], rows: _Rows) -> None:
        self.g, self.models, self._rows = g, models, rows
        self.s_ii = {k: z.temperature * (z.image * z.text).sum(dim=1) for k, z in models.items()}

    def over_blocks(self, chunk: Tensor, block: Callable[..., Tensor], width: int) -> Tensor:
        """Compute the sums of this process's candidates with a chunk, for some candidates at a time.

        Args:
            chunk: int64 [c].
            block: Function of {model: (s_ij [r, c], s_ji [r, c])} → [r, width]. It may overwrite its input.

        Returns:
            float32 [R, width].
        """
        fetched = {
            name: [self._rows.fetch(x, chunk).mul(z.temperature).T for x in (z.text, z.image)]
            for name, z in self.models.items()
        }
        most = GPU_BLOCK_LOGITS if self._rows.device.type == "cuda" else BLOCK_LOGITS
        size = max(1, most // len(chunk))
        sums = torch.empty(self._rows.count, width, device=self._rows.device)
        for first in range(0, self._rows.count, size):
            part = slice(first, first + size)
            similarities = {
                name: (z.image[part] @ fetched[name][0], z.text[part] @ fetched[name][1])
                for name, z in self.models.items()
            }
            sums[part] = block(similarities)
        return sums


class _Sigmoid(_Pairs):
    """ℓ_ij = softplus(s_ij + bias) off the diagonal, ℓ_ii = softplus(−s_ii − bias) on it; S = g(ℓ)."""

    _sum: Tensor | float = 0.0

    def own(self) -> Tensor:
        """Return S_ii, float32 [R]."""
        scores: Tensor = self.g(**{k: softplus(-(self.s_ii[k] + z.bias)) for k, z in self.models.items()})
        return scores

    def given(self, chunk: Tensor) -> Tensor:
        """Return S_ii + Σ_{j ∈ C} (S_ij + S_ji) after adding a chunk to C."""
        self._sum = self._sum + self.over_blocks(chunk, self._scores, 1)[:, 0]
        return self.own() + self._sum

    def _scores(self, similarities: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
        """Sum the scores of a block. g comes first, while the difference between the models is exact."""
        losses = {
            name: [softplus(s.add_(self.models[name].bias)) for s in both]
            for name, both in similarities.items()
        }
        if self.g in LINEAR:  # both directions at once
            sums: Tensor = self.g(**{name: there.add_(back) for name, (there, back) in losses.items()})
            return sums.sum(dim=1, keepdim=True)
        there, back = (self.g(**{name: x[i] for name, x in losses.items()}) for i in (0, 1))
        return (there + back).sum(dim=1, keepdim=True)


class _Softmax(_Pairs):
    """ℓ_i = −s_ii + ½ (log Σ_j e^s_ij + log Σ_j e^s_ji), j over C and i itself; −s_ii if C is empty."""

    def own(self) -> Tensor:
        """Return g(−s_ii), float32 [R]."""
        # Over i itself: float32 [R, 2 × models].
        self._sums = torch.stack([s for s in self.s_ii.values() for _ in range(2)], dim=1)
        scores: Tensor = self.g(**{name: -s for name, s in self.s_ii.items()})
        return scores

    def given(self, chunk: Tensor) -> Tensor:
        """Return g(ℓ_i) after adding a chunk to C."""

        def block(similarities: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
            return torch.stack([s.logsumexp(dim=1) for both in similarities.values() for s in both], dim=1)

        self._sums = torch.logaddexp(self._sums, self.over_blocks(chunk, block, self._sums.shape[1]))
        halves = dict(zip(self.models, self._sums.split(2, dim=1), strict=True))
        scores: Tensor = self.g(**{name: x.mean(dim=1) - self.s_ii[name] for name, x in halves.items()})
        return scores
