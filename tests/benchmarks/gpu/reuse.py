"""`runtime.reuse_scoring` on and off: as `bench_reuse`, with a shape for GPUs."""

from functools import partial
from typing import Any

from tests.benchmarks.gpu.part import InJax, Part, Row

S16: dict[str, Any] = {
    "model": {"variant": "S/16", "compute_dtype": "bfloat16"},
    "schedule": {"batch_size": 64},
}


def measured(settings: dict[str, Any], rounds: int) -> Row:
    """Return a row, each figure without and with reuse."""
    from tests.benchmarks.bench_reuse import measured

    return dict(zip(("step, ms", "GFLOP", "MB"), measured(settings, rounds), strict=True))


def main() -> None:
    """Measure all shapes."""
    part = Part(__doc__)
    InJax(part.toy)

    from tests.benchmarks.bench_reuse import SHAPES

    shapes = SHAPES | {"S/16, bfloat16, b = 64, f = 0.8": S16}
    for name in [*shapes][:1] if part.toy else reversed(shapes):
        call = partial(measured, shapes[name], 2 if part.toy else 9)
        part.measure({"without → with reuse": name}, call, memory_may_lack=True)
    part.end()


if __name__ == "__main__":
    main()
