"""The names of metrics, config keys and columns of metadata that a spec mentions, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jestlab.analysis.claims import parse_claims
from jestlab.analysis.claims.measures import SPIKES, is_score
from jestlab.platform.errors import Path

LOSS = "loss"
"""What spikes are counted in."""

COMPOSITION = "composition"
"""The report whose `x` is no config key: it is a column of metadata."""


@dataclass(frozen=True)
class Mention:
    """A name in a spec.

    Attributes:
        path: Its place.
        name: Of a metric or a column, or a dotted key of configs.
    """

    path: Path
    name: str

    @property
    def is_evaluation(self) -> bool:
        """Whether it has the form of an evaluation's name: dataset/metric."""
        return "/" in self.name


def metrics(spec: Mapping[str, Any]) -> Iterator[Mention]:
    """Yield the metrics that a study's score, claims and reports need; those of a union are its studies'.

    Args:
        spec: The study as it is written.
    """
    yield from (Mention(("score", str(i)), name) for i, name in enumerate(spec.get("score") or ()))
    for i, claim in enumerate(parse_claims(list(spec.get("claims") or ()))):
        for measure in dict.fromkeys(claim.measures):
            if not is_score(measure):
                yield Mention(("claims", str(i), "measure"), LOSS if measure == SPIKES else measure)
    for i, report in enumerate(spec.get("reports") or ()):
        for j, name in enumerate(report.get("score") or ()):
            yield Mention(("reports", str(i), "score", str(j)), name)
        default = (LOSS,) if report["kind"] == "optimiser_spikes" else ()
        for j, name in enumerate(report.get("metric") or default):
            yield Mention(("reports", str(i), "metric", str(j)), name)


def keys(spec: Mapping[str, Any]) -> Iterator[Mention]:
    """Yield the config keys by which a study's reports compare its runs; arguments as of `metrics`."""
    for i, report in enumerate(spec.get("reports") or ()):
        place = ("reports", str(i))
        for option in ("x", "split"):
            if report.get(option) is not None and report["kind"] != COMPOSITION:
                yield Mention((*place, option), report[option])
        yield from (Mention((*place, "by", str(j)), key) for j, key in enumerate(report.get("by") or ()))


def columns(spec: Mapping[str, Any]) -> Iterator[Mention]:
    """Yield the columns of metadata by which a study's reports count examples; arguments as of `metrics`."""
    for i, report in enumerate(spec.get("reports") or ()):
        if report["kind"] == COMPOSITION and report.get("x") is not None:
            yield Mention(("reports", str(i), "x"), report["x"])
