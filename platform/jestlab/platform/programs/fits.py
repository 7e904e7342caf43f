"""Check that a config fits its data, as far as that can be known before anything runs."""

from __future__ import annotations

from pathlib import Path

from jestlab.models.config import (
    BenchmarkFolder,
    Data,
    DiagnoseConfig,
    EmbedConfig,
    ShapesWeb,
    ShardFolder,
    TrainConfig,
)
from jestlab.models.config.data import SHAPES_COLUMNS, SYNTHETIC_CAPTION
from jestlab.models.data.filters import Filter, missing_column
from jestlab.platform.errors import UserError
from jestlab.platform.programs.program import Contents


def check_fits(config: TrainConfig | EmbedConfig | DiagnoseConfig, contents: Contents) -> None:
    """Check columns, benchmark and super-batch of a config against the data that it names.

    Folders that are missing are passed over: whether they are an error is decided elsewhere.

    Raises:
        UserError: Metadata lack a column that the config names; the super-batch is larger than the training
            set; the benchmark's folder holds no dataset.
        ValueError: The filter leaves nothing, or does not fit the metadata.
    """
    data = config.data
    folder = Path(data.train.path) if isinstance(data.train, ShardFolder) else None
    if folder is not None and not folder.is_dir():
        return
    _check_columns(data, folder, contents)
    _check_counted(config, folder, contents)
    if isinstance(config, TrainConfig) and isinstance(data.benchmark, BenchmarkFolder):
        benchmark = Path(data.benchmark.path)
        if benchmark.is_dir():
            contents.check_benchmark(benchmark)
    if not isinstance(config, EmbedConfig):
        _check_size(config, folder, contents)


def _check_columns(data: Data, folder: Path | None, contents: Contents) -> None:
    """Raise UserError if a filter or a recaption uses columns that a folder's metadata lack."""
    if folder is None or (data.filter is None and data.recaption is None):
        return
    asked = {"filter": data.filter, "recaption": data.recaption}
    columns = {field: list(Filter.parse(text).columns) for field, text in asked.items() if text is not None}
    if "recaption" in columns:
        columns["recaption"].append(SYNTHETIC_CAPTION)
    for field, wanted in columns.items():
        if missing := missing_column(wanted, contents.columns(folder)):
            raise UserError(f"data.{field}: {folder} has no metadata {missing}")


def _check_counted(
    config: TrainConfig | EmbedConfig | DiagnoseConfig, folder: Path | None, contents: Contents
) -> None:
    """Raise UserError if the selected are to be counted by columns that metadata lack.

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
    known = SHAPES_COLUMNS if folder is None or not columns else contents.columns(folder)
    if missing := missing_column(columns, known):
        where = "the synthetic web" if folder is None else str(folder)
        raise UserError(f"{place}: {where} has no metadata {missing}")


def _check_size(config: TrainConfig | DiagnoseConfig, folder: Path | None, contents: Contents) -> None:
    """Raise UserError if a super-batch is larger than the training set: it would hold examples twice."""
    data = config.data
    if isinstance(config, TrainConfig):
        size, key = config.super_batch_size, "schedule."
        selects = config.selects
        name = "schedule.super_batch_size" if config.schedule.super_batch_size else "schedule.batch_size"
    else:
        size, key, selects, name = config.super_batch_size(), "", True, "batch_size"
    count: int | None
    if isinstance(data.train, ShapesWeb):
        count, what = data.train.examples, "data.train"
    else:
        assert folder is not None
        # First without the filter, which takes a look at all metadata.
        count, what = contents.examples(folder), f"the training set {folder}"
        if count is not None and size <= count and data.filter is not None:
            left = contents.examples(folder, data.filter)
            count, what = (count, what) if left is None else (left, f"what data.filter leaves of {folder}")
    if count is not None and size > count:
        batch = "super-batch" if selects else "batch"
        ratio = "filtering ratio" if key else "filtering ratios"
        remedy = f"lower {name}" + (f" or the {ratio}" if selects else "")
        raise UserError(
            f"the {batch} of {size:,} examples is larger than {what}, which holds {count:,}: {remedy}, "
            "or train on more data"
        )
