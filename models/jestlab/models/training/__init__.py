"""One training run: optimiser, step, loop, checkpoints, TensorBoard events."""

from .loop import train
from .reference import Reference
from .tracker import Tracker

__all__ = ["Reference", "Tracker", "train"]
