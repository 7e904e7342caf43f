"""TPU types, and what a launch may use: where runs go, how many at a time, what each gets, its retries.

To add a TPU type, add a row to `TYPES`. Sources of that table, as read in 2026-11:
- topologies, hosts, GKE labels and machine types: cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
- what Vertex AI trains on, and with which machine: cloud.google.com/vertex-ai/docs/training/configure-compute
  and …/training-with-tpu-vm
- peak FLOP/s in bfloat16 and HBM of a chip: cloud.google.com/tpu/docs/v4, …/v5e, …/v5p, …/v6e
"""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from jestlab.models import extensions
from jestlab.platform.errors import UserError, closest
from jestlab.platform.spec.duration import parse_duration, written_duration
from jestlab.platform.spec.slurm import SlurmOptions
from jestlab.platform.spec.tree import listed

CLUSTERS = ("vertex", "kubernetes", "slurm")
"""Names of the built-in executors that launch elsewhere, on chips that are counted."""

EXECUTORS = ("local", *CLUSTERS)
"""Names of the executors that are built in."""


def _executor(name: str) -> str:
    return extensions.check_name("executor", name, EXECUTORS)


ExecutorName = Annotated[str, AfterValidator(_executor)]
"""Name of an executor: built in, or where one of one's own is: `package.module:Class`, `path.py:Class`, or an
entry point of `jestlab.executors`."""


def runs_here(name: ExecutorName | None) -> bool:
    """Return whether an executor runs jobs on this machine, where data and scripts can be checked.

    Raises:
        UserError: It is a custom executor, which cannot be imported.
    """
    if name is None or name in EXECUTORS:
        return name == "local"
    try:
        return bool(getattr(extensions.load("executor", name), "here", False))
    except ValueError as error:
        raise UserError(str(error)) from None


LOCAL_PARALLEL = 2
"""Runs at a time on this machine, where a study does not say."""

_CUBE = 4  # v4 and v5p are built of cubes of 4 × 4 × 4 chips; larger slices are made of whole cubes
_PLANE = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_PARTS_OF_A_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")

_PINNED = re.compile(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class TpuType:
    """One generation of TPU, by the name that a spec writes.

    Attributes:
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
        """The topologies of the type, as an error message lists them."""
        if not self.most_chips:
            return f"{self.name} has {', '.join(self.topologies)}"
        return (
            f"{self.name} has {', '.join(_PARTS_OF_A_CUBE)}, and AxBxC with A ≤ B ≤ C, all multiples of "
            f"{_CUBE}, up to {self.most_chips:,} chips"
        )


TYPES = {
    type_.name: type_
    for type_ in (
        TpuType("v4", "tpu-v4-podslice", "ct4p-hightpu", 275e12, 32, False, cores=2, most_chips=3072),
        TpuType("v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu", 197e12, 16, True),
        TpuType("v5p", "tpu-v5p-slice", "ct5p-hightpu", 459e12, 95, False, cores=2, most_chips=6144),
        TpuType("v6e", "tpu-v6e-slice", "ct6e-standard", 918e12, 32, True),
    )
}


@dataclass(frozen=True)
class Slice:
    """Chips of one type that compute one run together, connected in a topology such as `16x16`."""

    type: TpuType
    topology: str
    chips: int = field(init=False)
    chips_per_host: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "chips", math.prod(_sides(self.topology)))
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


@dataclass(frozen=True)
class Nodes:
    """Machines that compute one run together, one process on each, without a TPU.

    Attributes:
        hosts: Number of machines.
        chips_per_host: GPUs of each; 0 where the processor computes.
    """

    hosts: int = 1
    chips_per_host: int = 0

    @property
    def chips(self) -> int:
        """GPUs of all machines together."""
        return self.hosts * self.chips_per_host

    def __str__(self) -> str:
        gpus = f"{self.chips_per_host} GPU{'s' if self.chips_per_host > 1 else ''}"
        if self.hosts == 1:
            return gpus if self.chips_per_host else "1 node"
        return f"{self.hosts} nodes" + (f" of {gpus}" if self.chips_per_host else "")


def parse_slice(text: str) -> Slice:
    """Parse the name of a TPU slice, type and topology: `v5e-16x16`.

    Raises:
        ValueError: There is no such slice; one line that names the nearest, and what there is.
    """
    name, _, topology = text.partition("-")
    type_ = TYPES.get(name)
    if type_ is not None and topology in type_.topologies:
        return Slice(type_, topology)
    near = _nearest_slice(text)
    known = type_ or (near.type if near else None)
    offered = known.offered if known else f"the types are {', '.join(TYPES)}, written as in v5e-16x16"
    hint = f"did you mean '{near}'? ({offered})" if near else offered
    raise ValueError(f"there is no TPU slice {text!r}: {hint}")


def _cubes(most_chips: int) -> tuple[str, ...]:
    """List the topologies made of whole cubes."""
    most = most_chips // _CUBE**3
    sides = [
        (a, b, c)
        for a in range(1, most + 1)
        for b in range(a, most // a + 1)
        for c in range(b, most // (a * b) + 1)
    ]
    sides.sort(key=lambda side: (math.prod(side), side[2]))
    return tuple("x".join(str(_CUBE * n) for n in side) for side in sides)


def _nearest_slice(text: str) -> Slice | None:
    """Guess the slice that was meant: of that many chips, or with sides of the nearest proportions."""
    written = text.strip().lower().replace("v5litepod", "v5e").replace("*", "x").replace("_", "-")
    name, _, rest = written.partition("-")
    names = list(TYPES)
    while (near := closest(name, names)) is not None:
        if found := _nearest_of(TYPES[near], rest):
            return found
        names.remove(near)
    return None


def _nearest_of(type_: TpuType, rest: str) -> Slice | None:
    slices = [Slice(type_, topology) for topology in type_.topologies]
    if rest.isdecimal():  # `v5litepod-256` counts chips, `v4-128` cores; the most compact one comes first
        return next((found for found in slices if found.chips * type_.cores == int(rest)), None)
    sides = sorted(int(side) for side in re.findall(r"\d+", rest))
    if len(sides) != len(_sides(type_.topologies[0])) or not all(sides):
        return None

    def distance(found: Slice) -> float:
        return sum(abs(math.log(a / b)) for a, b in zip(sorted(_sides(found.topology)), sides, strict=True))

    return min(slices, key=distance)


def _sides(topology: str) -> list[int]:
    return [int(side) for side in topology.split("x")]


def pinned_image(image: str) -> str:
    """Return a container image if it is pinned by digest.

    Raises:
        ValueError: It is not: a tag can mean something else tomorrow.
    """
    if not _PINNED.fullmatch(image):
        raise ValueError(
            f"the image {image!r} is not pinned: write it with its digest, NAME@sha256:<64 hex digits>, "
            "as `docker buildx imagetools inspect NAME:TAG` prints it"
        )
    return image


class Resources(BaseModel):
    """What a launch may use. Not part of a run's identity.

    Attributes:
        on: Where runs are launched: local, vertex, kubernetes, slurm, or with an executor of one's own
            (`path/to/file.py:Class`, `package.module:Class`, an entry point of `jestlab.executors`); null for
            what the user's settings say, else this machine.
        options: Arguments of an executor of one's own, beside those in the user's settings.
        parallel: Number of concurrent runs; null for 2 on this machine, or as many as its GPUs suffice
            for, and all of them elsewhere.
        threads: Number of CPU threads of a run on each of its machines.
        memory_gb: Most memory of a run on each of its machines in GB; null for no limit.
        gpus: Number of GPUs of a run on each of its machines. On this machine each run gets GPUs of its own.
        nodes: Number of machines that compute a run together, one process on each.
        time: Longest time that a run may hold its machines at a time, as in `4h`, `90m` or `2-12:00:00`; it
            saves before, and goes on with new ones. Null for what the cluster allows.
        retries: Further attempts at a run that fails. Those that end because machines were taken away do not
            count, and faults of the program (a TypeError, a missing file, wrong usage) are not tried again.
        retry_exit_codes: Exit codes of commands that are tried again, whatever they seem to mean.
        lease_seconds: How long a worker may go without a heartbeat before it is considered dead; it sends one
            every 5 seconds.
        tpu: The slice that each run computes on, as in `v5e-16x16`: type and topology.
        image: Container that holds jestlab, pinned by digest; null for the one in the user's settings.
        spot: Whether machines may be taken away at any time, at a lower price.
        slurm: What the site's Slurm wants to be told, beside the user's settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    on: ExecutorName | None = None
    options: dict[str, Any] = {}
    parallel: PositiveInt | None = None
    threads: PositiveInt = 1
    memory_gb: PositiveFloat | None = None
    gpus: NonNegativeInt = 0
    nodes: PositiveInt = 1
    time: Annotated[str, AfterValidator(lambda text: written_duration(parse_duration(text)))] | None = None
    retries: NonNegativeInt = 2
    retry_exit_codes: Annotated[tuple[Annotated[int, Field(ge=1, le=255)], ...], BeforeValidator(listed)] = ()
    lease_seconds: Annotated[float, Field(ge=8.0)] = 90.0
    tpu: Annotated[str, AfterValidator(lambda text: str(parse_slice(text)))] | None = None
    image: Annotated[str, AfterValidator(pinned_image)] | None = None
    spot: bool = False
    slurm: SlurmOptions = SlurmOptions()

    @property
    def slice(self) -> Slice | None:
        """The TPU slice that each run computes on; None on machines without."""
        return None if self.tpu is None else parse_slice(self.tpu)

    @property
    def machines(self) -> Slice | Nodes:
        """What each run occupies: hosts, and chips of each."""
        return self.slice or Nodes(self.nodes, self.gpus)

    @property
    def time_seconds(self) -> int | None:
        """Longest time that a run may hold its machines at a time; None for no limit."""
        return None if self.time is None else parse_duration(self.time)

    def executor(
        self, asked: ExecutorName | None = None, default: ExecutorName | None = None
    ) -> ExecutorName | None:
        """Choose where runs go: as `--on` asks, else the study, else the user's settings, else here.

        Returns:
            The name of the executor; None if each run needs a TPU slice and nothing says where to get one.
        """
        name = asked or self.on or default or "local"
        return None if name == "local" and asked is None and self.tpu is not None else name

    @model_validator(mode="after")
    def _exists(self) -> Resources:
        slice_ = self.slice
        if slice_ is not None and (self.gpus or self.nodes > 1):
            raise ValueError(f"{slice_} says what each run computes on: leave out `gpus` and `nodes`")
        if self.on in ("local", "vertex") and self.nodes > 1:
            raise ValueError(f"{self.on} takes runs of one machine each: leave out `nodes`")
        if self.on in ("local", "vertex") and self.time is not None:
            raise ValueError(f"{self.on} has no limit of time: leave out `time`")
        if self.options and self.on in EXECUTORS:
            raise ValueError(f"{self.on} is no executor of your own: leave out `options`")
        if self.on == "vertex" and slice_ is None:
            raise ValueError("vertex requires `tpu`, as in v5e-16x16")
        if self.on == "slurm" and slice_ is not None:
            raise ValueError(f"Slurm has no {slice_}: say `nodes` and `gpus` instead of `tpu`")
        if self.on == "local" and slice_ is not None:
            raise ValueError(f"this machine has no {slice_}: leave out `tpu`, or set `on: kubernetes`")
        if self.on == "vertex" and slice_ is not None and not slice_.type.on_vertex:
            offered = ", ".join(name for name, type_ in TYPES.items() if type_.on_vertex)
            raise ValueError(
                f"Vertex AI trains on {offered}, not on {slice_.type.name}: set `on: kubernetes`"
            )
        if self.on == "vertex" and self.spot and slice_ is not None and slice_.hosts > 1:
            raise ValueError(f"Vertex AI has no spot machines for slices of several hosts, such as {slice_}")
        return self
