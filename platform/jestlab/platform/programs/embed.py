"""The program `embed`: a reference's embeddings of a whole training set, for runs to select with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from jestlab.analysis.costs import Cost
from jestlab.models.config import EmbedConfig, ShapesWeb, ShardFolder, TwoTowers
from jestlab.platform.programs.contents import Contents
from jestlab.platform.programs.data import with_digests
from jestlab.platform.programs.flops import forward
from jestlab.platform.programs.imports import IMPORTS
from jestlab.platform.programs.program import Config, Price, Program
from jestlab.platform.programs.towers import towers_of

if TYPE_CHECKING:
    from jestlab.platform.context import RunContext

REFERENCE = "reference"
"""The role of the reference among a run's needs: the place in the config that names it."""


def price(config: EmbedConfig, needs: Mapping[str, Config]) -> Price | None:
    """The reference's forward pass over every example: an upper bound, since a filter is not looked into.

    No learner sees anything, so it is scoring by the reference alone. None where the reference's architecture
    or the number of examples is not known.
    """
    model = getattr(needs.get(REFERENCE), "model", None)
    examples = _count(config.data.train)
    if examples is None or not isinstance(model, TwoTowers):
        return None
    return Price(Cost(reference_scoring=forward(model).total * examples), examples=0)


def _count(train: ShapesWeb | ShardFolder) -> int | None:
    """How many examples the data hold: as said, where the folder is not on this machine."""
    if isinstance(train, ShapesWeb) or not Path(train.path).is_dir():
        return train.examples
    from jestlab.models.data.shards import ShardIndex

    return len(ShardIndex.load(Path(train.path)))


def complete(config: EmbedConfig, contents: Contents) -> EmbedConfig:
    """A config whose training folder carries the digest of what it holds; it has no use for the benchmark.

    Raises:
        UserError: The folder is missing or holds no shards.
    """
    data = with_digests(config.data, contents, parts=("train",))
    return config if data is config.data else config.model_copy(update={"data": data})


def run(config: EmbedConfig, context: RunContext) -> None:
    """Embed one training set to its end, from what an earlier attempt has made durable.

    Args:
        config: The run.
        context: Where to work and report.

    Raises:
        Interrupted: It was asked to stop; what is embedded is saved.
        UserError: The reference is no model.
    """
    from jestlab.models.training.embed import embed
    from jestlab.platform.context import Interrupted

    need = context.needs[REFERENCE]
    finished = embed(
        config,
        directory=context.directory,
        data_cache=context.cache,
        tracker=context,
        reference=(towers_of(need, REFERENCE), need.directory),
    )
    if not finished:
        raise Interrupted
    context.artifact("embeddings", context.directory / "embeddings")


EMBED = Program(
    name="embed",
    entry_point="jestlab.platform.programs.embed:run",
    version=EmbedConfig.version,
    schema=EmbedConfig,
    identity_of=EmbedConfig.identity,
    price_of=price,
    complete=complete,
    inherits=("data",),
    imports=IMPORTS,
)
