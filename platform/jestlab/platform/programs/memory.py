"""Memory of jestlab's own programs, estimated from their configs before anything is compiled.

The estimate sums the arrays at the peak of a training step, in float32 or the towers' dtype: parameters,
Adam's two moments, and the gradient; the activations kept for the backward pass, divided by
`runtime.microbatches`; the scoring of a super-batch; and the batches. Runs are data parallel: every device
holds all parameters and its share of the rows.

Accuracy against XLA's report for the compiled step (JAX 0.10.2, arguments and temporaries): on CPU, from 8%
below to 17% above for nine of ten configs of 17 MB to 7.3 GB; compiled for TPU v5e (BENCHMARKS.md), from 5%
below to 11% above. Peak resident memory of processes on CPU: from 14% below to equal. XLA's CPU compiler
undoes rematerialization if layers aren't scanned, and computes bfloat16 in float32, as the estimate does.

Not counted: decoding an image, up to 4 bytes per pixel (progressive JPEG: 8, WebP: 18).

Letters: n rows at a time, L tokens, D width, M hidden width, H heads, B super-batch, b sub-batch, P devices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from jestlab.models.config import (
    DiagnoseConfig,
    EmbedConfig,
    ScoreConfig,
    TrainConfig,
    TwoTowers,
    WeightsConfig,
)
from jestlab.platform.programs.pricing import (
    DIAGNOSE_LEARNER,
    DIAGNOSE_REFERENCE,
    EMBED_REFERENCE,
    SCORE_EMBEDDINGS,
    TRAIN_REFERENCE,
    embedded_by,
    towers_of,
)
from jestlab.platform.programs.program import MemoryEstimate
from jestlab.platform.spec.program import Config

_FLOAT = 4  # bytes
_Arrays = tuple[int, int, int]
"""Numbers of arrays of the sizes n L D, n L M, and n H L²."""

_DIAGNOSED_ROWS = 256  # examples that a diagnosis embeds at a time: see `training.diagnose`
_PREFETCHED = 5  # batches that are read ahead, including the current one
_PROCESS = 1e9  # of a process that imports, compiles, and evaluates
_FRAGMENTATION = 0.15  # overhead of the allocator


@dataclass(frozen=True)
class _Compiler:
    """Arrays of one block as XLA compiles it: kept for the backward pass, or in a forward pass alone."""

    kept: _Arrays
    forward: _Arrays
    rematerializes: bool


_ON_CPU = _Compiler((10, 3, 3), (4, 2, 1), rematerializes=False)
_ON_TPU = _Compiler((12, 4, 4), (2, 1, 1), rematerializes=True)


@dataclass(frozen=True)
class _Tower:
    """Sizes of a tower; `pools` if attention pools its tokens."""

    tokens: int
    width: int
    hidden: int
    heads: int
    depth: int
    itemsize: int  # bytes per number
    pools: bool = False

    def block(self, rows: float, arrays: _Arrays) -> float:
        """Return the bytes of one block's arrays."""
        width, hidden, attention = arrays
        per_token = width * self.width + hidden * self.hidden + attention * self.heads * self.tokens
        return rows * self.itemsize * self.tokens * per_token

    def trained(self, rows: float, remat: str, compiler: _Compiler) -> float:
        """Return the bytes of a forward and backward pass."""
        block = self.block(rows, compiler.kept)
        pooling = 4 * rows * self.tokens * self.width * self.itemsize if self.pools else 0.0
        if remat == "none":
            return self.depth * block + pooling
        kept = self.block(rows, (5, 1, 0) if remat == "dots" else (1, 0, 0))
        return self.depth * kept + block + pooling


class _Model:
    """Two towers on TPU chips, or on this machine's CPU without chips."""

    def __init__(self, model: TwoTowers, chips: int) -> None:
        vision, text = model.vision, model.text
        # XLA computes in float32 on CPU.
        itemsize = 2 if model.compute_dtype == "bfloat16" and chips else _FLOAT
        tokens, hidden = (vision.image_size // vision.patch_size) ** 2, vision.mlp_dim or 4 * vision.width
        self.image = _Tower(
            tokens, vision.width, hidden, vision.heads, vision.depth, itemsize, vision.pooling == "map"
        )
        self.text = _Tower(
            text.length, text.width, text.mlp_dim or 4 * text.width, text.heads, text.depth, itemsize
        )
        self.compiler = _ON_TPU if chips else _ON_CPU
        self.pixels = 3 * vision.image_size**2
        self.example_bytes = self.pixels + 4 * text.length  # before decoding to floats

    def approximate_image(self, config: TrainConfig) -> _Tower:
        """Return the image tower of the approximate pass, which sees fewer patches."""
        tokens = math.ceil(config.approximation.keep * self.image.tokens)
        if config.approximation.method == "flexi":
            tokens = (config.model.vision.image_size // config.approximate_patch_size) ** 2
        return replace(self.image, tokens=tokens)

    def forward(self, rows: float, image: _Tower | None = None) -> float:
        """Return the bytes of a forward pass."""
        towers = (image or self.image, self.text)
        return sum(tower.block(rows, self.compiler.forward) for tower in towers) + rows * self.pixels * _FLOAT


def parameters(model: TwoTowers) -> int | None:
    """Count the parameters of two towers; None for custom towers."""
    vision, text = model.vision, model.text
    if vision.is_own or text.is_own:
        return None
    hidden = vision.mlp_dim or 4 * vision.width
    head = 0 if vision.width == model.embedding_dim else _dense(vision.width, model.embedding_dim)
    patches = (vision.image_size // vision.patch_size) ** 2
    count = _dense(3 * vision.patch_size**2, vision.width) + patches * vision.width + head
    count += _encoder(vision.width, hidden, vision.depth)
    if vision.pooling == "map":
        count += 3 * vision.width + 4 * _dense(vision.width, vision.width) + _mlp(vision.width, hidden)
    count += (text.vocabulary_size + text.length) * text.width + _dense(text.width, model.embedding_dim)
    return count + _encoder(text.width, text.mlp_dim or 4 * text.width, text.depth) + 2


def _dense(inputs: int, outputs: int) -> int:
    return (inputs + 1) * outputs


def _mlp(width: int, hidden: int) -> int:
    return _dense(width, hidden) + _dense(hidden, width)


def _encoder(width: int, hidden: int, depth: int) -> int:
    return 2 * width + depth * (4 * width + 4 * _dense(width, width) + _mlp(width, hidden))


def _estimate(state: float, work: float, batches: float, host: float) -> MemoryEstimate:
    """Add the fixed costs of a process to the arrays on devices and, as `host`, in the process."""
    process = _PROCESS + host + _FRAGMENTATION * (state + work + batches)
    return MemoryEstimate(state, work, batches, process)


def _decoded(config: TrainConfig | EmbedConfig, pixels: int) -> float:
    """Return the bytes of the file of decoded images, which all runs share."""
    limit = config.runtime.decoded_megabytes * 10**6
    examples = config.data.train.examples
    if examples is None:
        return limit
    return examples * pixels if examples * pixels <= limit else 0.0


# ---- the programs


def of_training(config: TrainConfig, needs: Mapping[str, Config], chips: int = 0) -> MemoryEstimate | None:
    """Estimate the memory of a training run; None for custom towers.

    A reference of unknown architecture is assumed to have the learner's.
    """
    if (count := parameters(config.model)) is None:
        return None
    model = _Model(config.model, chips)
    devices, compiler = chips or 1, model.compiler
    b, super_batch = config.batch_size / devices, config.super_batch_size / devices
    state, gradient = 3 * count * _FLOAT, 2 * count * _FLOAT
    rows = b / config.runtime.microbatches
    kept_rows = super_batch if config.reuses_scoring else rows
    remat = config.runtime.remat
    if not compiler.rematerializes and not config.runtime.scan_layers:
        remat = "none"
    share = config.approximate_size / config.batch_size
    training = 3 * b**2 * _FLOAT + 2 * rows * model.pixels * _FLOAT
    passes = [(1 - share, model.image), *([(share, model.approximate_image(config))] if share else [])]
    for part, image in passes:
        for tower in (image, model.text):
            training += tower.trained(part * kept_rows, remat, compiler)
    at_once = super_batch if config.runtime.microbatches == 1 else min(rows, super_batch)
    scoring, cached = 0.0, 0
    if config.scores_learner:
        image = model.approximate_image(config) if config.approximation.score else model.image
        scoring += model.forward(at_once, image)
    if config.needs_reference:
        if isinstance(needs.get(TRAIN_REFERENCE), EmbedConfig):
            cached = 2 * config.model.embedding_dim * _FLOAT
        else:
            reference = getattr(needs.get(TRAIN_REFERENCE), "model", None) or config.model
            state += (parameters(reference) or count) * _FLOAT
            scoring += _Model(reference, chips).forward(at_once)
    example_bytes = model.example_bytes + cached
    steps = config.runtime.steps_per_dispatch
    host = (_PREFETCHED + steps) * super_batch * example_bytes + _decoded(config, model.pixels)
    return _estimate(
        state=state,
        work=gradient + max(training, scoring),
        batches=2 * steps * super_batch * example_bytes,
        host=host + 3 * count * _FLOAT,
    )


def of_embedding(config: EmbedConfig, needs: Mapping[str, Config], chips: int = 0) -> MemoryEstimate | None:
    """Estimate the memory of a run of `embed`; None if the reference's architecture is unknown."""
    towers = towers_of(needs, EMBED_REFERENCE)
    if towers is None or (count := parameters(towers)) is None:
        return None
    model, rows = _Model(towers, chips), config.runtime.batch_size / (chips or 1)
    return _estimate(
        state=count * _FLOAT,
        work=model.forward(rows),
        batches=2 * rows * model.example_bytes,
        host=(_PREFETCHED + 1) * rows * model.example_bytes + _decoded(config, model.pixels),
    )


def of_scoring(config: ScoreConfig, needs: Mapping[str, Config], chips: int = 0) -> MemoryEstimate | None:
    """Estimate the memory of a run of `score`; None if the number or width of embeddings is unknown."""
    if (embeddings := embedded_by(needs, SCORE_EMBEDDINGS)) is None:
        return None
    count, width = embeddings
    products = config.negcliploss.batch_size * width + _DIAGNOSED_ROWS * config.semdedup.clusters_of(count)
    return _estimate(state=0.0, work=4.0 * products * _FLOAT, batches=0.0, host=4.0 * count * width * _FLOAT)


def of_diagnosis(
    config: DiagnoseConfig, needs: Mapping[str, Config], chips: int = 0
) -> MemoryEstimate | None:
    """Estimate the memory of a diagnosis, which uses one device; None if the learner is unknown."""
    learner, reference = towers_of(needs, DIAGNOSE_LEARNER), towers_of(needs, DIAGNOSE_REFERENCE)
    if learner is None or (count := parameters(learner)) is None:
        return None
    towers = [learner, *([reference] if reference is not None else [])]
    rows, candidates = _DIAGNOSED_ROWS, config.super_batch_size()
    example_bytes = _Model(learner, chips).example_bytes
    return _estimate(
        state=sum(parameters(model) or count for model in towers) * _FLOAT,
        work=sum(_Model(model, chips).forward(rows) for model in towers),
        batches=2 * rows * example_bytes + 2 * candidates * 2 * learner.embedding_dim * _FLOAT,
        host=(_PREFETCHED + 1) * rows * example_bytes,
    )


def of_weights(config: WeightsConfig, needs: Mapping[str, Config], chips: int = 0) -> MemoryEstimate | None:
    """Estimate the memory of importing weights, which are in memory twice: as read and as written."""
    count = None if config.model is None else parameters(config.model)
    return None if count is None else _estimate(count * _FLOAT, count * _FLOAT, 0.0, 0.0)
