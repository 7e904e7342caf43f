"""Figure 4: Flexi-JEST, which scores and partly trains at a lower resolution, against JEST and IID.

    jestlab launch multi_resolution

Left: what a step costs. Middle: score against FLOPs. Right: how much to co-train at the lower resolution.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.experiments.approximation import SHARES, share_sweep
from jestlab.platform.spec import claim, curves, figure, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
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
    share_sweep(study, scale, "flexi")
    trained = [f"flexi-jest-{share}" for share in SHARES[1:]]
    study.claims = [
        claim(
            "Flexi-JEST learns more than JEST for the same FLOPs",
            of="flexi-jest-matched",
            above="jest-cached",
            source="Fig. 4, middle",
            unless="of a toy's towers the text tower is a third, which stays at full cost",
        ),
        claim(
            "Flexi-JEST learns more than uniform training for the same FLOPs",
            of="flexi-jest-matched",
            above="uniform-matched",
            source="Fig. 4, middle",
            unless="of a toy's towers the text tower is a third, which stays at full cost",
        ),
        claim(
            "Without co-training at the lower resolution Flexi-JEST is worst",
            of="flexi-jest-0.0",
            below=trained,
            source="Fig. 4, right",
        ),
        claim(
            "Co-trained by a quarter or more, Flexi-JEST learns more than uniform training so co-trained",
            of=trained,
            above=[f"flexi-uniform-{share}" for share in SHARES[1:]],
            source="Fig. 4, right",
        ),
        claim(
            "Uniform training learns more for the same FLOPs, the more it trains at the lower resolution",
            of=f"flexi-uniform-{SHARES[-1]}",
            above="uniform",
            source="Fig. 4, right",
            unless="larger patches lose the small shapes that the test asks for",
        ),
    ]
    study.reports = [
        table(baseline="uniform"),
        figure("step_costs"),
        figure("approximation_share"),
        curves(effort="flops"),
        pareto(),
    ]
    return study
