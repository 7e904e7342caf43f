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
    filtered, raw = dict(base.of(scale).filtered), dict(base.of(scale).raw)
    study.runs[base.cache("raw")] = {"program": "embed", "reference": "reference++B"} | raw
    study.runs["IID-filtered"] = filtered
    study.runs["IID-raw"] = raw
    study.runs["JEST++filtered"] = base.jest("reference++B") | filtered
    study.runs["JEST++raw"] = base.jest("raw") | raw
    study.claims = [
        claim(
            "IID training learns more from filtered data than from raw data",
            of="IID-filtered",
            above="IID-raw",
            source="Table 3",
            unless=base.toy(scale, "the filter leaves the near-duplicates in"),
        ),
        claim(
            "JEST++ learns as much from raw data as from filtered data",
            of="JEST++raw",
            above="JEST++filtered",
            within=base.of(scale).alike,
            source="Table 3",
            unless=base.toy(scale, "super-batches of 320 pairs hold few good ones where most are noise"),
        ),
        claim(
            "Filtering beforehand matters less to JEST++ than to IID training",
            of={"of": "IID-filtered", "minus": "IID-raw"},
            above={"of": "JEST++filtered", "minus": "JEST++raw"},
            source="Table 3",
            unless=base.toy(scale, "super-batches of 320 pairs hold few good ones where most are noise"),
        ),
    ]
    study.reports = [
        table(name="raw_vs_filtered", baseline="IID-filtered"),
        table(baseline="IID-filtered"),
        curves(baseline="IID-filtered"),
    ]
    return study
