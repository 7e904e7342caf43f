"""Table 1 and Figure 1: JEST++ and Flexi-JEST++ at 4B examples against SigLIP at 40B.

    jestlab launch comparison

Rows of the paper's table are published ones; those of this study stand beside them.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, figure, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does JEST++ match a tenfold longer uniform training, in examples and in FLOPs?",
        paper="Table 1, Figure 1",
    )
    for size, towers in (("B", {}), ("L", base.large(scale))):
        guide = f"reference++{size}"
        base.guide(study, scale, "strong++", 5, name=guide, **towers)
        lasting = {"schedule.examples_seen": base.examples(scale, 4)} | towers
        study.runs[f"SigLIP-{size}"] = {"schedule.examples_seen": base.examples(scale, 40)} | towers
        study.runs[f"JEST++{size}"] = base.jest(guide) | lasting
        if size == "B":
            study.runs["Flexi-JEST++B"] = base.flexi_jest(guide) | lasting
    study.claims = [
        claim(
            "JEST++ at 4B is ahead of SigLIP at 40B (B)",
            of="JEST++B",
            above="SigLIP-B",
            source="Table 1",
            unless="small towers on a small web are near what they can learn long before 40B",
        ),
        claim(
            "Flexi-JEST++ at 4B is ahead of SigLIP at 40B (B)",
            of="Flexi-JEST++B",
            above="SigLIP-B",
            source="Table 1",
            unless="small towers on a small web are near what they can learn long before 40B",
        ),
        claim(
            "JEST++ at 4B is ahead of SigLIP at 40B (L)",
            of="JEST++L",
            above="SigLIP-L",
            source="Table 1",
            unless="small towers on a small web are near what they can learn long before 40B",
        ),
    ]
    study.reports = [
        table(name="comparison", baseline="SigLIP-B"),
        table(baseline="SigLIP-B"),
        figure("speedup", baseline="SigLIP-B"),
        curves(baseline="SigLIP-B"),
        pareto(baseline="SigLIP-B"),
    ]
    return study
