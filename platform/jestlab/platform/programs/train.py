"""The program `train`: contrastive training of two towers, a reference model or a learner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jestlab.models.config import EmbedConfig, TrainConfig, TwoTowers
from jestlab.platform.programs.contents import Contents
from jestlab.platform.programs.data import with_digests
from jestlab.platform.programs.embed import EMBED
from jestlab.platform.programs.flops import cost, step_of
from jestlab.platform.programs.imports import IMPORTS
from jestlab.platform.programs.program import Config, Price, Program
from jestlab.platform.programs.towers import towers_of

if TYPE_CHECKING:
    from jestlab.platform.context import RunContext

REFERENCE = "selection.reference"
"""The role of the reference among a run's needs: the place in the config that names it."""


def price(config: TrainConfig, needs: Mapping[str, Config]) -> Price:
    """Cost of a whole run.

    Cached embeddings cost the run nothing: the run that made them has paid. A reference whose architecture is
    not known is taken for the learner's like.
    """
    examples = config.total_steps * config.batch_size
    step = step_of(config, _scoring_model(config, needs.get(REFERENCE)))
    return Price(step.cost() * examples, examples, step)


def _scoring_model(config: TrainConfig, reference: Config | None) -> TwoTowers | None:
    """The architecture that scores beside the learner; None where it has scored before."""
    if isinstance(reference, EmbedConfig):
        return None
    model = getattr(reference, "model", None)
    return model if isinstance(model, TwoTowers) else config.model


def complete(config: TrainConfig, contents: Contents) -> TrainConfig:
    """A config whose data folders carry the digest of what they hold.

    Raises:
        UserError: A folder is missing or holds no shards.
    """
    data = with_digests(config.data, contents)
    return config if data is config.data else config.model_copy(update={"data": data})


def run(config: TrainConfig, context: RunContext) -> None:
    """Train one run to its end, from its newest checkpoint if there is one.

    Args:
        config: The run.
        context: Where to work and report.

    Raises:
        Interrupted: It was asked to stop; a checkpoint is saved.
    """
    from jestlab.models.training import Reference, train
    from jestlab.platform.context import Interrupted

    reference = None
    if config.needs_reference:
        need = context.needs[REFERENCE]
        model = None if need.program == EMBED.name else towers_of(need, REFERENCE)
        reference = Reference(need.directory, model)
    per_example = cost(config, reference.model if reference else None, examples=1.0)
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
    extent=("schedule", "examples_seen"),
    complete=complete,
    imports=(*IMPORTS, "tensorboardX.summary"),
)
