"""An amount of FLOPs by what it is spent on, and how much of it counts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

Scope = Literal["learner", "scoring", "reference_scoring", "reference_training"]
"""How much of a run's cost counts. Each scope holds the ones before it."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

COMPONENTS: dict[Scope, tuple[str, ...]] = {
    "learner": ("image_tower", "text_tower", "loss"),
    "scoring": ("scoring", "selection"),
    "reference_scoring": ("reference_scoring",),
    "reference_training": ("reference_training",),
}
"""What each scope adds: names of attributes of `Cost`."""

EXECUTED: tuple[str, ...] = tuple(
    name for scope in SCOPES if scope != "reference_training" for name in COMPONENTS[scope]
)
"""What a run computes itself: all components but its share in what other runs have computed."""


@dataclass(frozen=True, slots=True)
class Cost:
    """FLOPs by what they are spent on, of an example, a step or a run.

    Attributes:
        image_tower: The learner's forward and backward passes over the images that it trains on.
        text_tower: The same over the captions.
        loss: The logits of all pairs of the sub-batch, and their gradients.
        scoring: The learner's forward passes over super-batches.
        selection: Choosing the sub-batch by what scoring has embedded.
        reference_scoring: The reference's forward passes over super-batches, or over the data of which it
            caches embeddings.
        reference_training: This run's share of what it took to make what it needs: see `amortised`.
    """

    image_tower: float = 0.0
    text_tower: float = 0.0
    loss: float = 0.0
    scoring: float = 0.0
    selection: float = 0.0
    reference_scoring: float = 0.0
    reference_training: float = 0.0

    @property
    def learner(self) -> float:
        """Training itself: towers and loss."""
        return self.total("learner")

    def total(self, scope: Scope = "scoring") -> float:
        """FLOPs within a scope.

        Args:
            scope: "learner": towers and loss. "scoring": and the learner's scoring and selection.
                "reference_scoring": and the reference's. "reference_training": and the share in that one's
                training, so that all that was computed counts.

        Raises:
            ValueError: For an unknown scope.
        """
        check_scope(scope)
        within = SCOPES[: SCOPES.index(scope) + 1]
        return float(sum(getattr(self, name) for part in within for name in COMPONENTS[part]))

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self._amounts(), other._amounts(), strict=True)))

    def __mul__(self, times: float) -> Cost:
        return Cost(*(amount * times for amount in self._amounts()))

    def _amounts(self) -> tuple[float, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


def check_scope(scope: str) -> None:
    """Raise ValueError unless `scope` is one of `SCOPES`."""
    if scope not in SCOPES:
        raise ValueError(f"cost scope {scope!r} is unknown: choose one of {', '.join(SCOPES)}")
