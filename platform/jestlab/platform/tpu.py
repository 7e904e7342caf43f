"""TPU slices that Google Cloud rents out: one table, for what is launched, validated and priced.

Sources, as read in 2026-11:
- topologies, hosts, GKE labels and machine types: cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
- what Vertex AI trains on, and with which machine: cloud.google.com/vertex-ai/docs/training/configure-compute
  and …/training-with-tpu-vm
- peak FLOP/s in bfloat16 and HBM of a chip: cloud.google.com/tpu/docs/v4, …/v5e, …/v5p, …/v6e
"""

from __future__ import annotations

import difflib
import functools
import math
import re
from dataclasses import dataclass, field

_CUBE = 4  # v4 and v5p are built of cubes of 4 × 4 × 4 chips; larger slices are made of whole cubes
_PLANE = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_PARTS_OF_A_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")


@dataclass(frozen=True)
class TpuType:
    """One generation of TPU.

    Attributes:
        name: As a spec says it.
        label: Value of GKE's node label `cloud.google.com/gke-tpu-accelerator`.
        machine: Its machine types, without the number of chips at the end.
        peak_flops: FLOP/s of a chip, in bfloat16.
        hbm_gb: Memory of a chip.
        on_vertex: Whether Vertex AI's documents offer it for training.
        cores: TensorCores of a chip. Names like `v4-128` count cores.
        most_chips: Of the largest slice that is made of cubes; 0 where topologies are flat.
    """

    name: str
    label: str
    machine: str
    peak_flops: float
    hbm_gb: int
    on_vertex: bool
    cores: int = 1
    most_chips: int = 0

    @functools.cached_property
    def topologies(self) -> tuple[str, ...]:
        """Every topology of a slice, smallest first."""
        return _PARTS_OF_A_CUBE + _cubes(self.most_chips) if self.most_chips else _PLANE

    @property
    def offered(self) -> str:
        """The topologies in words."""
        if not self.most_chips:
            return f"{self.name} has {', '.join(self.topologies)}"
        return (
            f"{self.name} has {', '.join(_PARTS_OF_A_CUBE)}, and AxBxC with A ≤ B ≤ C, all multiples of "
            f"{_CUBE}, up to {self.most_chips:,} chips"
        )


@dataclass(frozen=True)
class Slice:
    """Chips that compute one run together.

    Attributes:
        type: Their generation.
        topology: How they are connected, such as `16x16`.
    """

    type: TpuType
    topology: str
    chips: int = field(init=False)
    chips_per_host: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "chips", math.prod(map(int, self.topology.split("x"))))
        # One chip, or all eight of 2x4, are on one machine; every other slice has machines of four.
        alone = self.topology in ("1x1", "2x4")
        object.__setattr__(self, "chips_per_host", self.chips if alone else 4)

    def __str__(self) -> str:
        return f"{self.type.name}-{self.topology}"

    @property
    def hosts(self) -> int:
        """Machines, each of which runs one process."""
        return self.chips // self.chips_per_host

    @property
    def machine_type(self) -> str:
        """Compute Engine's name of each machine, such as `ct5lp-hightpu-4t`."""
        return f"{self.type.machine}-{self.chips_per_host}t"


TYPES = {
    type_.name: type_
    for type_ in (
        TpuType("v4", "tpu-v4-podslice", "ct4p-hightpu", 275e12, 32, False, cores=2, most_chips=3072),
        TpuType("v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu", 197e12, 16, True),
        TpuType("v5p", "tpu-v5p-slice", "ct5p-hightpu", 459e12, 95, False, cores=2, most_chips=6144),
        TpuType("v6e", "tpu-v6e-slice", "ct6e-standard", 918e12, 32, True),
    )
}


def parse(text: str) -> Slice:
    """The slice that a spec names.

    Args:
        text: Type and topology: `v5e-16x16`.

    Raises:
        ValueError: There is none such; one line that names the nearest, and what there is.
    """
    name, _, topology = text.partition("-")
    type_ = TYPES.get(name)
    if type_ is not None and topology in type_.topologies:
        return Slice(type_, topology)
    near = _nearest(text)
    known = type_ or (TYPES[near.partition("-")[0]] if near else None)
    offered = known.offered if known else f"the types are {', '.join(TYPES)}, written as in v5e-16x16"
    hint = f"did you mean {near!r}? ({offered})" if near else offered
    raise ValueError(f"there is no TPU slice {text!r}: {hint}")


def _cubes(most_chips: int) -> tuple[str, ...]:
    """Topologies made of whole cubes."""
    most = most_chips // _CUBE**3
    sides = [
        (a, b, c)
        for a in range(1, most + 1)
        for b in range(a, most // a + 1)
        for c in range(b, most // (a * b) + 1)
    ]
    sides.sort(key=lambda side: (math.prod(side), side[2]))
    return tuple("x".join(str(_CUBE * n) for n in side) for side in sides)


def _nearest(text: str) -> str | None:
    """The slice that was probably meant."""
    written = text.strip().lower().replace("v5litepod", "v5e").replace("*", "x").replace("_", "-")
    name, _, rest = written.partition("-")
    names = [name] if name in TYPES else difflib.get_close_matches(name, TYPES, n=len(TYPES))
    for type_ in map(TYPES.__getitem__, names):
        found = _of_size(type_, int(rest)) if rest.isdecimal() else _like(type_, rest)
        if found:
            return f"{type_.name}-{found}"
    return None


def _of_size(type_: TpuType, number: int) -> str | None:
    """The most compact topology of that many chips, as names like `v5litepod-256` and `v4-128` count them."""
    return next((t for t in type_.topologies if Slice(type_, t).chips * type_.cores == number), None)


def _like(type_: TpuType, topology: str) -> str | None:
    """The topology whose sides are nearest in proportion, whatever their order."""
    sides = sorted(int(side) for side in re.findall(r"\d+", topology))
    if len(sides) != type_.topologies[0].count("x") + 1 or not all(sides):
        return None
    return min(
        type_.topologies,
        key=lambda t: sum(abs(math.log(a / b)) for a, b in zip(_sorted(t), sides, strict=True)),
    )


def _sorted(topology: str) -> list[int]:
    return sorted(map(int, topology.split("x")))
