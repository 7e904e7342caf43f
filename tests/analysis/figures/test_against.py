"""Figures of final scores against a config key: hand-calculated numbers, names of lines, axes, captions."""

import itertools
from typing import Any

import pytest
from tests.analysis.conftest import UNIFORM, StoredRun

from jestlab.analysis.figures import draw

T = 12.7062  # half the 95% confidence interval of two seeds, relative to half their distance
F, SHARE, BATCH = "selection.filtering_ratio", "approximation.share", "schedule.batch_size"


@pytest.fixture
def plot(new_store):
    """A function that makes a figure of groups of runs, as `runs` makes them."""

    def make(kind, *groups, spec=None, **options):
        store = new_store().add(*itertools.chain.from_iterable(groups), spec=spec)
        return draw(kind, store.url, "study", **options)

    return make


def runs(rule, *scores, states=None, label=None, flops=3e9, **config):
    """Return the runs of a rule, one for each final score; "__" in the name of a key means a dot."""
    point = {key.replace("__", "."): value for key, value in config.items()}
    return [
        StoredRun(
            rule, [0.1, score], label=label or " ".join([rule, *map(str, point.values())]), seed=seed,
            state=states[seed] if states else "COMPLETED", flops_per_step=(flops, 0.0, 0.0),
            config=UNIFORM | {"selection.rule": rule} | point, point=point,
        )
        for seed, score in enumerate(scores)
    ]  # fmt: skip


def ratio(rule, f, *scores, criterion="learnability", **more):
    return runs(rule, *scores, selection__filtering_ratio=f, selection__criterion=criterion, **more)


BASELINE = runs("uniform", 0.3)


def rows(figure, kind="mean", **where) -> Any:
    data = figure.data[figure.data["kind"] == kind]
    for column, value in where.items():
        data = data[data[column] == value]
    return data


def points(figure, **where):
    return [tuple(row) for row in rows(figure, **where)[["x", "y"]].round(6).itertuples(index=False)]


def test_lines_panels_intervals_and_the_level_of_the_baseline(plot):
    figure = plot(
        "filtering_ratio",
        runs("uniform", 0.3, 0.5),
        ratio("joint", 0.9, 0.6, 0.8),
        ratio("joint", 0.5, 0.4, 0.6),
        ratio("independent", 0.5, 0.4),
        ratio("joint", 0.5, 0.2, criterion="hard_learner"),
        ratio("joint", 0.8, 0.3, 0.3, criterion="hard_learner"),
    )
    assert points(figure, panel="learnability", line="joint") == [(0.5, 50), (0.9, 70)]
    assert points(figure, panel="learnability", line="independent") == [(0.5, 40)]
    assert points(figure, panel="hard_learner", line="joint") == [(0.5, 20), (0.8, 30)]
    assert list(rows(figure, "level")["panel"]) == ["learnability", "hard_learner"]
    for found, mean, half in (
        (rows(figure, "level").iloc[0], 40, 10 * T),
        (rows(figure, "level").iloc[1], 40, 10 * T),
        (rows(figure, x=0.9).iloc[0], 70, 10 * T),
        (rows(figure, line="independent").iloc[0], 40, 0),  # of one seed
    ):
        ends = [mean, mean - half, mean + half]
        assert [found["y"], found["low"], found["high"]] == pytest.approx(ends, rel=1e-4)
    assert len(rows(figure, "seed")) == 6  # those of joint, at points with several seeds
    drawn = figure.figure()
    assert [axes.get_title(loc="left") for axes in drawn.axes] == ["learnability", "hard learner"]
    assert drawn.axes[0].get_ylim() == drawn.axes[1].get_ylim()
    legend = {text.get_text() for legend in drawn.legends for text in legend.get_texts()}
    assert legend == {"joint", "independent", "uniform"}
    for part in ("Dotted: uniform.", "95% confidence interval", "separate run"):
        assert part in figure.texts.caption


def test_missing_seeds_are_marked(plot):
    full = plot("filtering_ratio", BASELINE, ratio("joint", 0.5, 0.4), ratio("joint", 0.9, 0.6))
    assert "One seed each." in full.texts.caption
    part = plot(
        "filtering_ratio",
        BASELINE,
        ratio("joint", 0.5, 0.4, 0.4),
        ratio("joint", 0.9, 0.6, 0.7, states=("COMPLETED", "FAILED")),
        ratio("joint", 0.8, 0.6, states=["RUNNING"]),
    )
    assert "Open markers: not all seeds have completed." in part.texts.caption
    assert rows(part, x=0.9)[["seeds", "planned"]].to_numpy().tolist() == [[1, 2]]
    assert "Not shown (no seed has completed): joint 0.8 learnability." in part.texts.caption
    assert {"joint", "uniform"} <= {text.get_text() for text in part.figure().axes[0].texts}


def test_coinciding_points_get_separate_lines(plot):
    def joint(f, chunks, score):
        return runs("joint", score, selection__filtering_ratio=f, selection__chunks=chunks)

    figure = plot(
        "filtering_ratio", BASELINE, joint(0.5, 1, 0.4), joint(0.9, 1, 0.5), joint(0.5, 16, 0.5),
        joint(0.9, 16, 0.7),
    )  # fmt: skip
    assert points(figure, line="joint chunks=1") == [(0.5, 40), (0.9, 50)]
    assert points(figure, line="joint chunks=16") == [(0.5, 50), (0.9, 70)]


def test_a_run_without_a_method_begins_the_lines_of_all(plot):
    def run(rule, method, share, score, flops=3e9):
        config = {"approximation__method": method, "approximation__score": rule == "joint"}
        return runs(rule, score, **config, approximation__share=share, flops=flops)

    groups = [
        run("uniform", "flexi", 0.0, 0.4),
        run("uniform", "flexi", 0.5, 0.5),
        run("uniform", "patch_drop", 0.5, 0.45),
        run("joint", "flexi", 0.0, 0.3),
        run("joint", "flexi", 0.5, 0.6),
    ]
    figure = plot("approximation_share", *groups)
    assert points(figure, panel="flexi", line="uniform") == [(0, 40), (0.5, 50)]
    assert points(figure, panel="patch_drop", line="uniform") == [(0, 40), (0.5, 45)]
    assert points(figure, panel="flexi", line="joint") == [(0, 30), (0.5, 60)]
    assert rows(figure, "level").empty
    assert "FLOPs" not in figure.texts.caption
    unequal = plot("approximation_share", *groups, run("joint", "flexi", 0.75, 0.6, flops=4.5e9))
    assert "differ by up to 1.50×: costs are not equal" in unequal.texts.caption


def test_of_many_lines_only_those_that_vary_the_key_are_shown(plot):
    single = [runs(f"run {i}", 0.5, width=8) for i in range(45)]
    figure = plot(
        "against", BASELINE, *single, runs("wide", 0.4, width=8), runs("wide", 0.6, width=16), x="width"
    )
    assert set(figure.data["line"]) == {"wide", "uniform"}
    assert "Not shown: 45 lines with a single position." in figure.texts.caption
    with pytest.raises(ValueError, match="46 lines are too many for one figure"):
        plot("against", *single, runs("wide", 0.6, width=16), x="width")


def test_a_point_or_line_has_the_look_of_its_label(plot):
    groups = BASELINE, ratio("joint", 0.5, 0.4), ratio("joint", 0.9, 0.6), ratio("other", 0.5, 0.4)
    looks = plot("pareto", *groups).data.drop_duplicates("label").set_index("label")[["color", "marker"]]
    found = rows(plot("filtering_ratio", *groups)).drop_duplicates("line").set_index("label")
    assert found[["color", "marker"]].equals(looks.loc[found.index])


def test_gains_are_paired_by_position_and_seed(plot):
    figure = plot(
        "batch_size",
        runs("uniform", 0.3, 0.4, schedule__batch_size=32),
        runs("uniform", 0.5, 0.5, schedule__batch_size=64),
        runs("joint", 0.5, 0.5, schedule__batch_size=32, selection__filtering_ratio=0.9),
        runs("joint", 0.6, 0.7, schedule__batch_size=64),
        runs("joint", 0.9, schedule__batch_size=128),
    )
    assert points(figure, panel="score", line="uniform") == [(32, 35), (64, 50)]
    assert points(figure, panel="gain") == [(32, 15), (64, 15)]
    assert list(rows(figure, panel="gain")["high"]) == pytest.approx([15 + 5 * T] * 2, rel=1e-4)
    assert "Also different along a line: selection.filtering_ratio." in figure.texts.caption
    left, right = figure.figure().axes
    assert left.get_ylabel() != right.get_ylabel() and left.get_ylim() != right.get_ylim()


def test_words_are_at_equal_distances(plot):
    scores = {("uniform", "softmax"): 0.4, ("uniform", "sigmoid"): 0.5}
    scores |= {("joint", "softmax"): 0.5, ("joint", "sigmoid"): 0.6}
    figure = plot("loss_comparison", *(runs(rule, s, loss=loss) for (rule, loss), s in scores.items()))
    gains = rows(figure, panel="gain")
    assert dict(zip(gains["tick"], gains["y"], strict=True)) == pytest.approx({"softmax": 10, "sigmoid": 10})
    assert [tick.get_text() for tick in figure.figure().axes[0].get_xticklabels()] == ["softmax", "sigmoid"]


@pytest.mark.parametrize(
    ("values", "positions", "ticks", "scale"),
    [
        ((0.0, 1e-4, 1e-3), [0, 1, 2], ["0", "0.0001", "0.001"], "linear"),
        ((1e-3, 1e-2, 1e-1), [1e-3, 1e-2, 1e-1], ["0.001", "0.01", "0.1"], "log"),
        ((0.0, 0.5, 0.9), [0, 0.5, 0.9], ["0", "0.5", "0.9"], "linear"),
        ((True, False), [0, 1], ["True", "False"], "linear"),
        (([1], [2, 3]), [0, 1], ["[1]", "[2, 3]"], "linear"),
    ],
)
def test_each_value_has_its_own_position_and_tick(plot, values, positions, ticks, scale):
    figure = plot("against", *(runs("joint", 0.5, decay=value) for value in values), x="decay")
    assert list(rows(figure)["x"]) == pytest.approx(positions)
    [axes] = figure.figure().axes
    assert axes.get_xscale() == scale
    axes.figure.canvas.draw()
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ticks
    assert not any(tick.get_text() for tick in axes.get_xticklabels(minor=True))


def test_lines_by_another_key_of_a_custom_program_on_the_declared_scale(plot):
    def run(name, width, score):
        return [StoredRun(name, [score], label=f"{name} {width}", config={"width": width, "kind": name})]

    groups = run("narrow", 8, 0.2), run("wide", 32, 0.4), run("wide", 128, 0.5)
    spec = {"metrics": {"*": {"goal": "max", "unit": "percent", "scale": "log"}}}
    figure = plot("against", *groups, x="width", by=("kind",), spec=spec)
    assert points(figure, line="wide") == [(32, 40), (128, 50)]
    assert points(figure, line="narrow") == [(8, 20)]
    assert figure.name == "against_width"
    assert figure.figure().axes[0].get_yscale() == "log"


def test_what_is_missing_is_an_error(plot):
    for kind, key in {"filtering_ratio": F, "approximation_share": SHARE, "loss_comparison": "loss"}.items():
        with pytest.raises(ValueError, match=f"no run of experiment 'study' varies {key}"):
            plot(kind, BASELINE)
    running = [ratio("joint", f, 0.4, states=["RUNNING"]) for f in (0.5, 0.9)]
    with pytest.raises(ValueError, match=f"varies {F} has completed with a score"):
        plot("filtering_ratio", BASELINE, *running)


def drawn_ticks(axes):
    """Return the written texts of the horizontal axis that are inside, and check that none overlap."""
    axes.figure.canvas.draw()
    low, high = axes.get_xlim()
    inside = [text for text in axes.get_xticklabels() if low <= text.get_position()[0] <= high]
    boxes = [text.get_window_extent() for text in inside if text.get_text()]
    assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))
    return [text.get_text() for text in inside if text.get_text()]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1e-5 * 2**i for i in range(12)], ["1e-5", "0.0001", "0.001", "0.01"]),
        ([1e-3, 1.1e-3, 1.2e-3, 1.0], ["0.001", "1"]),
        (
            [0.0, *(10.0**i for i in range(-12, 2))],
            ["0", "1e-11", "1e-9", "1e-7", "1e-5", "0.001", "0.1", "1"],
        ),
        ([f"word {i} of many" for i in range(12)], [f"word {i} of\nmany" for i in range(0, 12, 3)]),
    ],
)
def test_ticks_that_would_overlap_have_no_text(plot, values, ticks):
    figure = plot("against", *(runs("joint", 0.5, decay=value) for value in values), x="decay")
    [axes] = figure.figure().axes
    written = drawn_ticks(axes)
    assert written[: len(ticks)] == ticks


def test_the_texts_of_few_ticks_are_not_broken(plot):
    names = ["independent selection", "uniform"]
    [axes] = plot("against", *(runs("joint", 0.5, decay=name) for name in names), x="decay").figure().axes
    assert drawn_ticks(axes) == names


def test_a_logarithmic_axis_of_scores_is_written_in_short_numbers(plot):
    groups = [runs("joint", 10.0**i, decay=float(i)) for i in range(7)]
    metric = {"goal": "min", "scale": "log"}
    spec = {"metrics": {"shapes/zero_shot": metric, "shapes_retrieval/i2t_r1": metric}}
    [axes] = plot("against", *groups, x="decay", spec=spec).figure().axes
    axes.figure.canvas.draw()
    texts = [text.get_text() for text in axes.get_yticklabels()]
    assert axes.get_yscale() == "log" and {"10,000", "100k", "1M"} <= set(texts)
