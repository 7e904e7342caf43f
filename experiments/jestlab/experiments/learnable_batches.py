"""Figure 2: does joint example selection find more learnable batches?

    jestlab launch learnable_batches               # 12 runs, 2 core-minutes
    jestlab launch learnable_batches --scale mini  # 12 runs, 3.56 PFLOP; not run
    jestlab plan learnable_batches --scale paper   # 4 runs, 2,900 chip-hours of v5e; not run

A trained learner selects from super-batches of its data by every rule, without training on the result.

Learnability in nats at smoke, means of 3 seeds, 2026-11-27: uniform -1.78; independent 1.36, 2.10, 2.59
and joint in 32 chunks 1.51, 2.62, 3.21 (f = .5, .8, .9); at f = .8 in 16 chunks 2.60, by Gibbs sampling 2.64.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, learnability

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does joint example selection yield more learnable batches, on par with Gibbs sampling?",
        paper="Figure 2",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.diagnosis = {
        "program": "diagnose",
        "learner": "uniform",
        "reference": base.cache(),
        "batch_size": base.of(scale).base["schedule"]["batch_size"],
    }
    study.reports = [learnability()]
    study.claims = [
        claim(
            "Joint example selection yields more learnable batches than independent selection",
            of=_by("joint"),
            above=_by("independent"),
            source="Fig. 2",
        ),
        claim(
            "Joint example selection is on par with brute-force Gibbs sampling, to within a tenth of a nat",
            of=_by("joint"),
            near=_by("gibbs"),
            within=0.1,
            source="Fig. 2, middle",
        ),
        claim(
            "The learnability of batches improves with the filtering ratio",
            of=_by("filtering_ratio/0.9/joint"),
            above=_by("filtering_ratio/0.5/joint"),
            source="Fig. 2, right",
        ),
    ]
    return study


def _by(rule: str) -> dict[str, str]:
    """Return the learnability of the batches that a rule selects, in nats."""
    return {"of": "diagnosis", "measure": f"learnability/{rule}"}
