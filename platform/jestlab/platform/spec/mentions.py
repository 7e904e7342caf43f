"""The metrics, config keys, and metadata columns that a spec refers to, each with its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jestlab.analysis.claims import parse_claims
from jestlab.analysis.claims.measures import SPIKES, is_score
from jestlab.platform.errors import Path

LOSS = "loss"
"""The metric in which spikes are counted."""

COMPOSITION = "composition"
"""The report whose `x` is a metadata column instead of a config key."""


@dataclass(frozen=True)
class Mention:
    """A name in a spec.

    Attributes:
        path: The place of the name.
        name: A metric, a column, or a dotted key of configs.
    """

    path: Path
    name: str

    @property
    def is_evaluation(self) -> bool:
        """Whether the name has the form of an evaluation: dataset/metric."""
        return "/" in self.name


def metrics(spec: Mapping[str, Any]) -> Iterator[Mention]:
    """Yield the metrics that a study's score, claims, and reports use.

    Args:
        spec: A study, or one of the studies of a union, as plain data.
    """
    yield from (Mention(("score", str(i)), name) for i, name in enumerate(spec.get("score") or ()))
    for i, claim in enumerate(parse_claims(list(spec.get("claims") or ()))):
        for measure in dict.fromkeys(claim.measures):
            if not is_score(measure):
                yield Mention(("claims", str(i), "measure"), LOSS if measure == SPIKES else measure)
    for i, report in enumerate(spec.get("reports") or ()):
        for j, name in enumerate(report.get("score") or ()):
            yield Mention(("reports", str(i), "score", str(j)), name)
        default = (LOSS,) if report["kind"] == "optimizer_spikes" else ()
        for j, name in enumerate(report.get("metric") or default):
            yield Mention(("reports", str(i), "metric", str(j)), name)


def keys(spec: Mapping[str, Any]) -> Iterator[Mention]:
    """Yield the config keys by which a study's reports compare runs; takes the argument of `metrics`."""
    for i, report in enumerate(spec.get("reports") or ()):
        place = ("reports", str(i))
        for option in ("x", "split"):
            if report.get(option) is not None and report["kind"] != COMPOSITION:
                yield Mention((*place, option), report[option])
        yield from (Mention((*place, "by", str(j)), key) for j, key in enumerate(report.get("by") or ()))


def columns(spec: Mapping[str, Any]) -> Iterator[Mention]:
    """Yield the metadata columns that a study's reports count; takes the argument of `metrics`."""
    for i, report in enumerate(spec.get("reports") or ()):
        if report["kind"] == COMPOSITION and report.get("x") is not None:
            yield Mention(("reports", str(i), "x"), report["x"])
