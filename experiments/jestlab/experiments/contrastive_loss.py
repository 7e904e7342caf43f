"""Appendix, contrastive loss: does JEST work with the softmax loss, too?

    jestlab launch contrastive_loss

Reference, learner and scores by the softmax loss of CLIP, against the sigmoid loss of SigLIP.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, figure, grid, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does joint selection accelerate softmax-contrastive learning, too?",
        paper="Appendix, contrastive loss ablations",
    )
    base.guide(study, scale)
    base.guide(study, scale, name="softmax-reference", loss="softmax")
    study.runs.uniform = {}
    study.runs.joint = base.jest()
    study.runs["softmax-uniform"] = {"loss": "softmax"}
    study.runs["softmax-joint"] = {"loss": "softmax"} | base.jest("softmax-reference")
    study.axes = {("joint", "softmax-joint"): grid({"selection.filtering_ratio": (0.5, 0.8, 0.9)})}
    study.claims = [
        claim(
            "JEST accelerates softmax-contrastive learning",
            of="softmax-joint",
            above="softmax-uniform",
            source="App., Fig. 10, left",
        ),
        claim(
            "It gains more, the more it filters",
            of="softmax-joint filtering_ratio=0.9",
            above="softmax-joint filtering_ratio=0.5",
            source="App., Fig. 10, left",
        ),
        claim(
            "Uniform training is slightly worse with the softmax loss",
            of="softmax-uniform",
            below="uniform",
            source="App., Fig. 10, right",
            unless="with batches of 64 the softmax has no want of negatives that it would have at 32,768",
        ),
        claim(
            "JEST with the sigmoid loss is ahead of JEST with the softmax loss",
            of="joint",
            above="softmax-joint",
            source="App., Fig. 10, right",
            unless="with batches of 64 the softmax loss learns faster from the start",
        ),
    ]
    study.reports = [table(baseline="uniform"), figure("loss_comparison"), curves()]
    return study
