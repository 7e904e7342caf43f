"""Checks of jestlab's own programs before anything runs: the data fit the config, and dependencies fit their
roles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jestlab.models.config import (
    BenchmarkFolder,
    Data,
    DiagnoseConfig,
    EmbedConfig,
    OwnReader,
    ScoreConfig,
    ShapesWeb,
    ShardFolder,
    TrainConfig,
    WeightsConfig,
)
from jestlab.models.config.data import SCORE_COLUMNS, SHAPES_COLUMNS, SYNTHETIC_CAPTION
from jestlab.models.data.filters import Filter, missing_column
from jestlab.platform.errors import UserError
from jestlab.platform.programs.pricing import (
    DATA_SCORES,
    DIAGNOSE_LEARNER,
    DIAGNOSE_REFERENCE,
    EMBED_REFERENCE,
    SCORE_EMBEDDINGS,
    SCORE_TARGET,
    TRAIN_REFERENCE,
)
from jestlab.platform.programs.program import DataLookup
from jestlab.platform.spec.program import Config

Needs = Mapping[str, Config]
"""Role → config of the dependency. Configs of custom programs are plain mappings."""


# ---- data


def check_data(config: TrainConfig | EmbedConfig | DiagnoseConfig, data: DataLookup) -> None:
    """Check columns, benchmark, and super-batch of a config against its data.

    Missing folders are skipped: the caller decides whether they are errors. So are folders whose digest is in
    the spec, so that planning is fast for data of any size; `data.train.examples` then gives the size.

    Raises:
        UserError: The metadata lack a column, the super-batch is larger than the training set, or the
            benchmark folder contains no dataset.
        ValueError: No example passes the filter, or the filter doesn't match the metadata.
    """
    train, benchmark = config.data.train, config.data.benchmark
    if isinstance(config, TrainConfig) and isinstance(benchmark, BenchmarkFolder) and _is_readable(benchmark):
        data.check_benchmark(Path(benchmark.path))
    if isinstance(train, ShapesWeb):
        _check_concept_columns(config, None, data)
        _check_size(config, train.examples, "data.train")
    elif isinstance(train, OwnReader):
        _check_size(config, train.examples, "the training set of its reader")
    elif not _is_readable(train):
        _check_size(config, train.examples, f"the training set {train.path}")
    else:
        folder = Path(train.path)
        _check_filter_columns(config.data, folder, data)
        _check_concept_columns(config, folder, data)
        _check_size(config, data.examples(folder), f"the training set {folder}")
        if config.data.filter is not None and config.data.scores is None:
            count = data.examples(folder, config.data.filter)
            _check_size(config, count, f"the part of {folder} that passes data.filter")


def _is_readable(folder: ShardFolder | BenchmarkFolder) -> bool:
    return folder.digest is None and Path(folder.path).is_dir()


def _check_filter_columns(config: Data, folder: Path, data: DataLookup) -> None:
    """Raise UserError if the metadata lack the columns of a filter, a recaption, or a repeat."""
    expressions = {"filter": config.filter, "recaption": config.recaption}
    columns = {
        field: list(Filter.parse(text).columns) for field, text in expressions.items() if text is not None
    }
    if "recaption" in columns:
        columns["recaption"].append(SYNTHETIC_CAPTION)
    if config.repeat is not None:
        columns["repeat"] = [config.repeat]
    for field, wanted in columns.items():
        known = data.columns(folder)
        if config.scores is not None and field != "recaption":
            if both := {*wanted} & {*known} & {*SCORE_COLUMNS}:
                raise UserError(
                    f"data.{field}: {folder} has a column {min(both)!r}, and so has data.scores: rename the "
                    "column in the folder"
                )
            known = [*known, *SCORE_COLUMNS]
        if missing := missing_column(wanted, known):
            raise UserError(f"data.{field}: {folder} has no metadata {missing}")


def _check_concept_columns(
    config: TrainConfig | EmbedConfig | DiagnoseConfig, folder: Path | None, data: DataLookup
) -> None:
    """Raise UserError if the metadata lack the columns of the diagnostics or of the selection rule.

    Default columns may be missing: few data sets have them.
    """
    wanted: dict[str, tuple[str, ...]] = {}
    if isinstance(config, TrainConfig):
        diagnostics = config.runtime.diagnostics
        if diagnostics.every_steps is not None and "columns" in diagnostics.model_fields_set:
            wanted["runtime.diagnostics.columns"] = diagnostics.columns
        if config.selects and config.selection.looks_at_concepts(config.code):
            wanted["selection.concepts"] = config.selection.concepts
    elif isinstance(config, DiagnoseConfig) and "columns" in config.model_fields_set:
        wanted["columns"] = config.columns
    for place, columns in wanted.items():
        if columns and (
            missing := missing_column(columns, SHAPES_COLUMNS if folder is None else data.columns(folder))
        ):
            source = "the synthetic web" if folder is None else str(folder)
            raise UserError(f"{place}: {source} has no metadata {missing}")


def _check_size(config: TrainConfig | EmbedConfig | DiagnoseConfig, count: int | None, source: str) -> None:
    """Raise UserError if a super-batch would contain examples twice, given the number of examples."""
    if count is None or isinstance(config, EmbedConfig):
        return
    if isinstance(config, TrainConfig):
        size, selects = config.super_batch_size, config.selects
        field = "schedule.super_batch_size" if config.schedule.super_batch_size else "schedule.batch_size"
        remedy = f"lower {field}" + (" or the filtering ratio" if selects else "")
    else:
        size, selects = config.super_batch_size(), True
        remedy = "lower batch_size or the filtering ratios"
    if size > count:
        raise UserError(
            f"the {'super-batch' if selects else 'batch'} of {size:,} examples is larger than {source}, "
            f"which has {count:,}: {remedy}, or train on more data"
        )


# ---- dependencies


def check_train(config: TrainConfig, needs: Needs) -> None:
    """Check the reference of a training run, and the scores that filter its data; UserError."""
    _check_program(needs, DATA_SCORES, ScoreConfig, "score", used=config.data.reads_scores)
    if not config.needs_reference:
        return
    _check_reference(needs, TRAIN_REFERENCE)
    if isinstance(needs.get(TRAIN_REFERENCE), EmbedConfig) and (problem := config.problem_with_cache):
        raise UserError(problem)


def check_embed(config: EmbedConfig, needs: Needs) -> None:
    """Check the reference of a run of `embed`; UserError."""
    _check_program(needs, DATA_SCORES, ScoreConfig, "score", used=config.data.reads_scores)
    _check_towers(needs, EMBED_REFERENCE)


def check_score(config: ScoreConfig, needs: Needs) -> None:
    """Check the embeddings of a run of `score`; UserError."""
    for role in (SCORE_EMBEDDINGS, SCORE_TARGET):
        _check_program(needs, role, EmbedConfig, "embed")


def check_diagnose(config: DiagnoseConfig, needs: Needs) -> None:
    """Check learner and reference of a diagnosis; UserError."""
    _check_program(needs, DATA_SCORES, ScoreConfig, "score", used=config.data.reads_scores)
    _check_towers(needs, DIAGNOSE_LEARNER)
    if config.needs_reference:
        _check_reference(needs, DIAGNOSE_REFERENCE)


def _check_program(needs: Needs, role: str, expected: type[object], name: str, used: bool = True) -> None:
    if used and role in needs and not isinstance(needs[role], expected):
        raise UserError(f"{role}: expected the name of a run of {name}")


def _check_reference(needs: Needs, role: str) -> None:
    """Check a reference, whose embeddings may be cached."""
    if not isinstance(needs.get(role), EmbedConfig):
        _check_towers(needs, role, ", weights, or embed")


def _check_towers(needs: Needs, role: str, others: str = " or weights") -> None:
    """Check that a run produces towers; a custom program does if its config has a model."""
    need = needs.get(role)
    makes_towers = isinstance(need, TrainConfig | WeightsConfig) or (
        isinstance(need, dict) and "model" in need
    )
    if role in needs and not makes_towers:
        raise UserError(f"{role}: its run produces no towers: expected the name of a run of train{others}")
