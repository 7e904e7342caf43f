"""What training costs by its config: the sizes in a config, priced by `jestlab.analysis.costs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jestlab.models.config import TrainConfig, TwoTowers

if TYPE_CHECKING:
    from jestlab.analysis.costs import Cost


def forward_flops(model: TwoTowers, patch_size: int | None = None, keep: float = 1.0) -> int:
    """F: FLOPs of one example's forward pass through both towers.

    Args:
        model: Architecture.
        patch_size: Pixels, where images are looked at in other patches than the tower's own.
        keep: Share of the patches that are looked at.
    """
    from jestlab.analysis import costs

    vision, text = model.vision, model.text
    return costs.vision_forward(
        image_size=vision.image_size,
        patch_size=patch_size or vision.patch_size,
        width=vision.width,
        depth=vision.depth,
        mlp_dim=vision.mlp_dim or 4 * vision.width,
        pooling=vision.pooling,
        embedding_dim=None if vision.width == model.embedding_dim else model.embedding_dim,
        keep=keep,
    ) + costs.text_forward(
        length=text.length,
        width=text.width,
        depth=text.depth,
        mlp_dim=text.mlp_dim or 4 * text.width,
        embedding_dim=model.embedding_dim,
    )


def approximate_flops(config: TrainConfig) -> int:
    """FLOPs of one example's approximate forward pass."""
    if config.approximation.method == "flexi":
        return forward_flops(config.model, patch_size=config.approximate_patch_size)
    return forward_flops(config.model, keep=config.approximation.keep)


def cost(config: TrainConfig, reference: TwoTowers | None, examples: float) -> Cost:
    """FLOPs of training, by what they are spent on.

    Args:
        config: The run.
        reference: Architecture of its reference; None if nothing is scored with one, or its embeddings are
            cached.
        examples: Examples seen by the learner: 1 for the cost of one.

    Returns:
        The counted cost, the sub-batch's forward pass counted again after its scoring.
    """
    from jestlab.analysis import costs

    full = forward_flops(config.model)
    scores_approximately = config.scores_learner and config.approximation.score
    # An approximation without a part in the run need not even fit the images.
    used = scores_approximately or config.approximate_size > 0
    approximate = approximate_flops(config) if used else 0.0
    scoring = approximate if scores_approximately else full
    return costs.training_cost(
        F=full,
        examples=examples,
        super_batch_ratio=config.super_batch_size / config.batch_size,
        F_scoring=scoring if config.scores_learner else 0.0,
        F_reference=forward_flops(reference) if reference and config.needs_reference else 0.0,
        F_approximate=approximate,
        approximate_share=config.approximate_size / config.batch_size,
    )
