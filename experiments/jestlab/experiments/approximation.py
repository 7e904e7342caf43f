"""Appendix: which approximation should score, and how much should be trained on with it?

    jestlab launch approximation

At f = 0.5. Runs that approximate more see more examples, so that all learners spend the same FLOPs.
"""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, figure, table

SCALES = base.SCALES
SHARES = (0.0, 0.25, 0.5, 0.75, 0.95)
"""λ: of each batch, what is trained on approximately."""

_BILLIONS = (3, 3.69, 4.8, 6.86, 10.43)
"""What the learners of the paper see for each λ: 3 / (1 − λ + λA), A = 1/4."""


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Larger patches or fewer of them, and what share of a batch to train on so?",
        paper="Appendix, comparing approximation methods",
    )
    base.guide(study, scale)
    study.runs.uniform = {}
    for method in ("flexi", "patch_drop"):
        share_sweep(study, scale, method)
    study.claims = [
        claim(
            "Larger patches are a better trade-off than dropping patches",
            of=[f"flexi-jest-{share}" for share in SHARES[1:]],
            above=[f"patch_drop-jest-{share}" for share in SHARES[1:]],
            source="App., Fig. 7",
        ),
        claim(
            "Without co-training, scores from fewer patches guide better than those from larger ones",
            of="patch_drop-jest-0.0",
            above="flexi-jest-0.0",
            source="App., Fig. 7",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("approximation_share"), curves(effort="flops")]
    return study


def share_sweep(study: ConfigDict, scale: str, method: str) -> None:
    """Add runs that train a share λ of each batch approximately, with and without joint selection at f = 0.5.

    All learners spend the FLOPs of `uniform`; at the paper's scale by its budgets, which leave out the text
    tower.

    Args:
        study: Has a `uniform` and a guide.
        scale: One of `base.SCALES`.
        method: "flexi" or "patch_drop". Runs are called "flexi-jest-0.25" and "flexi-uniform-0.25".
    """
    for share, billions in zip(SHARES, _BILLIONS, strict=True):
        approximately: dict[str, Any] = {"approximation.method": method, "approximation.share": share}
        if scale == "paper":
            approximately["schedule.examples_seen"] = base.examples(scale, billions)
        else:
            approximately["match"] = {"learner_flops": "uniform"}
        jest = base.jest(filtering_ratio=0.5) | {"approximation.score": True}
        study.runs[f"{method}-jest-{share}"] = jest | approximately
        if share:
            study.runs[f"{method}-uniform-{share}"] = approximately
