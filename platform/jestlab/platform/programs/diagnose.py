"""The program `diagnose`: how learnable the batches are that the rules select (paper, Figure 2).

What it logs stands in `jestlab.models.training.diagnose`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jestlab.models.config import DiagnoseConfig, EmbedConfig, TwoTowers
from jestlab.platform.programs.data import with_digests
from jestlab.platform.programs.embed import EMBED
from jestlab.platform.programs.flops import forward_flops
from jestlab.platform.programs.program import Config, Digest, Price, Program
from jestlab.platform.programs.towers import towers_of

if TYPE_CHECKING:
    from jestlab.platform.context import RunContext

LEARNER, REFERENCE = "learner", "reference"
"""The roles among a run's needs: the places in the config that name them."""


def price(config: DiagnoseConfig, needs: Mapping[str, Config]) -> Price | None:
    """The forward passes of learner and reference over all candidates; cached embeddings have been paid for.

    None where an architecture that scores is not known.
    """
    scoring = {
        LEARNER: needs.get(LEARNER) if config.scores_learner else None,
        REFERENCE: needs.get(REFERENCE) if config.needs_reference else None,
    }
    candidates = config.draws * config.super_batch_size()
    flops = {LEARNER: 0.0, REFERENCE: 0.0}
    for role, need in scoring.items():
        if need is None or isinstance(need, EmbedConfig):
            continue
        model = getattr(need, "model", None)
        if not isinstance(model, TwoTowers):
            return None
        flops[role] = float(forward_flops(model)) * candidates
    return Price(0.0, flops[LEARNER], flops[REFERENCE], examples=0)


def complete(config: DiagnoseConfig, digest: Digest) -> DiagnoseConfig:
    """A config whose training folder carries the digest of what it holds; it has no use for the benchmark.

    Raises:
        UserError: The folder is missing or holds no shards.
    """
    data = with_digests(config.data, digest, parts=("train",))
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
)
