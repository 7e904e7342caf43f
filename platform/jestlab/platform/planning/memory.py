"""Estimate the memory of jestlab's own runs, and check that they fit on this machine or on its TPU chips.

The estimate assumes that each device holds the parameters of all models, three more copies of the parameters
that are trained (Adam's moments and the gradient), and the activations of its share of the examples. On this
machine's CPU, a process adds 1 GB. Images, batches that are read ahead, and the savings of approximate passes
aren't counted.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter, mul
from pathlib import Path
from typing import Any

from jestlab.models.config import DiagnoseConfig, EmbedConfig, TrainConfig, TwoTowers
from jestlab.platform import programs
from jestlab.platform.planning.cost import to_do
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.resources import LOCAL_PARALLEL
from jestlab.platform.words import few

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_GB = 1e9
_FLOAT = 4  # bytes
_PROCESS = 1e9  # bytes of a process that imports, compiles, and evaluates
_DIAGNOSED_ROWS = 256  # examples that a diagnosis embeds at a time: see `training.diagnose`

_Arrays = tuple[int, int, int]
"""Numbers of arrays of a block by shape: tokens × width, tokens × hidden width, and heads × tokens²."""

_FORWARD: _Arrays = (3, 2, 1)  # of one block, without a backward pass
_BACKWARD: _Arrays = (12, 4, 4)  # of one block
_KEPT: Mapping[str, _Arrays] = {"none": _BACKWARD, "dots": (5, 1, 0), "all": (1, 0, 0)}
"""Value of `runtime.remat` → arrays of every block that are kept for the backward pass."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated peak memory of a run, in bytes.

    Attributes:
        state: Parameters, optimizer state, and gradient, on each device.
        activations: Activations of one step, on each device.
    """

    state: float
    activations: float

    @property
    def device(self) -> float:
        """Memory on each accelerator."""
        return self.state + self.activations

    @property
    def total(self) -> float:
        """Memory of a process that computes on the host's CPU."""
        return self.device + _PROCESS


def estimates(plan: Plan) -> dict[str, MemoryEstimate]:
    """Estimate the memory of a plan's runs, by fingerprint. Omits runs of custom programs and towers."""
    configs = {run.fingerprint: programs.get(run.program).read(run.config) for run in plan.runs}
    chips = 0 if (slice_ := plan.study.resources.slice) is None else slice_.chips
    found = {}
    for run in plan.runs:
        models = [getattr(configs.get(needed), "model", None) for needed in run.needs.values()]
        needed = [model for model in models if isinstance(model, TwoTowers)]
        if estimate := estimate_of(configs[run.fingerprint], needed, chips):
            found[run.fingerprint] = estimate
    return found


def estimate_of(config: Any, needed: Sequence[TwoTowers], chips: int = 0) -> MemoryEstimate | None:
    """Estimate the memory of a run; None for custom programs and towers.

    Args:
        config: Resolved config of the run.
        needed: Architectures of the dependencies.
        chips: Number of TPU chips; 0 for this machine's CPU.
    """
    devices, trained, scored, training = chips or 1, [], list(needed), 0.0
    if isinstance(config, TrainConfig):
        parts, remat = config.runtime.microbatches, config.runtime.remat
        b, super_batch = config.batch_size / devices, config.super_batch_size / devices
        trained = [config.model]
        scored += trained if config.scores_learner else []
        rows = super_batch if parts == 1 else b / parts
        kept_rows = super_batch if config.reuses_scoring else b / parts
        training = kept_rows * _activations(config.model, chips, _BACKWARD, _KEPT[remat])
        training += 3 * b**2 * _FLOAT  # products of all images and captions
    elif isinstance(config, EmbedConfig):
        rows = config.runtime.batch_size / devices
    elif isinstance(config, DiagnoseConfig):
        rows = _DIAGNOSED_ROWS
    else:
        return None
    models = [*4 * trained, *needed]
    if not models or any(tower.is_custom for model in models for tower in (model.vision, model.text)):
        return None
    scoring = rows * sum(_activations(model, chips, _FORWARD) for model in scored)
    return MemoryEstimate(_FLOAT * sum(map(parameters, models)), max(training, scoring))


def parameters(model: TwoTowers) -> int:
    """Count the weights of two towers, without biases and small layers."""
    vision, text = model.vision, model.text
    blocks = (
        (tower.depth + (tower.pooling == "map"))
        * tower.width
        * (4 * tower.width + 2 * (tower.mlp_dim or 4 * tower.width))
        for tower in (vision, text)
    )
    inputs = 3 * vision.patch_size**2 * vision.width + (text.vocabulary_size + text.length) * text.width
    return sum(blocks) + inputs


def _activations(model: TwoTowers, chips: int, block: _Arrays, other_blocks: _Arrays = (0, 0, 0)) -> float:
    """Return the bytes of one example's arrays in both towers, given those of one block and of the others."""
    itemsize = 2 if model.compute_dtype == "bfloat16" and chips else _FLOAT  # on CPU, XLA uses float32
    vision, numbers = model.vision, 0
    for tower, tokens in (
        (vision, (vision.image_size // vision.patch_size) ** 2),
        (model.text, model.text.length),
    ):
        sizes = (tower.width, tower.mlp_dim or 4 * tower.width, tower.heads * tokens)
        one, other = (tokens * sum(map(mul, arrays, sizes)) for arrays in (block, other_blocks))
        numbers += one + (tower.depth - 1) * other
    return itemsize * numbers


def machine_bytes() -> float:
    """Return the memory of this machine, or of the container that this process is in."""
    import psutil  # slow on some machines, and most commands don't compare memory

    total = float(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # ValueError: "max", no limit
        total = min(total, float(int(_CGROUP.read_text())))
    return total


def lines(plan: Plan, *, local: bool) -> Iterator[str]:
    """Describe the memory of the remaining runs; if some don't fit, name them and a remedy.

    Args:
        plan: A plan with states.
        local: Whether the runs execute on this machine.
    """
    found, resources = estimates(plan), plan.study.resources
    if local:
        machine, where, parallel = machine_bytes(), "here", resources.parallel or LOCAL_PARALLEL
    elif resources.slice is not None:
        chip = resources.slice.type
        machine, where, parallel = chip.hbm_gb * _GB, f"of a {chip.name} chip", 1
    else:
        return
    runs = [(found[run.fingerprint], run.label) for run in to_do(plan) if run.fingerprint in found]
    sizes = [(one.total if local else one.device, label) for one, label in runs]
    sizes.sort(key=itemgetter(0), reverse=True)
    if not sizes:
        return
    largest, label = sizes[0]
    together = sum(size for size, _ in sizes[:parallel])
    at_once = f", {_gigabytes(together)} for {parallel} at a time" if parallel > 1 else ""
    yield (
        f"MEMORY: about {_gigabytes(largest)} for the largest run ({label}){at_once}, of "
        f"{_gigabytes(machine)} {where}."
    )
    limit = min(machine, (resources.memory_gb or math.inf) * _GB) if local else machine
    if too_large := list(dict.fromkeys(label for size, label in sizes if size > limit)):
        yield (
            f"{few(too_large)} would not fit into {_gigabytes(limit)}: lower the batch size, set "
            "runtime.microbatches or runtime.remat, or choose a smaller model"
        )
    elif together > machine:
        yield (
            f"{parallel} runs at a time would not fit into {_gigabytes(machine)}: launch with --parallel "
            f"{max(1, int(machine // largest))}"
        )


def _gigabytes(amount: float) -> str:
    value = amount / _GB
    return f"{value:.0f} GB" if value >= 10 else f"{value:.1f} GB"
