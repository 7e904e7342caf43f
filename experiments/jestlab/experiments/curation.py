"""Figure 5, left: which curation makes the best guide?

    jestlab launch curation

The best reference need not be the best guide: a model of weakly curated data knows more, and guides less.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, figure, table

SCALES = base.SCALES
CURATIONS: tuple[base.Curation, ...] = ("weak", "moderate_ita", "moderate_tq", "strong")


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does stronger curation of the reference's data make a better guide?",
        paper="Figure 5, left",
    )
    study.runs.uniform = {}
    for curation in CURATIONS:
        base.guide(study, scale, curation, name=curation)
        study.runs[f"jest-{curation}"] = base.jest(curation)
    study.claims = [
        claim(
            "Strong curation guides better than moderate curation",
            of="jest-strong",
            above=["jest-moderate_ita", "jest-moderate_tq"],
            source="Fig. 5, left",
            unless=base.toy(scale, "in a short run what a guide has seen matters little"),
        ),
        claim(
            "Moderate curation guides better than weak curation",
            of=["jest-moderate_ita", "jest-moderate_tq"],
            above="jest-weak",
            source="Fig. 5, left",
            unless=base.toy(scale, "text quality alone leaves mismatched captions, most of this web's noise"),
        ),
        claim(
            "The weakly curated reference is a better model than the strongly curated one",
            of="weak",
            above="strong",
            source="Fig. 5, left",
            unless=base.toy(scale, "all see as many examples here; a toy does not use up its curated set"),
        ),
    ]
    study.reports = [
        table(baseline="uniform"),
        figure("against_reference", baseline="uniform"),
        curves(),
    ]
    return study
