"""What training costs by its config: the sizes in a config, priced by `jestlab.analysis.costs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from jestlab.models.config import TrainConfig, TwoTowers

if TYPE_CHECKING:
    from jestlab.analysis.costs import Cost, Forward, Step


def forward(model: TwoTowers, patch_size: int | None = None, keep: float = 1.0) -> Forward:
    """F: FLOPs of one example's forward pass through both towers.

    Args:
        model: Architecture.
        patch_size: Pixels, where images are looked at in other patches than the tower's own.
        keep: Share of the patches that are looked at.
    """
    from jestlab.analysis import costs

    vision, text = model.vision, model.text
    return costs.Forward(
        image=costs.vision_forward(
            image_size=vision.image_size,
            patch_size=patch_size or vision.patch_size,
            width=vision.width,
            depth=vision.depth,
            mlp_dim=vision.mlp_dim or 4 * vision.width,
            pooling=vision.pooling,
            embedding_dim=None if vision.width == model.embedding_dim else model.embedding_dim,
            keep=keep,
        ),
        text=costs.text_forward(
            length=text.length,
            width=text.width,
            depth=text.depth,
            mlp_dim=text.mlp_dim or 4 * text.width,
            embedding_dim=model.embedding_dim,
        ),
    )


def step_of(config: TrainConfig, reference: TwoTowers | None) -> Step:
    """What a step of a run does.

    Args:
        config: The run.
        reference: Architecture of the reference that scores online; None if none does, or its embeddings are
            cached: those are then taken to be as wide as the learner's.
    """
    from jestlab.analysis import costs

    scoring: Literal["full", "approximate"] | None = None
    if config.scores_learner:
        scoring = "approximate" if config.approximation.score else "full"
    # An approximation without a part in the run need not even fit the images.
    used = scoring == "approximate" or config.approximate_size > 0
    dims = []
    if config.scores_learner:
        dims.append(config.model.embedding_dim)
    if config.needs_reference:
        dims.append((reference or config.model).embedding_dim)
    return costs.Step(
        full=forward(config.model),
        batch_size=config.batch_size,
        super_batch_size=config.super_batch_size,
        embedding_dim=config.model.embedding_dim,
        approximate=_approximate(config) if used else None,
        approximate_share=config.approximate_size / config.batch_size,
        scoring=scoring,
        reference=forward(reference) if reference and config.needs_reference else None,
        rule=config.selection.rule,
        chunks=config.selection.chunks,
        sweeps=config.selection.sweeps,
        scored_dims=tuple(dims),
    )


def cost(config: TrainConfig, reference: TwoTowers | None, examples: float) -> Cost:
    """FLOPs of training, by what they are spent on.

    Args:
        config: The run.
        reference: As for `step_of`.
        examples: Examples seen by the learner: 1 for the cost of one.

    Returns:
        The counted cost, the sub-batch's forward pass counted again after its scoring.
    """
    return step_of(config, reference).cost() * examples


def _approximate(config: TrainConfig) -> Forward:
    """One example's approximate forward pass."""
    if config.approximation.method == "flexi":
        return forward(config.model, patch_size=config.approximate_patch_size)
    return forward(config.model, keep=config.approximation.keep)
