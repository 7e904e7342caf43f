"""A small study whose results are made up, in a store of its own: what figures and tables are tried on."""

from __future__ import annotations

import os
from pathlib import Path

from jestlab.platform.planning.plan import PlannedRun, plan
from jestlab.platform.spec.schema import Study
from jestlab.platform.store import claims, leases, provenance
from jestlab.platform.store.attempt import Attempt
from jestlab.platform.store.store import Store

NAME = "example"

STUDY = Study.parse(
    {
        "name": NAME,
        "question": "Does a wider model learn more from what a reference selects?",
        "program": "command",
        "base": {"command": ["true"], "rule": "uniform"},
        "runs": {
            "reference": {"width": 256},
            "uniform": {},
            "joint": {"rule": "joint", "needs": ["reference"]},
        },
        "axes": [{"runs": ["uniform", "joint"], "grid": {"width": [32, 64]}}],
        "seeds": 3,
        "metrics": {
            "shapes/accuracy": {"goal": "max", "unit": "percent", "name": "accuracy"},
            "wiki/perplexity": {"goal": "min", "name": "PPL"},
            "loss": {"goal": "min"},
        },
        "score": ["shapes/accuracy"],
        "claims": [{"statement": "Joint selection learns more", "of": "joint", "above": "uniform"}],
    }
)
"""Its spec: a reference, and two rules at two widths, three seeds each."""

_STEPS = (10, 20, 40)
_GAINS = {"reference": 0.45, "uniform": 0.0, "joint": 0.15}
_HERE = provenance.Provenance("host", "2 cores", {"python": "3"}, None, None, {})


def write(folder: Path, *, complete: bool = True) -> str:
    """Write the results to a store in a folder.

    Args:
        folder: Where.
        complete: Whether all runs have completed; else each has been evaluated twice and is to go on.

    Returns:
        The store's URL.
    """
    url = f"sqlite:///{folder / 'results.db'}"
    store = Store.open(url)
    try:
        planned = plan(STUDY, where="nowhere")
        store.record(planned)
        launcher = leases.enter_launcher(store, "nobody:0:0")
        for run in planned.runs:
            _measure(store, run, launcher, folder, _STEPS if complete else _STEPS[:2], complete=complete)
    finally:
        store.close_whole()
    return url


def _measure(
    store: Store, run: PlannedRun, launcher: str, folder: Path, steps: tuple[int, ...], *, complete: bool
) -> None:
    claim = claims.claim(store, run.fingerprint, launcher, "local", 0, f"{run.directory}/log.txt", 90.0)
    assert claim is not None
    attempt = Attempt.begin(
        store,
        run.fingerprint,
        claim.number,
        directory=folder,
        provenance=_HERE,
        handle=f"host:{os.getpid()}:1:log.txt",
    )
    attempt.catch_up()
    width = float(run.config["width"])
    for step in steps:
        learned = (1 - 0.9 ** (step / 10)) * (0.3 + _GAINS[run.name] + width / 1000) + run.seed / 200
        attempt.log(step, {"loss": 2 - learned})
        scores = {"shapes/accuracy": learned, "wiki/perplexity": 30 - 20 * learned}
        attempt.evaluation(step, 64 * step, 1e6 * width * step, scores)
        attempt.progress(step, _STEPS[-1])
    if complete:
        attempt.complete()
    else:
        attempt.interrupt("to go on later")
