"""How much memory jestlab's own programs occupy by their configs: an estimate, before anything is compiled.

It adds up what is there at the peak of a training step, in float32 or the towers' own type: parameters,
Adam's two moments and the gradient; what the forward pass keeps for the backward pass, in as many parts as
`runtime.microbatches` says; what scoring a super-batch takes; the batches themselves. Data parallel, as runs
are: every device holds all parameters, and its share of the rows.

How close it is, against XLA's own account of the compiled step (JAX 0.10.2, arguments and temporaries):

- On CPU (2026-11-24): from 8% below to 17% above for nine of ten configs of 17 MB to 7.3 GB, and 46 MB
  estimated for 31 MB. XLA's CPU compiler undoes rematerialisation where layers are not scanned, and computes
  bfloat16 in float32; so does the estimate.
- Peak resident memory of the processes of such runs, one at a time (same day): 1.0 GB estimated for 1.1
  (quickstart), 1.6 for 1.6, 3.0 for 3.1, and 1.8 for 2.1 (joint selection with the reference online). Of that
  0.4 GB are pages that processes on one machine share; they are counted for each.
- On TPU, compiled for v5e 16×16 (BENCHMARKS.md, B/16 at b = 32,768): 36.1 GB estimated for 36.6; with four
  microbatches 12.3 for 12.9; with `remat: all` 8.1 for 7.3. Nothing has been measured on a chip.

Not counted: what decoding an image takes, up to 4 bytes per pixel (progressive JPEG: 8, WebP: 18).

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
)
from jestlab.platform.programs.program import Memory
from jestlab.platform.spec.program import Config

_FLOAT = 4
_Arrays = tuple[int, int, int]
"""Numbers of arrays of n L D, of n L M and of n H L²."""


@dataclass(frozen=True)
class _Compiler:
    """What a block takes as XLA compiles it: kept for its backward pass, and in passing if there is none."""

    kept: _Arrays
    passing: _Arrays
    rematerializes: bool


_ON_CPU = _Compiler((10, 3, 3), (4, 2, 1), rematerializes=False)
_ON_TPU = _Compiler((12, 4, 4), (2, 1, 1), rematerializes=True)

_DIAGNOSED_ROWS = 256
"""Examples that a diagnosis embeds at a time: see `training.diagnose`."""

_AHEAD = 5
"""Batches that are read ahead, and the one that is handed over."""

_PROCESS = 1e9
"""What a process takes that only imports, compiles and evaluates."""

_FRAGMENTS = 0.15
"""What the allocator takes beside what is allocated, as a share of it."""


@dataclass(frozen=True)
class _Tower:
    """A tower as far as memory goes; `pools` if attention makes one embedding of its tokens."""

    tokens: int
    width: int
    hidden: int
    heads: int
    depth: int
    bytes: int  # of a number
    pools: bool

    def block(self, rows: float, arrays: _Arrays) -> float:
        """Return the bytes of one block's arrays for a number of rows."""
        of_width, of_hidden, of_attention = arrays
        of_tokens = self.tokens * (of_width * self.width + of_hidden * self.hidden)
        return rows * self.bytes * (of_tokens + of_attention * self.heads * self.tokens**2)

    def trained(self, rows: float, remat: str, compiler: _Compiler) -> float:
        """Return the bytes that a forward and backward pass holds."""
        one = self.block(rows, compiler.kept)
        pooling = 4 * rows * self.tokens * self.width * self.bytes if self.pools else 0.0
        if remat == "none":
            return self.depth * one + pooling
        kept = self.block(rows, (5, 1, 0)) if remat == "dots" else self.block(rows, (1, 0, 0))
        return self.depth * kept + one + pooling


def parameters(model: TwoTowers) -> int | None:
    """Count the parameters of two towers; None if one of them is of one's own."""
    vision, text = model.vision, model.text
    if vision.is_own or text.is_own:
        return None
    hidden = vision.mlp_dim or 4 * vision.width
    embeds = 0 if vision.width == model.embedding_dim else _dense(vision.width, model.embedding_dim)
    patches = (vision.image_size // vision.patch_size) ** 2
    count = _dense(3 * vision.patch_size**2, vision.width) + patches * vision.width + embeds
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


# ---- the programs


def of_training(config: TrainConfig, needs: Mapping[str, Config], chips: int = 0) -> Memory | None:
    """Estimate the memory of a training run; None if a tower is of one's own.

    A reference of unknown architecture is assumed to have the learner's.
    """
    if (count := parameters(config.model)) is None:
        return None
    devices = chips or 1
    size = "batch_size" if config.schedule.super_batch_size is None else "super_batch_size"
    one_row = _changed(config, "schedule", batch_size=devices, super_batch_size=None)
    parts = {"microbatches": max(1, config.batch_size // devices), "reuse_scoring": False}
    without = "unset runtime.reuse_scoring and " if config.reuses_scoring else ""
    changes = [
        (f"{without}set a higher runtime.microbatches", _changed(config, "runtime", **parts)),
        ("set runtime.remat: all", _changed(config, "runtime", remat="all")),
        (f"lower schedule.{size}", one_row),
        *([("take more chips", one_row)] if chips else []),
    ]
    reduced = tuple((change, _training(its, needs, chips, count)) for change, its in changes)
    return replace(_training(config, needs, chips, count), reduced=reduced)


def _changed(config: TrainConfig, section: str, **settings: object) -> TrainConfig:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=settings)})


def _training(config: TrainConfig, needs: Mapping[str, Config], chips: int, count: int) -> Memory:
    """Estimate the memory of a training run of so many parameters, without what would reduce it."""
    towers = _towers(config.model, chips)
    devices, compiler = chips or 1, _ON_TPU if chips else _ON_CPU
    b, super_batch = config.batch_size / devices, config.super_batch_size / devices
    state, gradient = 3 * count * _FLOAT, 2 * count * _FLOAT
    rows = b / config.runtime.microbatches
    kept = super_batch if config.reuses_scoring else rows
    undone = not (compiler.rematerializes or config.runtime.scan_layers)
    remat = "none" if undone else config.runtime.remat
    share = config.approximate_size / config.batch_size
    seen = [_approximated(towers, config), towers] if share else [towers]
    shares = (share, 1 - share) if share else (1.0,)
    training = sum(
        tower.trained(part * kept, remat, compiler)
        for part, pair in zip(shares, seen, strict=True)
        for tower in pair
    )
    training += 3 * b**2 * _FLOAT + 2 * rows * _pixels(config.model) * _FLOAT
    at_once = super_batch if config.runtime.microbatches == 1 else min(rows, super_batch)
    scoring, cached = 0.0, 0
    if config.scores_learner:
        pair = _approximated(towers, config) if config.approximation.score else towers
        scoring += _scored(pair, config.model, at_once, compiler)
    if config.needs_reference:
        need = needs.get(TRAIN_REFERENCE)
        if isinstance(need, EmbedConfig):
            cached = 2 * config.model.embedding_dim * _FLOAT
        else:
            model = getattr(need, "model", None) or config.model
            state += (parameters(model) or count) * _FLOAT
            scoring += _scored(_towers(model, chips), model, at_once, compiler)
    row = _row(config.model) + cached
    steps = config.runtime.steps_per_dispatch
    return _memory(
        state=state,
        work=gradient + max(training, scoring),
        batches=2 * steps * super_batch * row,
        host=(_AHEAD + steps) * super_batch * row + _decoded(config, config.model) + 3 * count * _FLOAT,
    )


def of_embedding(config: EmbedConfig, needs: Mapping[str, Config], chips: int = 0) -> Memory | None:
    """Estimate the memory of a run that embeds; None if the architecture of its reference is not known."""
    model = getattr(needs.get(EMBED_REFERENCE), "model", None)
    if not isinstance(model, TwoTowers) or (count := parameters(model)) is None:
        return None

    def of_rows(rows: float) -> Memory:
        return _memory(
            state=count * _FLOAT,
            work=_scored(_towers(model, chips), model, rows, _ON_TPU if chips else _ON_CPU),
            batches=2 * rows * _row(model),
            host=(_AHEAD + 1) * rows * _row(model) + _decoded(config, model),
        )

    reduced = (("lower runtime.batch_size", of_rows(1)),)
    return replace(of_rows(config.runtime.batch_size / (chips or 1)), reduced=reduced)


def of_scoring(config: ScoreConfig, needs: Mapping[str, Config], chips: int = 0) -> Memory | None:
    """Estimate the memory of a run that scores a data set; None if its size or width is not known."""
    if (embeddings := embedded_by(needs, SCORE_EMBEDDINGS)) is None:
        return None
    count, width = embeddings
    clusters = config.semdedup.clusters_of(count)
    together = config.negcliploss.batch_size * width + _DIAGNOSED_ROWS * clusters
    return _memory(state=0.0, work=4.0 * together * _FLOAT, batches=0.0, host=4.0 * count * width * _FLOAT)


def of_diagnosis(config: DiagnoseConfig, needs: Mapping[str, Config], chips: int = 0) -> Memory | None:
    """Estimate the memory of a diagnosis, which computes on one device; None if its learner is not known."""
    learner = getattr(needs.get(DIAGNOSE_LEARNER), "model", None)
    if not isinstance(learner, TwoTowers) or (count := parameters(learner)) is None:
        return None
    reference = getattr(needs.get(DIAGNOSE_REFERENCE), "model", None)
    models = [learner, *([reference] if isinstance(reference, TwoTowers) else [])]
    rows, candidates = _DIAGNOSED_ROWS, config.super_batch_size()
    return _memory(
        state=sum(parameters(model) or count for model in models) * _FLOAT,
        work=sum(
            _scored(_towers(model, chips), model, rows, _ON_TPU if chips else _ON_CPU) for model in models
        ),
        batches=2 * rows * _row(learner) + 2 * candidates * 2 * learner.embedding_dim * _FLOAT,
        host=(_AHEAD + 1) * rows * _row(learner),
    )


def of_weights(config: WeightsConfig, needs: Mapping[str, Config], chips: int = 0) -> Memory | None:
    """Estimate the memory of an import of weights: they are there twice, as read and as written."""
    count = None if config.model is None else parameters(config.model)
    return None if count is None else _memory(count * _FLOAT, count * _FLOAT, 0.0, 0.0)


def _memory(state: float, work: float, batches: float, host: float) -> Memory:
    """Add what every process takes to what a run holds on devices and, as `host`, in its process."""
    return Memory(state, work, batches, _PROCESS + host + _FRAGMENTS * (state + work + batches))


def _towers(model: TwoTowers, chips: int) -> tuple[_Tower, _Tower]:
    # XLA computes in float32 on CPU.
    size = 2 if model.compute_dtype == "bfloat16" and chips else _FLOAT
    vision, text = model.vision, model.text
    image = _Tower(
        tokens=(vision.image_size // vision.patch_size) ** 2,
        width=vision.width,
        hidden=vision.mlp_dim or 4 * vision.width,
        heads=vision.heads,
        depth=vision.depth,
        bytes=size,
        pools=vision.pooling == "map",
    )
    hidden = text.mlp_dim or 4 * text.width
    return image, _Tower(text.length, text.width, hidden, text.heads, text.depth, size, pools=False)


def _approximated(towers: tuple[_Tower, _Tower], config: TrainConfig) -> tuple[_Tower, _Tower]:
    """Return the towers as they see the approximation: with fewer patches."""
    image, text = towers
    tokens = math.ceil(config.approximation.keep * image.tokens)
    if config.approximation.method == "flexi":
        tokens = (config.model.vision.image_size // config.approximate_patch_size) ** 2
    return replace(image, tokens=tokens), text


def _scored(towers: tuple[_Tower, _Tower], model: TwoTowers, rows: float, compiler: _Compiler) -> float:
    """Return the bytes of a forward pass alone."""
    return sum(tower.block(rows, compiler.passing) for tower in towers) + rows * _pixels(model) * _FLOAT


def _pixels(model: TwoTowers) -> int:
    return 3 * model.vision.image_size**2


def _row(model: TwoTowers) -> int:
    """Return the bytes of one example as it is read."""
    return _pixels(model) + 4 * model.text.length


def _decoded(config: TrainConfig | EmbedConfig, model: TwoTowers) -> float:
    """Return the bytes of the images that are decoded once for all runs, in a file that they share."""
    most = config.runtime.decoded_megabytes * 10**6
    examples = config.data.train.examples
    if examples is None:
        return most
    whole = examples * _pixels(model)
    return whole if whole <= most else 0.0
