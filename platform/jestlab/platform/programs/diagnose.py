"""The program `diagnose`: how learnable the batches are that the rules select (paper, Figure 2).

What it logs stands in `jestlab.models.training.diagnose`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jestlab.analysis.costs import RULES, Cost, selection_flops
from jestlab.models.config import DiagnoseConfig, EmbedConfig, TwoTowers
from jestlab.platform.programs.contents import Contents
from jestlab.platform.programs.data import with_digests
from jestlab.platform.programs.embed import EMBED
from jestlab.platform.programs.flops import forward
from jestlab.platform.programs.imports import IMPORTS
from jestlab.platform.programs.program import Config, Price, Program
from jestlab.platform.programs.towers import towers_of

if TYPE_CHECKING:
    from jestlab.platform.context import RunContext

LEARNER, REFERENCE = "learner", "reference"
"""The roles among a run's needs: the places in the config that name them."""


def price(config: DiagnoseConfig, needs: Mapping[str, Config]) -> Price | None:
    """The forward passes of learner and reference over all candidates, and all that is selected from them.

    Cached embeddings have been paid for; they are taken to be as wide as the learner's. None where an
    architecture that scores is not known.
    """
    learner = getattr(needs.get(LEARNER), "model", None)
    if not isinstance(learner, TwoTowers):
        return None
    candidates = config.draws * config.super_batch_size()
    scoring = reference_scoring = 0.0
    dims = []
    if config.scores_learner:
        scoring = forward(learner).total * candidates
        dims.append(learner.embedding_dim)
    if config.needs_reference:
        need = needs.get(REFERENCE)
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
    """FLOPs of all that is selected from one super-batch: see `jestlab.models.training.diagnose`."""
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


def complete(config: DiagnoseConfig, contents: Contents) -> DiagnoseConfig:
    """A config whose training folder carries the digest of what it holds; it has no use for the benchmark.

    Raises:
        UserError: The folder is missing or holds no shards.
    """
    data = with_digests(config.data, contents, parts=("train",))
    return config if data is config.data else config.model_copy(update={"data": data})


def run(config: DiagnoseConfig, context: RunContext) -> None:
    """Diagnose selection; an interrupted run begins anew.

    Args:
        config: The run.
        context: Where to work and report.

    Raises:
        Interrupted: It was asked to stop.
        UserError: The learner is no model, or the reference neither a model nor embeddings.
    """
    from jestlab.models.training import Reference
    from jestlab.models.training.diagnose import diagnose
    from jestlab.platform.context import Interrupted

    learner, reference = context.needs[LEARNER], None
    if config.needs_reference:
        need = context.needs[REFERENCE]
        model = None if need.program == EMBED.name else towers_of(need, REFERENCE)
        reference = Reference(need.directory, model)
    finished = diagnose(
        config,
        data_cache=context.cache,
        tracker=context,
        learner=(towers_of(learner, LEARNER), learner.directory),
        reference=reference,
    )
    if not finished:
        raise Interrupted


DIAGNOSE = Program(
    name="diagnose",
    entry_point="jestlab.platform.programs.diagnose:run",
    version=DiagnoseConfig.version,
    schema=DiagnoseConfig,
    identity_of=DiagnoseConfig.identity,
    price_of=price,
    complete=complete,
    collective=False,
    inherits=("data", "loss"),
    subjects=(LEARNER,),
    imports=IMPORTS,
)
