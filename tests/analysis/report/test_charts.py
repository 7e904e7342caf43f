"""Charts in a real browser, without a report: live curves of many runs, and grids of small charts."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect
from tests.browser_support import open_page, tabs

from jestlab.analysis.report.html import HEAD_SCRIPT, SCRIPTS, own_file, style

SETUP = """
const section = document.querySelector("section");
const chart = new Chart(section);
const opened = [];
const small = new SmallCharts(document.querySelector(".grid"), (name) => opened.push(name));
function runs(labels, seeds, points) {
  const x = Array.from({ length: points }, (_, i) => i + 1);
  return Array.from({ length: labels * seeds }, (_, i) => {
    const label = `run ${Math.floor(i / seeds)}`;
    const y = x.map((step) => 5 / step + (i % seeds) + (step % 2));
    const axes = { steps: x, examples: x.map((step) => 32 * step) };
    return { label, name: `${label}/${i % seeds}`, color: "#0b66c3", dash: "", x: axes, y };
  });
}
"""


@pytest.fixture
def tab(browser: Any, tmp_path: Any) -> Iterator[Any]:
    """A page with an empty chart and an empty grid."""
    scripts = "\n".join([own_file(HEAD_SCRIPT), *map(own_file, SCRIPTS), SETUP])
    page = tmp_path / "charts.html"
    page.write_text(
        f"<!doctype html><meta charset=utf-8><style>{style()}</style>"
        "<div class=grid></div><section data-curves>"
        "<div class=tools></div><div class=plot></div><ul class=legend></ul><p class=caption></p></section>"
        f"<script>{scripts}</script>"
    )
    with tabs(browser, open_page) as opening:
        opened = opening(page)
        yield opened.tab
        assert opened.complaints == []


def drawn(tab: Any) -> Any:
    """Return the paths of the lines."""
    return tab.evaluate(
        "[...document.querySelectorAll('section .line')].map((line) => line.getAttribute('d'))"
    )


def test_live_curves_are_over_several_axes_and_smoothed(tab):
    tab.evaluate("chart.show(runsFigure('loss', runs(2, 3, 50)))")
    assert tab.locator(".plot .line").count() == 6
    assert [end.text_content() for end in tab.locator(".plot .end text").all()] == ["run 0", "run 1"]
    title = tab.locator(".plot .title.x")
    assert title.text_content() == "steps"
    tab.locator("select[name=over]").select_option("examples")
    assert title.text_content() == "examples"
    rough = drawn(tab)
    tab.locator("select[name=smooth]").select_option("strong")
    assert drawn(tab) != rough
    assert tab.locator(".plot .seed").count() == 6  # the values themselves, faintly
    box = tab.locator(".plot").bounding_box()
    tab.evaluate("chart.show(runsFigure('loss', runs(2, 3, 60)))")  # new data keep the choices
    assert title.text_content() == "examples" and tab.locator(".plot .seed").count() == 6
    assert tab.locator(".plot").bounding_box() == box


def test_of_many_runs_only_some_are_drawn_and_the_menu_has_the_others(tab):
    tab.evaluate("chart.show(runsFigure('loss', runs(200, 2, 20)))")
    assert tab.locator(".plot .line").count() == 16  # eight labels of two seeds
    menu = tab.locator("button.runs")
    assert menu.text_content() == "8/200 labels"
    menu.click()
    expect(tab.locator(".runs label")).to_have_count(200)  # the menu is filled after its event
    tab.locator(".runs label").last.click()
    assert menu.text_content() == "9/200 labels"
    assert tab.locator(".legend li").all_text_contents()[-1] == "run 199"
    tab.locator(".runs button", has_text="None").click()
    assert menu.text_content() == "0/200 labels"


def test_small_charts_show_the_last_value_and_are_enlarged(tab):
    loss = (
        "{name: 'loss', title: 'training loss', value: '3.1', series: [{label: '', x: [1, 2], y: [4, 3.1]}]}"
    )
    metrics = f"[{loss}, {{name: 'lr', value: '', series: []}}]"
    tab.evaluate(f"small.draw({metrics}, 'lr')")
    cards = tab.locator(".grid button.small")
    assert cards.count() == 2
    assert cards.first.inner_text().split("\n")[:2] == ["training loss", "3.1"]
    sizes = [card.bounding_box() for card in cards.all()]
    assert sizes[0]["height"] == sizes[1]["height"]  # reserved, with or without data
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.evaluate("opened") == ["loss"]
    tab.evaluate(f"small.draw({metrics}, 'loss')")
    assert [card.get_attribute("aria-pressed") for card in cards.all()] == ["true", "false"]
    assert [card.bounding_box() for card in cards.all()] == sizes
    assert tab.locator(".grid .line").count() == 1


def test_an_unknown_value_is_a_gap(tab):
    """A server writes NaN as null, which JavaScript would convert to 0."""
    series = '{label: "a", name: "a", color: "red", dash: "", x: [1, 2, 3, 4], y: [-1, null, 2, 3]}'
    tab.evaluate(f"chart.show(runsFigure('loss', [{series}]))")
    assert drawn(tab)[0].count("M") == 2
    assert tab.locator(".plot .marks path").count() == 3


def test_a_logarithmic_axis_ends_at_lines_and_cuts_bands_off(tab):
    data = "{x: [0, 1, 2], y: [1, 0.1, 0.01], low: [0.5, -0.1, 1e-9], high: [2, 0.4, 0.03]}"
    texts = "{x_text: ['0', '1', '2'], y_text: ['', '', ''], low_text: ['', '', ''], high_text: ['', '', '']}"
    one = f"{{label: 'a', text: 'a', color: 'red', dash: '', ...{data}, ...{texts}}}"
    kind = "kind: 'curves', x_title: 'seconds', y_title: 'loss', y_log: true, levels: []"
    tab.evaluate(f"chart.show({{variants: {{seconds: {{{kind}, series: [{one}]}}}}}})")
    ranges = tab.evaluate("chart.drawing.ranges")
    assert ranges["x"][0] == 0 and 0.007 < ranges["y"][0] < 0.01
    band = tab.locator(".plot .band").get_attribute("d")
    assert (band.count("M"), band.count("L")) == (1, 5)
