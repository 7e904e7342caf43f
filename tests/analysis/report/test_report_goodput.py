"""Where the machines' time went, on the page: bars, the table behind them, and what is unknown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "platform" / "support"))

import plans_support as plans
import stores_support as stores

from jestlab.analysis.connection import connect
from jestlab.analysis.provenance import load
from jestlab.analysis.report import build
from jestlab.analysis.report.machine_time import MachineTime, machine_time
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

pytestmark = pytest.mark.usefixtures("figure_stubs")

BARS = """
[...document.querySelectorAll('.bars > svg')].map(bar => [
  bar.getAttribute('aria-label'),
  bar.previousElementSibling.textContent,
  bar.nextElementSibling.textContent,
  [...bar.querySelectorAll('rect')].reduce((sum, rect) => sum + rect.width.baseVal.value, 0),
])
"""
# Of two minutes; it trained until step 100, and saved step 60.
MEASURED: dict[str, Any] = {
    "startup_seconds": 12.0, "compilation_seconds": 24.0, "training_seconds": 60.0,
    "evaluation_seconds": 12.0, "checkpoint_seconds": 6.0, "winddown_seconds": 6.0,
    "resumed_step": 0, "reached_step": 100, "saved_step": 60, "saved_seconds": 48.0,
}  # fmt: skip


def of(url: str, name: str) -> MachineTime | None:
    with connect(url) as connection:
        history = load(connection, name)
    assert history is not None
    return machine_time(history)


@pytest.fixture
def filled(tmp_path):
    """Two runs, one of which was preempted at step 100 and went on from 60, and one of an older version."""
    url = f"sqlite:///{tmp_path / 'results.db'}"
    store = Store.open(url)
    uniform, joint, old = (plans.run(name, config={"named": name}) for name in ("uniform", "joint", "old"))
    store.record(plans.plan(uniform, joint, old))
    stores.attempt(store, uniform, chips=4, **MEASURED)
    stores.attempt(store, joint, RunState.PREEMPTED, **MEASURED)
    stores.attempt(store, joint, number=2, **MEASURED | {"resumed_step": 60})
    stores.attempt(store, old)
    store.close()
    return url


def test_shares_are_of_chip_time(filled):
    found = of(filled, "toy")
    assert found is not None
    rows = found.part.table.frame.set_index("label")
    assert rows.at["uniform", "held"] == 4 * 120
    assert rows.at["uniform", "goodput"] == 72 / 120
    assert rows.at["joint", "preempted"] == 24 / 240  # 40 of 100 steps
    assert rows.at["joint", "goodput"] == (48 + 72) / 240
    assert rows.at["all runs", "goodput"] == (4 * 72 + 48 + 72) / (4 * 120 + 240)
    assert (rows.at["all runs", "attempts"], rows.at["all runs", "held"]) == (4, 4 * 120 + 240 + 120)
    assert found.sentence.startswith("Goodput 57%: ")
    assert [bar.name for bar in found.bars] == ["uniform", "joint", "all runs"]
    assert ("preempted work", "#d55e00") in found.legend


def test_what_an_older_version_did_not_measure_is_unknown(filled):
    found = of(filled, "toy")
    assert found is not None
    shown = dict(
        zip(found.part.table.frame["label"], found.part.table.markdown().splitlines()[2:], strict=False)
    )
    assert shown["old"].count("—") >= 8 and "| 2.0 min |" in shown["old"].replace("  ", " ")
    assert any(
        note.startswith("1 of 4 attempts were made by an older version") for note in found.part.table.notes
    )


def test_nothing_is_shown_if_nothing_was_measured(tmp_path):
    url = f"sqlite:///{tmp_path / 'results.db'}"
    store = Store.open(url)
    store.record(plans.plan(run := plans.run("old")))
    stores.attempt(store, run)
    store.close()
    assert of(url, "toy") is None


def test_the_page_draws_a_bar_for_each_run(shown):
    bars = shown.tab.evaluate(BARS)
    assert [name for _, name, _, _ in bars] == ["reference", "uniform", "independent", "joint", "all runs"]
    for words, name, value, width in bars:
        assert words.startswith(f"{name}: training ")
        assert value.split()[0].endswith("%") and " of " in value
        assert width == pytest.approx(100, abs=0.01)
    assert "failed work" in {name: words for words, name, _, _ in bars}["joint"]
    legend = shown.tab.locator(".legend li").all_text_contents()
    assert [name.strip() for name in legend][:4] == ["training", "evaluation", "start-up", "compilation"]


def test_every_share_links_to_its_runs(shown):
    shown.tab.locator("button[data-row=joint][data-column=compilation]").click()
    body = shown.tab.locator("dialog .body").text_content()
    shown.tab.locator("dialog .close").click()
    assert "tracing, lowering and compiling" in body and body.count("joint/") >= 3


def test_many_runs_have_bars_for_some_and_rows_for_all(new_lab, a_run):
    lab = new_lab(*(a_run(f"run{number}", [0.1]) for number in range(30)))
    found = of(lab.url, "study")
    assert found is not None
    assert len(found.bars) == 24 and found.bars[-1].name == "all runs"
    assert len(found.part.table.frame) == 31
    assert found.sentence.endswith("The table has 7 more runs.")
    page = build(lab.url, "study", lab.folder / "report", None)[0]
    assert page.read_text().count('class="name">run') > 30
