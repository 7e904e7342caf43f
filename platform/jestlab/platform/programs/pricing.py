"""What jestlab's own programs cost by their configs, in the formulas of `jestlab.analysis.costs`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from jestlab.analysis import costs
from jestlab.analysis.costs import RULES, Cost, Forward, Step, selection_flops
from jestlab.models import extensions
from jestlab.models.config import (
    DiagnoseConfig,
    EmbedConfig,
    OwnReader,
    ScoreConfig,
    ShapesWeb,
    ShardFolder,
    TextTower,
    TrainConfig,
    TwoTowers,
    VisionTower,
    WeightsConfig,
)
from jestlab.models.config.train import LOSSES
from jestlab.platform.errors import UserError
from jestlab.platform.programs.program import Price
from jestlab.platform.spec.program import Config

TRAIN_REFERENCE = "selection.reference"
"""Role of the reference among the runs that a training run depends on: the config field that names it."""

EMBED_REFERENCE = "reference"
"""The same for a run of `embed`."""

SCORE_EMBEDDINGS, SCORE_TARGET = "embeddings", "target"
"""The same for a run of `score`."""

DATA_SCORES = "data.scores"
"""The same for any run whose data are filtered by scores."""

DIAGNOSE_LEARNER, DIAGNOSE_REFERENCE = "learner", "reference"
"""The same for a run of `diagnose`."""


def forward(model: TwoTowers, patch_size: int | None = None, keep: float = 1.0) -> Forward:
    """Compute F, the FLOPs of one example's forward pass through both towers.

    Args:
        model: Architecture.
        patch_size: Patch size in pixels, if other than the tower's own.
        keep: Share of the patches that are processed.
    """
    vision, text = model.vision, model.text
    head = None if vision.width == model.embedding_dim else model.embedding_dim
    return costs.Forward(
        image=_own_tower("vision", vision, head)
        if vision.is_own
        else costs.vision_forward(
            image_size=vision.image_size,
            patch_size=patch_size or vision.patch_size,
            width=vision.width,
            depth=vision.depth,
            mlp_dim=vision.mlp_dim or 4 * vision.width,
            pooling=vision.pooling,
            embedding_dim=head,
            keep=keep,
        ),
        text=_own_tower("text", text, model.embedding_dim)
        if text.is_own
        else costs.text_forward(
            length=text.length,
            width=text.width,
            depth=text.depth,
            mlp_dim=text.mlp_dim or 4 * text.width,
            embedding_dim=model.embedding_dim,
        ),
    )


def _own_tower(name: str, tower: VisionTower | TextTower, head: int | None) -> int:
    """Compute the FLOPs of one example's forward pass through a tower of one's own and the head after it."""
    place = f"model.{name}.architecture"
    try:
        architecture = extensions.load("tower", tower.architecture)
        if not callable(count := getattr(architecture, "flops", None)):
            raise ValueError(
                f"{tower.architecture} says no FLOPs, so that its cost is unknown: give it a `flops(config, "
                "**options)` that returns those of one example's forward pass"
            )
    except ValueError as error:
        raise UserError(f"{place}: {error}") from None
    flops = _counted(place, tower.architecture, count, tower, **tower.options)
    return round(flops) + costs.head_flops(tower.width, head)


def _own_rule(config: TrainConfig, dims: Sequence[int]) -> float:
    """Compute the FLOPs of choosing one sub-batch by a rule of one's own, as far as it tells them."""
    selection = config.selection
    if selection.rule in costs.FREE_RULES:
        return 0.0
    try:
        count = getattr(extensions.load("rule", selection.rule), "flops", None)
    except ValueError as error:
        raise UserError(f"selection.rule: {error}") from None
    if not callable(count):
        return 0.0
    sizes = {"batch_size": config.batch_size, "super_batch_size": config.super_batch_size}
    options = {**sizes, "embedding_dims": tuple(dims), **selection.rule_options}
    return _counted("selection.rule", selection.rule, count, **options)


def _own_loss(config: TrainConfig, reference_dim: int) -> float | None:
    """Compute the FLOPs of a loss that is not built in; None if it tells none."""
    if config.loss in LOSSES:
        return None
    try:
        count = costs.LOSSES.get(config.loss) or getattr(extensions.load("loss", config.loss), "flops", None)
    except ValueError as error:
        raise UserError(f"loss: {error}") from None
    if not callable(count):
        return None
    sizes = {"batch_size": config.batch_size, "embedding_dim": config.model.embedding_dim}
    if config.compares_with_reference:
        sizes["reference_dim"] = reference_dim
    options = {} if config.loss in costs.LOSSES else config.loss_options
    return _counted("loss", config.loss, count, **sizes, **options)


def _counted(place: str, name: str, count: Callable[..., Any], *args: Any, **kwargs: Any) -> float:
    """Call the `flops` of code of one's own; UserError, which names the place, if it fails."""
    try:
        flops = float(count(*args, **kwargs))
    except Exception as error:  # whatever the user's function raises
        raise UserError(f"{place}: flops of {name} fail: {type(error).__name__}: {error}") from error
    if not (math.isfinite(flops) and flops >= 0):
        raise UserError(f"{place}: flops of {name} are {flops}: expected a number from 0 on")
    return flops


def step_of(config: TrainConfig, reference: TwoTowers | None, reference_dim: int | None = None) -> Step:
    """Describe what a training step of a run does.

    Args:
        config: The run.
        reference: Architecture of the reference that scores online; None if there is none, or if its
            embeddings are cached.
        reference_dim: Width of the reference's embeddings; None for that of its architecture, or where that
            is not known, of the learner's.
    """
    reference_dim = reference_dim or (reference or config.model).embedding_dim
    scoring: Literal["full", "approximate"] | None = None
    if config.scores_learner:
        scoring = "approximate" if config.approximation.score else "full"
    # An approximation that the run does not use need not even fit the images.
    used = scoring == "approximate" or config.approximate_size > 0
    dims = []
    if config.scores_learner:
        dims.append(config.model.embedding_dim)
    if config.scores_reference:
        dims.append(reference_dim)
    is_own = config.selects and config.selection.rule not in RULES
    return costs.Step(
        full=forward(config.model),
        batch_size=config.batch_size,
        super_batch_size=config.super_batch_size,
        embedding_dim=config.model.embedding_dim,
        approximate=_approximate(config) if used else None,
        approximate_share=config.approximate_size / config.batch_size,
        scoring=scoring,
        reference=forward(reference) if reference and config.needs_reference else None,
        reference_scores=config.scores_reference,
        compares=config.compares_with_reference,
        own_loss=_own_loss(config, reference_dim),
        rule="independent" if is_own else config.selection.rule,
        own_rule=_own_rule(config, dims) if is_own else 0.0,
        chunks=config.selection.chunks,
        sweeps=config.selection.sweeps,
        scored_dims=tuple(dims),
        reuses=config.reuses_scoring,
        selecting_share=config.selecting_steps / config.total_steps if config.selects else 1.0,
    )


def cost(config: TrainConfig, reference: TwoTowers | None, examples: float) -> Cost:
    """Compute the FLOPs of training on a number of examples, by what they are spent on, as counted.

    The sub-batch's forward pass counts again after its scoring, unless that is reused. `reference` is as for
    `step_of`.
    """
    return step_of(config, reference).cost() * examples


def _approximate(config: TrainConfig) -> Forward:
    """Compute the FLOPs of one example's approximate forward pass."""
    if config.approximation.method == "flexi":
        return forward(config.model, patch_size=config.approximate_patch_size)
    return forward(config.model, keep=config.approximation.keep)


# ---- whole runs


def price_train(config: TrainConfig, needs: Mapping[str, Config]) -> Price:
    """Price a training run.

    Cached embeddings cost the run nothing: the run that made them has paid. A reference of unknown
    architecture is assumed to have the learner's.
    """
    examples = config.total_steps * config.batch_size
    cached = cached_by(needs, TRAIN_REFERENCE)
    step = step_of(
        config, _scoring_model(config, needs.get(TRAIN_REFERENCE)), cached.embedding_dim if cached else None
    )
    return Price(step.cost() * examples, examples, step)


def cached_by(needs: Mapping[str, Config], role: str) -> TwoTowers | None:
    """Return the architecture whose embeddings a run of `embed` in a role has cached; None if unknown."""
    model = getattr(needs.get(f"{role}.{EMBED_REFERENCE}"), "model", None)
    return model if isinstance(model, TwoTowers) else None


def embedded_by(needs: Mapping[str, Config], role: str) -> tuple[int, int] | None:
    """Return how many examples a run of `embed` in a role embeds, and how wide; None if either is unknown."""
    run, model = needs.get(role), cached_by(needs, role)
    count = _count(run.data.train) if isinstance(run, EmbedConfig) else None
    return None if count is None or model is None else (count, model.embedding_dim)


def _scoring_model(config: TrainConfig, reference: Config | None) -> TwoTowers | None:
    """Return the architecture that scores beside the learner; None if its scores are cached."""
    if isinstance(reference, EmbedConfig):
        return None
    model = getattr(reference, "model", None)
    return model if isinstance(model, TwoTowers) else config.model


def price_embed(config: EmbedConfig, needs: Mapping[str, Config]) -> Price | None:
    """Price the reference's forward pass over every example: an upper bound, since filters are not evaluated.

    No learner sees anything, so all of it is scoring by the reference. None if the reference's architecture
    or the number of examples is not known.
    """
    model = getattr(needs.get(EMBED_REFERENCE), "model", None)
    examples = _count(config.data.train)
    if examples is None or not isinstance(model, TwoTowers):
        return None
    return Price(Cost(reference_scoring=forward(model).total * examples), examples=0)


def _count(train: ShapesWeb | ShardFolder | OwnReader) -> int | None:
    """Count the examples of the data; the config's own number if the folder is not on this machine."""
    if isinstance(train, ShapesWeb | OwnReader) or not Path(train.path).is_dir():
        return train.examples
    from jestlab.models.data.shards import ShardIndex  # imports NumPy, which few plans need

    return len(ShardIndex.load(Path(train.path)))


def price_weights(config: WeightsConfig, needs: Mapping[str, Config]) -> Price:
    """Price imported weights: nothing, since what their training took is not known here."""
    return Price(Cost(), examples=0)


def price_score(config: ScoreConfig, needs: Mapping[str, Config]) -> Price | None:
    """Price the products of embeddings that columns are made of; looking at data is scoring by the reference.

    None if the reference's architecture or the number of examples is not known; filters are not evaluated.
    """
    if (embeddings := embedded_by(needs, SCORE_EMBEDDINGS)) is None:
        return None
    n, width = embeddings
    clusters = config.semdedup.clusters_of(n)
    flops = costs.clip_loss_scores_flops(
        examples=n,
        embedding_dim=width,
        batch_size=config.negcliploss.batch_size,
        repeats=config.negcliploss.repeats,
    )
    flops += costs.deduplication_flops(
        examples=n, embedding_dim=width, clusters=clusters, iterations=config.semdedup.iterations
    )
    target = needs.get(SCORE_TARGET)
    if isinstance(target, EmbedConfig):
        if (m := _count(target.data.train)) is None:
            return None
        flops += costs.norm_similarity_flops(examples=n, targets=m, embedding_dim=width)
    return Price(Cost(reference_scoring=flops), examples=0)


def price_diagnose(config: DiagnoseConfig, needs: Mapping[str, Config]) -> Price | None:
    """Price the forward passes of learner and reference over all candidates, and all selections from them.

    Cached embeddings have been paid for; they are assumed to be as wide as the learner's. None if an
    architecture that scores is not known.
    """
    learner = getattr(needs.get(DIAGNOSE_LEARNER), "model", None)
    if not isinstance(learner, TwoTowers):
        return None
    candidates = config.draws * config.super_batch_size()
    scoring = reference_scoring = 0.0
    dims = []
    if config.scores_learner:
        scoring = forward(learner).total * candidates
        dims.append(learner.embedding_dim)
    if config.needs_reference:
        need = needs.get(DIAGNOSE_REFERENCE)
        reference = learner if isinstance(need, EmbedConfig) else getattr(need, "model", None)
        if not isinstance(reference, TwoTowers):
            return None
        if not isinstance(need, EmbedConfig):
            reference_scoring = forward(reference).total * candidates
        dims.append(reference.embedding_dim)
    selection = config.draws * _selection(config, dims)
    cost = Cost(scoring=scoring, selection=selection, reference_scoring=reference_scoring)
    return Price(cost, examples=0)


def _selection(config: DiagnoseConfig, dims: Sequence[int]) -> int:
    """Compute the FLOPs of all selections from one super-batch: see `jestlab.models.training.diagnose`."""
    selections = [
        (f, rule, chunks)
        for f in config.filtering_ratios
        for rule, chunks in (("independent", 1), *(("joint", chunks) for chunks in config.chunks))
    ]
    selections += [(config.filtering_ratio, rule, config.joint_chunks) for rule in RULES]
    return sum(
        selection_flops(
            rule,
            batch_size=config.batch_size,
            super_batch_size=config.super_batch_size(f),
            embedding_dims=dims,
            chunks=chunks,
            sweeps=config.sweeps,
            traced=True,
        )
        for f, rule, chunks in selections
    )
