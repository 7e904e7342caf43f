"""One training run: optimiser, step, loop, checkpoints, TensorBoard events."""

from .loop import train
from .tracker import Tracker

__all__ = ["Tracker", "train"]
