"""A study whose runs get other names is launched again: nothing runs, and its reports show the names."""

from __future__ import annotations

from pathlib import Path

import plans_support as plans

from jestlab.platform import reports
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.store import Store


def study(**label: str) -> Study:
    return Study.parse(
        {
            "name": "toy",
            "runs": {"uniform": {}, "joint": {"optimizer.beta2": 0.9, **label}},
            "metrics": {"*": {"goal": "max", "unit": "percent"}},
            "reports": [{"table": {"baseline": "uniform"}}],
        }
    )


def test_new_names_are_shown_without_running_anything(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    store = Store.open(lab.store_url)
    first = plan(study(), where="nowhere")
    store.record(first)
    for run in store.runs("toy"):
        attempt = plans.begun(store, run)
        attempt.evaluation(1, 64, 1e6, {"toy/score": 0.5})
        attempt.complete()
    reports.bring_up_to_date(lab, store, study(), print)
    table = Path(lab.reports) / "toy" / "table.md"
    assert "| joint" in table.read_text()

    again = plan(study(label="JEST (ours)"), where="nowhere")
    assert [run.fingerprint for run in again.runs] == [run.fingerprint for run in first.runs]
    store.record(again)
    assert {run.state for run in store.runs("toy")} == {"COMPLETED"}
    reports.bring_up_to_date(lab, store, study(label="JEST (ours)"), print)
    assert "| JEST (ours)" in table.read_text()
    assert "| joint" not in table.read_text()
