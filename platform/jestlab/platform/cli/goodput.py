"""Where the machines' time went, as verbs print it: one line on an experiment, and a table by run."""

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
from jestlab.platform.store.records import RunRow

_HOUR = 3.6e9  # microseconds
_IMPORTANCE = {
    "HELD": 90,
    "START-UP": 70,
    "COMPILATION": 68,
    "CHECKPOINTS": 60,
    "PREEMPTED WORK": 66,
    "FAILED WORK": 65,
    "CANCELLED WORK": 64,
    "TRAINING": 50,
    "EVALUATION": 45,
    "QUEUE": 55,
    "ATTEMPTS": 40,
    "WIND-DOWN": 30,
}


def lines(runs: Sequence[RunRow], goodputs: Mapping[str, Goodput]) -> Iterator[Block]:
    """Write the table of where the time of each run went, one row for all, and what its columns mean.

    Args:
        runs: The runs of an experiment, in its order.
        goodputs: Fingerprint → where its time went.
    """
    whole = total(goodputs.values())
    shown: list[Cause] = [cause for cause in CAUSES if whole.share(cause) >= 0.0005]
    headers = ["RUN", "SEED", "HELD", "GOODPUT", *(CAUSES[cause].upper() for cause in shown)]
    headers += ["ATTEMPTS", "QUEUE"]
    rows = [
        [run.label, str(run.seed), *_cells(goodputs[run.fingerprint], shown)]
        for run in runs
        if run.fingerprint in goodputs and goodputs[run.fingerprint].attempts
    ]
    rows.append(["all", "", *_cells(whole, shown)])
    yield table(headers, rows, range(1, len(headers)), _IMPORTANCE)
    yield ""
    yield summary(whole)
    yield "HELD: time × chips; of a machine without chips, its time. Shares are of HELD; QUEUE is not in it."


def _cells(found: Goodput, shown: Sequence[Cause]) -> list[str]:
    known = found.ratio is not None
    shares = [percent(found.share(cause)) if known and found.parts[cause] else "–" for cause in shown]
    goodput = "unknown" if found.ratio is None else percent(found.ratio)
    waited = units.duration(found.waited / _HOUR) if found.waited >= 500_000 else "–"
    return [units.duration(found.held / _HOUR), goodput, *shares, str(found.attempts), waited]


def as_data(study: str, runs: Sequence[RunRow], attempts: Sequence[AttemptTime]) -> dict[str, Any]:
    """Describe where the time of each run and of all went, for a program."""
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
