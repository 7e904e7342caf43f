"""Table 3: do raw data do as well as filtered ones?

    jestlab launch raw_vs_filtered

Filtered is by image–text alignment, as WebLI is. Both learn for 4B examples.
"""

from __future__ import annotations

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import claim, curves, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """The study at a scale."""
    study = base.study(
        scale,
        question="Does JEST++ make filtering of the training data beforehand needless?",
        paper="Table 3",
    )
    study.base["schedule"]["examples_seen"] = base.examples(scale, 4)
    base.guide(study, scale, "strong++", 5, name="reference++B")
    filtered = dict(base.of(scale).curated["weak"])
    study.runs["IID-filtered"] = filtered
    study.runs["IID-raw"] = {}
    study.runs["JEST++filtered"] = base.jest("reference++B") | filtered
    study.runs["JEST++raw"] = base.jest("reference++B")
    study.claims = [
        claim(
            "Filtering matters to IID training",
            of="IID-filtered",
            above="IID-raw",
            source="Table 3",
        ),
        claim(
            "It does not matter to JEST++",
            of="JEST++raw",
            near="JEST++filtered",
            within=0.02,
            source="Table 3",
            unless="a super-batch of a few hundred pairs holds too few good ones where most are noise",
        ),
        claim(
            "It matters less to JEST++ than to IID training",
            of={"of": "IID-filtered", "minus": "IID-raw"},
            above={"of": "JEST++filtered", "minus": "JEST++raw"},
            source="Table 3",
        ),
    ]
    study.reports = [
        table(name="raw_vs_filtered", baseline="IID-filtered"),
        table(baseline="IID-filtered"),
        curves(baseline="IID-filtered"),
    ]
    return study
