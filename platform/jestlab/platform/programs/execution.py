"""jestlab's own programs as workers execute them. Importing this module imports JAX.

Each raises `Interrupted` if it was asked to stop, after saving its progress, and UserError if its code or
weights have changed since the run was planned.
"""

from pathlib import Path

from jestlab.models.config import (
    Data,
    DiagnoseConfig,
    EmbedConfig,
    ScoreConfig,
    TrainConfig,
    TwoTowers,
    WeightsConfig,
)
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.data.files import write_whole
from jestlab.models.scoring import columns
from jestlab.models.scoring.score import score
from jestlab.models.training import records
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.training.diagnose import diagnose
from jestlab.models.training.embed import embed
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference
from jestlab.models.weights.parameters import unflatten
from jestlab.models.weights.sources import content_hash
from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.plugins import check_criteria, check_unchanged
from jestlab.platform.programs import pricing
from jestlab.platform.programs.builtin import EMBED, check_digest, open_source, read_source_tokenizer
from jestlab.platform.programs.context import Interrupted, NeededRun, RunContext


def run_train(config: TrainConfig, context: RunContext) -> None:
    """Train a run to its end, from its latest checkpoint if there is one."""
    check_unchanged(config)
    check_criteria(config)
    reference = _reference(context.needs[pricing.TRAIN_REFERENCE]) if config.needs_reference else None
    towers = reference.model if reference else None
    cached = EmbeddingCache(reference.directory).about.width if reference and towers is None else None
    step = pricing.step_of(config, towers, cached)
    finished = train(
        config,
        directory=context.directory,
        data_cache=context.cache,
        flops_per_example=step.selecting.cost().total(),
        later_flops_per_example=step.reading.cost().total(),
        tracker=context,
        reference=reference,
        scores=_scores(config.data, context),
    )
    if not finished:
        raise Interrupted
    context.artifact("checkpoints", context.directory / "checkpoints")
    context.artifact("batches", context.directory / records.FOLDER)


def run_embed(config: EmbedConfig, context: RunContext) -> None:
    """Embed a training set, continuing from the durable embeddings of earlier attempts."""
    check_unchanged(config)
    need = context.needs[pricing.EMBED_REFERENCE]
    finished = embed(
        config,
        directory=context.directory,
        data_cache=context.cache,
        tracker=context,
        reference=(_towers_of(need), need.directory),
        scores=_scores(config.data, context),
    )
    if not finished:
        raise Interrupted
    context.artifact("embeddings", context.directory / "embeddings")


def run_weights(config: WeightsConfig, context: RunContext) -> None:
    """Write `checkpoints/` and `tokenizer.model` into the run's folder, like a training run."""
    context.progress(0, 1)
    weights = open_source(config)
    content, _ = read_source_tokenizer(config, weights)
    tensors = weights.tensors()
    check_digest("path", config.path, config.digest, content_hash(tensors.items(), weights.model))
    write_whole(context.directory / "tokenizer.model", content)
    save_parameters(context.directory / "checkpoints", unflatten(tensors))
    context.artifact("checkpoints", context.directory / "checkpoints")
    context.progress(1, 1)


def run_diagnose(config: DiagnoseConfig, context: RunContext) -> None:
    """Diagnose selection. An interrupted run starts over."""
    check_unchanged(config)
    check_criteria(config)
    learner = context.needs[pricing.DIAGNOSE_LEARNER]
    finished = diagnose(
        config,
        data_cache=context.cache,
        tracker=context,
        learner=(_towers_of(learner), learner.directory),
        reference=_reference(context.needs[pricing.DIAGNOSE_REFERENCE]) if config.needs_reference else None,
        scores=_scores(config.data, context),
    )
    if not finished:
        raise Interrupted


def run_score(config: ScoreConfig, context: RunContext) -> None:
    """Score a data set by its cached embeddings. An interrupted run starts over."""
    target = None if config.target is None else context.needs[pricing.SCORE_TARGET].directory
    data = context.needs[pricing.SCORE_EMBEDDINGS].directory
    try:
        scores = score(config, data, target, context.progress)
    except FileNotFoundError as error:
        raise UserError(str(error)) from None
    columns.write(context.directory, scores, EmbeddingCache(data).about.digest)
    context.artifact("scores", context.directory / columns.FOLDER)


def _scores(data: Data, context: RunContext) -> Path | None:
    """Return the folder of the run whose scores are columns of the data."""
    return context.needs[pricing.DATA_SCORES].directory if data.reads_scores else None


def _reference(need: NeededRun) -> Reference:
    """Return a completed run as a reference: a model, or cached embeddings."""
    return Reference(need.directory, None if need.program == EMBED.name else _towers_of(need))


def _towers_of(need: NeededRun) -> TwoTowers:
    """Return the architecture of a completed run; the plan has checked that it produces towers."""
    if need.config.get("code"):
        check_unchanged(programs.get(need.program).read(need.config))
    return TwoTowers.model_validate(need.config["model"])
