"""The program `train`: contrastive training of two towers, a reference model or a learner."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.models.config import BenchmarkFolder, ShardFolder, TrainConfig, TwoTowers
from jestlab.platform.errors import UserError
from jestlab.platform.programs.program import Config, Digest, Price, Program

if TYPE_CHECKING:
    from jestlab.analysis.costs import Cost
    from jestlab.platform.context import RunContext

REFERENCE = "selection.reference"
"""The role of the reference among a run's needs: the place in the config that names it."""


def forward_flops(model: TwoTowers) -> int:
    """F: FLOPs of one example's forward pass through both towers."""
    from jestlab.analysis import costs

    vision, text = model.vision, model.text
    return costs.vision_forward(
        image_size=vision.image_size,
        patch_size=vision.patch_size,
        width=vision.width,
        depth=vision.depth,
        mlp_dim=vision.mlp_dim or 4 * vision.width,
        pooling=vision.pooling,
        embedding_dim=None if vision.width == model.embedding_dim else model.embedding_dim,
    ) + costs.text_forward(
        length=text.length,
        width=text.width,
        depth=text.depth,
        mlp_dim=text.mlp_dim or 4 * text.width,
        embedding_dim=model.embedding_dim,
    )


def cost(config: TrainConfig, reference: TwoTowers | None, examples: float) -> Cost:
    """FLOPs of training, by what they are spent on.

    Args:
        config: The run.
        reference: Architecture of its reference; None if nothing is scored with one.
        examples: Examples seen by the learner: 1 for the cost of one.

    Returns:
        The counted cost, the sub-batch's forward pass counted again after its scoring.
    """
    from jestlab.analysis import costs

    return costs.training_cost(
        F=forward_flops(config.model),
        examples=examples,
        super_batch_ratio=config.super_batch_size / config.batch_size,
        scores_learner=config.scores_learner,
        F_reference=forward_flops(reference) if reference and config.needs_reference else 0.0,
    )


def price(config: TrainConfig, needs: Mapping[str, Config]) -> Price:
    """Cost of a whole run; a reference that is no run of this program is taken for the learner's like."""
    reference = needs.get(REFERENCE)
    architecture = reference.model if isinstance(reference, TrainConfig) else config.model
    examples = config.total_steps * config.batch_size
    whole = cost(config, architecture, examples)
    return Price(whole.learner, whole.scoring, whole.reference_scoring, examples)


def complete(config: TrainConfig, digest: Digest) -> TrainConfig:
    """A config whose data folders carry the digest of what they hold.

    Raises:
        UserError: A folder is missing or holds no shards.
    """
    found: dict[str, Any] = {}
    for part, folder in (("train", config.data.train), ("benchmark", config.data.benchmark)):
        if isinstance(folder, ShardFolder | BenchmarkFolder) and folder.digest is None:
            path = Path(folder.path)
            if not path.is_dir():
                raise UserError(f"data.{part}.path: no folder {path}: give one of image–text tar shards")
            if part == "train" and config.data.filter is not None:
                _check_filter(config.data.filter, path)
            found[part] = folder.model_copy(update={"digest": digest(path)})
    if not found:
        return config
    return config.model_copy(update={"data": config.data.model_copy(update=found)})


def _check_filter(text: str, folder: Path) -> None:
    """UserError for a filter on columns that a folder's metadata lack."""
    from jestlab.models.data.curation import metadata_columns
    from jestlab.models.data.filters import Filter, missing_column

    if missing := missing_column(Filter.read(text).columns, metadata_columns(folder)):
        raise UserError(f"data.filter: {folder} has no metadata {missing}")


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
