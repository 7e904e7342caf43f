"""Shared by the parts: options, rows of results, and time and memory on one device.

A part is a module that `run.py` starts as a separate process:

    python -m tests.benchmarks.gpu.NAME CASE... --out FILE [--seconds N] [--toy]
"""

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.benchmarks.support import seconds_of

Result = TypeVar("Result")
Row = dict[str, Any]

FEWEST, MOST, ENOUGH_SECONDS = 3, 30, 3.0
"""Rounds of a measurement: at least, at most, and the seconds after which no further one starts."""


class Part:
    """The options of a part, and where its rows go."""

    def __init__(self, about: str | None) -> None:
        parser = argparse.ArgumentParser(description=about)
        parser.add_argument("case", nargs="*", help="which of the part's cases")
        parser.add_argument(
            "--out", type=Path, required=True, help="file to append rows to, as lines of JSON"
        )
        parser.add_argument("--seconds", type=float, default=60.0, help="time limit of this process")
        parser.add_argument("--toy", action="store_true", help="toy sizes, on the CPU")
        options = parser.parse_args()
        self.case: list[str] = options.case
        self.toy: bool = options.toy
        self.seconds: float = options.seconds
        # What PyTorch compiles with: at toy sizes without C++, which takes a minute to compile.
        self.backend = "aot_eager" if self.toy else "inductor"
        self._out: Path = options.out
        self._has_failed = False

    def row(self, **figures: Any) -> None:
        """Append a row to the results. Earlier rows are kept if the process ends early."""
        with self._out.open("a", encoding="utf-8") as file:
            print(json.dumps(figures), file=file, flush=True)

    def measure(
        self, names: Mapping[str, Any], call: Callable[[], Row], *, memory_may_lack: bool = False
    ) -> None:
        """Append the row that a call returns, or the error that it raises.

        Args:
            names: First cells of the row.
            call: Returns the row's figures.
            memory_may_lack: Whether running out of memory is a result, and no failure of the part.
        """
        try:
            found = call()
        except Exception as error:
            if memory_may_lack and is_out_of_memory(error):
                found = {"note": "doesn't fit into the GPU's memory"}
            else:
                traceback.print_exc()
                found, self._has_failed = {"error": one_line(error)}, True
        gc.collect()
        self.row(**names, **found)

    def end(self) -> None:
        """Exit: with 1 if a measurement failed."""
        sys.exit(int(self._has_failed))


def one_line(error: BaseException) -> str:
    """Return an error as one line: the type, at most 300 characters of the message, and the place."""
    message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{message} ({Path(place.filename).name}:{place.lineno})"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of PyTorch or JAX reports too little memory."""
    return type(error).__name__ == "OutOfMemoryError" or "RESOURCE_EXHAUSTED" in str(error)


def largest_that_fits(start: int, call: Callable[[int], Result], smallest: int = 8) -> tuple[int, Result]:
    """Call a function with a size, halved while its memory doesn't suffice.

    Returns:
        The size and the function's result.
    """
    size = start
    while True:
        try:
            return size, call(size)
        except Exception as error:
            if not is_out_of_memory(error) or size // 2 < smallest:
                raise
        # Here the error, whose frames refer to what takes the memory, is gone.
        gc.collect()
        size //= 2


def median(call: Callable[[], object]) -> float:
    """Return the median seconds of a call that waits for its result, after two that aren't counted."""
    for _ in range(2):
        call()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() - start < ENOUGH_SECONDS):
        times.append(seconds_of(call))
    return statistics.median(times)


class InTorch:
    """PyTorch's device: its time and its peak memory."""

    def __init__(self, toy: bool) -> None:
        import torch

        self._torch, self._is_gpu = torch, not toy
        if self._is_gpu and not torch.cuda.is_available():
            sys.exit("PyTorch finds no GPU")
        self.device: Any = torch.device("cpu" if toy else "cuda")

    def memory(self) -> float | None:
        """Return the device's memory in bytes; None on the CPU."""
        return float(self._torch.cuda.get_device_properties(0).total_memory) if self._is_gpu else None

    def measured(self, call: Callable[[], object]) -> Row:
        """Return a call's median seconds and peak memory, its arguments included."""
        if not self._is_gpu:
            return {"seconds": median(call), "peak MB": None}
        cuda = self._torch.cuda

        def waited() -> None:
            call()
            cuda.synchronize()

        cuda.empty_cache()
        cuda.reset_peak_memory_stats()
        cuda.synchronize()
        seconds = median(waited)
        return {"seconds": seconds, "peak MB": cuda.max_memory_allocated() / 1e6}


class InJax:
    """JAX's device: its time and its peak memory."""

    def __init__(self, toy: bool) -> None:
        import jax

        self._jax, self._is_gpu = jax, not toy
        if self._is_gpu and jax.default_backend() != "gpu":
            sys.exit(f"JAX finds no GPU, only {jax.default_backend()}")

    def _statistics(self) -> dict[str, int]:
        return (self._jax.devices()[0].memory_stats() or {}) if self._is_gpu else {}

    def memory(self) -> float | None:
        """Return the bytes that JAX may allocate; None on the CPU."""
        return self._statistics().get("bytes_limit")

    def peak_mb(self) -> float | None:
        """Return the peak memory of this process so far; None on the CPU. JAX can't reset it."""
        peak = self._statistics().get("peak_bytes_in_use")
        return None if peak is None else peak / 1e6

    def measured(self, call: Callable[[], object]) -> Row:
        """Return a call's median seconds, and the peak memory of all calls so far."""
        seconds = median(lambda: self._jax.block_until_ready(call()))
        return {"seconds": seconds, "peak MB": self.peak_mb()}
