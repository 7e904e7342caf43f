"""Where the time of an experiment's machines went: table and JSON of `jestlab costs --goodput`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jestlab.analysis import units
from jestlab.analysis.costs.goodput import (
    CAUSES,
    USEFUL,
    AttemptTime,
    Cause,
    Goodput,
    by_run,
    percent,
    summary,
    total,
)
from jestlab.platform.render import Block, table
from jestlab.platform.store.records import RunSummary

_HOUR = 3.6e9  # microseconds
_BY_IMPORTANCE = (
    "WIND-DOWN", "ATTEMPTS", "EVALUATION", "TRAINING", "QUEUE", "CHECKPOINTS", "CANCELLED WORK",
    "FAILED WORK", "PREEMPTED WORK", "COMPILATION", "START-UP", "HELD",
)  # fmt: skip
"""Columns that a narrow terminal leaves out, the least important one first."""


def lines(runs: Sequence[RunSummary], goodputs: Mapping[str, Goodput]) -> Iterator[Block]:
    """Yield the table of the time of each run and of all runs, and an explanation of its columns.

    Args:
        runs: Runs of an experiment, in its order.
        goodputs: Fingerprint → goodput.
    """
    whole = total(goodputs.values())
    causes: list[Cause] = [cause for cause in CAUSES if whole.share(cause) >= 0.0005]
    headers = ["RUN", "SEED", "HELD", "GOODPUT", *(CAUSES[cause].upper() for cause in causes)]
    headers += ["ATTEMPTS", "QUEUE"]
    rows = [
        [run.label, str(run.seed), *_cells(goodputs[run.fingerprint], causes)]
        for run in runs
        if run.fingerprint in goodputs and goodputs[run.fingerprint].attempts
    ]
    rows.append(["all", "", *_cells(whole, causes)])
    yield table(headers, rows, range(1, len(headers)), {name: i for i, name in enumerate(_BY_IMPORTANCE)})
    yield ""
    yield summary(whole)
    yield "HELD: chip-time, or wall time on machines without chips. Shares are of HELD, which excludes QUEUE."


def _cells(found: Goodput, causes: Sequence[Cause]) -> list[str]:
    known = found.ratio is not None
    shares = [percent(found.share(cause)) if known and found.parts[cause] else "–" for cause in causes]
    goodput = "unknown" if found.ratio is None else percent(found.ratio)
    queue = units.duration(found.waited / _HOUR) if found.waited >= 500_000 else "–"
    return [units.duration(found.held / _HOUR), goodput, *shares, str(found.attempts), queue]


def as_data(study: str, runs: Sequence[RunSummary], attempts: Sequence[AttemptTime]) -> dict[str, Any]:
    """Return the time of each run and of all runs as JSON data."""
    goodputs = by_run(attempts)
    return {
        "experiment": study,
        "useful": list(USEFUL),
        "all": total(goodputs.values()).as_data(),
        "runs": [
            {"label": run.label, "seed": run.seed, "fingerprint": run.fingerprint}
            | goodputs.get(run.fingerprint, Goodput()).as_data()
            for run in runs
        ],
    }
