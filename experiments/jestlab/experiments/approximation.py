"""Appendix: which approximation should score, and what share of a batch should train with it?

    jestlab launch approximation               # 63 runs, 7 core-minutes
    jestlab launch approximation --scale mini  # 63 runs, 34.3 PFLOP; not run
    jestlab plan approximation --scale paper   # 21 runs, 51,200 chip-hours of v5e; not run

At f = 0.5. Runs with more approximation see more examples, so that all learners use the same FLOPs.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; uniform 10.3; flexi-jest-0.0 19.8;
flexi-jest-0.25 17.8; flexi-uniform-0.25 8.8; flexi-jest-0.5 17.8; flexi-uniform-0.5 8.5; flexi-jest-0.75
18.2; flexi-uniform-0.75 8.8; flexi-jest-0.95 15.4; flexi-uniform-0.95 7.8; patch_drop-jest-0.0 19.3;
patch_drop-jest-0.25 20.0; patch_drop-uniform-0.25 9.2; patch_drop-jest-0.5 19.7; patch_drop-uniform-0.5 9.4;
patch_drop-jest-0.75 18.9; patch_drop-uniform-0.75 7.9; patch_drop-jest-0.95 16.7; patch_drop-uniform-0.95
7.6.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, table

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
    claim = base.claims_of(scale, "App., Fig. 9")
    study.claims = [
        claim(
            "Guided and co-trained on larger patches, JEST learns more than on fewer, averaged over λ > 0",
            of=[f"flexi-jest-{share}" for share in base.SHARES[1:]],
            above=[f"patch_drop-jest-{share}" for share in base.SHARES[1:]],
            toy="a few of sixteen patches show a shape as well as four larger ones",
        ),
        claim(
            "Without co-training, fewer patches guide better than larger ones",
            of="patch_drop-jest-0.0",
            above="flexi-jest-0.0",
            toy="a quarter of sixteen patches often misses the shape",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("approximation_share"), curves(over="flops")]
    return study
