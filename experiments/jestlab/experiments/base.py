"""What studies share: the config of each scale, curated data, references, and training lengths.

Each study only defines its variants. Settings that depend on the scale are defined here, once.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ml_collections import ConfigDict

from jestlab.platform import spec
from jestlab.platform.spec import at_scale

SCALES = ("smoke", "mini", "paper")

CANONICAL = ("imagenet/10_shot", "imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1")
"""The evaluations whose mean is the paper's average performance, where it says nothing else."""

SHARES = (0.0, 0.25, 0.5, 0.75, 0.95)
"""λ: the share of each batch that is trained approximately."""

_BILLIONS = (3, 3.69, 4.8, 6.86, 10.43)
"""Billions of examples seen by the paper's learners for each λ: 3 / (1 − λ + λA), A = 1/4."""

Curation = Literal["weak", "moderate_ita", "moderate_tq", "strong", "strong++"]
"""Curated subsets (paper, Sec. 4.4): by image–text alignment (ITA), by text quality (TQ), or by both and
image quality (IQ). In the larger subset "strong++", pairs with low ITA have synthetic captions."""


@dataclass(frozen=True)
class Scale:
    """The settings of a scale.

    Attributes:
        base: The config that all training runs share.
        curated: Curation → overrides that select it.
        large: Overrides from towers of size B to size L.
        negligible: The largest negligible difference between scores.
        score: Evaluations whose mean is the score; empty for all headline evaluations.
        billion: Number of examples seen by a learner, for each billion in the paper.
        reference_billion: The same for references. It is larger at the toy scales: the paper's references see
            100 million curated examples ten times, and a toy reference would learn nothing from `billion`.
        seeds: Number of replicates.
        ten_epochs: Curation → billions of examples in ten epochs of the curated data, the default length of
            training of references; 1 for others, as for all curations at the toy scales.
        resources: Resources of a launch.
    """

    base: Mapping[str, Any]
    curated: Mapping[Curation, Mapping[str, Any]]
    large: Mapping[str, Any]
    negligible: float
    billion: int
    reference_billion: int
    seeds: int
    score: tuple[str, ...] = ()
    ten_epochs: Mapping[Curation, float] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)


_SHAPES_CURATED: dict[Curation, dict[str, Any]] = {
    "weak": {"data.filter": "similarity > 0.18"},
    "moderate_ita": {"data.filter": "similarity > 0.25"},
    "moderate_tq": {"data.filter": "text_quality > 0.45"},
    "strong": {
        "data.filter": "similarity > 0.25 and text_quality > 0.45 and aesthetic > 4.3 and uniqueness > 0.45"
    },
    "strong++": {
        "data.filter": "text_quality > 0.45 and aesthetic > 4.3 and uniqueness > 0.45",
        "data.recaption": "similarity < 0.25",
    },
}
"""Curations of the synthetic web. Strong curation also removes near-duplicates."""

SMOKE = Scale(
    base={
        "model": {
            "vision": {"width": 32, "depth": 1, "heads": 2, "mlp_dim": 64, "pooling": "mean"},
            "text": {"width": 32, "depth": 1, "heads": 2, "mlp_dim": 64, "pooling": "mean"},
            "embedding_dim": 32,
        },
        "data": {
            # Joint selection avoids near-duplicates. Independent selection doesn't.
            "train": {"kind": "shapes", "image_size": 16, "noise": {"near_duplicate": 0.3}},
            "benchmark": {
                "kind": "shapes",
                "image_size": 16,
                "classification_examples": 2_048,
                "retrieval_examples": 512,
            },
        },
        # Without the multiplier, Adam would hardly change t and b in a few hundred steps.
        "optimizer": {"learning_rate": 2e-3, "warmup_percent": 5.0, "temperature_multiplier": 10.0},
        "schedule": {"batch_size": 64},
        "evaluation.points": 5,
        "runtime": {
            "log_every_steps": 4,  # often enough to count loss spikes
            "checkpoint_every_steps": 1_000,  # killed runs start again, which takes seconds
            "keep_best": False,
            "diagnostics.every_steps": 100,
        },
    },
    curated=_SHAPES_CURATED,
    large={"model.vision": {"width": 48, "mlp_dim": 96}},
    negligible=0.05,
    billion=4_800,
    reference_billion=28_800,
    seeds=3,
)
"""Seconds per run on a CPU core: 16-pixel images of shapes, towers of 29,000 parameters, mostly 225 steps.

The runs are short enough to test a claim with a dozen seeds in an hour, and long enough to distinguish the
paper's claims from chance. Towers with one narrow block allow twice as many steps: if learners
stop in the steepest part of their curve, they differ more by chance than by method. The test sets are so
large that their sampling noise doesn't hide a difference of two points between two runs.
"""

MINI = Scale(
    base={
        "model": {
            "vision": {
                "image_size": 32,
                "patch_size": 4,
                "width": 192,
                "depth": 6,
                "heads": 3,
                "mlp_dim": 768,
            },
            "text": {"width": 192, "depth": 4, "heads": 3, "mlp_dim": 768},
            "embedding_dim": 192,
            "compute_dtype": "bfloat16",
        },
        "data": {
            "train": {"kind": "shapes", "examples": 262_144, "noise": {"near_duplicate": 0.3}},
            "benchmark": {"kind": "shapes", "classification_examples": 4_096, "retrieval_examples": 1_024},
        },
        "optimizer": {"learning_rate": 1e-3, "warmup_percent": 3.0, "temperature_multiplier": 10.0},
        "schedule": {"batch_size": 512},
        "evaluation.points": 10,
        "runtime": {"loader_threads": 8, "decoded_megabytes": 1_000, "diagnostics.every_steps": 100},
    },
    curated=_SHAPES_CURATED,
    large={"model.vision": {"width": 288, "depth": 9, "heads": 6, "mlp_dim": 1152}},
    negligible=0.03,
    billion=128_000,
    reference_billion=512_000,
    seeds=3,
    resources={"parallel": 1, "threads": 8},
)
"""About an hour per study on one accelerator (estimate): 4 million parameters, mostly 750 steps."""

PAPER = Scale(
    base={
        "model": {"variant": "B/16", "compute_dtype": "bfloat16"},
        "data": {
            "train": {"kind": "folder", "path": "webli", "examples": 1_000_000_000},
            "benchmark": {"kind": "folder", "path": "benchmarks"},
        },
        "schedule": {"batch_size": 32_768},
        "evaluation.points": 20,
        # Activations of a microbatch fit into the 16 GB of a v5e. Values of `runtime` don't change results.
        "runtime": {
            "microbatches": 4,
            "loader_threads": 16,
            "log_every_steps": 100,
            "checkpoint_every_steps": 1_000,
        },
    },
    curated={
        "weak": {"data.filter": "similarity > 0.26"},
        "moderate_ita": {"data.filter": "similarity > 0.30"},
        "moderate_tq": {"data.filter": "text_quality > 0.5"},
        "strong": {"data.filter": "similarity > 0.30 and text_quality > 0.5 and aesthetic > 5"},
        "strong++": {
            "data.filter": "text_quality > 0.5 and aesthetic > 5",
            "data.recaption": "similarity < 0.30",
        },
    },
    large={"model.variant": "L/16"},
    negligible=0.01,
    billion=1_000_000_000,
    reference_billion=1_000_000_000,
    ten_epochs={"weak": 10, "moderate_ita": 3, "moderate_tq": 3, "strong": 1, "strong++": 6},
    seeds=1,
    score=CANONICAL,
    resources={"tpu": "v5e-16x16"},
)
"""The paper's scale: B/16 at 256 px, batches of 32,768, 256 v5e chips. Other settings are the defaults.

WebLI and its scores aren't public. `webli` is a folder of shards in the format of img2dataset: the paper's
training data, a billion pairs that are loosely filtered by image–text alignment. `webli-raw` is the whole
dataset. Their metadata have the columns `similarity` (image–text alignment), `text_quality`, and `aesthetic`.
Owners of the data adjust the thresholds so that about 1B, 300M, 300M, 100M, and 600M pairs remain.
`benchmarks` contains folders of CLIP_benchmark: imagenet, coco, birds, caltech, cars, and pets.
"""


def of(scale: str) -> Scale:
    """Return the settings of a scale; raises UserError if the scale doesn't exist."""
    return at_scale(scale, smoke=SMOKE, mini=MINI, paper=PAPER)


def study(scale: str, *, question: str, paper: str | None = None) -> ConfigDict:
    """Create a study without runs, with the base config of a scale.

    Learners see three billion examples, or the equivalent of three billion at the scale.

    Args:
        scale: One of `SCALES`.
        question: The question of the study.
        paper: The figure or table that the study reproduces.
    """
    settings = of(scale)
    config = spec.study(question=question, paper=paper)
    config.base = copy.deepcopy(dict(settings.base))
    config.base["schedule"]["examples_seen"] = examples(scale, 3)
    config.seeds = settings.seeds
    config.score = list(settings.score)
    config.resources = dict(settings.resources)
    return config


def examples(scale: str, billions: float) -> int:
    """Return the number of examples at a scale for a number of billions in the paper."""
    return round(billions * of(scale).billion)


def reference(
    scale: str, curation: Curation = "strong", billions: float | None = None, **overrides: Any
) -> dict[str, Any]:
    """Create a reference run: uniform training on curated data, with other initial parameters than learners.

    Args:
        scale: One of `SCALES`.
        curation: The training data.
        billions: Billions of examples at the paper's scale; None for ten epochs.
        overrides: Other overrides of the study's base, such as `model`.
    """
    settings = of(scale)
    billions = settings.ten_epochs.get(curation, 1) if billions is None else billions
    return {
        **overrides,
        **settings.curated[curation],
        "schedule.examples_seen": round(billions * settings.reference_billion),
        "initialization": 1,
    }


def guide(
    study: ConfigDict,
    scale: str,
    curation: Curation = "strong",
    billions: float | None = None,
    *,
    name: str = "reference",
    **overrides: Any,
) -> None:
    """Add a reference run to a study, and a run that caches its embeddings of the training data.

    Args:
        study: The study.
        scale: As for `reference`, like the other arguments.
        name: Name of the reference run.
    """
    study.runs[name] = reference(scale, curation, billions, **overrides)
    study.runs[cache(name)] = {"program": "embed", "reference": name}


def claims_of(scale: str, source: str) -> Callable[..., dict[str, Any]]:
    """Return a function that states claims of a figure or table of the paper, like `spec.claim`.

    Its argument `toy` is a reason why the claim may fail at toy scale.
    """

    def claim(statement: str, toy: str = "", **options: Any) -> dict[str, Any]:
        unless = toy if toy and scale == "smoke" else None
        return spec.claim(statement, **{"source": source, "unless": unless, **options})

    return claim


def cache(reference: str = "reference") -> str:
    """Return the name of the run that caches a reference's embeddings."""
    return f"{reference}-cache"


def selecting(rule: str, reference: str = "reference", **selection: Any) -> dict[str, Any]:
    """Create a run with selection by a rule and a reference; f = 0.8 by default."""
    return {"selection": {"rule": rule, "reference": cache(reference), **selection}}


def jest(reference: str = "reference", **selection: Any) -> dict[str, Any]:
    """Create a JEST run: joint selection by learnability."""
    return selecting("joint", reference, **selection)


def flexi_jest(reference: str = "reference", share: float = 0.5, **selection: Any) -> dict[str, Any]:
    """Create a Flexi-JEST run, which scores, and trains a share λ of each batch, at a lower resolution."""
    return jest(reference, **selection) | {"approximation": {"score": True, "share": share}}


def share_sweep(study: ConfigDict, scale: str, method: str) -> list[str]:
    """Add runs that train a share λ of each batch approximately, with and without joint selection at f = 0.5.

    All learners use the same FLOPs as `uniform`. At the paper's scale, they have the paper's budgets, which
    ignore the text tower.

    Args:
        study: A study with a run `uniform` and a reference.
        scale: One of `SCALES`.
        method: "flexi" or "patch_drop". Names of runs are, for example, "flexi-jest-0.25" and
            "flexi-uniform-0.25".

    Returns:
        Names of the runs.
    """
    names = []
    for share, billions in zip(SHARES, _BILLIONS, strict=True):
        approximately: dict[str, Any] = {"approximation.method": method, "approximation.share": share}
        if scale == "paper":
            approximately["schedule.examples_seen"] = examples(scale, billions)
        else:
            approximately["match"] = {"learner_flops": "uniform"}
        selected = jest(filtering_ratio=0.5) | {"approximation.score": True}
        names.append(f"{method}-jest-{share}")
        study.runs[names[-1]] = selected | approximately
        if share:
            names.append(f"{method}-uniform-{share}")
            study.runs[names[-1]] = approximately
    return names
