"""Appendix: which approximation should score, and what share of a batch should train with it?

    jestlab launch approximation               # 63 runs, 7 min on two cores
    jestlab launch approximation --scale mini  # 63 runs, 34.3 PFLOP; not run
    jestlab plan approximation --scale paper   # 21 runs, 51,200 chip-hours of v5e; not run

All at f = 0.5. Runs that approximate more see more examples, so that all learners spend the same FLOPs.

Scores in % at smoke, means of 3 seeds, 2026-11-22: reference 61.8; uniform 13.1; flexi-jest-0.0 28.1;
flexi-jest-0.25 28.8; flexi-uniform-0.25 11.5; flexi-jest-0.5 29.7; flexi-uniform-0.5 12.2; flexi-jest-0.75
35.0; flexi-uniform-0.75 16.0; flexi-jest-0.95 26.4; flexi-uniform-0.95 12.6; patch_drop-jest-0.0 29.5;
patch_drop-jest-0.25 28.2; patch_drop-uniform-0.25 11.6; patch_drop-jest-0.5 26.5; patch_drop-uniform-0.5
12.0; patch_drop-jest-0.75 28.6; patch_drop-uniform-0.75 14.0; patch_drop-jest-0.95 26.1;
patch_drop-uniform-0.95 12.5.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, figure, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Should patches be larger or fewer, and what share of a batch should be trained that way?",
        paper="Appendix, comparing approximation methods",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    for method in ("flexi", "patch_drop"):
        base.share_sweep(study, scale, method)
    study.claims = [
        claim(
            "Guided and co-trained on larger patches, JEST learns more than on fewer, averaged over λ > 0",
            of=[f"flexi-jest-{share}" for share in base.SHARES[1:]],
            above=[f"patch_drop-jest-{share}" for share in base.SHARES[1:]],
            source="App., Fig. 9",
            unless=base.toy(scale, "a few of sixteen patches show a shape as well as four larger ones"),
        ),
        claim(
            "Without co-training, fewer patches guide better than larger ones",
            of="patch_drop-jest-0.0",
            above="flexi-jest-0.0",
            source="App., Fig. 9",
            unless=base.toy(scale, "a quarter of sixteen patches often misses the shape"),
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("approximation_share"), curves(effort="flops")]
    return study
