"""Figure 5, left: which curation makes the best guide?

    jestlab launch curation               # 39 runs, 3 core-minutes
    jestlab launch curation --scale mini  # 39 runs, 24.3 PFLOP; not run
    jestlab plan curation --scale paper   # 13 runs, 32,700 chip-hours of v5e; not run

The best model isn't always the best guide: the paper's weakly curated reference scores best and guides worst.

Scores in % at smoke, means of 3 seeds, 2026-11-27: uniform 10.3; weak 22.9; jest-weak 16.4; moderate_ita
36.7; jest-moderate_ita 21.4; moderate_tq 15.4; jest-moderate_tq 12.9; strong 48.8; jest-strong 26.6.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, table

SCALES = base.SCALES
CURATIONS: tuple[base.Curation, ...] = ("weak", "moderate_ita", "moderate_tq", "strong")


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does stronger curation of the reference's data make a better guide?",
        paper="Figure 5, left",
    )
    study.runs.uniform = {}
    for curation in CURATIONS:
        base.guide(study, scale, curation, name=curation)
        study.runs[f"jest-{curation}"] = base.jest(curation)
    claim = base.claims_of(scale, "Fig. 5, left")
    study.claims = [
        claim(
            "Strong curation guides better than moderate curation, averaged over both kinds",
            of="jest-strong",
            above=["jest-moderate_ita", "jest-moderate_tq"],
            toy="in a short run, the guide's training data matter little",
        ),
        claim(
            "Moderate curation guides better than weak curation, averaged over both kinds",
            of=["jest-moderate_ita", "jest-moderate_tq"],
            above="jest-weak",
            toy="text quality alone leaves mismatched captions, most of this web's noise",
        ),
        claim(
            "The weakly curated reference is a better model than the strongly curated one",
            of="weak",
            above="strong",
            toy="all see as many examples here; a toy does not use up its curated set",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("against_reference", baseline="uniform"), curves()]
    return study
