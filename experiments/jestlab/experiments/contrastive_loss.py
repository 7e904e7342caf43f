"""Appendix, contrastive loss: does JEST also work with the softmax loss?

    jestlab launch contrastive_loss               # 36 runs, 4 core-minutes
    jestlab launch contrastive_loss --scale mini  # 36 runs, 31.4 PFLOP; not run
    jestlab plan contrastive_loss --scale paper   # 12 runs, 37,200 chip-hours of v5e; not run

Reference, learner, and scores use the softmax loss of CLIP, compared with the sigmoid loss of SigLIP.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 48.8; softmax-reference 51.2; uniform 10.3;
joint 19.4 (f = .5), 26.6 (f = .8), 27.5 (f = .9); softmax-uniform 10.9; softmax-joint 26.7 (f = .5), 30.9 (f
= .8), 32.6 (f = .9).
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, figure, grid, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does joint selection also accelerate softmax-contrastive learning?",
        paper="Appendix, contrastive loss ablations",
    )
    base.guide(study, scale)
    base.guide(study, scale, name="softmax-reference", loss="softmax")
    study.runs.uniform = {}
    study.runs.joint = base.jest()
    study.runs["softmax-uniform"] = {"loss": "softmax"}
    study.runs["softmax-joint"] = {"loss": "softmax"} | base.jest("softmax-reference")
    study.axes = {("joint", "softmax-joint"): grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)})}
    claim = base.claims_of(scale, "App., Fig. 8, left")
    study.claims = [
        claim(
            "With the softmax loss, too, JEST learns more than uniform training, averaged over all f",
            of="softmax-joint",
            above="softmax-uniform",
            toy="the scores of a softmax over so small a batch tell little",
        ),
        claim(
            "With the softmax loss, JEST gains more at f = 0.9 than at f = 0.5",
            of="softmax-joint filtering_ratio=0.9",
            above="softmax-joint filtering_ratio=0.5",
            toy="a toy web has few kinds of examples: five sub-batches hold them all",
        ),
        claim(
            "Uniform training learns less with the softmax loss than with the sigmoid loss",
            of="softmax-uniform",
            below="uniform",
            source="App., Fig. 8, right",
            toy="in so few steps the sigmoid loss has hardly learned its bias",
        ),
        claim(
            "JEST learns less with the softmax loss than with the sigmoid loss, averaged over all f",
            of="softmax-joint",
            below="joint",
            source="App., Fig. 8, right",
            toy="in so few steps the sigmoid loss has hardly learned its bias",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("loss_comparison"), curves()]
    return study
