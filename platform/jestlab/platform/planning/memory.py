"""Whether the runs of a plan fit into memory: so many at a time on this machine, or each on its TPU chips."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jestlab.platform.planning.plan import PlannedRun
from jestlab.platform.programs import MemoryEstimate
from jestlab.platform.spec.resources import LOCAL_PARALLEL, Resources

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MOST_NAMED = 3
_GB = 1e9


@dataclass(frozen=True)
class Room:
    """What there is for the runs of a plan.

    Attributes:
        bytes: For what is computed at a time.
        where: What that is: "here", or "of a v5e chip".
        parallel: Runs that share it.
        each: Most that one run may take, as `resources.memory_gb` says; None for no limit.
    """

    bytes: float
    where: str
    parallel: int = 1
    each: float | None = None

    @property
    def on_chip(self) -> bool:
        """Whether it is the memory of a TPU's chip, and not of this machine."""
        return self.where != "here"

    def needed(self, memory: MemoryEstimate) -> float:
        """Return what a run needs of it."""
        return memory.device if self.on_chip else memory.total


def room(resources: Resources, *, local: bool) -> Room | None:
    """Return the room for a study's runs, on this machine or on its TPU slice; None if nothing is known."""
    if local:
        each = None if resources.memory_gb is None else resources.memory_gb * _GB
        return Room(machine_bytes(), "here", resources.parallel or LOCAL_PARALLEL, each)
    if (slice_ := resources.slice) is None:
        return None
    return Room(slice_.type.hbm_gb * _GB, f"of a {slice_.type.name} chip")


def machine_bytes() -> float:
    """Return the memory of this machine, or of the container that this process is in."""
    import psutil  # slow on some machines, and most commands don't compare memory

    total = float(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max", no limit
        total = min(total, float(int(_CGROUP.read_text())))
    return total


def lines(runs: Sequence[PlannedRun], room: Room) -> Iterator[str]:
    """Write what the largest runs need, and what will not fit, with what to do.

    Args:
        runs: Those that are still to do.
        room: What there is.
    """
    by_label = _by_label(runs, room)
    if not by_label:
        return
    label, most = max(by_label.items(), key=lambda item: item[1][0])
    together = _largest(runs, room)
    at_once = f", {_gigabytes(together)} for {room.parallel} at a time" if room.parallel > 1 else ""
    yield (
        f"MEMORY: about {_gigabytes(most[0])} for the largest run ({label}){at_once}, of "
        f"{_gigabytes(room.bytes)} {room.where}."
    )
    too_large = {
        label: its for label, its in by_label.items() if its[0] > min(room.bytes, room.each or room.bytes)
    }
    for label, (needed, memory) in list(too_large.items())[:_MOST_NAMED]:
        limit, remedy = _limit(needed, room), _remedy(memory, needed, room)
        yield f"{label} needs about {_gigabytes(needed)} {limit}: {remedy}"
    if len(too_large) > _MOST_NAMED:
        yield f"{len(too_large) - _MOST_NAMED} more do not fit either"
    if not too_large and together > room.bytes:
        fit = max(1, int(room.bytes // most[0]))
        yield (
            f"{room.parallel} runs at a time need about {_gigabytes(together)} of the "
            f"{_gigabytes(room.bytes)} here: launch with --parallel {fit}"
        )


def _by_label(runs: Iterable[PlannedRun], room: Room) -> dict[str, tuple[float, MemoryEstimate]]:
    """Return label → what its largest run needs, as far as it is known."""
    found: dict[str, tuple[float, MemoryEstimate]] = {}
    for run in runs:
        if run.memory is not None:
            needed = room.needed(run.memory)
            if run.label not in found or needed > found[run.label][0]:
                found[run.label] = needed, run.memory
    return found


def _largest(runs: Iterable[PlannedRun], room: Room) -> float:
    """Return what the runs need that may happen to run at a time, if these are the largest."""
    needed = sorted((room.needed(run.memory) for run in runs if run.memory is not None), reverse=True)
    return sum(needed[: room.parallel])


def _limit(needed: float, room: Room) -> str:
    if room.each is not None and needed > room.each:
        return f"of the {_gigabytes(room.each)} of resources.memory_gb"
    return f"of the {_gigabytes(room.bytes)} {room.where}"


def _remedy(memory: MemoryEstimate, needed: float, room: Room) -> str:
    """Return what makes a run fit."""
    limit = min(room.bytes, room.each or room.bytes)
    if room.each is not None and memory.process > limit:
        return f"raise that above {_gigabytes(needed)}"
    raised = "raise that, " if room.each is not None and needed <= room.bytes else ""
    if fitting := [change for change, reduced in memory.reduced if room.needed(reduced) <= limit]:
        return raised + ", ".join([*fitting[:-1], f"or {fitting[-1]}" if fitting[1:] else fitting[0]])
    if not memory.state:
        return f"{raised}use a machine with more memory"
    return f"{raised}choose a smaller model" + (": every chip holds all parameters" if room.on_chip else "")


def _gigabytes(amount: float) -> str:
    value = amount / _GB
    return f"{value:.0f} GB" if value >= 10 else f"{value:.1f} GB"
