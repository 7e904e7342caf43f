"""JEST on real pictures: emoji among logos, tokens, flags, file types and interface icons.

    jestlab data fetch icons           # 41 MB from npm, 47,000 pictures; 1 min on two cores
    jestlab launch icons               # 34 runs, 36 min on two cores
    jestlab launch icons --scale mini  # 26 runs; not run

30% of the training pictures ("web") are emoji, many of them in six skin tones, with captions as on web pages.
The reference learns from the emoji of three styles with clean names, which are also part of the web. The test
set has a style that isn't in the training data, and hyperparameters were tuned on another style. The pictures
are drawings, not photographs.

Scores in % at smoke, means of 4 seeds, 2026-11-27: reference 61.6; uniform 3.2; independent 5.2 (f = .5), 8.6
(f = .8), 11.2 (f = .9); joint 4.8 (f = .5), 7.5 (f = .8), 10.0 (f = .9); easy-reference 8.9.
"""

from typing import Any

from ml_collections import ConfigDict

from jestlab.platform import spec
from jestlab.platform.spec import at_scale, claim, curves, figure, grid, pareto, table

SCALES = ("smoke", "mini")

FOLDER = "icons"
"""Default folder of `jestlab data fetch icons`."""

SCORE = ("twemoji_retrieval/i2t_r5", "twemoji_retrieval/t2i_r5")
"""Recall at 5 among 500: recall at 1 of such small learners is too close to chance."""


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = spec.study(
        question="Do learners of a web of real pictures learn emoji sooner by choosing batches jointly?"
    )
    study.base = _base(scale)
    reference: dict[str, Any] = {
        "data.train": {"kind": "folder", "path": f"{FOLDER}/curated"},
        "schedule.examples_seen": at_scale(scale, smoke=384_000, mini=2_560_000),
        "optimizer.learning_rate": 2e-3,
        "augmentation": {"crop": 0.7, "flip": 0.5},
        "initialization": 1,
        "seed": 0,  # one reference for all replicates
    }
    study.runs.reference = reference
    study.runs.cache = {"program": "embed", "reference": "reference"}
    study.runs.uniform = {}
    for rule in ("independent", "joint"):
        study.runs[rule] = {"selection": {"rule": rule, "reference": "cache"}}
    study.axes = {
        ("independent", "joint"): grid(
            {"selection.filtering_ratio": (0.5, 0.8, 0.9)},
            labels={"selection.filtering_ratio": {"name": "f"}},
        )
    }
    study.runs["easy-reference"] = {
        "selection": {"rule": "joint", "criterion": "easy_reference", "reference": "cache"}
    }
    study.seeds = at_scale(scale, smoke=4, mini=3)
    study.score = list(SCORE)
    study.metrics = {
        name: {"goal": "max", "unit": "percent", "name": shown}
        for name, shown in zip(SCORE, ("I2T R@5", "T2I R@5"), strict=True)
    }
    study.claims = [
        claim(
            "Joint selection learns more than uniform training, averaged over all f",
            of="joint",
            above="uniform",
        ),
        claim(
            "Independent selection learns more than uniform training, averaged over all f",
            of="independent",
            above="uniform",
        ),
        claim(
            "Joint selection learns more than independent selection, averaged over f = 0.8 and 0.9",
            of=["joint filtering_ratio=0.8", "joint filtering_ratio=0.9"],
            above=["independent filtering_ratio=0.8", "independent filtering_ratio=0.9"],
        ),
        claim(
            "At f = 0.8, learnability selects better than the reference's loss alone",
            of="joint filtering_ratio=0.8",
            above="easy-reference",
        ),
    ]
    study.reports = [
        table(baseline="uniform"),
        figure("filtering_ratio"),
        curves(),
        pareto(),
        pareto(over="seconds"),
        pareto(over="examples_seen", trajectories=True),
        figure("composition", x="kind"),
        figure("selected"),
    ]
    return study


def _base(scale: str) -> dict[str, Any]:
    """Return the config that all runs share."""
    width = at_scale(scale, smoke=96, mini=192)
    tower = {"width": width, "heads": 3, "mlp_dim": 4 * width, "pooling": "mean"}
    return {
        "model": {
            "vision": tower
            | {"image_size": 32, "patch_size": 8, "depth": 3}
            | at_scale(scale, smoke={}, mini={"image_size": 64, "depth": 6}),
            "text": tower | {"length": 16, "vocabulary_size": 2_048, "depth": 2},
            "embedding_dim": width,
            "compute_dtype": at_scale(scale, smoke="float32", mini="bfloat16"),
        },
        "data": {
            "train": {"kind": "folder", "path": f"{FOLDER}/web"},
            "benchmark": {"kind": "folder", "path": f"{FOLDER}/benchmark"},
        },
        "optimizer": {"learning_rate": 3e-3, "warmup_percent": 5.0, "temperature_multiplier": 10.0},
        "schedule": {
            "batch_size": at_scale(scale, smoke=128, mini=256),
            "examples_seen": at_scale(scale, smoke=38_400, mini=512_000),
        },
        "evaluation.points": 5,
        "runtime": {
            "checkpoint_every_steps": 1_000,
            "keep_best": False,
            "loader_threads": at_scale(scale, smoke=1, mini=8),
            "decoded_megabytes": 1_000,
            "diagnostics": {"every_steps": 50, "columns": ["kind", "set", "skin_tone"]},
        },
    }
