"""Configs of runs: every field that decides a result, validated, frozen, with its default.

Nothing heavy is imported here: plans of thousands of runs read these modules and little else of `models`.
Durations say their unit (`_examples`, `_steps`, `_percent`). Letters in comments are the paper's:
B super-batch, b sub-batch, f = 1 − b/B filtering ratio, N chunks, λ share trained on approximately.
"""

from .data import (
    SHAPES_COLUMNS,
    SHAPES_GENERATOR,
    BenchmarkFolder,
    Data,
    NoiseRates,
    ShapesBenchmark,
    ShapesWeb,
    ShardFolder,
)
from .diagnose import DiagnoseConfig
from .embed import EmbedConfig
from .section import LocalPath, RunName, Section, Seed
from .towers import IMAGE_SIZES, SIZES, TextTower, TwoTowers, Variant, VisionTower
from .train import (
    Approximation,
    Evaluation,
    Optimizer,
    Runtime,
    Schedule,
    Selection,
    TrainConfig,
)
from .weights import WeightsConfig

__all__ = [
    "IMAGE_SIZES",
    "SHAPES_COLUMNS",
    "SHAPES_GENERATOR",
    "SIZES",
    "Approximation",
    "BenchmarkFolder",
    "Data",
    "DiagnoseConfig",
    "EmbedConfig",
    "Evaluation",
    "LocalPath",
    "NoiseRates",
    "Optimizer",
    "RunName",
    "Runtime",
    "Schedule",
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
