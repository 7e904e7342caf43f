"""Appendix, effective batch size: how small can the sub-batch of a fixed super-batch be?

    jestlab launch batch_size               # 24 runs, 2 core-minutes
    jestlab launch batch_size --scale mini  # 24 runs, 21.7 PFLOP; not run
    jestlab plan batch_size --scale paper   # 8 runs, 18,900 chip-hours of v5e; not run

All runs have the same number of steps, so runs with smaller batches see fewer examples.

Scores in % at smoke, means of 3 seeds, 2026-11-27, for batches of 64, 32 and 16: IID 10.3, 7.8, 6.8; JEST++
26.0, 22.3, 15.4; reference 69.0.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, table, zip_

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does JEST++ need the batch size that uniform training needs?",
        paper="Appendix, effects of varying the training batch size",
    )
    largest = study.base["schedule"].pop("batch_size")
    study.base["schedule"]["super_batch_size"] = 5 * largest
    base.guide(
        study, scale, "strong++", 5, **{"schedule.super_batch_size": None, "schedule.batch_size": largest}
    )
    study.runs.IID = {}
    study.runs["JEST++"] = base.jest()
    most = study.base["schedule"]["examples_seen"]
    study.axes = {
        ("IID", "JEST++"): zip_(
            {
                "selection.filtering_ratio": (0.8, 0.9, 0.95),
                "schedule.examples_seen": (most, most // 2, most // 4),
            }
        )
    }
    whole, half, quarter = (
        f"filtering_ratio={f} examples_seen={n}"
        for f, n in ((0.8, most), (0.9, most // 2), (0.95, most // 4))
    )
    claim = base.claims_of(scale, "App., Fig. 7")
    study.claims = [
        claim(
            "IID training learns less with half the batch",
            of=f"IID {half}",
            below=f"IID {whole}",
            toy="uniform training in so few steps has little to lose",
        ),
        claim(
            "JEST++ learns as much with half the batch",
            of=f"JEST++ {half}",
            above=f"JEST++ {whole}",
            within=base.of(scale).negligible,
            toy="with half the examples a short run learns less; long ones converge",
        ),
        claim(
            "Cutting the batch to a quarter costs JEST++ less than IID training",
            of={"of": f"IID {whole}", "minus": f"IID {quarter}"},
            above={"of": f"JEST++ {whole}", "minus": f"JEST++ {quarter}"},
            toy="uniform training in so few steps has little to lose",
        ),
    ]
    study.reports = [table(baseline=f"IID {whole}"), figure("batch_size", baseline=f"IID {whole}"), curves()]
    return study
