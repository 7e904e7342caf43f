"""Appendix, all benchmarks: does a specialist reference train a generalist learner?

    jestlab launch specialists

The reference of curated data, what it has guided, and SigLIP, on every benchmark: eight at the paper's scale.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does a learner outgrow the reference that guides it, on the benchmarks where that is weak?",
        paper="Appendix, table of eight benchmarks",
    )
    if scale == "paper":
        study.score = [*base.CANONICAL, *(f"{name}/10_shot" for name in ("birds", "caltech", "cars", "pets"))]
    base.guide(study, scale, "strong++", 5, name="reference++B")
    study.runs["SigLIP-B"] = {"schedule.examples_seen": base.examples(scale, 40)}
    study.runs["JEST++B"] = base.jest("reference++B") | {"schedule.examples_seen": base.examples(scale, 4)}
    study.claims = [
        claim(
            "JEST++ is ahead of its reference on average",
            of="JEST++B",
            above="reference++B",
            source="App., Table 5",
            unless=base.toy(scale, "the curated part is like the tests, and the reference learns for longer"),
        ),
        claim(
            "The reference is behind SigLIP on average",
            of="reference++B",
            below="SigLIP-B",
            source="App., Table 5",
            unless=base.toy(scale, "the curated part is like the tests here"),
        ),
    ]
    study.reports = [table(name="specialists", baseline="SigLIP-B"), table(baseline="SigLIP-B")]
    return study
