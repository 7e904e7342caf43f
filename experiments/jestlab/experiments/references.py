"""Section 4.4: reference models on curated data, from weak to strong curation.

    jestlab launch references               # 39 runs, 5 core-minutes
    jestlab launch references --scale mini  # 39 runs, 64.2 PFLOP; not run
    jestlab plan references --scale paper   # 13 runs, 31,300 chip-hours of v5e; not run

Scores of the references that the other studies use for selection.

Scores in % at smoke, means of 3 seeds, 2026-11-27: uniform 10.3; weak 22.9; moderate_ita 36.7; moderate_tq
15.4; strong-0.25B 7.3; strong-0.5B 22.3; strong-1B 48.8; strong-2B 63.4; strong-3B 67.7; strong++1B 49.0;
strong++2B 61.2; strong++5B 69.0; strong++5B-L 70.0.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="How good are models trained on curated data alone, by curation, length and size?",
        paper="Section 4.4, Figure 5 (horizontal axes)",
    )
    study.runs.uniform = {}
    for curation in ("weak", "moderate_ita", "moderate_tq"):
        study.runs[curation] = base.reference(scale, curation)
    for billions in (0.25, 0.5, 1, 2, 3):
        study.runs[f"strong-{billions:g}B"] = base.reference(scale, "strong", billions)
    for billions in (1, 2, 5):
        study.runs[f"strong++{billions}B"] = base.reference(scale, "strong++", billions)
    study.runs["strong++5B-L"] = base.reference(scale, "strong++", 5, **base.of(scale).large)
    claim = base.claims_of(scale, "Fig. 5, right")
    study.claims = [
        claim(
            "A reference gets better from 250M to 1B examples of curated data",
            of="strong-1B",
            above="strong-0.25B",
            toy="a toy reference knows its few examples early",
        ),
        claim(
            "A reference gains nothing from 1B to 3B examples of the small curated set",
            of="strong-3B",
            below="strong-1B",
            within=base.of(scale).negligible,
            toy="at 1B a toy reference is far from having learned its curated set",
        ),
        claim(
            "At 2B examples, the larger curated set makes the better reference",
            of="strong++2B",
            above="strong-2B",
            toy="the small curated set is not used up by then",
        ),
    ]
    study.reports = [table(baseline="uniform"), curves(), pareto()]
    return study
