"""Size, texts, font, and legend of printed figures."""

import matplotlib
import pytest

from jestlab.analysis.figures import Sheet, draw

KINDS = ("curves", "pareto", "speedup", "step_costs", "filtering_ratio", "against")
COLUMN = {"width": "3.25in", "title": "none", "caption": "none"}
BELOW = COLUMN | {"legend": "below", "font_size": 9, "font": "serif"}
WIDE = {"width": "17cm", "legend": "none"}

full = pytest.mark.full


@pytest.fixture(scope="module")
def drawn(module_store, stored_run):
    """A function that draws a kind of figure with options of its sheet.

    Uniform sampling and two filtering ratios of two rules: runs for each of `KINDS`.
    """
    runs = [stored_run("uniform", [0.1, 0.2, 0.3 + 0.02 * seed], seed=seed) for seed in (0, 1)]
    for rule in ("joint", "independent"):
        for ratio in (0.5, 0.9):
            config = {"selection": {"rule": rule, "filtering_ratio": ratio, "criterion": "learnability"}}
            runs += [
                stored_run(
                    rule, [0.2, 0.4, 0.4 + ratio / 5 + 0.02 * seed], seed=seed, config=config,
                    label=f"{rule} filtering_ratio={ratio}", flops_per_step=(3e9, 2e9 / ratio, 0.0),
                )
                for seed in (0, 1)
            ]  # fmt: skip
    question = "Does filtering more make learning faster than filtering less?"
    url = module_store.add(*runs, question=question).url
    x = "selection.filtering_ratio"
    return lambda kind, options: draw(kind, url, "study", x=x, sheet=Sheet(**options))


@pytest.mark.parametrize("options", [BELOW, *(pytest.param(each, marks=full) for each in (COLUMN, WIDE))])
@pytest.mark.parametrize("kind", [*KINDS[:-1], pytest.param(KINDS[-1], marks=full)])
def test_a_figure_has_the_requested_width_and_nothing_is_cut(drawn, kind, options):
    figure = drawn(kind, options).figure()
    width, height = figure.get_size_inches()
    assert width == pytest.approx(3.25 if options["width"] == "3.25in" else 17 / 2.54)
    figure.canvas.draw()
    box = figure.get_tightbbox()  # in inches
    assert min(box.x0, box.y0) >= -0.01 and box.x1 <= width + 0.01 and box.y1 <= height + 0.01


def test_the_height_is_that_of_the_whole_figure(drawn):
    for kind in ("curves", "step_costs"):
        figure = drawn(kind, COLUMN | {"height": "60mm"}).figure()
        assert figure.get_size_inches()[1] == pytest.approx(60 / 25.4)
        with pytest.raises(ValueError, match=r"a height of 0\.8in leaves no room .* takes at least \d"):
            drawn(kind, {"width": "3.25in", "height": "0.8in"}).figure()


def test_title_and_caption_can_be_left_out_or_replaced(drawn, tmp_path):
    """A text file has what is left out."""
    bare = drawn("curves", COLUMN)
    assert [text.get_text() for text in bare.figure().texts if text.get_text()] == []
    assert [path.suffix for path in bare.save(tmp_path)] == [".png", ".svg", ".pdf", ".txt"]
    assert (tmp_path / "curves.txt").read_text() == f"{bare.texts.title}\n\n{bare.texts.caption}\n"
    own = drawn("curves", {"title": "Ours", "caption": "Three seeds."})
    assert [text.get_text() for text in own.figure().texts if text.get_text()] == ["Ours", "Three seeds."]


def test_embeds_fonts_by_their_name_and_suggests_the_nearest(drawn):
    plot = drawn("curves", COLUMN | {"font": "stixgeneral", "font_size": 9})  # in any case
    with matplotlib.rc_context({"pdf.compression": 0}):
        pdf = plot._drawn([".pdf"])[0]
    assert b"STIXGeneral" in pdf
    assert b"/Type3" not in pdf
    sizes = {label.get_fontsize() for label in plot.figure().axes[0].get_xticklabels()}
    assert sizes == {9.0}
    message = r"no font 'STIXGenral' is installed: choose 'STIXGeneral' or .*'serif'"
    with pytest.raises(ValueError, match=message):
        drawn("curves", {"font": "STIXGenral"}).figure()


def test_lengths_have_units_and_invalid_options_are_rejected():
    widths = [Sheet(width=width).inches for width in ("1.8in", "4.572 cm", "45.72mm", "130.086pt")]
    assert widths == pytest.approx([1.8] * 4)
    for options, message in (
        ({"width": 3.25}, r"must be a length with its unit, such as 3\.25in.*not '3\.25'"),
        ({"width": "3.25"}, "must be a length with its unit"),
        ({"width": "3ft"}, "must be a length with its unit, such as .*, not '3ft'"),
        ({"width": "325in"}, "must be between 0.8 and 40 inches, not 325"),
        ({"height": "nanin"}, "must be between 0.8 and 40 inches, not nan"),
        ({"font_size": 80}, "less than or equal to 30"),
        ({"font_size": "big"}, "valid number"),
        ({"legend": "left"}, "'direct', 'below' or 'none'"),
        ({"title": 3}, "valid string"),
        ({"widht": "3in"}, "widht"),
    ):
        with pytest.raises(ValueError, match=message):
            Sheet(**options)


def test_options_of_a_report_override_those_of_the_study(new_store, stored_run):
    store = new_store().add(
        stored_run("uniform", [0.1, 0.2]), spec={"figure": {"width": "3.25in", "caption": "none"}}
    )
    plot = draw("curves", store.url, "study", sheet=Sheet(caption="Mine."))
    assert plot.sheet == Sheet(width="3.25in", caption="Mine.")
