"""Speed-ups, costs by component, and published methods: numbers calculated by hand."""

import math
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from jestlab.analysis import figures, published
from jestlab.analysis.costs import Step
from jestlab.analysis.flops import Forward
from jestlab.analysis.sheet import Sheet


@pytest.fixture(scope="module")
def cells():
    return published.frame(published.paper())


def test_speedup(results):
    plot = figures.speedup(results, "uniform")
    data: Any = plot.data
    bars, dots = (data[data["kind"] == kind].set_index(["effort", "label"]) for kind in ("bar", "seed"))
    flops, bars = bars.loc["flops"], bars.loc["examples_seen"]
    # joint: .4 after 1.5 of 4 steps of 64, .5 after 2; independent: .4 after 2 steps, never .5
    assert bars.loc["joint", "x"] == pytest.approx((96 + 128) / 2)
    assert dots.loc[("examples_seen", "joint"), "x"].tolist() == pytest.approx([96, 128])
    assert bars.loc["joint", "factor"] == "2.3×"  # (4 / 1.5 + 2) / 2
    bars = flops
    assert bars.loc["uniform", "x"] == pytest.approx(12e9)
    assert dots.loc[("flops", "joint"), "x"].tolist() == pytest.approx([12e9, 16e9])
    assert math.isnan(bars.loc["independent", "x"])  # one of two seeds gets there: the median does not
    assert (bars.loc["independent", "spent"], bars.loc["independent", "reached"]) == (pytest.approx(32e9), 1)
    assert "reference" not in bars.index
    figure = plot.figure()
    words = [{text.get_text() for text in axes.texts} for axes in figure.axes]
    assert words == [{"1.0×", "2.3×", "not reached"}, {"1.0×", "0.9×", "not reached"}]
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["uniform", "independent", "joint"]
    heights = []  # depend on the number of bars
    for some in (results, results.only(["uniform", "joint"])):
        plot = replace(figures.speedup(some, "uniform"), sheet=Sheet(width="3.25in"))
        heights.append(plot.figure().axes[1].get_window_extent().height)
    assert heights[1] < heights[0] < 1.0 * 200  # inches × dots per inch


def test_published_methods(cells):
    plot = figures.published_scores(cells)
    points = plot.data.set_index("text")
    assert (points.loc["JEST++", "kind"], points.loc["SigLIP", "kind"]) == ("ours", "published")
    # Without 10-shot, which CLIP and others lack: (76.9 + 70.3 + 53.3) / 3
    assert points.loc["JEST++", "y"] == pytest.approx((76.9 + 70.3 + 53.3) / 3)
    assert points.loc["JEST++", "x"] == pytest.approx(23)
    assert points.loc["SigLIP", "x"] == pytest.approx(100)
    assert {"CLIP", "OpenCLIP", "Flexi-JEST++"} <= {text.get_text() for text in plot.figure().axes[0].texts}


def test_sources_are_never_mixed(cells):
    """Shown is the source with most points; FLOPs are relative to its own baseline.

    Two tables of users have the name and the positions of the paper's: Ada's without FLOPs, and Zoe's.
    """
    lines = ["source,table,group,method,quantity,printed,unit"]
    lines += [f"{name},comparison,B,MyCLIP,imagenet/zero_shot,10.0,percent" for name in ("Ada", "Zoe")]
    lines += ["Zoe,comparison,B,MyCLIP,flops_total,200,percent"]
    own = published.parse("\n".join(lines).encode(), "own.csv")
    sources = published.frame([*own, *published.paper()])
    plot, alone = figures.published_scores(sources), figures.published_scores(cells)
    pd.testing.assert_frame_equal(plot.data, alone.data)
    assert "As published (Evans et al. 2024), mean of" in plot.texts.caption
    assert "Not shown (FLOPs relative to other baselines): Ada, Zoe." in plot.texts.caption
    assert "Not shown" not in alone.texts.caption
    named = figures.published_scores(sources, source="Zoe")
    assert named.data[["text", "x", "y"]].values.tolist() == [["MyCLIP", 200, 10]]
    assert "baselines): Ada, Evans et al. 2024." in named.texts.caption
    with pytest.raises(ValueError, match=r"no source 'Doe' .*: choose Ada or Zoe or Evans"):
        figures.published_scores(sources, source="Doe")
    with pytest.raises(ValueError, match="no group of the published table 'comparison' has both FLOPs and"):
        figures.published_scores(sources[sources["source"] == "Ada"])


def test_comparable_runs_are_added_to_published_ones(cells, read_runs, stored_run):
    names = ["imagenet/zero_shot", "coco/i2t_r1", "coco/t2i_r1", "coco/i2t_r5"]
    results = read_runs(
        stored_run("uniform", [0.3, 0.5], metrics=names),
        stored_run("joint", [0.4, 0.6], metrics=names, flops_per_step=(3e9, 3e9, 0.0)),
    )
    plot = figures.published_scores(cells, results)
    own = plot.data.query("kind == 'run'").set_index("text")
    assert (own.loc["uniform", "x"], own.loc["uniform", "y"]) == pytest.approx((100, 50))
    assert (own.loc["joint", "x"], own.loc["joint", "y"]) == pytest.approx((200, 60))
    assert "relative to the experiment's baseline" in plot.texts.caption


def test_step_costs(results):
    plot = figures.step_costs(results)
    relative = plot.data.set_index(["label", "component"])["relative"]
    assert relative["uniform", "learner"] == pytest.approx(1)
    assert relative["joint", "scoring"] == pytest.approx(0.9 * 5 / 3)
    assert relative["joint", "selection"] == pytest.approx(0.1 * 5 / 3)
    assert relative["joint", "reference_scoring"] == pytest.approx(5 / 3)
    assert list(plot.data.loc[plot.data["label"] == "joint", "total"]) == pytest.approx([1 + 10 / 3] * 4)
    assert "reference" not in set(plot.data["label"])
    assert {"1.00", "4.33"} <= {text.get_text() for text in plot.figure().axes[0].texts}


def test_costs_are_per_example_and_need_a_price(read_runs, stored_run):
    results = read_runs(
        stored_run("uniform", [0.1, 0.2]),
        stored_run("longer", [0.1] * 8),
        stored_run("waiting", [0.1], state="RUNNING", total_steps=4, config={"schedule.examples_seen": 256}),
    )
    totals = figures.step_costs(results).data.groupby("label")["total"].first()
    assert totals.to_dict() == pytest.approx({"uniform": 1, "longer": 1, "waiting": 1})
    results = read_runs(stored_run("own", [0.2], flops_per_step=None))
    with pytest.raises(ValueError, match="baseline 'own' of 'study' has no price"):
        figures.step_costs(results)


FULL = Forward(image=46.8e9, text=11.0e9)
FLEXI = Step(
    full=FULL, batch_size=32_768, super_batch_size=163_840, embedding_dim=768, approximate=FULL * 0.389,
    approximate_share=0.5, scoring="approximate",
)  # fmt: skip


def test_method_costs_are_those_of_the_paper():
    plot = figures.method_costs(FLEXI)
    totals = plot.data.groupby("label")["total"].first()
    # The appendix: (2 + 2 · 5) / 3 without a cache, 7/3 with one; 3((1 − λ) + λA) + A · 5 with a flexi tower.
    flexi = 0.5 + 0.5 * 0.389 + 0.389 * 5 / 3
    assert totals.to_dict() == pytest.approx(
        {"IID": 1, "JEST": 12 / 3, "JEST, cached reference": 7 / 3, "Flexi-JEST, cached reference": flexi}
    )
    counted = figures.method_costs(FLEXI, "counted").data.groupby("label")["total"].first()
    assert counted["JEST"] > totals["JEST"]
    assert "32,768 of 163,840 examples" in plot.texts.caption
    assert "An approximate forward pass costs 0.39 of a full one." in plot.texts.caption
    with pytest.raises(ValueError, match="unknown convention 'jest'"):
        figures.method_costs(FLEXI, "jest")  # type: ignore[arg-type]
    # Without an approximate pass there is no Flexi-JEST.
    jest = replace(FLEXI, approximate=None, approximate_share=0.0, scoring="full")
    plot = figures.method_costs(jest, "counted")
    assert list(dict.fromkeys(plot.data["label"])) == ["IID", "JEST", "JEST, cached reference"]
    assert plot.name == "method_costs_counted"
    assert "approximate" not in plot.texts.caption
    with pytest.raises(ValueError, match="trains on its whole super-batch"):
        figures.method_costs(replace(jest, super_batch_size=32_768))


def test_only_some_of_very_many_runs_are_shown(read_runs, stored_run):
    results = read_runs(
        stored_run("uniform", [0.1, 0.5]),
        *(stored_run("joint", [0.1, 0.5 + i / 100], label=f"joint {i}") for i in range(45)),
    )
    plot = figures.speedup(results)
    assert len(plot.data.query("effort == 'flops' and kind == 'bar'")) == 13
    assert "joint 44" in set(plot.data["label"])
    assert "Shown: the 12 soonest of 45." in plot.texts.caption
    bars = figures.step_costs(results)
    assert bars.data["label"].nunique() == 20
    assert "Shown: 20 of 46 runs." in bars.texts.caption
