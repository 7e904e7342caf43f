"""Table 2: JEST++ and SigLIP on LAION-2B, unsafe pairs removed, with B/32 towers at 224 px.

    jestlab launch laion_transfer               # 12 runs, 1 core-minute
    jestlab launch laion_transfer --scale mini  # 12 runs, 4.77 PFLOP; not run
    jestlab plan laion_transfer --scale paper   # 4 runs, 2,210 chip-hours of v5e; not run

To use a folder of img2dataset and a published SigLIP checkpoint as the reference, without editing a file:

    jestlab launch laion_transfer --set 'base.data.train={kind: folder, path: laion/}' \
        --set 'runs.reference={program: weights, path: siglip.npz, tokenizer: sentencepiece.model}'

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference 80.3; SigLIP 10.8; JEST++ 32.3.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, pareto, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale, question="Does JEST++ transfer to public data from another source?", paper="Table 2"
    )
    study.base["schedule"]["examples_seen"] = base.examples(scale, 1.3 if scale == "paper" else 3)
    study.base["data"]["filter"] = "punsafe < 0.5"
    curated = dict(study.base["data"]["train"])  # the reference learns from curated WebLI, not from LAION
    if scale == "paper":
        study.base["data"]["train"] |= {"path": "laion2b", "examples": 2_300_000_000}
    towers = {"model.variant": "B/32"} if scale == "paper" else {"model.vision.patch_size": 8}
    base.guide(study, scale, "strong++", 5, **(towers | {"data.train": curated}))
    study.runs["SigLIP"] = towers
    study.runs["JEST++"] = base.jest() | towers
    claim = base.claims_of(scale, "Table 2")
    study.claims = [
        claim(
            "JEST++ is ahead of SigLIP after as many examples of LAION",
            of="JEST++",
            above="SigLIP",
            toy="four patches do not show the small shapes that the test asks for",
        )
    ]
    study.reports = [table(name="laion", baseline="SigLIP"), table(), curves(), pareto()]
    return study
