"""Figure 5, right: does a reference guide better after longer training, or with more curated data?

    jestlab launch curation_scaling               # 66 runs, 5 core-minutes
    jestlab launch curation_scaling --scale mini  # 66 runs, 46.7 PFLOP; not run
    jestlab plan curation_scaling --scale paper   # 22 runs, 43,600 chip-hours of v5e; not run

The reference sees 250M to 3B examples of the small curated set, or 1B and 2B of the larger one.

Scores in % at smoke, means of 3 seeds, 2026-11-27: uniform 10.3; strong-0.25B 7.3; jest-strong-0.25B 9.2;
strong-0.5B 22.3; jest-strong-0.5B 21.1; strong-1B 48.8; jest-strong-1B 26.6; strong-2B 63.4; jest-strong-2B
26.2; strong-3B 67.7; jest-strong-3B 25.5; strong++-1B 49.0; jest-strong++-1B 26.1; strong++-2B 61.2;
jest-strong++-2B 25.4.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does a reference guide better the longer it has trained, and does more curated data help?",
        paper="Figure 5, right",
    )
    study.runs.uniform = {}
    guides: list[tuple[base.Curation, float]] = [("strong", b) for b in (0.25, 0.5, 1, 2, 3)]
    for curation, billions in [*guides, ("strong++", 1), ("strong++", 2)]:
        name = f"{curation}-{billions:g}B"
        base.guide(study, scale, curation, billions, name=name)
        study.runs[f"jest-{name}"] = base.jest(name)
    claim = base.claims_of(scale, "Fig. 5, right")
    study.claims = [
        claim(
            "JEST learns more with a reference trained for 1B examples than for 250M",
            of="jest-strong-1B",
            above="jest-strong-0.25B",
            toy="even a short-trained toy reference tells noise from pairs",
        ),
        claim(
            "JEST gains nothing from training the reference for 3B instead of 1B",
            of="jest-strong-3B",
            below="jest-strong-1B",
            within=base.of(scale).negligible,
            toy="at 1B a toy reference is far from having learned its curated set",
        ),
        claim(
            "At 2B examples, the larger curated set makes the better guide",
            of="jest-strong++-2B",
            above="jest-strong-2B",
            toy="the small curated set is not used up by then",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("against_reference", baseline="uniform"), curves()]
    return study
