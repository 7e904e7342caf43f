"""Appendix, all benchmarks: does a specialist reference train a generalist learner?

    jestlab launch specialists               # 12 runs, 2 core-minutes
    jestlab launch specialists --scale mini  # 12 runs, 33.6 PFLOP; not run
    jestlab plan specialists --scale paper   # 4 runs, 34,300 chip-hours of v5e; not run

The curated reference, its learner, and SigLIP on every benchmark (eight at the paper's scale).

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference++B 69.0; SigLIP-B 37.9; JEST++B 37.3.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does a learner outgrow its reference on the benchmarks where the reference is weak?",
        paper="Appendix, table of eight benchmarks",
    )
    if scale == "paper":
        study.score = [*base.CANONICAL, *(f"{name}/10_shot" for name in ("birds", "caltech", "cars", "pets"))]
    base.guide(study, scale, "strong++", 5, name="reference++B")
    study.runs["SigLIP-B"] = {"schedule.examples_seen": base.examples(scale, 40)}
    study.runs["JEST++B"] = base.jest("reference++B") | {"schedule.examples_seen": base.examples(scale, 4)}
    claim = base.claims_of(scale, "App., Table 5")
    study.claims = [
        claim(
            "JEST++ is ahead of its reference on average",
            of="JEST++B",
            above="reference++B",
            toy="the curated part is like the tests, and the reference learns for longer",
        ),
        claim(
            "The reference is behind SigLIP on average",
            of="reference++B",
            below="SigLIP-B",
            toy="the curated part is like the tests here",
        ),
    ]
    study.reports = [table(name="specialists", baseline="SigLIP-B"), table(baseline="SigLIP-B")]
    return study
