"""Table 3: does JEST++ learn as well from raw data as from filtered data?

    jestlab launch raw_vs_filtered               # 18 runs, 2 core-minutes
    jestlab launch raw_vs_filtered --scale mini  # 18 runs, 23.5 PFLOP; not run
    jestlab plan raw_vs_filtered --scale paper   # 7 runs, 23,300 chip-hours of v5e; not run

Filtered data is filtered by image–text alignment, like WebLI. All runs see 4B examples.

Scores in % at smoke, means of 3 seeds, 2026-11-27: reference++B 69.0; IID-filtered 16.8; IID-raw 12.4;
JEST++filtered 37.3; JEST++raw 37.3.
"""

from ml_collections import ConfigDict

from jestlab.experiments import base
from jestlab.platform.spec import curves, table

SCALES = base.SCALES


def get_config(scale: str = "smoke") -> ConfigDict:
    """Return the study at a scale."""
    study = base.study(
        scale,
        question="Does JEST++ make it unnecessary to filter the training data beforehand?",
        paper="Table 3",
    )
    study.base["schedule"]["examples_seen"] = base.examples(scale, 4)
    base.guide(study, scale, "strong++", 5, name="reference++B")
    filtered, raw = dict(base.of(scale).curated["weak"]), {}
    if scale == "paper":  # WebLI has been filtered
        filtered, raw = {}, {"data.train": {"path": "webli-raw", "examples": 10_000_000_000}}
    study.runs[base.cache("raw")] = {"program": "embed", "reference": "reference++B"} | raw
    study.runs["IID-filtered"] = filtered
    study.runs["IID-raw"] = raw
    study.runs["JEST++filtered"] = base.jest("reference++B") | filtered
    study.runs["JEST++raw"] = base.jest("raw") | raw
    claim = base.claims_of(scale, "Table 3")
    study.claims = [
        claim(
            "IID training learns more from filtered data than from raw data",
            of="IID-filtered",
            above="IID-raw",
            toy="the filter leaves the near-duplicates in",
        ),
        claim(
            "JEST++ learns as much from raw data as from filtered data",
            of="JEST++raw",
            above="JEST++filtered",
            within=base.of(scale).negligible,
            toy="super-batches of 320 pairs hold few good ones where most are noise",
        ),
        claim(
            "Filtering beforehand matters less to JEST++ than to IID training",
            of={"of": "IID-filtered", "minus": "IID-raw"},
            above={"of": "JEST++filtered", "minus": "JEST++raw"},
            toy="super-batches of 320 pairs hold few good ones where most are noise",
        ),
    ]
    study.reports = [table(name="raw_vs_filtered", baseline="IID-filtered"), table(), curves()]
    return study
