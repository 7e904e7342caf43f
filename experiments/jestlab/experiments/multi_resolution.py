"""Figure 4: Flexi-JEST, which scores and partly trains at a lower resolution, against JEST and IID.

    jestlab launch multi_resolution               # 51 runs, 5 core-minutes
    jestlab launch multi_resolution --scale mini  # 51 runs, 35.8 PFLOP; not run
    jestlab plan multi_resolution --scale paper   # 17 runs, 52,100 chip-hours of v5e; not run

Left: cost of a step. Middle: score over FLOPs. Right: share of co-training at the lower resolution.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; uniform 10.3; jest 26.6; jest-cached 26.6;
flexi-jest 17.6; flexi-jest-matched 26.6; uniform-matched 16.6; flexi-jest-0.0 19.8; flexi-jest-0.25 17.8;
flexi-uniform-0.25 8.8; flexi-jest-0.5 17.8; flexi-uniform-0.5 8.5; flexi-jest-0.75 18.2; flexi-uniform-0.75
8.8; flexi-jest-0.95 15.4; flexi-uniform-0.95 7.8.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does scoring and training at two resolutions keep JEST's gain at a fraction of its cost?",
        paper="Figure 4",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    study.runs.jest = {"selection": {"rule": "joint", "reference": "reference"}}
    study.runs["jest-cached"] = base.jest()
    study.runs["flexi-jest"] = base.flexi_jest()
    study.runs["flexi-jest-matched"] = base.flexi_jest() | {"match": {"flops": "jest-cached"}}
    study.runs["uniform-matched"] = {"match": {"flops": "jest-cached"}}
    sweep = ["uniform", *base.share_sweep(study, scale, "flexi")]
    trained = [f"flexi-jest-{share}" for share in base.SHARES[1:]]
    costly_text = "a third of a toy's cost is its text tower, which isn't approximated"
    scores_anyway = "a small tower scores well enough by patches that it has not seen"
    claim = base.claims_of(scale, "Fig. 4, right")
    study.claims = [
        claim(
            "Flexi-JEST learns more than JEST for the same FLOPs",
            of="flexi-jest-matched",
            above="jest-cached",
            source="Fig. 4, middle",
            toy=costly_text,
        ),
        claim(
            "Flexi-JEST learns more than uniform training for the same FLOPs",
            of="flexi-jest-matched",
            above="uniform-matched",
            source="Fig. 4, middle",
            toy=costly_text,
        ),
        claim(
            "Without co-training, Flexi-JEST learns less than the average with co-training",
            of="flexi-jest-0.0",
            below=trained,
            toy=scores_anyway,
        ),
        claim(
            "Without co-training, Flexi-JEST learns less than uniform training",
            of="flexi-jest-0.0",
            below="uniform",
            toy=scores_anyway,
        ),
        claim(
            "Flexi-JEST learns more than uniform training with the same λ, averaged over λ from 0.25 on",
            of=trained,
            above=[f"flexi-uniform-{share}" for share in base.SHARES[1:]],
            toy="at f = 0.5 there is little to gain",
        ),
        claim(
            "Uniform training with λ = 0.95 learns more than without co-training, for the same FLOPs",
            of=f"flexi-uniform-{base.SHARES[-1]}",
            above="uniform",
            toy="four patches do not show the small shapes that the test asks for",
        ),
    ]
    study.reports = [
        # In `jest`, the reference itself scores each batch.
        table(baseline="uniform", scope="reference_scoring"),
        figure("step_costs"),
        figure("approximation_share", runs=sweep),
        curves(over="flops", scope="reference_scoring"),
        pareto(scope="reference_scoring"),
    ]
    return study
