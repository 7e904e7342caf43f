"""Estimate the memory of jestlab's own runs, and check that they fit on this machine or on its TPU chips.

Each device holds the parameters of all models, three more copies of the trained parameters (Adam's moments
and the gradient), and the activations of its share of the examples. For each token, a block of a tower holds

    2.5 numbers per output of its layers, and 4 numbers per attention head and token.

A pass without gradients holds about a third of one block. The estimate doesn't include images, batches that
are read ahead, and the savings of approximate passes.
"""

import contextlib
import functools
import math
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

from jestlab.models.config import DiagnoseConfig, EmbedConfig, TrainConfig, TwoTowers
from jestlab.models.weights.parameters import parameter_counts, parameter_shapes
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
_FORWARD = 0.35  # of the activations of one block: a pass without gradients stores no others
_STORED = {"dots": 0.8, "all": 0.1}
"""Value of `runtime.remat` → numbers per output of a layer that are stored for the backward pass."""


def estimates(plan: Plan) -> dict[str, dict[str, float]]:
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


def estimate_of(config: Any, needed: Sequence[TwoTowers], chips: int = 0) -> dict[str, float] | None:
    """Estimate the peak memory of a run; None for custom programs and towers.

    Args:
        config: Resolved config of the run.
        needed: Architectures of the dependencies.
        chips: Number of TPU chips; 0 for this machine's CPU.

    Returns:
        Bytes: "state" and "activations" on each device, their sum "device", and "total", the memory of a
        process that computes on this machine's CPU.
    """
    devices, trained, scoring = chips or 1, [], list(needed)
    if isinstance(config, TrainConfig):
        parts = config.runtime.microbatches
        b, super_batch = config.batch_size / devices, config.super_batch_size / devices
        trained = [config.model]
        scoring += trained if config.scores_learner else []
        rows = super_batch if parts == 1 else b / parts
    elif isinstance(config, EmbedConfig):
        rows = config.runtime.batch_size / devices
    elif isinstance(config, DiagnoseConfig):
        rows = _DIAGNOSED_ROWS
    else:
        return None
    models = [*4 * trained, *needed]
    if not models or any(tower.is_custom for model in models for tower in (model.vision, model.text)):
        return None
    activations = rows * _FORWARD * sum(_activations(model, chips)[0] for model in scoring)
    if isinstance(config, TrainConfig):
        rows = super_batch if config.reuses_scoring else b / parts
        training = rows * _activations(config.model, chips, config.runtime.remat)[1]
        training += 3 * b**2 * _FLOAT  # products of all images and captions
        activations = max(activations, training)
    state = float(_FLOAT * sum(parameter_counts(model)["all"] for model in models))
    device = state + activations
    return {"state": state, "activations": activations, "device": device, "total": device + _PROCESS}


@functools.cache
def _activations(model: TwoTowers, chips: int, remat: str = "none") -> tuple[float, float]:
    """Return the bytes of one example's activations: of one block of each tower, and of all for training."""
    itemsize = 2 if model.compute_dtype == "bfloat16" and chips else _FLOAT  # on CPU, XLA uses float32
    block = stored = 0.0
    for name, tower, tokens in (
        ("img", model.vision, (model.vision.image_size // model.vision.patch_size) ** 2),
        ("txt", model.text, model.text.length),
    ):
        outputs = sum(
            tokens * math.prod(shape)  # a layer has a bias for each output
            for path, shape in parameter_shapes(model).items()
            if path.startswith(name) and "/encoderblock_" in path and path.endswith("/bias")
        )
        whole = 2.5 * outputs + 4 * tower.depth * tower.heads * tokens**2
        block += whole / tower.depth
        stored += _STORED[remat] * outputs + whole / tower.depth if remat in _STORED else whole
    return itemsize * block, itemsize * stored


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
    sizes = [(one["total" if local else "device"], label) for one, label in runs]
    sizes.sort(key=itemgetter(0), reverse=True)
    if not sizes:
        return
    largest, label = sizes[0]
    together = sum(size for size, _ in sizes[:parallel])
    at_once = f", {_gigabytes(together)} for {parallel} at a time" if parallel > 1 else ""
    yield (
        f"Memory: about {_gigabytes(largest)} for the largest run ({label}){at_once}, of "
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
