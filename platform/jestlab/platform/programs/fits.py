"""Check that a config fits its data, as far as that can be known before anything runs."""

from __future__ import annotations

from pathlib import Path

from jestlab.models.config import (
    BenchmarkFolder,
    Data,
    DiagnoseConfig,
    EmbedConfig,
    OwnReader,
    ShapesWeb,
    ShardFolder,
    TrainConfig,
)
from jestlab.models.config.data import SCORE_COLUMNS, SHAPES_COLUMNS, SYNTHETIC_CAPTION
from jestlab.models.data.filters import Filter, missing_column
from jestlab.platform.errors import UserError
from jestlab.platform.programs.program import Contents


def check_fits(config: TrainConfig | EmbedConfig | DiagnoseConfig, contents: Contents) -> None:
    """Check columns, benchmark and super-batch of a config against the data that it names.

    A folder that is missing is not looked into: whether that is an error is decided elsewhere. Nor is one
    whose digest the spec gives, so that data of any size are planned at once; `data.train.examples` counts
    then.

    Raises:
        UserError: Metadata lack a column that the config names; the super-batch is larger than the training
            set; the benchmark's folder holds no dataset.
        ValueError: The filter leaves nothing, or does not fit the metadata.
    """
    train, benchmark = config.data.train, config.data.benchmark
    if isinstance(config, TrainConfig) and isinstance(benchmark, BenchmarkFolder) and _is_open(benchmark):
        contents.check_benchmark(Path(benchmark.path))
    if isinstance(train, ShapesWeb):
        _check_counted(config, None, contents)
        _check_size(config, train.examples, "data.train")
    elif isinstance(train, OwnReader):
        _check_size(config, train.examples, "what its reader gives")
    elif not _is_open(train):
        _check_size(config, train.examples, f"the training set {train.path}")
    else:
        folder = Path(train.path)
        _check_columns(config.data, folder, contents)
        _check_counted(config, folder, contents)
        _check_size(config, contents.examples(folder), f"the training set {folder}")
        if config.data.filter is not None and config.data.scores is None:
            left = contents.examples(folder, config.data.filter)
            _check_size(config, left, f"what data.filter leaves of {folder}")


def _is_open(folder: ShardFolder | BenchmarkFolder) -> bool:
    """Whether a plan looks into a folder."""
    return folder.digest is None and Path(folder.path).is_dir()


def _check_columns(data: Data, folder: Path, contents: Contents) -> None:
    """Raise UserError if a filter or a recaption uses columns that a folder's metadata lack."""
    asked = {"filter": data.filter, "recaption": data.recaption}
    columns = {field: list(Filter.parse(text).columns) for field, text in asked.items() if text is not None}
    if "recaption" in columns:
        columns["recaption"].append(SYNTHETIC_CAPTION)
    if data.repeat is not None:
        columns["repeat"] = [data.repeat]
    for field, wanted in columns.items():
        known = contents.columns(folder)
        if data.scores is not None and field != "recaption":
            if both := {*wanted} & {*known} & {*SCORE_COLUMNS}:
                raise UserError(
                    f"data.{field}: {folder} has a column {min(both)!r}, and so has data.scores: rename the "
                    "column in the folder"
                )
            known = [*known, *SCORE_COLUMNS]
        if missing := missing_column(wanted, known):
            raise UserError(f"data.{field}: {folder} has no metadata {missing}")


def _check_counted(
    config: TrainConfig | EmbedConfig | DiagnoseConfig, folder: Path | None, contents: Contents
) -> None:
    """Raise UserError if the selected are to be counted, or chosen, by columns that metadata lack.

    The columns that are meant where none are given may be missing: few data have them.
    """
    if isinstance(config, TrainConfig):
        diagnostics = config.runtime.diagnostics
        named = diagnostics.every_steps is not None and "columns" in diagnostics.model_fields_set
        place, columns = "runtime.diagnostics.columns", diagnostics.columns if named else ()
    elif isinstance(config, DiagnoseConfig):
        place, columns = "columns", config.columns if "columns" in config.model_fields_set else ()
    else:
        return
    asked = {place: columns}
    if isinstance(config, TrainConfig) and config.selects and config.selection.looks_at_concepts(config.code):
        asked["selection.concepts"] = config.selection.concepts
    known = SHAPES_COLUMNS if folder is None or not any(asked.values()) else contents.columns(folder)
    for place, columns in asked.items():
        if missing := missing_column(columns, known):
            where = "the synthetic web" if folder is None else str(folder)
            raise UserError(f"{place}: {where} has no metadata {missing}")


def _check_size(config: TrainConfig | EmbedConfig | DiagnoseConfig, count: int | None, what: str) -> None:
    """Raise UserError if a super-batch is larger than the training set: it would hold examples twice.

    Args:
        config: Of the run.
        count: How many examples there are; None where that is unknown.
        what: What holds them.
    """
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
            f"the {'super-batch' if selects else 'batch'} of {size:,} examples is larger than {what}, which "
            f"holds {count:,}: {remedy}, or train on more data"
        )
