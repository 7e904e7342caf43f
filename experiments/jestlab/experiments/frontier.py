"""The methods that came before and after JEST, compared with JEST at equal FLOPs and in equal time.

    jestlab launch frontier               # 440 runs, 19 min on two cores
    jestlab launch frontier --scale mini  # 165 runs; not run

Every method trains three times: for the same number of examples, FLOPs, and seconds of training as JEST. The
methods and their sources are described in docs/case-studies/methods.md. CABS uses no reference. RHO-LOSS uses
a reference trained on unfiltered holdout data. The other methods use a reference trained on strongly curated
data, which is larger for ACID, ACED, and Softmax-KD.

Scores in % at smoke for JEST's FLOPs, means of 8 seeds, 2026-11-28: JEST 24.5; uniform 16.8; JEST-early 24.2;
Flexi-JEST 22.9; independent 20.8; RHO-LOSS 11.4; ACID 22.4; ACED 28.1; Softmax-KD 37.1; DRRho 42.4; CABS-DM
19.4; CABS-FM 16.5; CLIPScore 46.6; negCLIPLoss 49.1; NormSim 42.2; SemDeDup 12.1; SCS 51.4.
"""

from typing import Any

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import at_scale, claim, curves, figure, pareto, table

SCALES = ("smoke", "mini")

CONCEPTS = ["label", "size", "position", "background"]
"""Metadata columns with the content of images, for CABS."""

FLOPS, TIME = "-flops", "-time"
"""Suffixes of the names of runs with the same number of FLOPs or seconds as JEST, instead of examples."""


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Which methods of choosing and weighing data are ahead at equal FLOPs and in equal time?",
    )
    study.seeds = at_scale(scale, smoke=8, mini=3)
    _guides(study, scale)
    methods = _methods()
    study.runs.uniform = {}
    study.runs.JEST = base.jest()
    for name, changes in methods.items():
        study.runs[name] = changes
    for name, changes in {"uniform": {}, **methods}.items():
        study.runs[name + FLOPS] = changes | {"match": {"flops": "JEST"}}
        study.runs[name + TIME] = changes | {"match": {"seconds": "JEST"}}
    names = ["uniform", *methods]
    study.claims = _claims()
    study.reports = []
    for caption, suffix in (("As many examples.", ""), ("Equal FLOPs.", FLOPS), ("Equal time.", TIME)):
        rows = ["JEST", *(name + suffix for name in names)]
        study.reports.append(table(baseline="JEST", rows=rows, sort="-score", caption=caption))
    study.reports += [
        pareto(baseline="uniform", runs=["JEST", *names]),
        pareto(baseline="uniform", runs=["JEST", *names], over="seconds"),
        curves(baseline="uniform", runs=["JEST", *names], over="flops"),
        figure("composition", x="noise", runs=["JEST", *names]),
    ]
    return study


def _guides(study: ConfigDict, scale: str) -> None:
    """Add the references, their embeddings, and the scores of the data."""
    base.guide(study, scale)
    base.guide(study, scale, name="larger", **base.of(scale).large)
    # Irreducible losses are those of a model that was trained on other data with the same noise.
    study.runs.holdout = base.reference(scale) | {"data.filter": None, "data.train": {"seed": 77_000}}
    study.runs[base.cache("holdout")] = {"program": "embed", "reference": "holdout"}
    clean = dict.fromkeys(("mismatched", "alt_text", "noise_image", "blank", "vague", "near_duplicate"), 0.0)
    study.runs.targets = {
        "program": "embed",
        "reference": "reference",
        "data.train": {"examples": 2_048, "seed": 88_000, "noise": clean},
    }
    study.runs.scores = {
        "program": "score",
        "embeddings": base.cache(),
        "target": "targets",
        "negcliploss": {"batch_size": 1_024, "repeats": 3},
        "soft_cap": {"of": "negcliploss"},
    }


def _methods() -> dict[str, dict[str, Any]]:
    """Return the overrides of each method, by name."""
    return {
        "JEST-early": base.jest(until=0.5),
        "Flexi-JEST": base.flexi_jest(),
        "independent": base.selecting("independent"),
        "RHO-LOSS": base.selecting("highest", "holdout"),
        "ACID": base.jest("larger"),
        "ACED": base.jest("larger") | {"loss": "distilled"},
        "Softmax-KD": {"loss": "distilled", "selection.reference": base.cache("larger")},
        "DRRho": {"loss": "drrho", "selection.reference": base.cache()},
        "CABS-DM": {"selection": {"rule": "concept_diversity", "concepts": CONCEPTS}},
        "CABS-FM": {"selection": {"rule": "concept_frequency", "concepts": CONCEPTS}},
        "CLIPScore": _filtered("clip_score_rank > 0.7"),
        "negCLIPLoss": _filtered("negcliploss_rank > 0.7"),
        "NormSim": _filtered("negcliploss_rank > 0.7 and normsim_rank > 0.33"),
        "SemDeDup": _filtered("semdedup < 0.98"),
        "SCS": {"data": {"scores": "scores", "repeat": "soft_cap"}},
    }


def _filtered(condition: str) -> dict[str, Any]:
    """Return overrides that select the examples whose scores satisfy a condition."""
    return {"data": {"scores": "scores", "filter": condition}}


def _claims() -> list[dict[str, Any]]:
    """Return claims of the methods' papers, tested at equal FLOPs."""
    claims = [
        ("ACID", "JEST", "A larger reference selects better than one of the learner's size", "2411.18674"),
        ("ACED", "ACID", "Distillation adds to selection", "2411.18674"),
        ("ACED", "Softmax-KD", "Selection adds to distillation", "2411.18674"),
        ("ACID", "Softmax-KD", "Selection is a better distillation than distillation", "2411.18674"),
        ("DRRho", "uniform", "Negatives weighed by a reference help", "2505.06699"),
        ("RHO-LOSS", "uniform", "The largest reducible losses are worth training on", "2206.07137"),
        ("JEST", "RHO-LOSS", "Batches chosen jointly beat the highest scores of single pairs", "2406.17711"),
        ("CABS-DM", "uniform", "Batches of balanced concepts help", "2511.20643"),
        ("CABS-FM", "uniform", "Batches of many concepts help", "2511.20643"),
        ("negCLIPLoss", "CLIPScore", "negCLIPLoss filters better than CLIPScore", "2405.19547"),
        ("NormSim", "negCLIPLoss", "NormSim filters better what negCLIPLoss leaves", "2405.19547"),
        ("SemDeDup", "uniform", "Training without semantic duplicates is faster", "2303.09540"),
        ("SCS", "negCLIPLoss", "Soft-capped sampling beats a threshold on the same score", "2503.08805"),
        ("JEST-early", "JEST", "Selection in the first half of training alone is the better bargain", None),
    ]
    return [
        claim(
            f"{statement} ({method} above {other})",
            of=method if method == "JEST" else method + FLOPS,
            above=other if other == "JEST" else other + FLOPS,
            **({"source": f"arXiv:{paper}"} if paper else {}),
        )
        for method, other, statement, paper in claims
    ]
