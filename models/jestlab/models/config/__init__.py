"""Configs of runs: all fields that determine a result, with defaults. Configs are validated and frozen.

Plans with thousands of runs import these modules, so they don't import JAX or NumPy.
Names of durations contain the unit (`_examples`, `_steps`, `_percent`). Letters in comments are from the
paper: B super-batch, b sub-batch, f = 1 − b/B filtering ratio, N chunks, λ share trained approximately.

base.py       base classes, types of common fields, marks of custom code
towers.py     the two towers
data.py       data for training and evaluation
selection.py  selection of batches, approximation
train.py      `train`: the other sections of a training run
programs.py   `embed`, `score`, `diagnose`, `weights`
"""

from jestlab.models.config.base import ELSEWHERE, Code, Extension, Section
from jestlab.models.config.data import (
    SHAPES_COLUMNS,
    SHAPES_GENERATOR,
    BenchmarkFolder,
    CustomReader,
    Data,
    DataConfig,
    NoiseRates,
    ShapesBenchmark,
    ShapesWeb,
    ShardFolder,
)
from jestlab.models.config.programs import DiagnoseConfig, EmbedConfig, ScoreConfig, WeightsConfig
from jestlab.models.config.selection import Selection
from jestlab.models.config.towers import TextTower, TwoTowers, VisionTower
from jestlab.models.config.train import Augmentation, Evaluation, Optimizer, Runtime, Schedule, TrainConfig

__all__ = [
    "ELSEWHERE",
    "SHAPES_COLUMNS",
    "SHAPES_GENERATOR",
    "Augmentation",
    "BenchmarkFolder",
    "Code",
    "CustomReader",
    "Data",
    "DataConfig",
    "DiagnoseConfig",
    "EmbedConfig",
    "Evaluation",
    "Extension",
    "NoiseRates",
    "Optimizer",
    "Runtime",
    "Schedule",
    "ScoreConfig",
    "Section",
    "Selection",
    "ShapesBenchmark",
    "ShapesWeb",
    "ShardFolder",
    "TextTower",
    "TrainConfig",
    "TwoTowers",
    "VisionTower",
    "WeightsConfig",
]
