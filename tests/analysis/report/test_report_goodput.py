"""How machines spent their time, on the page: bars, the table of their numbers, and unknown time."""

import re
from typing import Any

import pytest
from tests.analysis.report.conftest import by_class, words

from jestlab.analysis.colors import PALETTE
from jestlab.analysis.provenance.history import load
from jestlab.analysis.report.tables import machine_time

# Of two minutes: trained until step 100, and saved step 60.
MEASURED: dict[str, Any] = {
    "startup_seconds": 12.0, "compilation_seconds": 24.0, "training_seconds": 60.0,
    "evaluation_seconds": 12.0, "checkpoint_seconds": 6.0, "winddown_seconds": 6.0,
    "resumed_step": 0, "reached_step": 100, "saved_step": 60, "saved_seconds": 48.0,
}  # fmt: skip


@pytest.fixture
def timed(new_store, stored_run):
    """A function that stores attempts of two minutes, each a run and what it measured."""

    def make(*attempts):
        store = new_store().add(*(stored_run(name, [0.1]) for name in dict(attempts)))
        for name, measured in attempts:
            whose = {"experiment": "study", "label": name, "seed": 0, "fingerprint": f"{name}-0"}
            time: dict[str, Any] = {"number": 1, "state": "COMPLETED", "chips": 1, "held_seconds": 120.0}
            store.insert("v_goodput", **whose, **time | measured)
        history = load(store.url, "study")
        assert history is not None
        return machine_time(history)

    return make


def test_shares_are_of_chip_time_and_unmeasured_time_is_unknown(timed):
    """One run was preempted at step 100 and resumed from 60, one did not measure its time."""
    table, bars, sentence = timed(
        ("uniform", MEASURED | {"chips": 4}),
        ("joint", MEASURED | {"state": "PREEMPTED"}),
        ("joint", MEASURED | {"number": 2, "resumed_step": 60}),
        ("old", {}),
    )
    rows = table.frame.set_index("label")
    assert rows.at["uniform", "held"] == 4 * 120
    assert rows.at["joint", "preempted"] == 24 / 240  # 40 of 100 steps
    assert rows.at["all runs", "goodput"] == (4 * 72 + 48 + 72) / (4 * 120 + 240)
    assert (rows.at["all runs", "attempts"], rows.at["all runs", "held"]) == (4, 4 * 120 + 240 + 120)
    assert sentence.startswith("Goodput 57%: ")
    assert [bar["name"] for bar in bars] == ["uniform", "joint", "all runs"]
    assert bars[-1]["shares"][-1][:2] == ("preempted work", PALETTE[6].css)
    lines = table.markdown().splitlines()[2:]
    old = dict(zip(table.frame["label"], lines, strict=False))["old"]
    assert old.count("—") >= 8 and "| 2 min |" in old.replace("  ", " ")
    (unmeasured,) = table.notes
    assert unmeasured.startswith("1 of 4 attempts did not measure where time went")
    assert timed(("old", {})) is None


def test_the_page_has_a_bar_for_each_run(parsed_page):
    (bars,) = by_class(parsed_page, "bars")
    names, pictures, values = list(bars)[::3], list(bars)[1::3], list(bars)[2::3]
    assert [words(name) for name in names] == ["reference", "uniform", "independent", "joint", "all runs"]
    for name, bar, value in zip(names, pictures, values, strict=True):
        assert bar.get("aria-label", "").startswith(f"{words(name)}: training ")
        assert words(value).split()[0].endswith("%") and " of " in words(value)
        widths = re.findall(r"width: ([\d.]+)%", "".join(part.get("style", "") for part in bar))
        assert sum(map(float, widths)) == pytest.approx(100, abs=0.01)
    assert "failed work" in pictures[3].get("aria-label", "")


def test_of_many_runs_some_have_bars_and_all_have_rows(timed):
    table, bars, sentence = timed(*((f"run{number}", MEASURED) for number in range(30)))
    assert len(bars) == 24 and bars[-1]["name"] == "all runs"
    assert len(table.frame) == 31
    assert sentence.endswith("The table has 7 more runs.")
