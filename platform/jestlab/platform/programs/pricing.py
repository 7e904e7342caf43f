"""Prices of jestlab's own programs, computed from their configs by the formulas of
`jestlab.analysis.flops`."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from jestlab.analysis import flops as formulas
from jestlab.analysis.costs import Cost, Step
from jestlab.analysis.flops import RULES, Forward, selection_flops
from jestlab.models import extensions
from jestlab.models.config import (
    CustomReader,
    DiagnoseConfig,
    EmbedConfig,
    ScoreConfig,
    ShapesWeb,
    ShardFolder,
    TextTower,
    TrainConfig,
    TwoTowers,
    VisionTower,
    WeightsConfig,
)
from jestlab.models.config.base import LOSSES
from jestlab.models.extensions import Kind
from jestlab.platform.errors import UserError
from jestlab.platform.programs.program import Price
from jestlab.platform.spec.program import Config

# Roles of dependencies: the config fields that name them.
TRAIN_REFERENCE = "selection.reference"
EMBED_REFERENCE = "reference"
SCORE_EMBEDDINGS, SCORE_TARGET = "embeddings", "target"
DATA_SCORES = "data.scores"
DIAGNOSE_LEARNER, DIAGNOSE_REFERENCE = "learner", "reference"


# ---- custom code


def _custom_flops(place: str, kind: Kind, name: str, /, *args: Any, **options: Any) -> float | None:
    """Call the `flops` function of custom code; None if it has none. `place` is its place in the config."""
    try:
        count: Callable[..., Any] | None = getattr(extensions.load(kind, name), "flops", None)
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    if not callable(count):
        return None
    try:
        flops = float(count(*args, **options))
    except Exception as error:  # any exception of custom code
        raise UserError(f"{place}: flops of {name} failed: {type(error).__name__}: {error}") from error
    if not (math.isfinite(flops) and flops >= 0):
        raise UserError(f"{place}: flops of {name} are {flops}: expected a finite, nonnegative number")
    return flops


def _custom_tower_flops(field: str, tower: VisionTower | TextTower, embedding_dim: int | None) -> int:
    """Compute the FLOPs of one example's forward pass through a custom tower and the dense head after it."""
    place = f"model.{field}.architecture"
    flops = _custom_flops(place, "tower", tower.architecture, tower, **tower.options)
    if flops is None:
        raise UserError(
            f"{place}: {tower.architecture} declares no FLOPs, so its cost is unknown: add a function "
            "`flops(config, **options)` that returns the FLOPs of one example's forward pass"
        )
    return round(flops) + formulas.head_flops(tower.width, embedding_dim)


def _custom_loss_flops(config: TrainConfig, reference_dim: int) -> float | None:
    """Compute the FLOPs of a loss that isn't built in; None if its code has no `flops` function."""
    if config.loss in LOSSES:
        return None
    sizes = {"batch_size": config.batch_size, "embedding_dim": config.model.embedding_dim}
    if config.compares_with_reference:
        sizes["reference_dim"] = reference_dim
    if config.loss in formulas.REFERENCE_LOSSES:
        return formulas.loss_flops(**sizes)
    return _custom_flops("loss", "loss", config.loss, **sizes | config.loss_options)


# ---- training steps


def forward(model: TwoTowers, patch_size: int | None = None, keep: float = 1.0) -> Forward:
    """Compute F, the FLOPs of one example's forward pass through both towers.

    Args:
        model: Architecture.
        patch_size: Patch size in pixels; None for the tower's.
        keep: Fraction of the patches that is processed.
    """
    vision, text = model.vision, model.text
    head = None if vision.width == model.embedding_dim else model.embedding_dim
    return Forward(
        image=_custom_tower_flops("vision", vision, head)
        if vision.is_custom
        else formulas.vision_forward(
            image_size=vision.image_size,
            patch_size=patch_size or vision.patch_size,
            width=vision.width,
            depth=vision.depth,
            mlp_dim=vision.mlp_dim or 4 * vision.width,
            pooling=vision.pooling,
            embedding_dim=head,
            keep=keep,
        ),
        text=_custom_tower_flops("text", text, model.embedding_dim)
        if text.is_custom
        else formulas.text_forward(
            length=text.length,
            width=text.width,
            depth=text.depth,
            mlp_dim=text.mlp_dim or 4 * text.width,
            embedding_dim=model.embedding_dim,
        ),
    )


def step_of(config: TrainConfig, reference: TwoTowers | None, reference_dim: int | None = None) -> Step:
    """Describe the work of a training step.

    Args:
        config: The run.
        reference: Architecture of a reference that scores online; None if there is none, or its embeddings
            are cached.
        reference_dim: Width of the reference's embeddings; None for that of its architecture, or of the
            learner's if that is unknown.
    """
    reference_dim = reference_dim or (reference or config.model).embedding_dim
    scoring: Literal["full", "approximate"] | None = None
    if config.scores_learner:
        scoring = "approximate" if config.approximation.score else "full"
    approximate = None
    if scoring == "approximate" or config.approximate_size > 0:  # an unused approximation need not be valid
        approximate = (
            forward(config.model, patch_size=config.approximate_patch_size)
            if config.approximation.method == "flexi"
            else forward(config.model, keep=config.approximation.keep)
        )
    dims = [config.model.embedding_dim] if config.scores_learner else []
    dims += [reference_dim] if config.scores_reference else []
    rule = config.selection.rule
    selection = 0.0  # FLOPs per sub-batch
    if config.selects:
        selection = selection_flops(
            rule if rule in RULES else "independent",
            batch_size=config.batch_size,
            super_batch_size=config.super_batch_size,
            embedding_dims=dims,
            chunks=config.selection.chunks,
            sweeps=config.selection.sweeps,
        )
        if rule not in (*RULES, *formulas.FREE_RULES):
            sizes = {"batch_size": config.batch_size, "super_batch_size": config.super_batch_size}
            options = {**sizes, "embedding_dims": tuple(dims), **config.selection.rule_options}
            selection += _custom_flops("selection.rule", "rule", rule, **options) or 0.0
    return Step(
        full=forward(config.model),
        batch_size=config.batch_size,
        super_batch_size=config.super_batch_size,
        embedding_dim=config.model.embedding_dim,
        approximate=approximate,
        approximate_share=config.approximate_size / config.batch_size,
        scoring=scoring,
        reference=forward(reference) if reference and config.needs_reference else None,
        reference_scores=config.scores_reference,
        compares=config.compares_with_reference,
        selection=selection,
        own_loss=_custom_loss_flops(config, reference_dim),
        reuses=config.reuses_scoring,
        selecting_share=config.selecting_steps / config.total_steps if config.selects else 1.0,
    )


# ---- whole runs


def towers_of(needs: Mapping[str, Config], role: str) -> TwoTowers | None:
    """Return the architecture of the dependency with a role; None if unknown."""
    model = getattr(needs.get(role), "model", None)
    return model if isinstance(model, TwoTowers) else None


def _example_count(train: ShapesWeb | ShardFolder | CustomReader) -> int | None:
    """Count the examples of the data, or return the number in the config if the folder isn't here."""
    if isinstance(train, ShapesWeb | CustomReader) or not Path(train.path).is_dir():
        return train.examples
    from jestlab.models.data.shards import ShardIndex  # imports NumPy, which few plans need

    return len(ShardIndex.load(Path(train.path)))


def price_train(config: TrainConfig, needs: Mapping[str, Config]) -> Price:
    """Price a training run.

    Cached embeddings are free, because the run that created them includes their cost. A reference of unknown
    architecture is assumed to have the learner's.
    """
    examples = config.total_steps * config.batch_size
    reference = None
    if not isinstance(needs.get(TRAIN_REFERENCE), EmbedConfig):
        reference = towers_of(needs, TRAIN_REFERENCE) or config.model
    cached = towers_of(needs, f"{TRAIN_REFERENCE}.{EMBED_REFERENCE}")
    step = step_of(config, reference, cached.embedding_dim if cached else None)
    return Price(step.cost() * examples, examples, step)


def price_embed(config: EmbedConfig, needs: Mapping[str, Config]) -> Price | None:
    """Price the reference's forward pass on every example, as reference scoring.

    This is an upper bound, since filters aren't evaluated. None if the architecture or the number of examples
    is unknown.
    """
    model, examples = towers_of(needs, EMBED_REFERENCE), _example_count(config.data.train)
    if examples is None or model is None:
        return None
    return Price(Cost(reference_scoring=forward(model).total * examples), examples=0)


def price_weights(config: WeightsConfig, needs: Mapping[str, Config]) -> Price:
    """Price imported weights at 0: the cost of their training is unknown."""
    return Price(Cost(), examples=0)


def price_score(config: ScoreConfig, needs: Mapping[str, Config]) -> Price | None:
    """Price the products of embeddings from which the score columns are computed, as reference scoring.

    This is an upper bound, since filters aren't evaluated. None if the architecture or the number of examples
    is unknown.
    """
    scored, model = needs.get(SCORE_EMBEDDINGS), towers_of(needs, f"{SCORE_EMBEDDINGS}.{EMBED_REFERENCE}")
    n = _example_count(scored.data.train) if isinstance(scored, EmbedConfig) else None
    if n is None or model is None:
        return None
    width = model.embedding_dim
    flops = formulas.clip_loss_scores_flops(
        examples=n,
        embedding_dim=width,
        batch_size=config.negcliploss.batch_size,
        repeats=config.negcliploss.repeats,
    )
    flops += formulas.deduplication_flops(
        examples=n,
        embedding_dim=width,
        clusters=config.semdedup.clusters_of(n),
        iterations=config.semdedup.iterations,
    )
    target = needs.get(SCORE_TARGET)
    if isinstance(target, EmbedConfig):
        if (m := _example_count(target.data.train)) is None:
            return None
        flops += formulas.norm_similarity_flops(examples=n, targets=m, embedding_dim=width)
    return Price(Cost(reference_scoring=flops), examples=0)


def price_diagnose(config: DiagnoseConfig, needs: Mapping[str, Config]) -> Price | None:
    """Price the forward passes of learner and reference over all candidates, and all selections.

    Cached embeddings are free, and are assumed to be as wide as the learner's. None if an architecture is
    unknown.
    """
    if (learner := towers_of(needs, DIAGNOSE_LEARNER)) is None:
        return None
    candidates = config.draws * config.super_batch_size()
    scoring = reference_scoring = 0.0
    dims = []
    if config.scores_learner:
        scoring = forward(learner).total * candidates
        dims.append(learner.embedding_dim)
    if config.needs_reference:
        is_cached = isinstance(needs.get(DIAGNOSE_REFERENCE), EmbedConfig)
        reference = learner if is_cached else towers_of(needs, DIAGNOSE_REFERENCE)
        if reference is None:
            return None
        if not is_cached:
            reference_scoring = forward(reference).total * candidates
        dims.append(reference.embedding_dim)
    # The same selections as in `jestlab.models.training.diagnose`.
    selections = [
        (ratio, rule, chunks)
        for ratio in config.filtering_ratios
        for rule, chunks in (("independent", 1), *(("joint", chunks) for chunks in config.chunks))
    ]
    selections += [(config.filtering_ratio, rule, config.joint_chunks) for rule in RULES]
    selection = config.draws * sum(
        selection_flops(
            rule,
            batch_size=config.batch_size,
            super_batch_size=config.super_batch_size(ratio),
            embedding_dims=dims,
            chunks=chunks,
            sweeps=config.sweeps,
            traced=True,
        )
        for ratio, rule, chunks in selections
    )
    cost = Cost(scoring=scoring, selection=selection, reference_scoring=reference_scoring)
    return Price(cost, examples=0)
