"""A study of which all runs have completed, recorded without launching them."""

from contextlib import closing
from typing import Any

import plans_support as plans

from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.store import Store

STEPS = 10
STUDY = {
    "program": "toy_programs:loop",
    "base": {"steps": STEPS},
    "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 12}},
    "seeds": 2,
    "question": "Is it faster?",
    "reports": [{"table": {"baseline": "uniform"}}],
    "metrics": {"toy/*": {"goal": "max", "unit": "percent"}},
}


def record(lab: Lab, study: dict[str, Any]) -> dict[str, str]:
    """Record a study whose runs have all completed; return LABEL/SEED → fingerprint."""
    planned = plan(StudySpec.parse(study))
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, planned)
        for number, run in enumerate(planned.runs):
            attempt = plans.begun(store, run, lab.root / run.directory)
            for step in range(1, STEPS + 1):
                attempt.log(step, {"loss": 1 / step + number, "examples_seen": 64 * step})
            attempt.evaluation(STEPS, 64 * STEPS, 1e6 * STEPS, {"toy/score": 0.5 + number / 20})
            attempt.progress(STEPS, run.config["steps"])
            attempt.complete()
    return {f"{run.label}/{run.seed}": run.fingerprint for run in planned.runs}
