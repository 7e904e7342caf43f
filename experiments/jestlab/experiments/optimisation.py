"""Appendix, optimisation robustness: does strong filtering need a lower β2 of Adam?

    jestlab launch optimisation               # 30 runs, 3 core-minutes
    jestlab launch optimisation --scale mini  # 30 runs, 29.5 PFLOP; not run
    jestlab plan optimisation --scale paper   # 10 runs, 36,400 chip-hours of v5e; not run

Adam's default β2 = .999 compared with .95 at every filtering ratio: scores and spikes of the loss.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; uniform 10.3 (β2 = .95), 10.6 (β2 = .999);
joint 19.4 (β2 = .95 f = .5), 26.6 (β2 = .95 f = .8), 27.5 (β2 = .95 f = .9), 20.3 (β2 = .999 f = .5), 28.5
(β2 = .999 f = .8), 28.7 (β2 = .999 f = .9).
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, grid, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does aggressive filtering need a lower β2, as large batches do?",
        paper="Appendix, optimisation robustness",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.joint = base.jest()
    study.axes = {
        ("uniform", "joint"): grid({"optimizer.beta2": (0.95, 0.999)}),
        ("joint",): grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)}),
    }
    claim = base.claims_of(scale, "App., Fig. 6")
    study.claims = [
        claim(
            "JEST at f = 0.9 learns more with β2 = .95 than with .999",
            of="joint beta2=0.95 filtering_ratio=0.9",
            above="joint beta2=0.999 filtering_ratio=0.9",
            toy="a short run of small towers is stable under both",
        ),
        claim(
            "At f = 0.9, the loss of JEST spikes less with β2 = .95 than with .999",
            of="joint beta2=0.95 filtering_ratio=0.9",
            below="joint beta2=0.999 filtering_ratio=0.9",
            measure="loss_spikes",
            toy="a short run of small towers is stable under both",
        ),
    ]
    study.reports = [
        table(baseline="uniform beta2=0.95"),
        figure("optimizer_spikes"),
        figure("filtering_ratio"),
        curves(),
    ]
    return study
