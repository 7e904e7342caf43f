"""Appendix, longer training: does JEST keep improving?

    jestlab launch longer_training               # 33 runs, 5 core-minutes
    jestlab launch longer_training --scale mini  # 33 runs, 70.1 PFLOP; not run
    jestlab plan longer_training --scale paper   # 11 runs, 81,900 chip-hours of v5e; not run

JEST at 5B, Flexi-JEST at 13B, JEST++ and Flexi-JEST++ at 4B and 10B, compared with SigLIP at 40B.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; reference++B 69.0; SigLIP-B 37.9; JEST-5B
42.6; Flexi-JEST-13B 50.5; JEST++4B 37.3; Flexi-JEST++4B 25.0; JEST++10B 60.2; Flexi-JEST++10B 48.0.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Do JEST++ and Flexi-JEST++ keep improving from 4B to 10B examples?",
        paper="Appendix, table of longer training runs",
    )
    base.guide(study, scale)
    base.guide(study, scale, "strong++", 5, name="reference++B")
    study.runs["SigLIP-B"] = {"schedule.examples_seen": base.examples(scale, 40)}
    study.runs["JEST-5B"] = base.jest() | _for(scale, 5)
    study.runs["Flexi-JEST-13B"] = base.flexi_jest() | _for(scale, 13)
    for billions in (4, 10):
        study.runs[f"JEST++{billions}B"] = base.jest("reference++B") | _for(scale, billions)
        study.runs[f"Flexi-JEST++{billions}B"] = base.flexi_jest("reference++B") | _for(scale, billions)
    claim = base.claims_of(scale, "App., Table 4")
    study.claims = [
        *(
            claim(
                f"{method} improves from 4B to 10B examples",
                of=f"{method}10B",
                above=f"{method}4B",
                toy="the web is small, and seen several times by then",
            )
            for method in ("JEST++", "Flexi-JEST++")
        ),
        claim(
            "Flexi-JEST at 13B is ahead of SigLIP at 40B",
            of="Flexi-JEST-13B",
            above="SigLIP-B",
            toy="small towers on a small web have learned most of it long before 40B",
        ),
    ]
    study.reports = [table(name="longer_training", baseline="SigLIP-B"), table(), curves(), pareto()]
    return study


def _for(scale: str, billions: float) -> dict[str, int]:
    return {"schedule.examples_seen": base.examples(scale, billions)}
