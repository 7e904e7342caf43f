"""Configs of runs: every field that decides a result with its default, validated and frozen.

Nothing heavy is imported here: plans of thousands of runs read these modules and little else of `models`.
Durations say their unit (`_examples`, `_steps`, `_percent`). Letters in comments are the paper's:
B super-batch, b sub-batch, f = 1 − b/B filtering ratio, N chunks, λ share trained on approximately.
"""

from jestlab.models.config.code import ELSEWHERE, Code, Extended, Extension, Options, Section
from jestlab.models.config.data import (
    SHAPES_COLUMNS,
    SHAPES_GENERATOR,
    BenchmarkFolder,
    Data,
    NoiseRates,
    OwnReader,
    ShapesBenchmark,
    ShapesWeb,
    ShardFolder,
)
from jestlab.models.config.programs import DiagnoseConfig, EmbedConfig, ScoreConfig, WeightsConfig
from jestlab.models.config.towers import (
    IMAGE_SIZES,
    SIZES,
    LocalPath,
    RunName,
    Seed,
    TextTower,
    TwoTowers,
    Variant,
    VisionTower,
)
from jestlab.models.config.train import (
    Approximation,
    Augmentation,
    Evaluation,
    Optimizer,
    Runtime,
    Schedule,
    Selection,
    TrainConfig,
)

__all__ = [
    "ELSEWHERE",
    "IMAGE_SIZES",
    "SHAPES_COLUMNS",
    "SHAPES_GENERATOR",
    "SIZES",
    "Approximation",
    "Augmentation",
    "BenchmarkFolder",
    "Code",
    "Data",
    "DiagnoseConfig",
    "EmbedConfig",
    "Evaluation",
    "Extended",
    "Extension",
    "LocalPath",
    "NoiseRates",
    "Optimizer",
    "Options",
    "OwnReader",
    "RunName",
    "Runtime",
    "Schedule",
    "ScoreConfig",
    "Section",
    "Seed",
    "Selection",
    "ShapesBenchmark",
    "ShapesWeb",
    "ShardFolder",
    "TextTower",
    "TrainConfig",
    "TwoTowers",
    "Variant",
    "VisionTower",
    "WeightsConfig",
]
