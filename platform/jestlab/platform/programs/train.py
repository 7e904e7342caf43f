"""The program `train`: contrastive training of two towers, a reference model or a learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jestlab.models.config import EmbedConfig, TrainConfig, TwoTowers
from jestlab.platform.programs.data import with_digests
from jestlab.platform.programs.program import Config, Digest, Price, Program

if TYPE_CHECKING:
    from jestlab.analysis.costs import Cost
    from jestlab.platform.context import RunContext

REFERENCE = "selection.reference"
"""The role of the reference among a run's needs: the place in the config that names it."""


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


def price(config: TrainConfig, needs: Mapping[str, Config]) -> Price:
    """Cost of a whole run.

    Cached embeddings cost the run nothing: the run that made them has paid. A reference whose architecture is
    not known is taken for the learner's like.
    """
    examples = config.total_steps * config.batch_size
    whole = cost(config, _scoring_model(config, needs.get(REFERENCE)), examples)
    return Price(whole.learner, whole.scoring, whole.reference_scoring, examples)


def _scoring_model(config: TrainConfig, reference: Config | None) -> TwoTowers | None:
    """The architecture that scores beside the learner; None where it has scored before."""
    if isinstance(reference, EmbedConfig):
        return None
    model = getattr(reference, "model", None)
    return model if isinstance(model, TwoTowers) else config.model


def complete(config: TrainConfig, digest: Digest) -> TrainConfig:
    """A config whose data folders carry the digest of what they hold.

    Raises:
        UserError: A folder is missing or holds no shards.
    """
    data = with_digests(config.data, digest)
    return config if data is config.data else config.model_copy(update={"data": data})


def run(config: TrainConfig, context: RunContext) -> None:
    """Train one run to its end, from its newest checkpoint if there is one.

    Args:
        config: The run.
        context: Where to work and report.

    Raises:
        Interrupted: It was asked to stop; a checkpoint is saved.
    """
    from jestlab.models.training import train
    from jestlab.platform.context import Interrupted

    reference = None
    if config.needs_reference:
        need = context.needs[REFERENCE]
        reference = (TrainConfig.model_validate(need.config), need.directory)
    per_example = cost(config, reference[0].model if reference else None, examples=1.0)
    finished = train(
        config,
        directory=context.directory,
        data_cache=context.cache,
        flops_per_example=per_example.total(),
        tracker=context,
        reference=reference,
    )
    if not finished:
        raise Interrupted
    context.artifact("checkpoints", context.directory / "checkpoints")


TRAIN = Program(
    name="train",
    entry_point="jestlab.platform.programs.train:run",
    version=TrainConfig.version,
    schema=TrainConfig,
    identity_of=TrainConfig.identity,
    price_of=price,
    complete=complete,
)
