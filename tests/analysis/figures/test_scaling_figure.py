"""Scaling laws as a figure, as a table, and on the page."""

import itertools

import numpy as np
import pytest
from tests.analysis.conftest import UNIFORM, StoredRun

from jestlab.analysis.figures import draw
from jestlab.analysis.report.contents import gather
from jestlab.analysis.tables import Shape, table

SIZES = (10, 20, 40, 80)
REPORT = {"reports": [{"kind": "scaling", "x": "width"}]}


def ladder(run, exponent=0.5, sizes=SIZES, seeds=3, noise=0.002, lost=(), **config):
    """Return the runs of a law, 0.2 + x^(−b); those of `lost`, (size, seed), failed."""
    generator = np.random.default_rng(len(run))
    return [
        StoredRun(
            run, [0.9, 0.2 + size**-exponent + noise * generator.normal()], label=f"{run} width={size}",
            seed=seed, state="FAILED" if (size, seed) in lost else "COMPLETED",
            config=UNIFORM | {"width": size} | config, point={"width": size},
        )
        for size, seed in itertools.product(sizes, range(seeds))
    ]  # fmt: skip


@pytest.fixture
def study(new_store):
    """A function that stores ladders and returns the URL of the store."""

    def make(*ladders, spec=None):
        return (
            new_store()
            .add(*itertools.chain.from_iterable(ladders), spec=REPORT if spec is None else spec)
            .url
        )

    return make


def test_each_run_has_a_law_that_is_extrapolated(study):
    url = study(ladder("a"), ladder("bb", 0.3))
    plot = draw("scaling", url, "study", x="width")
    assert plot.name == "scaling"
    for line, exponent in (("a", 0.5), ("bb", 0.3)):
        law = plot.data[(plot.data["kind"] == "law") & (plot.data["line"] == line)]
        assert (law["x"].min(), law["x"].max()) == pytest.approx((10, 800))
        assert law.loc[law["dash"] == "-", "x"].max() == pytest.approx(80)
        assert ((law["low"] <= law["y"]) & (law["y"] <= law["high"])).all()
        end = law.iloc[-1]
        assert end["low"] < 20 + 100 * 800**-exponent < end["high"]  # in percent
    [axes] = plot.figure().axes
    assert axes.get_xscale() == "log"
    assert axes.get_xlim()[1] >= 800
    assert {text.get_text() for text in axes.texts} == {"a", "bb"}
    near = draw("scaling", url, "study", x="width", to=2.0)
    assert near.data["x"].max() == pytest.approx(160)


def test_the_table_has_intervals_and_the_runs_behind_them(study):
    url = study(ladder("a"), ladder("bb", 0.3))
    found = table(url, "scaling", ["study"], x="width")
    assert [column.header for column in found.columns] == [
        "run", "exponent b", "offset c (%) ↑", "at 800 (%) ↑", "sizes", "seeds",
    ]  # fmt: skip
    row = found.frame.iloc[0]
    assert row["exponent_low"] < 0.5 < row["exponent_high"]
    assert row["offset_low"] < 0.2 < row["offset_high"]  # a share, as recorded
    assert row["predicted_low"] < 0.2 + 800**-0.5 < row["predicted_high"]
    assert (row["sizes"], row["seeds"]) == (4, 3)
    assert "[" in found.cell("a", found.column_named("exponent")).text
    assert found.parts is not None
    assert found.parts.groupby("row").size().to_dict() == {"a": 12, "bb": 12}
    assert table(url, "scaling", ["study"], x="width", to=2.0).columns[3].header == "at 160 (%) ↑"
    chosen = Shape(rows=["bb"])
    assert table(url, "scaling", ["study"], x="width", by=["data.filter"], shape=chosen).rows == ["bb"]
    alone = table(url, "scaling", ["study"], x="width", shape=chosen)
    assert (alone.rows, [note for note in alone.own_notes if note.startswith("a: ")]) == (["bb"], [])


def test_efforts_are_sizes_too(study):
    runs = [
        StoredRun(
            "a", [0.9] * size + [0.2 + size**-0.5 + 0.001 * seed], label=f"a n={size}", seed=seed,
            config=UNIFORM | {"n": size}, point={"n": size},
        )
        for size, seed in itertools.product((2, 4, 8, 16), range(3))
    ]  # fmt: skip
    plot = draw("scaling", study(runs), "study", x="examples_seen")
    assert plot.texts.x == "examples seen"
    assert plot.data.loc[plot.data["kind"] == "mean", "x"].is_monotonic_increasing


def test_what_a_law_lacks_is_reported(study):
    url = study(
        ladder("a"), ladder("few", sizes=SIZES[:2]), ladder("one", lost=[(80, 1), (80, 2)]),
        ladder("part", lost=[(20, 1)]), ladder("noise", noise=0.5), ladder("bent", exponent=0.02),
    )  # fmt: skip
    plot = draw("scaling", url, "study", x="width")
    found = plot.table
    assert found is not None
    for note in (
        "few: a fit takes 3 sizes and 2 seeds that completed at all of them, not 2 and 3",
        "one: without seed 1, which lacks a size; without seed 2, which lacks a size; a fit takes 3 sizes",
        "part: without seed 1, which lacks a size",
        "noise: the fit doesn't converge, since no power law with offset fits best",
        "bent: the offset isn't identified, since the exponent may be 0",
    ):
        assert note in plot.texts.caption
        assert note in " ".join(found.notes)
    assert plot.data.loc[plot.data["kind"] == "law", "line"].unique().tolist() == ["a", "part", "bent"]
    cells = {line.key: [cell.text for cell in line.cells] for line in found.lines}
    assert cells["few"][1:4] == cells["noise"][1:4] == ["—", "—", "—"]
    assert cells["bent"][2] == "—"
    assert "[" in cells["bent"][3]
    plot.figure()


def test_requests_that_cannot_be_answered_name_the_remedy(study):
    url = study(ladder("a", seeds=1), spec={})
    with pytest.raises(ValueError, match="no power law over width: a: a fit takes 3 sizes and 2 seeds"):
        draw("scaling", url, "study", x="width")
    words = [*ladder("b", name="one"), *ladder("c", name="two")]
    with pytest.raises(ValueError, match="name isn't a number above 0 in all runs"):
        draw("scaling", study(words), "study", x="name")


def test_the_page_has_the_table_of_each_figure(study):
    reports = [{"kind": "scaling", "x": "width", "to": to} for to in (10.0, 2.0)]
    page = gather(study(ladder("a"), ladder("bb", 0.3), spec={"reports": reports}), "study")
    tables = {part.name: part.table for part in page.tables}
    for part, end in zip([part for part in page.figures if "scaling" in part.name], (800, 160), strict=True):
        assert part.plot.table is not None
        assert part.plot.table.columns[3].header == f"at {end} (%) ↑"
        assert tables[f"{part.name}-table"].markdown() == part.plot.table.markdown()


def test_a_table_in_a_spec_has_its_own_options(study):
    reports = [{"kind": "table", "name": "scaling", "x": "width", "to": 2.0, "digits": 1}]
    page = gather(study(ladder("a"), ladder("bb", 0.3), spec={"reports": reports}), "study")
    [shown] = [part.table for part in page.tables if part.name == "scaling"]
    assert shown.columns[3].header == "at 160 (%) ↑"
