"""What selection is told, for arrays of any library: embeddings or losses, a criterion, a rule.

A criterion g (Sec. 3.1 of the paper) combines the losses of the learner θ and the reference θ*:

    hard-learner   s^hard  =  ℓ(· | θ)
    easy-reference s^easy  = −ℓ(· | θ*)
    learnability   s^learn =  ℓ(· | θ) − ℓ(· | θ*)

A custom criterion may be any other elementwise function of the two losses (docs/how-to/extend-selection.md).
To add a criterion here, add it to `CRITERIA`, to `LINEAR` only if it is linear, its losses to `config.base`,
and its label to `analysis.figures.learnability`.

The rules with a fixed number of rounds differ only in these numbers of rounds and in the gain:

    uniform      1 draw, gain 0
    independent  1 draw
    joint        N draws, each by the scores given those before (Algorithm 1)
    greedy       b draws without noise: one by one, the highest score each time

Letters: B super-batch, b sub-batch, N chunks, E embedding width.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Embeddings(NamedTuple):
    """A batch in the shared space, with the t and b of the logits z_img · z_txt · t + b."""

    image: Any  # float32 [n, E], unit length
    text: Any  # float32 [n, E], unit length
    temperature: Any = 1.0  # float32 [], t
    bias: Any = 0.0  # float32 [], b


Criterion = Callable[..., Any]
"""g: an elementwise function of the losses `learner`, `reference`, or both, float32 arrays of one shape."""

CRITERIA: dict[str, Criterion] = {
    "learnability": lambda learner, reference: learner - reference,
    "easy_reference": lambda reference: -reference,
    "hard_learner": lambda learner: learner,
}
"""The paper's criteria by name."""

LINEAR = frozenset(CRITERIA.values())
"""The criteria with g(x) + g(y) = g(x + y): applied once to the sum of two losses."""


def losses_of(criterion: Criterion) -> tuple[str, ...]:
    """Return which of the losses `learner` and `reference` a criterion takes.

    Raises:
        ValueError: It takes neither.
    """
    parameters = inspect.signature(criterion).parameters
    names = tuple(name for name in ("learner", "reference") if name in parameters)
    if not names:
        raise ValueError(f"criterion {criterion!r} must take the losses `learner`, `reference`, or both")
    return names


def inputs_of(
    criterion: str | Criterion, learner: Any | None, reference: Any | None
) -> tuple[Criterion, dict[str, Any]]:
    """Return a criterion as a function, and what it scores with: `Embeddings` or losses [n] by model.

    The paper's pseudo-code has no path for hard-learner, and never sets `cfg.scoring` and `cfg.learnability`;
    here the criterion is one argument.

    Args:
        criterion: One of `CRITERIA`, or a function: see `Criterion`.
        learner: `Embeddings` by the learner (or another tuple: image, text, t, b), if the criterion takes its
            loss; or its losses, an array [n].
        reference: The same by the reference; embeddings have any width.

    Raises:
        ValueError: The criterion is unknown or takes no losses, what it takes is missing, or shapes differ.
    """
    if isinstance(criterion, str) and criterion not in CRITERIA:
        raise ValueError(f"unknown criterion {criterion!r}: expected one of {', '.join(CRITERIA)}")
    g = CRITERIA[criterion] if isinstance(criterion, str) else criterion
    given = {"learner": learner, "reference": reference}
    models: dict[str, Any] = {}
    for name in losses_of(g):
        z = given[name]
        if z is None:
            raise ValueError(
                f"the {name}'s embeddings or losses are missing: criterion {criterion!r} uses them"
            )
        models[name] = Embeddings(*z) if isinstance(z, tuple | list) else z
    _check_shapes(models)
    return g, models


def _check_shapes(models: Mapping[str, Any]) -> None:
    """Raise ValueError unless all are embeddings of the same pairs, or losses of the same examples."""
    shapes = {
        name: [tuple(x.shape) for x in (z[:2] if isinstance(z, Embeddings) else (z,))]
        for name, z in models.items()
    }
    kinds = {(len(x), x[0][:1]) for x in shapes.values()}
    # Two arrays of two axes, or one of one axis.
    if len(kinds) > 1 or any(x[0] != x[-1] or len(x[0]) != len(x) for x in shapes.values()):
        raise ValueError(
            f"expected image and text embeddings [n, E], or losses [n], n equal in both models, not {shapes}"
        )


class Rounds(NamedTuple):
    """The draws of a rule."""

    sizes: list[int]  # the number of examples of each draw
    gain: float
    has_noise: bool


RULES = ("uniform", "independent", "joint", "greedy")


def rounds_of(
    rule: object, *, batch_size: int, super_batch: int, chunks: int, gain: float, by_losses: bool = False
) -> Rounds:
    """Return the draws of one of `RULES`.

    Args:
        rule: The rule's name.
        by_losses: Whether the losses of single examples are given. They don't depend on what is chosen:
            "greedy" takes the b highest at once, and "joint" has no meaning.

    Raises:
        ValueError: b > B, N > b, or an unknown rule.
    """
    check_size(batch_size, super_batch)
    if by_losses and rule not in ("uniform", "independent", "greedy"):
        raise ValueError(
            f"rule {rule!r} needs embeddings: by losses of single examples, select with rule 'independent' "
            "or 'greedy'"
        )
    if rule == "joint":
        return Rounds(chunk_sizes(batch_size, chunks), gain, True)
    if rule == "greedy":
        return Rounds([batch_size] if by_losses else [1] * batch_size, 1.0, False)
    if rule in RULES:
        return Rounds([batch_size], gain if rule == "independent" else 0.0, True)
    raise ValueError(f"unknown selection rule {rule!r}: expected one of {', '.join(RULES)}")


def chunk_sizes(batch_size: int, chunks: int) -> list[int]:
    """Return the sizes of the N chunks: their sum is b, and the first b mod N are larger by one."""
    if not 0 < chunks <= batch_size:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} in {chunks} chunks")
    quotient, remainder = divmod(batch_size, chunks)
    return [quotient + 1] * remainder + [quotient] * (chunks - remainder)


def check_size(batch_size: int, super_batch: int) -> None:
    """Raise ValueError unless 0 < b ≤ B."""
    if not 0 < batch_size <= super_batch:
        raise ValueError(f"cannot draw a sub-batch of {batch_size} from a super-batch of {super_batch}")
