from collections import Counter

import pytest

from jestlab.experiments import base, quickstart
from jestlab.platform.errors import UserError
from jestlab.platform.plan import plan
from jestlab.platform.spec import Study, load, registry


def test_quickstart_is_a_reference_and_three_ways_to_choose_on_three_seeds():
    runs = plan(load("quickstart")).runs
    assert Counter(run.name for run in runs) == {"reference": 3, "uniform": 3, "independent": 3, "joint": 3}
    by_fingerprint = {run.fingerprint: run for run in runs}
    for run in runs:
        needed = [by_fingerprint[fingerprint] for fingerprint in run.needs.values()]
        assert [(other.name, other.seed) for other in needed] == (
            [("reference", run.seed)] if run.name in ("independent", "joint") else []
        )
        assert run.config["selection"]["rule"] == (run.name if run.name != "reference" else "uniform")


def test_the_reference_learns_from_curated_data_and_the_others_from_all_of_it():
    configs = {run.name: run.config for run in plan(load("quickstart")).runs}
    assert configs["reference"]["data"]["filter"] == base.CURATION["curated"]
    assert {configs[name]["data"]["filter"] for name in ("uniform", "independent", "joint")} == {None}
    assert len({str(config["model"]) for config in configs.values()}) == 1


def test_it_ends_in_a_table_curves_and_a_pareto_plot():
    study = load("quickstart")
    assert [report.kind for report in study.reports] == ["table", "curves", "pareto"]
    assert study.reports[0].model_dump()["baseline"] == "uniform"


def test_a_study_may_be_changed_without_changing_the_next():
    first = quickstart.get_config("smoke")
    first.base["schedule"]["examples_seen"] = 1
    first.runs.joint["selection.rule"] = "uniform"
    assert load("quickstart") == Study.parse(
        {"name": "quickstart", "scale": "smoke", **quickstart.get_config()}
    )


def test_an_unknown_scale_is_one_line_that_names_the_valid_ones():
    with pytest.raises(UserError, match="quickstart has no scale 'paper': valid: smoke"):
        load("quickstart", "paper")
    with pytest.raises(UserError, match="no scale 'paper': valid: smoke"):
        quickstart.get_config("paper")


@pytest.mark.parametrize("name", registry.names())
def test_every_study_says_what_it_asks_and_plans_at_every_scale(name):
    for scale in registry.module(name).SCALES:
        study = load(name, scale)
        assert study.question.endswith("?")
        assert plan(study).runs
        assert study.reports
    assert f"jestlab launch {name}" in (registry.module(name).__doc__ or "")
