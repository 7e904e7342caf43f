"""The figures of an experiment, by name: `draw("pareto", Request(store, experiment)).save(folder)`.

The module of a figure turns results into plain data once, and draws that data with Matplotlib for print.
`charts` converts the same data for the page. All share `style` (colors), `axes`, `panels` (layout), and
`plot` (words).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .. import published as publications
from ..costs import Scope
from ..curves import Smoothing
from ..custom import Loader, Results, load
from ..efforts import Over
from ..errors import NotYet, RequestError
from ..frames import Frames
from ..metrics import Scale
from ..results import Snapshot, opened
from ..sheet import PLAIN, Sheet
from .against import PRESETS, Axis, against
from .composition import composition
from .custom import custom_plot
from .learnability import learnability
from .learning_curves import learning_curves
from .optimizer_spikes import optimizer_spikes
from .pareto import pareto
from .plot import Plot, Texts
from .published import published_scores
from .recorded import recorded
from .references import against_reference
from .selected import Pictures, selected
from .speedup import speedup
from .step_costs import method_costs, step_costs

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "KINDS",
    "Axis",
    "Plot",
    "Request",
    "Sheet",
    "Texts",
    "against",
    "against_reference",
    "all_possible",
    "composition",
    "draw",
    "learnability",
    "learning_curves",
    "method_costs",
    "optimizer_spikes",
    "pareto",
    "published_scores",
    "recorded",
    "selected",
    "speedup",
    "step_costs",
]


@dataclass(frozen=True)
class Request:
    """An experiment and the options of its figures; each kind uses those that apply to it.

    Attributes:
        store: SQLAlchemy URL of the store, or a snapshot of it.
        experiment: Name of the experiment; empty for published methods only.
        baseline: Label or run to compare with; None for the study's baseline.
        scope: What counts as FLOPs.
        over: Horizontal axis of curves, and the cost of the Pareto plot; None for the default of each.
        trajectories: Whether the Pareto plot shows the path through training.
        surfaces: Whether it shows attainment surfaces.
        run: Label or name of a `diagnose` run; None for the first.
        x: Config key that scores are drawn against, or whose values spikes are compared by; the column of
            metadata that a composition is by.
        by: Config keys whose values make a line.
        split: Config key whose values make a panel.
        metric: Recorded metrics that curves show instead of the score; the training metric of spikes.
        smooth: Window of a running mean over curves: a number of recorded points, or a share such as "10%".
        scale: Of the vertical axis of curves; None for the scale that the metric declares.
        highlight: Labels or runs whose curves are colored; empty for all.
        source: Where the published table is published; None for the one with most points.
        score: Evaluations whose mean is the score; None for the study's.
        sheet: Size, font, words and legend of the printed figure, over those of the study's spec.
        runs: Labels or runs that the figure shows; empty for all.
        options: Arguments of a custom figure.
        own: Imports the code of custom figures; None if it must not be executed.
        pictures: Reads selected examples from a lab; None without one.
    """

    store: str | Snapshot
    experiment: str
    baseline: str | None = None
    scope: Scope = "scoring"
    over: Over | None = None
    trajectories: bool = False
    surfaces: bool = False
    run: str | None = None
    x: str | None = None
    by: tuple[str, ...] = ("selection.rule",)
    split: str | None = None
    metric: tuple[str, ...] = ()
    smooth: int | str | None = None
    scale: Scale | None = None
    highlight: tuple[str, ...] = ()
    source: str | None = None
    score: tuple[str, ...] | None = None
    sheet: Sheet = PLAIN
    runs: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    own: Loader | None = None
    pictures: Pictures | None = None

    @cached_property
    def frames(self) -> Frames:
        """Results of the experiment, read once for all figures."""
        frames = self.snapshot.frames(self.experiment)
        frames = frames.only(self.runs) if self.runs else frames
        return frames.scored_by(self.score) if self.score else frames

    @property
    def snapshot(self) -> Snapshot:
        """The store, which `draw` has opened."""
        assert isinstance(self.store, Snapshot)
        return self.store

    @cached_property
    def published(self) -> pd.DataFrame:
        """Published cells in the store, read once for all figures."""
        return publications.read(self.snapshot)


def _curves(request: Request) -> Plot:
    frames, names = request.frames, request.metric
    if request.scale is not None and not names:
        raise RequestError("the scale of the score's axis is what its metrics declare: name a metric with it")
    return learning_curves(
        frames, request.baseline, request.over, request.scope,
        shown=recorded(request.snapshot, frames, names, request.scope, request.scale) if names else (),
        smooth=None if request.smooth is None else Smoothing.parse(request.smooth),
        highlight=request.highlight, together=request.sheet.legend is not None,
    )  # fmt: skip


def _against(request: Request) -> Plot:
    if request.x is None:
        raise RequestError("figure 'against' needs a config key to draw against: give x")
    return against(request.frames, Axis(request.x, request.by, request.split), request.baseline)


def _preset(name: str) -> Callable[[Request], Plot]:
    return lambda request: against(request.frames, PRESETS[name], request.baseline, name)


def _speedup(request: Request) -> Plot:
    return speedup(request.frames, request.baseline, request.scope, request.published, request.source)


KINDS: dict[str, Callable[[Request], Plot]] = {
    "curves": _curves,
    "pareto": lambda r: pareto(
        r.frames, r.baseline, r.scope, r.trajectories, r.surfaces, None if r.over == "steps" else r.over
    ),
    "speedup": _speedup,
    "step_costs": lambda r: step_costs(r.frames, r.baseline),
    **{name: _preset(name) for name in PRESETS},
    "against_reference": lambda r: against_reference(r.frames, r.baseline),
    "optimizer_spikes": lambda r: optimizer_spikes(
        r.snapshot, r.experiment, r.metric[0] if r.metric else "loss", r.x or "optimizer.beta2", r.baseline
    ),
    "learnability": lambda r: learnability(r.snapshot, r.experiment, r.run),
    "published": lambda r: published_scores(
        r.published, r.frames if r.experiment else None, r.baseline, r.source
    ),
    "against": _against,
    "composition": lambda r: composition(r.snapshot, r.frames, r.x),
    "selected": lambda r: selected(r.frames, r.pictures),
}
"""Kind → function that makes the figure."""

_ON_DEMAND = ("published", "against", "composition", "selected")
"""Kinds that repeat part of another, or need more options to say anything about the experiment."""


def draw(kind: str, request: Request) -> Plot:
    """Make the figure of a kind: one of `KINDS`, or custom code (see `Request.own`).

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The kind is unknown, the experiment lacks results for the kind, or custom code fails.
    """
    if kind not in KINDS and request.own is None and ":" not in kind:
        raise RequestError(f"no figure {kind!r}: choose one of {', '.join(KINDS)}")
    with opened(request.store) as store:
        request = replace(request, store=store)
        request = replace(request, sheet=_sheet(request))
        request.sheet.families  # noqa: B018 — is the font installed?
        if kind in KINDS:
            plot = KINDS[kind](request)
        else:
            code = load(request.own, request.experiment, "figure", kind)
            about = request.experiment, lambda: request.frames, request.baseline, request.scope
            plot = custom_plot(code, Results(store, *about), request.options)
        return replace(plot, sheet=request.sheet)


def _sheet(request: Request) -> Sheet:
    """The options of the request, over those of the study's spec."""
    if not request.experiment:
        return request.sheet
    try:
        spec = request.frames.spec
    except NotYet:  # nothing has been evaluated: some kinds only need logged metrics
        return request.sheet
    return request.sheet.over(Sheet.parse(spec.get("figure") or {}))


def all_possible(request: Request) -> list[Plot]:
    """Make all figures that an experiment has the results for, in the order of `KINDS`.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The baseline or a metric is unknown, or no figure can be made.
    """
    request.sheet.families  # noqa: B018 — is the font installed?
    plots: list[Plot] = []
    first: NotYet | None = None
    with opened(request.store) as store:
        request = replace(request, store=store)
        try:
            request.frames.baseline(request.baseline)
        except NotYet as error:  # an experiment of diagnoses only has no scores
            if request.baseline is not None:
                raise
            first = error
        for kind in (kind for kind in KINDS if kind not in _ON_DEMAND):
            try:
                plots.append(draw(kind, request))
            except NotYet as error:
                if kind == "curves" and (request.metric or request.highlight):
                    raise
                first = first or error
    if not plots and first is not None:
        raise first
    return plots
