"""What runs spend: examples, FLOPs, seconds, chip-hours. An unknown effort has no column and no axis."""

from typing import Any

import numpy as np
import pytest

from jestlab.analysis import figures, tables
from jestlab.analysis.claims.verdicts import read
from jestlab.analysis.report import gather
from jestlab.analysis.report.answer import answer

CLAIM = {"statement": "In the same time", "of": "quick", "better_than": "slow", "measure": "score_at_seconds"}
SPEC: dict[str, Any] = {"metrics": {"wiki/perplexity": {"goal": "min", "digits": 2}}, "claims": [CLAIM]}
UNCOUNTED: dict[str, Any] = {"counts": False, "metrics": ["wiki/perplexity"]}


@pytest.fixture
def timed(new_store, stored_run):
    """Runs without counts of examples or FLOPs: `quick` takes a second a step, `slow` two or more."""
    ends = {("slow", 2.0): (40.0, 41.0), ("quick", 1.0): (30.0, 31.5)}
    runs = [
        stored_run(
            label, [60.0, 50.0, end], seed=seed, seconds_per_step=seconds * (1 + seed / 10), **UNCOUNTED
        )
        for (label, seconds), of_seeds in ends.items()
        for seed, end in enumerate(of_seeds)
    ]
    return new_store().add(*runs, spec=SPEC)


def test_only_known_efforts_have_a_column(timed):
    found = tables.finals(timed.read(), "slow")
    assert found.efforts == ["seconds"]
    headers = [column.header for column in tables.summary(found).columns]
    assert headers[-2:] == ["time (s)", "less time"]
    assert not [header for header in headers if "FLOP" in header or "examples" in header]
    text = tables.summary(found).markdown()
    assert "FLOP" not in text
    assert "6.30" in text  # slow: the mean of 3 steps at 2 s and at 2.2 s
    rows = tables.speedup_table(found).frame.set_index("row")
    # quick is at 40 after 2.5 steps, its other seed at 41 after 2 + 9/18.5: slow takes twice as long a step.
    expected = [3 * 2.0 / 2.5, 3 * 2.2 / ((2 + 9 / 18.5) * 1.1)]
    assert rows.loc["quick", "fewer_seconds"] == pytest.approx(np.median(expected))
    assert "training time until a run reaches" in tables.speedup_table(found).caption.replace("\n", " ")
    tile = answer(tables.summary(found), found).tiles[1]
    assert (tile.label, tile.value) == ("Training time", "2.4× less")


def test_figures_and_pages_use_the_known_effort(timed):
    found = timed.read()
    front = figures.pareto(found)
    means = front.data[front.data["kind"] == "mean"].set_index("label")
    assert front.texts.x == "training time"
    assert means["cost"].to_dict() == pytest.approx({"slow": 6.3, "quick": 3.15})
    assert list(means.index[means["on_front"].astype(bool)]) == ["quick"]
    assert "FLOP" not in front.texts.caption
    curves = figures.learning_curves(found)
    assert curves.texts.x == "training time"
    last = curves.data.query("label == 'slow' and kind == 'mean'").iloc[-1]
    assert [last["effort"], last["mean"]] == pytest.approx([6.3, 40.5])  # means of both ends
    bars = figures.speedup(found, "slow")
    assert set(bars.data["effort"]) == {"seconds"}
    for plot in (front, curves, bars):
        plot.figure()
    with pytest.raises(ValueError, match="has completed with a score and known FLOPs"):
        figures.pareto(found, over="flops")
    contents = gather(timed.url, "study")
    assert [list(part.variants) for part in contents.figures] == [["training time"], ["training time"]]


def test_a_claim_at_equal_time(timed):
    (claim,) = read(timed.url, ["study"])
    # The faster run of a seed ends after 3 steps: slow is at 1.5 steps there.
    assert claim.contrast.parts.loc[claim.contrast.parts["seed"] == 0, "difference"].sum() == pytest.approx(
        30.0 - 55.0
    )
    of_seed_1 = claim.contrast.parts.loc[claim.contrast.parts["seed"] == 1]
    assert of_seed_1["difference"].sum() == pytest.approx(31.5 - 55.0)


def test_a_run_that_is_not_chosen_limits_no_time(new_store, stored_run):
    """`hasty` takes a tenth of the time of the others, which are compared at equal time."""
    runs = [
        stored_run(
            label, [60.0, end], seed=seed, seconds_per_step=seconds, logged={"loss": [loss]}, **UNCOUNTED
        )
        for label, seconds, end, loss in (
            ("hasty", 0.1, 50.0, 9.0),
            ("quick", 1.0, 30.0, 1.0),
            ("slow", 1.0, 45.0, 2.0),
        )
        for seed in range(2)
    ]
    best = {"best": ["hasty", "quick"], "by": "loss"}
    spec = SPEC | {"metrics": SPEC["metrics"] | {"loss": {"goal": "min"}}, "claims": [CLAIM | {"of": best}]}
    [judged] = read(new_store().add(*runs, spec=spec).url, ["study"])
    assert judged.contrast.differences == [30.0 - 45.0] * 2


def test_a_faster_seed_changes_no_earlier_difference(new_store, stored_run):
    """Else a study that is judged after every seed would be judged anew by other numbers."""

    def differences(*seconds):
        runs = [
            stored_run(label, [60.0, 50.0, end], seed=seed, seconds_per_step=factor * each, **UNCOUNTED)
            for label, factor, end in (("slow", 2.0, 45.0), ("quick", 1.0, 40.0))
            for seed, each in enumerate(seconds)
        ]
        [judged] = read(new_store().add(*runs, spec=SPEC).url, ["study"])
        return judged.contrast.parts.groupby("seed")["difference"].sum().to_dict()

    before = differences(1.0, 1.1)
    assert differences(1.0, 1.1, 0.2) == pytest.approx(before | {2: -15.0})


def test_shows_all_known_efforts_and_chip_hours_of_several_chips(new_store, read_runs, stored_run):
    store = new_store().add(
        stored_run("one", [0.1, 0.2, 0.4], seconds_per_step=100.0, chips=4),
        stored_run("two", [0.2, 0.4, 0.5], seconds_per_step=50.0, chips=16),
    )
    found = tables.finals(store.read(), "one")
    assert found.efforts == ["examples_seen", "flops", "seconds", "chip_hours"]
    one_chip = read_runs(stored_run("one", [0.1, 0.2], seconds_per_step=100.0))
    assert tables.finals(one_chip).efforts == ["examples_seen", "flops", "seconds"]
    table = tables.summary(found)
    headers = [column.header for column in table.columns]
    cells = dict(zip(headers, [cell.text for cell in table.lines[1].cells], strict=True))
    assert (cells["time (min)"], cells["chip-hours"]) == ("2.50", "0.67")
    factors = [cells[name] for name in ("fewer examples", "less time", "fewer chip-hours")]
    assert factors == ["1.5×", "3.0×", "0.8×"]
    contents = gather(store.url, "study")
    assert [list(part.variants) for part in contents.figures] == [
        ["examples seen", "training FLOPs", "training time", "chip-hours of training"],
        ["training FLOPs", "training time", "chip-hours of training"],
    ]
    assert {"curves", "curves_chip_hours", "pareto_chip_hours"} < {
        plot.name for part in contents.figures for plot in part.plots
    }
