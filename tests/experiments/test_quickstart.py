from collections import Counter

import pytest

from jestlab.experiments import base, quickstart
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import Study, load

NAMES = ("reference", "reference-cache", "uniform", "independent", "joint")


def test_quickstart_is_a_reference_and_three_ways_to_choose_on_three_seeds():
    runs = plan(load("quickstart")).runs
    assert Counter(run.name for run in runs) == dict.fromkeys(NAMES, 3)
    by_fingerprint = {run.fingerprint: run for run in runs}
    needs = {"reference-cache": "reference", "independent": "reference-cache", "joint": "reference-cache"}
    for run in runs:
        needed = [by_fingerprint[fingerprint] for fingerprint in run.needs.values()]
        expected = [(needs[run.name], run.seed)] if run.name in needs else []
        assert [(other.name, other.seed) for other in needed] == expected
        if run.program == "train":
            assert run.config["selection"]["rule"] == (run.name if run.name != "reference" else "uniform")


def test_the_reference_learns_from_curated_data_and_the_others_from_all_of_it():
    configs = {run.name: run.config for run in plan(load("quickstart")).runs}
    assert configs["reference"]["data"]["filter"] == base.SMOKE.curated["strong"]["data.filter"]
    assert {configs[name]["data"]["filter"] for name in NAMES[1:]} == {None}
    assert len({str(config["model"]) for config in configs.values() if "model" in config}) == 1


def test_it_ends_in_a_table_curves_and_a_pareto_plot():
    study = load("quickstart")
    assert [report.kind for report in study.reports] == ["table", "curves", "pareto"]
    assert study.reports[0].model_dump()["baseline"] == "uniform"


def test_a_study_may_be_changed_without_changing_the_next():
    first = quickstart.get_config("smoke")
    first.base["schedule"]["examples_seen"] = 1
    first.runs.joint["selection"]["rule"] = "uniform"
    assert load("quickstart") == Study.parse(
        {"name": "quickstart", "scale": "smoke", **quickstart.get_config()}
    )


def test_an_unknown_scale_is_one_line_that_names_the_valid_ones():
    with pytest.raises(UserError, match="quickstart has no scale 'huge': valid: smoke, mini, paper"):
        load("quickstart", "huge")
    with pytest.raises(UserError, match="no scale 'huge': valid: smoke, mini, paper"):
        quickstart.get_config("huge")
