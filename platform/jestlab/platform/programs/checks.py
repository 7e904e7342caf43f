"""Check runs of jestlab's own programs before they start: data must fit configs, and dependencies roles."""

from collections.abc import Collection, Mapping
from pathlib import Path

from jestlab.models.config import (
    Augmentation,
    BenchmarkFolder,
    CustomReader,
    Data,
    DiagnoseConfig,
    EmbedConfig,
    ShardFolder,
    TrainConfig,
)
from jestlab.models.config.base import RunConfig
from jestlab.models.config.data import SCORE_COLUMNS, SHAPES_COLUMNS, SYNTHETIC_CAPTION
from jestlab.models.data.filters import Filter, missing_column
from jestlab.platform.errors import UserError, dotted
from jestlab.platform.programs.program import DataLookup
from jestlab.platform.spec.fields import NAMES_A_RUN, marked
from jestlab.platform.spec.program import Config


def check_data(config: TrainConfig | EmbedConfig | DiagnoseConfig, data: DataLookup) -> None:
    """Check columns, benchmark, and super-batch of a config against its data.

    Missing folders are skipped: the caller decides whether they are errors. Folders whose digest is in the
    spec are skipped as well, so that planning is fast for data of any size: `data.train.examples` is their
    size.

    Raises:
        UserError: The metadata lack a column, the super-batch is larger than the training set, or the
            benchmark folder contains no dataset.
        ValueError: No example passes the filter, or the filter doesn't match the metadata.
    """
    train, benchmark = config.data.train, config.data.benchmark
    if isinstance(config, TrainConfig) and isinstance(benchmark, BenchmarkFolder) and _is_readable(benchmark):
        from jestlab.models.data.benchmarks import datasets_in  # imports NumPy, which few plans need

        data.once(datasets_in, Path(benchmark.path))
    wanted = _concept_columns(config)
    if isinstance(train, ShardFolder) and _is_readable(train):
        from jestlab.models.data.metadata import metadata_columns

        folder = Path(train.path)
        wanted |= _data_columns(config.data)
        known = data.once(metadata_columns, folder) if wanted else ()
        _check_columns(wanted, known, str(folder), config.data)
        _check_size(config, data.examples(folder), f"the training set {folder}")
        if config.data.filter is not None and config.data.scores is None:
            count = data.examples(folder, config.data.filter)
            _check_size(config, count, f"the part of {folder} that passes data.filter")
    elif isinstance(train, ShardFolder | CustomReader):
        _check_size(config, train.examples, f"the training set {train.path or 'of its reader'}")
    else:
        _check_columns(wanted, SHAPES_COLUMNS, "the synthetic web", config.data)
        _check_size(config, train.examples, "data.train")


def _is_readable(folder: ShardFolder | BenchmarkFolder) -> bool:
    return folder.digest is None and Path(folder.path).is_dir()


def _data_columns(data: Data) -> dict[str, Collection[str]]:
    """Return the metadata columns that `filter`, `recaption`, and `repeat` read, by place in the config."""
    columns: dict[str, Collection[str]] = {}
    if data.filter is not None:
        columns["data.filter"] = Filter.parse(data.filter).columns
    if data.recaption is not None:
        columns["data.recaption"] = [*Filter.parse(data.recaption).columns, SYNTHETIC_CAPTION]
    if data.repeat is not None:
        columns["data.repeat"] = [data.repeat]
    return columns


def _concept_columns(config: TrainConfig | EmbedConfig | DiagnoseConfig) -> dict[str, Collection[str]]:
    """Return the columns that diagnostics and the selection rule read, by place in the config.

    Default columns aren't included: few data sets have them.
    """
    columns: dict[str, Collection[str]] = {}
    if isinstance(config, TrainConfig):
        diagnostics = config.runtime.diagnostics
        if diagnostics.every_steps is not None and "columns" in diagnostics.model_fields_set:
            columns["runtime.diagnostics.columns"] = diagnostics.columns
        if config.uses_concepts:
            columns["selection.concepts"] = config.selection.concepts
    elif isinstance(config, DiagnoseConfig) and "columns" in config.model_fields_set:
        columns["columns"] = config.columns
    return columns


def _check_columns(
    wanted: Mapping[str, Collection[str]], known: Collection[str], source: str, data: Data
) -> None:
    """Raise UserError if the metadata lack a column; `wanted` maps places in the config to columns."""
    for place, columns in wanted.items():
        reads_scores = data.scores is not None and place in ("data.filter", "data.repeat")
        scores = SCORE_COLUMNS if reads_scores else ()
        if both := {*columns} & {*known} & {*scores}:
            raise UserError(
                f"{place}: {source} has a column {min(both)!r}, and so has data.scores: rename the column in "
                "the folder"
            )
        if columns and (missing := missing_column([*columns], [*known, *scores])):
            raise UserError(f"{place}: {source} has no metadata {missing}")


def _check_size(config: TrainConfig | EmbedConfig | DiagnoseConfig, count: int | None, source: str) -> None:
    """Raise UserError if a super-batch would contain examples twice, given the number of examples."""
    if isinstance(config, EmbedConfig):
        return
    size = config.super_batch_size if isinstance(config, TrainConfig) else config.super_batch_size()
    if count is not None and size > count:
        raise UserError(
            f"the super-batch of {size:,} examples is larger than {source}, which has {count:,}: lower the "
            "batch size or the filtering ratio, or train on more data"
        )


def check_needs(config: RunConfig, needs: Mapping[str, Config]) -> None:
    """Check that dependencies fit their roles.

    Args:
        config: The run.
        needs: Role → config of the dependency. The config of a custom program is a plain mapping; a run
            whose config has the key `model` may take the place of a run of `train`.

    Raises:
        UserError: A dependency is a run of another program, or a cached reference doesn't fit.
    """
    for path, names in marked(type(config), NAMES_A_RUN).items():
        if (need := needs.get(role := dotted(path))) is None:
            continue
        name = type(need).__name__.removesuffix("Config").lower()  # the name of the built-in program
        if isinstance(need, dict):
            name = "train" if "model" in need else ""
        if name not in names:
            raise UserError(f"{role}: expected the name of a run of {' or '.join(names)}")
        if isinstance(config, TrainConfig) and name == "embed" and config.augmentation != Augmentation():
            raise UserError(
                "augmentation: cached embeddings don't match augmented images: name the reference itself in "
                "selection.reference, not its cache"
            )
