"""Budgets: how many examples cost as much, and how many runs a reference has to serve."""

from __future__ import annotations

import math
from dataclasses import replace

from .cost import Cost, Scope


def matching_examples(
    examples: float, spent: Cost, wanted: Cost, scope: Scope = "scoring", fixed: float = 0.0
) -> float:
    """How many examples cost as much by one way of training as `examples` by another: iso-FLOP budgets.

    Args:
        examples: Seen by the one, whose FLOPs are the budget.
        spent: What it costs an example (`Step.cost`).
        wanted: What the other costs an example, by the same convention.
        scope: What counts as FLOPs. The paper matches "learner" in "Comparing approximation methods".
        fixed: FLOPs that the other pays besides, however many examples it sees, such as its share in the
            training of its reference.

    Returns:
        Examples seen by the other. By the paper's convention with A = .25, for 3B of uniform sampling at
        λ = .25, .5, .75, .95: 3.69B, 4.8B, 6.86B, 10.43B.

    Raises:
        ValueError: An example of the other costs nothing, or `fixed` alone is beyond the budget.
    """
    budget, each = examples * spent.total(scope), wanted.total(scope)
    if not each > 0:
        raise ValueError(f"an example costs nothing within scope {scope!r}: any number fits the budget")
    if fixed > budget:
        raise ValueError(f"{fixed:.3g} FLOPs are spent before the first example, of a budget of {budget:.3g}")
    return (budget - fixed) / each


def amortised(cost: Cost, reference_training: float, runs: int) -> Cost:
    """A run's cost with its share in the training of its reference.

    The share is the reference's whole training over the number of runs that it serves: what each would pay if
    they divided the bill. Somebody who trains a reference for one run pays all of it.

    Args:
        cost: Of the run itself.
        reference_training: FLOPs of making all that it needs: the reference's training, and the pass over the
            data where embeddings are cached.
        runs: How many runs share that, this one included.

    Raises:
        ValueError: No run shares it.
    """
    if runs < 1:
        raise ValueError(f"{runs} runs share the reference: the run itself is one of them")
    return replace(cost, reference_training=reference_training / runs)


def break_even_runs(reference_training: float, run: float, baseline: float) -> int | None:
    """How many runs have to share a reference until it has paid.

    Args:
        reference_training: FLOPs of making the reference, once.
        run: FLOPs until a run that selects by it reaches a target score, without that.
        baseline: FLOPs until the uniform baseline reaches the same target.

    Returns:
        The fewest runs n that together, reference and all, cost less than n baselines; None where a run saves
        nothing, so that no number does.

    Raises:
        ValueError: A cost is negative or not finite.
    """
    for name, flops in (("reference_training", reference_training), ("run", run), ("baseline", baseline)):
        if not 0 <= flops < math.inf:
            raise ValueError(f"{name} is {flops:g} FLOPs: a cost is finite and not negative")
    saved = baseline - run
    if saved <= 0:
        return None
    return math.floor(reference_training / saved) + 1
