"""The figures of an experiment, one function each: data first, then drawing."""

from .against import Axis
from .comparisons import against, approximation_share, batch_size, filtering_ratio, loss_comparison
from .front import pareto
from .kinds import KINDS, Request, all_possible, draw
from .learning_curves import learning_curves
from .optimiser import optimiser_spikes
from .published_scores import published_scores
from .references import against_reference
from .speed import speedup
from .step_costs import method_costs, step_costs

__all__ = [
    "KINDS",
    "Axis",
    "Request",
    "against",
    "against_reference",
    "all_possible",
    "approximation_share",
    "batch_size",
    "draw",
    "filtering_ratio",
    "learning_curves",
    "loss_comparison",
    "method_costs",
    "optimiser_spikes",
    "pareto",
    "published_scores",
    "speedup",
    "step_costs",
]
