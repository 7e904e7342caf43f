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

from jestlab.models.config.base import ELSEWHERE as ELSEWHERE
from jestlab.models.config.base import Code as Code
from jestlab.models.config.base import Extension as Extension
from jestlab.models.config.base import Section as Section
from jestlab.models.config.data import SHAPES_COLUMNS as SHAPES_COLUMNS
from jestlab.models.config.data import SHAPES_GENERATOR as SHAPES_GENERATOR
from jestlab.models.config.data import BenchmarkFolder as BenchmarkFolder
from jestlab.models.config.data import CustomReader as CustomReader
from jestlab.models.config.data import Data as Data
from jestlab.models.config.data import DataConfig as DataConfig
from jestlab.models.config.data import NoiseRates as NoiseRates
from jestlab.models.config.data import ShapesBenchmark as ShapesBenchmark
from jestlab.models.config.data import ShapesWeb as ShapesWeb
from jestlab.models.config.data import ShardFolder as ShardFolder
from jestlab.models.config.programs import DiagnoseConfig as DiagnoseConfig
from jestlab.models.config.programs import EmbedConfig as EmbedConfig
from jestlab.models.config.programs import ScoreConfig as ScoreConfig
from jestlab.models.config.programs import WeightsConfig as WeightsConfig
from jestlab.models.config.selection import Selection as Selection
from jestlab.models.config.towers import TextTower as TextTower
from jestlab.models.config.towers import TwoTowers as TwoTowers
from jestlab.models.config.towers import VisionTower as VisionTower
from jestlab.models.config.train import Augmentation as Augmentation
from jestlab.models.config.train import Evaluation as Evaluation
from jestlab.models.config.train import Optimizer as Optimizer
from jestlab.models.config.train import Runtime as Runtime
from jestlab.models.config.train import Schedule as Schedule
from jestlab.models.config.train import TrainConfig as TrainConfig
