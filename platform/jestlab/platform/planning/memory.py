"""Whether runs fit into memory: several at a time on this machine, or each on its TPU chips."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs import MemoryEstimate
from jestlab.platform.spec.resources import LOCAL_PARALLEL, Resources

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MAX_NAMED = 3
_GB = 1e9


@dataclass(frozen=True)
class AvailableMemory:
    """Memory for the runs of a plan.

    Attributes:
        bytes: Memory of this machine or of a TPU chip.
        where: "here", or "of a v5e chip".
        parallel: Number of runs that share it.
        per_run: Limit for one run, by `resources.memory_gb`; None for no limit.
    """

    bytes: float
    where: str
    parallel: int = 1
    per_run: float | None = None

    @property
    def limit(self) -> float:
        """Maximum memory of one run."""
        return min(self.bytes, self.per_run or self.bytes)

    @property
    def on_chip(self) -> bool:
        """Whether it is the memory of a TPU chip."""
        return self.where != "here"

    def required(self, memory: MemoryEstimate) -> float:
        """Return how much of it a run requires."""
        return memory.device if self.on_chip else memory.total


def available(resources: Resources, *, local: bool) -> AvailableMemory | None:
    """Return the memory for a study's runs, on this machine or on its TPU slice; None if unknown."""
    if local:
        per_run = None if resources.memory_gb is None else resources.memory_gb * _GB
        return AvailableMemory(machine_bytes(), "here", resources.parallel or LOCAL_PARALLEL, per_run)
    if (slice_ := resources.slice) is None:
        return None
    return AvailableMemory(slice_.type.hbm_gb * _GB, f"of a {slice_.type.name} chip")


def machine_bytes() -> float:
    """Return the memory of this machine, or of the container that this process is in."""
    import psutil  # slow on some machines, and most commands don't compare memory

    total = float(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max", no limit
        total = min(total, float(int(_CGROUP.read_text())))
    return total


def lines(runs: Sequence[PlannedRun], memory: AvailableMemory) -> Iterator[str]:
    """Describe the memory of the largest runs, and of runs that don't fit, with a remedy.

    Args:
        runs: The remaining runs.
        memory: Available memory.
    """
    required = [
        (memory.required(run.memory), run.label, run.memory) for run in runs if run.memory is not None
    ]
    required.sort(key=lambda entry: entry[0], reverse=True)
    if not required:
        return
    largest, label, _ = required[0]
    together = sum(amount for amount, *_ in required[: memory.parallel])
    at_once = f", {_gigabytes(together)} for {memory.parallel} at a time" if memory.parallel > 1 else ""
    yield (
        f"MEMORY: about {_gigabytes(largest)} for the largest run ({label}){at_once}, of "
        f"{_gigabytes(memory.bytes)} {memory.where}."
    )
    too_large: dict[str, str] = {}
    for amount, label, estimate in required:
        if amount > memory.limit:
            limit = f"of the {_gigabytes(memory.bytes)} {memory.where}"
            if memory.per_run is not None and amount > memory.per_run:
                limit = f"of the {_gigabytes(memory.per_run)} of resources.memory_gb"
            line = f"{label} needs about {_gigabytes(amount)} {limit}: {_remedy(estimate, amount, memory)}"
            too_large.setdefault(label, line)
    yield from list(too_large.values())[:_MAX_NAMED]
    if len(too_large) > _MAX_NAMED:
        yield f"{len(too_large) - _MAX_NAMED} more do not fit either"
    if not too_large and together > memory.bytes:
        yield (
            f"{memory.parallel} runs at a time need about {_gigabytes(together)} of the "
            f"{_gigabytes(memory.bytes)} here: launch with --parallel {max(1, int(memory.bytes // largest))}"
        )


def _remedy(estimate: MemoryEstimate, required: float, memory: AvailableMemory) -> str:
    """Return the changes that can make a run fit."""
    if memory.per_run is not None and required <= memory.bytes:
        return f"raise that above {_gigabytes(required)}"
    if not estimate.batches:
        return "use a machine with more memory"
    if estimate.state > memory.limit:
        return "choose a smaller model" + (": every chip holds all parameters" if memory.on_chip else "")
    return "lower the batch size; a run of train may also fit with runtime.microbatches or runtime.remat: all"


def _gigabytes(amount: float) -> str:
    value = amount / _GB
    return f"{value:.0f} GB" if value >= 10 else f"{value:.1f} GB"
