"""JEST's step of a ViT-B/16 and a text tower in bfloat16, and how much more it costs than uniform training.

jestlab's step (two microbatches) is compared with one in PyTorch with compiled blocks (the whole batch at
once), which selects by jestlab's function or by Algorithm 1 with its matrix. f = .8; the reference's
embeddings are cached. The batch size is the largest power of two that fits, at most `LARGEST`.
"""

from functools import partial
from typing import Any

from tests.benchmarks.bench_jest import B16, SMALL
from tests.benchmarks.gpu.part import InJax, InTorch, Part, Row, largest_that_fits

from jestlab.models.config import TrainConfig
from jestlab.platform.planning.memory import estimate_of

LARGEST, ROUNDS = 1_024, 5


def settings_of(toy: bool, batch_size: int) -> dict[str, Any]:
    """Return the run's settings with a sub-batch of b."""
    tower = {"width": 64, "depth": 1, "heads": 2, "pooling": "mean"}
    vision, text = (SMALL["model"][name] | tower for name in ("vision", "text"))
    model = SMALL["model"] | {"vision": vision, "text": text} if toy else B16["model"]
    runtime = B16["runtime"] | {"scan_layers": True}  # compiles in a fraction of the time
    return B16 | {"model": model, "runtime": runtime, "schedule": {"batch_size": batch_size}}


def first_batch(toy: bool, memory: float | None) -> int:
    """Return the largest batch for which the estimate of `jestlab plan` is below the GPU's memory."""
    size = 32 if toy else LARGEST
    while memory is not None and size > 16:
        config = TrainConfig.model_validate(settings_of(toy, size))
        estimate = estimate_of(config, [], 1)
        if estimate is None or estimate["device"] < memory:
            break
        size //= 2
    return size


def with_jax(part: Part) -> None:
    """Measure jestlab's step."""
    on = InJax(part.toy)

    from tests.benchmarks.bench_jest import parts

    def measured() -> Row:
        rounds = 2 if part.toy else ROUNDS

        def ms(size: int) -> dict[str, float]:
            return parts(settings_of(part.toy, size), rounds)

        size, found = largest_that_fits(first_batch(part.toy, on.memory()), ms)
        return row_of(size, found["fused step"], found["training"], on.peak_mb()) | {
            "scoring, ms": found["scoring"],
            "selection, ms": found["selection"],
        }

    part.measure({"step": "jestlab"}, measured)


def with_torch(part: Part) -> None:
    """Measure PyTorch's step, with each way to select."""
    import torch
    from tests.benchmarks.gpu import in_torch

    from jestlab.models.selection.torch import select

    on = InTorch(part.toy)

    def without_matrix(noise: Any, learner: Any, reference: Any, size: int) -> Any:
        return select(noise, learner, reference, batch_size=size).indices

    def ms(size: int) -> dict[str, Row]:
        torch._dynamo.reset()  # shapes of an earlier size would count as recompilations
        sizes = TrainConfig.model_validate(settings_of(part.toy, size)).model
        trainer = in_torch.Trainer(sizes, size, 5 * size, on.device, part.backend)
        return {
            "uniform": on.measured(trainer.uniform),
            "PyTorch, jestlab's selection": on.measured(partial(trainer.jest, without_matrix)),
            "PyTorch, matrix": on.measured(partial(trainer.jest, in_torch.dense)),
        }

    found: dict[str, Any] = {}

    def measured(name: str) -> Row:
        if not found:
            found["size"], found["rows"] = largest_that_fits(first_batch(part.toy, on.memory()), ms)
        mine, uniform = found["rows"][name], found["rows"]["uniform"]
        return row_of(found["size"], 1e3 * mine["seconds"], 1e3 * uniform["seconds"], mine["peak MB"])

    for name in ("PyTorch, jestlab's selection", "PyTorch, matrix"):
        part.measure({"step": name}, partial(measured, name))


def row_of(size: int, jest_ms: float, uniform_ms: float, peak_mb: float | None) -> Row:
    """Return the figures of a step."""
    return {
        "b": size,
        "JEST, ms": jest_ms,
        "uniform, ms": uniform_ms,
        "JEST / uniform": jest_ms / uniform_ms,
        "examples trained on/s": 1e3 * size / jest_ms,
        "peak MB": peak_mb,
    }


def main() -> None:
    """Measure one library."""
    part = Part(__doc__)
    {"torch": with_torch, "jax": with_jax}[part.case[0]](part)
    part.end()


if __name__ == "__main__":
    main()
