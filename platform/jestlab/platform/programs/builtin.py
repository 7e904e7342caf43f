"""jestlab's own programs as planning sees them: train, embed, score, weights, and diagnose.

Workers execute them through `execution`, which imports JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from jestlab.analysis.metrics import OF_PROGRAM
from jestlab.models.config import (
    BenchmarkFolder,
    CustomReader,
    DiagnoseConfig,
    EmbedConfig,
    ScoreConfig,
    ShardFolder,
    TrainConfig,
    TwoTowers,
    WeightsConfig,
)
from jestlab.platform import plugins
from jestlab.platform.errors import UserError
from jestlab.platform.programs import checks, pricing
from jestlab.platform.programs.program import DataLookup, Price, Program

if TYPE_CHECKING:
    from jestlab.models.weights.sources import Weights

_IMPORTS = (
    "jestlab.platform.programs.execution",
    "grain",
    "simplejpeg",
    "sentencepiece",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "sqlalchemy.dialects.sqlite",
)
"""Slow imports of programs that use JAX. PyArrow imports `pyarrow.dataset`, and so pandas, for filters."""


Config = TypeVar("Config", TrainConfig, EmbedConfig, DiagnoseConfig)


def _complete_data(config: Config, data: DataLookup) -> Config:
    """Add the digests of data folders and custom code, and check that the config fits the data.

    Raises:
        UserError: A folder is missing or contains no shards, or the config doesn't fit its data.
        ValueError: No example passes the filter.
    """
    digests: dict[str, Any] = {}
    for part in ("train", "benchmark") if isinstance(config, TrainConfig) else ("train",):
        source = getattr(config.data, part)
        if isinstance(source, ShardFolder | BenchmarkFolder) and source.digest is None:
            path, field = Path(source.path), "digest"
            if data.is_absent(path, "folder"):
                continue
            if not path.is_dir():
                content = "image–text tar shards" if part == "train" else "a benchmark's datasets"
                raise UserError(
                    f"data.{part}.path: no folder {path}: expected {content}; download them with "
                    "`jestlab data fetch`, or pack your own files with `jestlab data pack`"
                )
            from jestlab.models.data.datasets import digest  # imports NumPy, which few plans need
        elif isinstance(source, CustomReader) and source.path is not None and source.path_digest is None:
            path, field = Path(source.path), "path_digest"
            if data.is_absent(path, "input of a reader"):
                continue
            from jestlab.models.data.datasets import path_digest as digest
        else:
            continue
        try:
            digests[part] = source.model_copy(update={field: data.once(digest, path)})
        except FileNotFoundError as error:
            raise UserError(f"data.{part}.path: {error}") from None
    changes: dict[str, Any] = {"data": config.data.model_copy(update=digests)} if digests else {}
    if code := plugins.identify(config, lambda file: data.is_absent(file, "file of code"), data.code):
        changes["code"] = code
    if data.placement != "none":
        checks.check_data(config, data)
    return config.model_copy(update=changes) if changes else config


def _complete_weights(config: WeightsConfig, data: DataLookup) -> WeightsConfig:
    """Add the towers, and the digests of weights and tokenizer.

    Raises:
        UserError: There is no tokenizer, or the content differs from the recorded digest.
        ValueError: The weights are missing or invalid.
    """

    def computing(model: TwoTowers) -> TwoTowers:
        return model.model_copy(update={"compute_dtype": config.compute_dtype})

    if config.model and config.digest and config.tokenizer_digest:
        return config.model_copy(update={"model": computing(config.model)})
    paths = {"checkpoint": config.path, "tokenizer": config.tokenizer}
    if [kind for kind, path in paths.items() if path and data.is_absent(Path(path), kind)]:
        return config
    weights = open_source(config)
    digest = weights.digest()
    check_digest("path", config.path, config.digest, digest)
    _, tokenizer_digest = read_source_tokenizer(config, weights)
    changes = {"digest": digest, "tokenizer_digest": tokenizer_digest, "model": computing(weights.model)}
    return config.model_copy(update=changes)


def open_source(config: WeightsConfig) -> Weights:
    """Open the weights that a config names."""
    from jestlab.models.weights.sources import open_weights  # imports NumPy, which few plans need

    return open_weights(Path(config.path), config.model)


def read_source_tokenizer(config: WeightsConfig, weights: Weights) -> tuple[bytes, str]:
    """Return the serialized tokenizer of weights, and its digest."""
    from jestlab.models.weights.sources import read_tokenizer

    path = Path(config.tokenizer) if config.tokenizer is not None else weights.tokenizer
    if path is None:
        raise UserError(
            f"tokenizer: no spiece.model or tokenizer.model next to {config.path}: "
            "add the file, or give its path as `tokenizer`"
        )
    content = read_tokenizer(path, weights.model)
    digest = sha256(content).hexdigest()
    check_digest("tokenizer", str(path), config.tokenizer_digest, digest)
    return content, digest


def check_digest(field: str, path: str, recorded: str | None, digest: str) -> None:
    """Raise UserError if a file's digest isn't the recorded one."""
    if recorded is not None and recorded != digest:
        raise UserError(
            f"{field}: {path} has changed (digest {digest[:12]}, recorded {recorded[:12]}): "
            "restore it, or remove the digest to use the new content"
        )


# ---- the programs


def _recorded_by_training(config: TrainConfig) -> list[str]:
    """Return patterns of the metrics that a training run logs, and of its evaluations."""
    accuracies = ["zero_shot", f"{config.evaluation.shots}_shot"]
    recalls = ["i2t_r*", "t2i_r*"]
    evaluated = [("shapes", accuracies), ("shapes_retrieval", recalls)]
    if isinstance(config.data.benchmark, BenchmarkFolder):
        evaluated = [("*", [*accuracies, *recalls])]  # of a folder that the plan notes as absent
        if (folder := Path(config.data.benchmark.path)).is_dir():
            from jestlab.models.data.benchmarks import datasets_in  # imports NumPy, which few plans need

            datasets = datasets_in(folder)
            evaluated = [(name, recalls if retrieves else accuracies) for _, name, retrieves in datasets]
    return [
        *(name for name in OF_PROGRAM["train"] if not name.startswith("*/")),
        *(f"{name}/{metric}" for name, metrics in evaluated for metric in metrics),
        *(f"{name}/*" for name in config.evaluation.extra),
    ]


def _program(schema: type[Any], price: Callable[[Any, Any], Price | None], **options: Any) -> Program:
    """Return the program of a config, by default one that uses JAX on several processes."""
    name = schema.__name__.removesuffix("Config").lower()
    return Program(
        name=name,
        entry_point=f"jestlab.platform.programs.execution:run_{name}",
        version=schema.version,
        schema=schema,
        identity=schema.identity,
        price=price,
        check_needs=checks.check_needs,
        extra="jax",
        **{"imports": _IMPORTS} | options,
    )


TRAIN = _program(
    TrainConfig,
    pricing.price_train,
    complete=_complete_data,
    extent=("schedule", "examples_seen"),
    records=_recorded_by_training,
)
"""Trains two towers by contrastive learning: a reference model or a learner."""

EMBED = _program(
    EmbedConfig,
    pricing.price_embed,
    complete=_complete_data,
    inherits=("data",),
)
"""Caches a reference's embeddings of a whole training set, for other runs to select with."""

WEIGHTS = _program(
    WeightsConfig,
    pricing.price_weights,
    complete=_complete_weights,
    collective=False,
    imports=("jestlab.platform.programs.execution",),
)
"""Imports public weights, to be used as a reference like a trained run."""

SCORE = _program(ScoreConfig, pricing.price_score, collective=False)
"""Scores a data set by its cached embeddings, for filters to read."""

DIAGNOSE = _program(
    DiagnoseConfig,
    pricing.price_diagnose,
    complete=_complete_data,
    collective=False,
    inherits=("data", "loss"),
    subjects=(pricing.DIAGNOSE_LEARNER,),
)
"""Measures the learnability of the batches that each rule selects (paper, Figure 2)."""
