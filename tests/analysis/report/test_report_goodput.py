"""How machines spent their time: the table of their numbers, and unknown time."""

from typing import Any

import pytest
from tests.analysis.report.conftest import by_id, words

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
    table, sentence = timed(
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
    lines = table.markdown().splitlines()[2:]
    old = dict(zip(table.frame["label"], lines, strict=False))["old"]
    assert old.count("—") >= 8 and "| 2 min |" in old.replace("  ", " ")
    (unmeasured,) = table.notes
    assert unmeasured.startswith("1 of 4 attempts did not measure where time went")
    assert timed(("old", {})) is None


def test_the_page_has_the_shares_of_each_run(parsed_page):
    names, *rows = [[words(cell) for cell in row] for row in by_id(parsed_page, "table-goodput").iter("tr")]
    assert [row[0] for row in rows] == ["reference", "uniform", "independent", "joint", "all runs"]
    assert [row[names.index("failed work")] == "—" for row in rows] == [True, True, True, False, False]
