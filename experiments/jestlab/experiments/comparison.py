"""Table 1 and Figure 1: JEST++ and Flexi-JEST++ at 4B examples against SigLIP at 40B.

    jestlab launch comparison               # 27 runs, 5 core-minutes
    jestlab launch comparison --scale mini  # 27 runs, 138 PFLOP; not run
    jestlab plan comparison --scale paper   # 9 runs, 157,000 chip-hours of v5e; not run

Each size is compared with SigLIP of that size; the tables also show the paper's published rows.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference++B 69.0; SigLIP-B 37.9; JEST++B 37.3;
Flexi-JEST++B 25.0; reference++L 70.0; SigLIP-L 43.3; JEST++L 33.3.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does JEST++ match uniform training on ten times as many examples, with fewer FLOPs?",
        paper="Table 1, Figure 1",
    )
    for size, towers in (("B", {}), ("L", dict(base.of(scale).large))):
        guide = f"reference++{size}"
        base.guide(study, scale, "strong++", 5, name=guide, **towers)
        length = {"schedule.examples_seen": base.examples(scale, 4)} | towers
        study.runs[f"SigLIP-{size}"] = {"schedule.examples_seen": base.examples(scale, 40)} | towers
        study.runs[f"JEST++{size}"] = base.jest(guide) | length
        if size == "B":
            study.runs["Flexi-JEST++B"] = base.flexi_jest(guide) | length
    claim = base.claims_of(scale, "Table 1")
    study.claims = [
        claim(
            f"{method} at 4B is ahead of SigLIP at 40B ({size})",
            of=f"{method}{size}",
            above=f"SigLIP-{size}",
            toy="small towers on a small web have learned most of it long before 40B",
        )
        for method, size in (("JEST++", "B"), ("Flexi-JEST++", "B"), ("JEST++", "L"))
    ]
    runs_b = ["reference++B", "SigLIP-B", "JEST++B", "Flexi-JEST++B"]
    runs_l = ["reference++L", "SigLIP-L", "JEST++L"]
    study.reports = [
        table(name="comparison", baseline="SigLIP-B", rows=runs_b),
        table(name="comparison", published=False, baseline="SigLIP-L", rows=runs_l),
        table(baseline="SigLIP-B", rows=runs_b),
        table(baseline="SigLIP-L", rows=runs_l),
        figure("speedup", baseline="SigLIP-B", runs=runs_b),
        figure("speedup", baseline="SigLIP-L", runs=runs_l),
        curves(),
        pareto(),
    ]
    return study
