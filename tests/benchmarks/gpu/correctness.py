"""Selection on the GPU judged by Algorithm 1 in float64, on random inputs that are new each time.

`tests.models.support.algorithm1` judges each draw given the draws before it, up to the rounding of float32. A
case also counts as equal if all indices are those of `selection.numpy` with the same noise.
"""

import itertools
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from tests.benchmarks.gpu.part import InJax, InTorch, Part, Row
from tests.models.support.algorithm1 import assert_drawn, noise_of

from jestlab.models.selection import numpy as in_numpy
from jestlab.models.selection.criteria import CRITERIA, Embeddings, rounds_of

LOSSES = ("sigmoid", "softmax")
GAIN = 3.0
CASES = [
    *itertools.product(["joint"], LOSSES, CRITERIA, [64]),
    *itertools.product(["joint"], LOSSES, ["learnability"], [768]),
    *itertools.product(["independent"], LOSSES, ["learnability"], [64]),
]
"""Rule, loss, criterion, and width of the embeddings. JAX compiles each, which takes most of the time."""
TOY_CASES = [("joint", "sigmoid", "learnability", 16), ("joint", "softmax", "hard_learner", 16)]

Models = tuple[Embeddings, Embeddings]
Found = tuple[np.ndarray, np.ndarray, Any, np.ndarray]
"""Indices, own scores, the noise as `assert_drawn` takes it, and the noise as an array."""
Run = Callable[[Models, dict[str, Any], int], Found]
"""Function of embeddings, settings, and a seed that selects."""


def random_models(seed: int, count: int, width: int) -> Models:
    """Return the float32 embeddings of a random learner and reference, their pairs somewhat alike."""
    random = np.random.default_rng(seed)

    def one(temperature: float) -> Embeddings:
        image, other = random.standard_normal((2, count, width), np.float32)
        both = (image, 0.3 * image + 0.7 * other)
        unit = [z / np.linalg.norm(z, axis=1, keepdims=True) for z in both]
        return Embeddings(unit[0], unit[1], temperature, -10.0)

    return one(10.0), one(30.0)


def judged(run: Run, part: Part, rounded: Callable[[np.ndarray], np.ndarray]) -> Row:
    """Select in all cases; raise AssertionError if Algorithm 1 would have selected other examples.

    Args:
        run: The selection.
        part: The options; toy sizes or not.
        rounded: Function of an array that returns it as `run` sees it, in float32.
    """
    count, size, chunks = (200, 40, 16) if part.toy else (1_024, 205, 16)
    seed, equal, decided, cases, error = secrets.randbits(32), 0, 0, 0, 0.0
    for rule, loss, criterion, width in TOY_CASES if part.toy else 2 * CASES:
        settings: dict[str, Any] = {
            "rule": rule,
            "loss": loss,
            "criterion": criterion,
            "gain": GAIN,
            "batch_size": size,
        }
        settings |= {"chunks": chunks}
        models = random_models(seed + cases, count, width)
        learner, reference = (z._replace(image=rounded(z.image), text=rounded(z.text)) for z in models)
        indices, own, random, noise = run(models, settings, cases)
        expected = in_numpy.select(noise, learner, reference, **settings)
        rounds = rounds_of(rule, batch_size=size, super_batch=count, chunks=chunks, gain=GAIN)
        criteria: dict[str, Any] = {"loss": loss, "criterion": criterion}
        decided += assert_drawn(
            random, indices, learner, reference, sizes=rounds.sizes, gain=GAIN, few_ties=False, **criteria
        )
        equal += np.array_equal(indices, expected.indices)
        error = max(error, float(np.abs(own - expected.own).max() / np.abs(expected.own).max()))
        cases += 1
    assert equal >= decided, f"{decided} cases have no near tie, but only {equal} equal NumPy's"
    assert error < 1e-4, f"relative error of own scores: {error:.2g}"
    return {
        "B": count,
        "cases": cases,
        "as Algorithm 1": cases,
        "equal to NumPy's": equal,
        "without near ties": decided,
        "largest relative error of own scores": error,
        "seed": seed,
    }


def with_torch(part: Part) -> None:
    """Judge PyTorch's selection."""
    import torch

    from jestlab.models.selection.torch import select

    device = InTorch(part.toy).device

    def run_of(dtype: torch.dtype, autocast: bool) -> Run:
        def run(models: Models, settings: dict[str, Any], number: int) -> Found:
            draws = settings["chunks"] if settings["rule"] == "joint" else 1
            shape = (draws, len(models[0].image))
            noise = np.random.default_rng(number).gumbel(size=shape).astype(np.float32)
            tensors = [
                (*(torch.tensor(x, dtype=dtype, device=device) for x in z[:2]), *z[2:]) for z in models
            ]
            with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
                found = select(torch.tensor(noise, device=device), *tensors, **settings)
            return found.indices.cpu().numpy(), found.own.cpu().numpy(), noise.astype(np.float64), noise

        return run

    def rounded(x: np.ndarray) -> np.ndarray:
        return np.asarray(torch.tensor(x).bfloat16().float())

    for name, dtype, autocast in (
        ("float32", torch.float32, False),
        ("float32, in autocast to bfloat16", torch.float32, True),
        ("bfloat16", torch.bfloat16, False),
    ):
        as_seen = rounded if dtype == torch.bfloat16 else np.asarray
        names = {"library": f"PyTorch {torch.__version__}", "embeddings": name}
        run = run_of(dtype, autocast)
        part.measure(names, partial(judged, run, part, as_seen))


def with_jax(part: Part) -> None:
    """Judge JAX's selection."""
    import jax
    import jax.numpy as jnp

    from jestlab.models.selection.jax import select

    InJax(part.toy)

    def run_of(dtype: Any) -> Run:
        def run(models: Models, settings: dict[str, Any], number: int) -> Found:
            draws = settings["chunks"] if settings["rule"] == "joint" else 1
            key = jax.random.key(number)
            learner, reference = (
                Embeddings(*(jnp.asarray(x, dtype) for x in z[:2]), *(jnp.float32(x) for x in z[2:]))
                for z in models
            )
            found = select(key, learner, reference, **settings)
            noise = noise_of(key, draws, len(models[0].image))
            return np.asarray(found.indices), np.asarray(found.own), key, noise

        return run

    for name, dtype in (("float32", jnp.float32), ("bfloat16", jnp.bfloat16)):

        def as_seen(x: np.ndarray, dtype: Any = dtype) -> np.ndarray:
            return np.asarray(jnp.asarray(x, dtype).astype(jnp.float32))

        names = {"library": f"JAX {jax.__version__}", "embeddings": name}
        run = run_of(dtype)
        part.measure(names, partial(judged, run, part, as_seen))


def main() -> None:
    """Judge one library."""
    part = Part(__doc__)
    {"torch": with_torch, "jax": with_jax}[part.case[0]](part)
    part.end()


if __name__ == "__main__":
    main()
