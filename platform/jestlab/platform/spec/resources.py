"""Resources of a launch: the executor, parallel runs, machines of each run, and retries; TPU types and Slurm.

To add a TPU type, add a row to `TYPES`. Sources of that table, read in 2026-11:
- topologies, hosts, GKE labels, and machine types: cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
- types and machines for training on Vertex AI: cloud.google.com/vertex-ai/docs/training/configure-compute and
  …/training-with-tpu-vm
- peak FLOP/s in bfloat16 and HBM of a chip: cloud.google.com/tpu/docs/v4, …/v5e, …/v5p, …/v6e
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

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
from jestlab.platform.dependencies import EXECUTORS
from jestlab.platform.errors import UserError
from jestlab.platform.spec.fields import checked
from jestlab.platform.spec.tree import listed

CLUSTERS = tuple(name for name in EXECUTORS if name != "local")
"""Names of the built-in executors on remote machines, whose chips are counted."""


ExecutorName = Annotated[str, AfterValidator(lambda name: extensions.check_name("executor", name, EXECUTORS))]
"""Name of a built-in or custom executor: `package.module:Class`, `path.py:Class`, or an entry point of
`jestlab.executors`."""


def runs_here(name: ExecutorName | None) -> bool:
    """Return whether an executor runs jobs on this machine, where data and scripts can be checked.

    Raises:
        UserError: A custom executor can't be imported.
    """
    return name == "local" if name is None or name in EXECUTORS else attribute(name, "here")


def attribute(name: ExecutorName, attribute: str) -> bool:
    """Return a Boolean attribute of the class of a custom executor; False if it has none.

    Raises:
        UserError: The executor can't be imported.
    """
    try:
        return bool(getattr(extensions.load("executor", name), attribute, False))
    except ValueError as error:
        raise UserError(str(error)) from None


LOCAL_PARALLEL = 2
"""Concurrent runs on this machine by default."""

_PLANE = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_PARTS_OF_A_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")


@dataclass(frozen=True)
class TpuType:
    """One generation of TPU.

    Attributes:
        name: Name in specs.
        label: Value of GKE's node label `cloud.google.com/gke-tpu-accelerator`.
        machine: Name of the machine types, without the number of chips at the end.
        peak_flops: FLOP/s of a chip, in bfloat16.
        hbm_gb: Memory of a chip in GB.
        on_vertex: Whether Vertex AI offers it for training.
        most_chips: Chips of the largest slice built from cubes of 4 × 4 × 4; 0 if topologies are 2-D.
    """

    name: str
    label: str
    machine: str
    peak_flops: float
    hbm_gb: int
    on_vertex: bool
    most_chips: int = 0

    def has(self, topology: str) -> bool:
        """Whether there are slices of a topology, such as `16x16`."""
        if topology in (_PARTS_OF_A_CUBE if self.most_chips else _PLANE):
            return True
        if not self.most_chips or not re.fullmatch(r"[1-9]\d{0,3}(x[1-9]\d{0,3}){2}", topology):
            return False
        sides = [int(side) for side in topology.split("x")]
        is_cubes = sides == sorted(sides) and all(side % 4 == 0 for side in sides)
        return is_cubes and math.prod(sides) <= self.most_chips

    @property
    def offered(self) -> str:
        """A sentence that lists the topologies."""
        if not self.most_chips:
            return f"{self.name} has {', '.join(_PLANE)}"
        cubes = f"AxBxC with A ≤ B ≤ C, all multiples of 4, up to {self.most_chips:,} chips"
        return f"{self.name} has {', '.join(_PARTS_OF_A_CUBE)}, and {cubes}"


TYPES = {
    type_.name: type_
    for type_ in (
        TpuType("v4", "tpu-v4-podslice", "ct4p-hightpu", 275e12, 32, False, most_chips=3072),
        TpuType("v5e", "tpu-v5-lite-podslice", "ct5lp-hightpu", 197e12, 16, True),
        TpuType("v5p", "tpu-v5p-slice", "ct5p-hightpu", 459e12, 95, False, most_chips=6144),
        TpuType("v6e", "tpu-v6e-slice", "ct6e-standard", 918e12, 32, True),
    )
}


@dataclass(frozen=True)
class Nodes:
    """Machines that compute one run together, with one process each.

    Attributes:
        hosts: Number of machines.
        chips_per_host: GPUs, or chips of a TPU, of each machine; 0 to compute on CPUs.
    """

    hosts: int = 1
    chips_per_host: int = 0

    @property
    def chips(self) -> int:
        """Chips of all machines together."""
        return self.hosts * self.chips_per_host

    def __str__(self) -> str:
        gpus = f"{self.chips_per_host} GPU{'s' if self.chips_per_host > 1 else ''}"
        if self.hosts == 1:
            return gpus if self.chips_per_host else "1 node"
        return f"{self.hosts} nodes" + (f" of {gpus}" if self.chips_per_host else "")


@dataclass(frozen=True, kw_only=True)
class Slice(Nodes):
    """Chips of one type that compute one run together, in a topology such as `16x16`."""

    type: TpuType
    topology: str

    def __str__(self) -> str:
        return f"{self.type.name}-{self.topology}"

    @property
    def machine_type(self) -> str:
        """Compute Engine's name of the machines, such as `ct5lp-hightpu-4t`."""
        return f"{self.type.machine}-{self.chips_per_host}t"


def parse_slice(text: str) -> Slice:
    """Parse the name of a TPU slice, type and topology: `v5e-16x16`.

    Raises:
        ValueError: The slice doesn't exist. The message lists the valid ones.
    """
    name, _, topology = text.partition("-")
    type_ = TYPES.get(name)
    if type_ is not None and type_.has(topology):
        chips = math.prod(map(int, topology.split("x")))
        per_host = chips if topology in ("1x1", "2x4") else 4  # other slices have machines of four chips
        return Slice(hosts=chips // per_host, chips_per_host=per_host, type=type_, topology=topology)
    offered = type_.offered if type_ else f"the types are {', '.join(TYPES)}, as in v5e-16x16"
    raise ValueError(f"unknown TPU slice {text!r}: {offered}")


def pinned_image(image: str) -> str:
    """Return a container image that is pinned by digest.

    Raises:
        ValueError: The image has no digest. A tag may later refer to another image.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*@sha256:[0-9a-f]{64}", image):
        raise ValueError(
            f"the image {image!r} is not pinned: write it with its digest, NAME@sha256:<64 hex digits>, "
            "as `docker buildx imagetools inspect NAME:TAG` prints it"
        )
    return image


# ---- durations

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WITH_UNITS = r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?"
_CLOCK = r"(?:(\d+)-)?(\d{1,3}):(\d{2}):(\d{2})"


def parse_duration(text: str) -> int:
    """Return a duration in seconds.

    Args:
        text: Integers with units, largest first (d, h, m, s), or [DAYS-]HH:MM:SS. A number without a unit is
            invalid, because Slurm counts minutes and other tools seconds.

    Raises:
        ValueError: The form is invalid, or the duration is zero.
    """
    written = text.strip().lower()
    match = re.fullmatch(_WITH_UNITS, written) or re.fullmatch(_CLOCK, written)
    numbers = [int(number or 0) for number in match.groups()] if match else []
    if not any(numbers):
        raise ValueError(f"{text!r} is not a duration: write it with its unit, as in 90m, 4h, 1h30m or 2d")
    return sum(number * unit for number, unit in zip(numbers, _UNITS.values(), strict=True))


def stop_early_seconds(limit: float) -> float:
    """Return how long before a job's time limit its run is asked to stop, both in seconds."""
    return min(max(limit / 10, 20), 120, limit / 2)


# ---- Slurm

_QUOTES = r"\s'\"`$\\;"
_SET_BY_JESTLAB = (
    "--job-name", "--comment", "--output", "--error", "--array", "--requeue", "--signal", "--wrap", "--chdir",
)  # fmt: skip


def _option(text: str) -> str:
    if text.partition("=")[0] in _SET_BY_JESTLAB:
        raise ValueError(f"jestlab sets {text.partition('=')[0]} itself: remove it")
    return text


_Word = Annotated[str, Field(pattern=rf"^[^-{_QUOTES}][^{_QUOTES}]*$")]
_Line = Annotated[str, Field(pattern=r"^[^\r\n]*$")]
_Option = Annotated[str, Field(pattern=rf"^--[^{_QUOTES}]+$"), AfterValidator(_option)]


class SlurmOptions(BaseModel):
    """How jobs are submitted to Slurm. A study's options override the user's settings.

    Attributes:
        partition: Partition, or several separated by commas; null for the cluster's default.
        account: Account to charge; null for the user's default.
        qos: Quality of service; null for the default.
        constraint: Required features of nodes, such as `a100&nvlink`.
        exclusive: Whether a job's nodes are not shared with other jobs.
        gres: Kind of GPU where the site requires `--gres`, such as `gpu` or `gpu:a100`; null for
            `--gpus-per-node`.
        setup: Lines of shell before Python starts, such as `module load cuda`.
        python: Python with jestlab, or a script that starts it in a container; null for the launcher's.
        options: Further options of sbatch, such as `--reservation=mine`.
        launcher: Options of sbatch for the job of `jestlab launch --detach=slurm`, such as `--time=7-0` and
            `--partition=cpu`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    partition: _Word | None = None
    account: _Word | None = None
    qos: _Word | None = None
    constraint: _Word | None = None
    exclusive: bool = False
    gres: _Word | None = None
    setup: tuple[_Line, ...] = ()
    python: _Word | None = None
    options: tuple[_Option, ...] = ()
    launcher: tuple[_Option, ...] = ()

    def laid_over(self, settings: SlurmOptions) -> SlurmOptions:
        """Return these options, with unset ones from the user's settings."""
        return settings.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    @model_validator(mode="after")
    def _gres_has_no_count(self) -> SlurmOptions:
        if self.gres is not None and self.gres.rpartition(":")[2].isdecimal():
            raise ValueError("`gres` is only a kind, such as gpu:a100: set the number in `resources.gpus`")
        return self


# ---- resources


class Resources(BaseModel):
    """Resources of a launch. They are not part of a run's identity.

    Attributes:
        on: Executor of the runs: local, vertex, kubernetes, slurm, or a custom executor
            (`path/to/file.py:Class`, `package.module:Class`, an entry point of `jestlab.executors`); null for
            the one in the user's settings, or else this machine.
        options: Arguments of a custom executor, in addition to those in the user's settings.
        parallel: Number of concurrent runs. Null for the default: on this machine, 2 or as many as its GPUs
            suffice for; on other executors, all runs.
        threads: Number of CPU threads of a run on each of its machines.
        memory_gb: Memory limit of a run on each of its machines in GB; null for no limit.
        gpus: Number of GPUs of a run on each of its machines. On this machine, runs don't share GPUs.
        nodes: Number of machines that compute a run together. Each executes the program.
        tasks_per_node: Number of processes of a command on each machine, with variables such as `RANK`.
        time: Time limit of each job, as in `4h`, `90m` or `2-12:00:00`. The run saves a checkpoint before the
            limit, and resumes in a new job. Null for the cluster's limit, and on this machine for no limit.
        retries: Number of further attempts after a run fails. Attempts that end because machines were taken
            away don't count. Errors of the program (a TypeError, a missing file, wrong usage) aren't retried.
        retry_exit_codes: Exit codes of commands that are always retried.
        lease_seconds: Seconds without a heartbeat after which a worker is considered dead. Workers send a
            heartbeat every 5 seconds.
        tpu: TPU slice of each run, type and topology, as in `v5e-16x16`.
        image: Container image with jestlab, pinned by digest; null for the one in the user's settings.
        code: How jobs get the files of commands and custom functions. `copy`: each launch ships the working
            tree, without the files that Git ignores. `git`: jobs clone the commit, which must be clean and
            pushed. Null: jobs read the files at their paths.
        spot: Whether to use cheaper machines that may be taken away at any time.
        slurm: Options of the site's Slurm, in addition to the user's settings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    on: ExecutorName | None = None
    options: dict[str, Any] = {}
    parallel: PositiveInt | None = None
    threads: PositiveInt = 1
    memory_gb: PositiveFloat | None = None
    gpus: NonNegativeInt = 0
    nodes: PositiveInt = 1
    tasks_per_node: PositiveInt = 1
    time: Annotated[str, checked(parse_duration)] | None = None
    retries: NonNegativeInt = 2
    retry_exit_codes: Annotated[tuple[Annotated[int, Field(ge=1, le=255)], ...], BeforeValidator(listed)] = ()
    lease_seconds: Annotated[float, Field(ge=8.0)] = 90.0
    tpu: Annotated[str, checked(parse_slice)] | None = None
    image: Annotated[str, AfterValidator(pinned_image)] | None = None
    code: Literal["git", "copy"] | None = None
    spot: bool = False
    slurm: SlurmOptions = SlurmOptions()

    @property
    def slice(self) -> Slice | None:
        """TPU slice of each run; None without a TPU."""
        return None if self.tpu is None else parse_slice(self.tpu)

    @property
    def machines(self) -> Nodes:
        """Machines of each run, and their chips."""
        return self.slice or Nodes(self.nodes, self.gpus)

    @property
    def threads_per_task(self) -> int:
        """CPU threads of each process on a machine."""
        return max(self.threads // self.tasks_per_node, 1)

    @property
    def time_seconds(self) -> int | None:
        """Limit of `time` in seconds; None for no limit."""
        return None if self.time is None else parse_duration(self.time)

    def executor(
        self, asked: ExecutorName | None = None, default: ExecutorName | None = None
    ) -> ExecutorName | None:
        """Choose the executor by `--on`, the study, or the user's settings, in this order; else this machine.

        Returns:
            The name of the executor; None if each run needs a TPU slice and no executor is named.
        """
        name = asked or self.on or default or "local"
        return None if name == "local" and asked is None and self.tpu is not None else name

    def unsuitable_for(self, on: str) -> str | None:
        """Return why a built-in executor can't launch jobs with these resources; None if it can."""
        slice_ = self.slice
        if on in ("local", "vertex") and self.nodes > 1:
            return f"{on} supports only one machine per run: leave out `nodes`"
        if on in ("local", "slurm") and slice_ is not None:
            return f"{on} has no {slice_}: leave out `tpu`, or set `on: kubernetes`"
        if on != "vertex":
            return None
        if slice_ is None:
            return "vertex requires `tpu`, as in v5e-16x16"
        if not slice_.type.on_vertex:
            offered = ", ".join(name for name, type_ in TYPES.items() if type_.on_vertex)
            return f"Vertex AI trains on {offered}, not on {slice_.type.name}: set `on: kubernetes`"
        if self.memory_gb is not None:
            return "vertex doesn't support memory limits: leave out `memory_gb`"
        if self.spot and slice_.hosts > 1:
            return f"Vertex AI has no spot machines for slices of several hosts, such as {slice_}"
        return None

    @model_validator(mode="after")
    def _is_possible(self) -> Resources:
        if self.tpu is not None and (self.gpus or self.nodes > 1):
            raise ValueError(f"`gpus` and `nodes` can't be combined with `tpu: {self.tpu}`: leave them out")
        if self.tpu is not None and self.tasks_per_node > 1:
            raise ValueError(f"`tasks_per_node` can't be combined with `tpu: {self.tpu}`: leave it out")
        if self.options and self.on in EXECUTORS:
            raise ValueError(f"{self.on} is not a custom executor: leave out `options`")
        if self.on is not None and (problem := self.unsuitable_for(self.on)):
            raise ValueError(problem)
        return self
