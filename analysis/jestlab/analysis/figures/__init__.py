"""The figures of an experiment, one function each: data first, then drawing."""

from .against import Axis
from .comparisons import against, approximation_share, batch_size, filtering_ratio, loss_comparison
from .front import pareto
from .learning_curves import learning_curves
from .optimiser import optimiser_spikes
from .references import against_reference

__all__ = [
    "Axis",
    "against",
    "against_reference",
    "approximation_share",
    "batch_size",
    "filtering_ratio",
    "learning_curves",
    "loss_comparison",
    "optimiser_spikes",
    "pareto",
]
