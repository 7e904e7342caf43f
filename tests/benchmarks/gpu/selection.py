"""Joint selection by PyTorch or JAX compared with the matrix of all pairs, and with its products alone.

As in `bench_selection`: f = .8, N = 16, sigmoid learnability. Peak memory includes the embeddings.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.benchmarks.gpu.part import InJax, InTorch, Part

CHUNKS, LARGEST_DENSE = 16, 20_480

Calls = dict[str, Callable[[], object]]
"""First cell of a row → the call to measure."""


def with_torch(part: Part, super_batch: int, width: int) -> None:
    """Measure PyTorch's selection, the baselines, and selection with compiled blocks."""
    import torch
    from tests.benchmarks.gpu import in_torch

    from jestlab.models.selection import torch as library

    torch.set_grad_enabled(False)
    on = InTorch(part.toy)
    learner, reference = in_torch.random_models(super_batch, width, on.device)
    noise = torch.Generator(on.device).manual_seed(0)
    settings = {"batch_size": super_batch // 5, "chunks": CHUNKS}
    block_logits = library.BLOCK_LOGITS if part.toy else library.GPU_BLOCK_LOGITS

    def select() -> Any:
        return library.select(noise, learner, reference, **settings).indices

    compiled = torch.compile(select, backend=part.backend)

    calls: Calls = {
        "PyTorch, eager": select,
        "PyTorch, torch.compile of a function that selects": compiled,
        "PyTorch, products alone": lambda: in_torch.block_products(
            learner, reference, block_logits=block_logits, **settings
        ),
    }
    if super_batch <= LARGEST_DENSE:
        calls["PyTorch, matrix"] = lambda: in_torch.dense(noise, learner, reference, **settings)
    measured(part, on, super_batch, width, calls)

    # What compiling the arithmetic of a block would save: the one part that it could make faster.
    eager = library._Sigmoid._scores
    library._Sigmoid._scores = torch.compile(  # type: ignore[method-assign]
        eager, backend=part.backend, dynamic=False
    )
    measured(part, on, super_batch, width, {"PyTorch, compiled blocks": select})


def with_jax(part: Part, super_batch: int, width: int) -> None:
    """Measure JAX's selection, then the baselines. A peak of JAX's memory includes the calls before it."""
    on = InJax(part.toy)

    import jax
    from tests.benchmarks.bench_selection import CONTENDERS, models

    found = models(super_batch, width)
    names = {"jestlab": "JAX", "matmuls": "JAX, products alone"}
    if super_batch <= LARGEST_DENSE:
        names["rows"] = "JAX, matrix"
    functions = {title: CONTENDERS[name](super_batch) for name, title in names.items()}
    key = jax.random.key(0)
    calls: Calls = {title: partial(function, key, *found) for title, function in functions.items()}
    measured(part, on, super_batch, width, calls)


def measured(part: Part, on: InTorch | InJax, super_batch: int, width: int, calls: Calls) -> None:
    """Append a row for each call."""
    for name, call in calls.items():
        names = {"B/D": f"{super_batch:,}/{width}", "who": name}
        part.measure(names, partial(on.measured, call), memory_may_lack="matrix" in name)


def main() -> None:
    """Measure one library at one size."""
    part = Part(__doc__)
    library, super_batch, width = part.case
    {"torch": with_torch, "jax": with_jax}[library](part, int(super_batch), int(width))
    part.end()


if __name__ == "__main__":
    main()
