"""The kinds of figures by name: for command lines and reports, which know no functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from .. import frames as reading
from .. import learnability as diagnosis
from .. import published
from ..costs import Scope
from ..curves import Effort
from ..frames import Frames
from ..plots import Plot
from .against import Axis
from .comparisons import against, approximation_share, batch_size, filtering_ratio, loss_comparison
from .front import pareto
from .learning_curves import learning_curves
from .optimiser import optimiser_spikes
from .published_scores import published_scores
from .references import against_reference
from .speed import speedup
from .step_costs import step_costs

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Request:
    """An experiment, and what its figures can be told; each kind takes what it knows of.

    Attributes:
        url: SQLAlchemy URL of the store.
        experiment: Its name; empty for published methods alone.
        baseline: Label or run to compare with; None for the first that is no reference.
        scope: What counts as FLOPs.
        effort: What learning curves are drawn over.
        trajectories: Whether the Pareto plot shows the way through training.
        surfaces: Whether it shows what the seeds attain.
        run: Label or name of a `diagnose` run; None for the first.
        x: Key of the config that scores are drawn against, or whose values spikes are compared by.
        by: Keys whose values make a line.
        split: Key whose values make a panel.
        metric: Training metric of the figure of spikes.
        group: Rows of the published table that are compared with one baseline.
        source: Where the published table is published; None for the one with most points.
        results: Reads the experiment, where it is read for several requests; None to read it here.
    """

    url: str
    experiment: str
    baseline: str | None = None
    scope: Scope = "scoring"
    effort: Effort = "examples_seen"
    trajectories: bool = False
    surfaces: bool = False
    run: str | None = None
    x: str | None = None
    by: tuple[str, ...] = ("selection.rule",)
    split: str | None = None
    metric: str = "loss"
    group: str | None = None
    source: str | None = None
    results: Callable[[], Frames] | None = None

    @cached_property
    def frames(self) -> Frames:
        """Read once for all figures."""
        return self.results() if self.results else reading.read(self.url, self.experiment)

    @cached_property
    def published(self) -> pd.DataFrame:
        """The published cells in the store."""
        return published.read(self.url)


def _against(request: Request) -> Plot:
    if request.x is None:
        raise ValueError("a figure against a key of the config needs the key: give x")
    name = f"against_{request.x.replace('.', '_')}"
    axis = Axis(request.x, request.by, request.split)
    return against(request.frames, axis, request.baseline, name=name, x_label=request.x)


def _speedup(request: Request) -> Plot:
    try:
        cells = request.published
    except ValueError:  # a store of an older schema
        if request.source is not None:
            raise
        cells = None
    return speedup(request.frames, request.baseline, request.scope, cells, request.source)


KINDS: dict[str, Callable[[Request], Plot]] = {
    "curves": lambda r: learning_curves(r.frames, r.baseline, r.effort, r.scope),
    "pareto": lambda r: pareto(r.frames, r.baseline, r.scope, r.trajectories, r.surfaces),
    "speedup": _speedup,
    "step_costs": lambda r: step_costs(r.frames, r.baseline),
    "filtering_ratio": lambda r: filtering_ratio(r.frames, r.baseline),
    "approximation_share": lambda r: approximation_share(r.frames, r.baseline),
    "batch_size": lambda r: batch_size(r.frames, r.baseline),
    "loss_comparison": lambda r: loss_comparison(r.frames, r.baseline),
    "against_reference": lambda r: against_reference(r.frames, r.baseline),
    "optimiser_spikes": lambda r: optimiser_spikes(
        r.url, r.experiment, r.metric, r.x or "optimizer.beta2", r.baseline
    ),
    "learnability": lambda r: diagnosis.learnability(r.url, r.experiment, r.run),
    "learnability_matrix": lambda r: diagnosis.learnability_matrix(r.url, r.experiment, r.run),
    "gibbs_comparison": lambda r: diagnosis.gibbs_comparison(r.url, r.experiment, r.run),
    "published": lambda r: published_scores(
        r.published, r.frames if r.experiment else None, r.baseline, r.group, source=r.source
    ),
    "against": _against,
}
"""Kind → what makes the figure."""

_ON_DEMAND = ("learnability_matrix", "gibbs_comparison", "published", "against")
"""Kinds that only repeat a part of another, or say nothing of the experiment unless they are told more."""


def draw(kind: str, request: Request) -> Plot:
    """The figure of a kind.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If the experiment cannot fill it, with what it lacks; or there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no figure {kind!r}: it is one of {', '.join(KINDS)}")
    return KINDS[kind](request)


def all_possible(request: Request) -> list[Plot]:
    """The figures that an experiment can fill, in the order of `KINDS`.

    Raises:
        FileNotFoundError: If the URL names a SQLite file that does not exist.
        ValueError: If there is no such baseline, or the experiment can fill none: what the first lacks.
    """
    plots: list[Plot] = []
    first: ValueError | None = None
    try:
        request.frames.baseline(request.baseline)
    except ValueError as error:  # a diagnosis alone has no scores
        if request.baseline is not None or not _is_diagnosed(request):
            raise
        first = error
    for kind in KINDS:
        if kind in _ON_DEMAND:
            continue
        try:
            plots.append(draw(kind, request))
        except ValueError as error:
            first = first or error
    if not plots and first is not None:
        raise first
    return plots


def _is_diagnosed(request: Request) -> bool:
    return bool(reading.diagnosed(request.url, request.experiment))
