"""The page in a real browser: from disk, by keyboard, narrow and wide, light and dark, without network."""

from __future__ import annotations

import json
import re

import pytest

from jestlab.analysis import frames, tables
from jestlab.analysis.efforts import Effort
from jestlab.analysis.figures import learning_curves, pareto
from jestlab.analysis.provenance import Origins
from jestlab.analysis.report import build

pytestmark = pytest.mark.usefixtures("figure_stubs")

CELLS = "[...document.querySelectorAll('{} tbody tr')].map(r => [...r.children].map(c => c.textContent))"
OPEN_ALL = """
name => [...document.querySelectorAll(`#table-${name} button`)].map(button => {
  button.click();
  const dialog = document.querySelector('dialog');
  const [title, body] = ['h2', '.body'].map(part => dialog.querySelector(part).textContent);
  const tables = [...dialog.querySelectorAll('table')].map(table => table.textContent);
  dialog.close();
  return {...button.dataset, title, body, tables};
})
"""
MODES = [(1280, "light"), (400, "dark")]


def until(tab, expression):
    """Wait until something holds in the page; Playwright's own waiting is what the page's policy forbids."""
    for _ in range(100):
        if tab.evaluate(expression):
            return
        tab.wait_for_timeout(50)
    pytest.fail(f"never so: {expression}")


def check_html(page):
    """Parse strictly; there must not be characters that HTML forbids."""
    html5lib = pytest.importorskip("html5lib")
    text = page.read_bytes().decode()
    assert not re.search(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]", text)
    html5lib.HTMLParser(strict=True).parse(text)


def test_html_is_valid(page):
    check_html(page)


def test_no_network_access(opened, page):
    shown = opened(page)
    assert shown.requests == [page.as_uri()]
    assert shown.complaints == []
    # And nothing could be: the policy holds in this browser.
    answer = shown.tab.evaluate(
        "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')"
        ".then((answer) => [answer, document.querySelectorAll('.plot > svg').length])"
    )
    assert answer == ["refused", 2]
    assert "Content Security Policy" in shown.complaints[0]
    assert shown.tab.evaluate(
        "(() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); return window.ran ?? 'refused'; })()"
    ) == "refused"  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), MODES)
def test_it_fits_and_is_accessible(opened, page, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    shown = opened(page, width, scheme)
    assert shown.tab.evaluate("document.documentElement.scrollWidth") <= width
    for summary in shown.tab.locator("summary").all():
        summary.click()
    found = axe.Axe().run(shown.tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert found.violations_count == 0, found.generate_report()
    shown.tab.locator("button[data-row=joint][data-column=delta]").click()
    found = axe.Axe().run(shown.tab, context="dialog")
    assert found.violations_count == 0, found.generate_report()
    box = shown.tab.locator("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    assert shown.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.complaints == []


def test_page_tables_equal_the_tables(shown, study):
    found = frames.read(study.url, "study")
    for name, table in (
        ("summary", tables.summary(tables.finals(found, "uniform"))),
        ("speedups", tables.speedup_table(tables.finals(found, "uniform"))),
    ):
        rows = shown.tab.evaluate(CELLS.format(f"#table-{name}"))
        assert rows == [
            [cell.text + cell.mark for cell in line.cells]
            for section in table.sections
            for line in section.lines
        ]
    answer = shown.tab.locator(".answer").text_content()
    row = next(row for row in rows if row[0] == "joint")  # of speed-ups
    assert f"with {row[3]} fewer examples" in answer
    summary = tables.summary(tables.finals(found, "uniform"))
    assert f"scores {summary.cell('joint', summary.column_named('score')).text}%" in answer


DRAWN = """
name => {
  const plot = document.querySelector(`#${name} .plot svg`);
  const number = text => Number(text.textContent.replaceAll(',', '').replace('−', '-'));
  const texts = [...plot.querySelectorAll('text:not([class])')];
  const along = (side, anchor) => texts.filter(text => text.getAttribute('text-anchor') === anchor)
    .map(text => [Number(text.getAttribute(side)) - (side === 'y' ? 4 : 0), number(text)]);
  const marks = [...plot.querySelectorAll('.marks')].filter(group => group.dataset.label).map(group =>
    [group.dataset.label, [...group.children].map(mark => {
      const { e, f } = mark.transform.baseVal[0].matrix;
      return [e, f];
    })]);
  return { x: along('x', 'middle'), y: along('y', 'end'), marks: Object.fromEntries(marks) };
}
"""


def values_of(drawn):
    """Label → x and y of its marks, read from where they are between the ticks."""
    scales = {}
    for side in ("x", "y"):
        (low, at_low), *_, (high, at_high) = drawn[side]
        slope = (at_high - at_low) / (high - low)
        assert all(at_low + slope * (at - low) == pytest.approx(value) for at, value in drawn[side])
        scales[side] = (low, at_low, slope)
    return {
        label: [
            [at_low + slope * (mark[place] - low) for mark in marks]
            for place, (low, at_low, slope) in enumerate(scales.values())
        ]
        for label, marks in drawn["marks"].items()
    }


def test_page_figures_draw_the_printed_data(shown, study):
    found = frames.read(study.url, "study")
    drawn = values_of(shown.tab.evaluate(DRAWN, "curves"))
    data = learning_curves(found, "uniform").data
    competing = data[data["role"] != "reference"]
    assert set(drawn) == set(competing["label"])
    for label, (xs, ys) in drawn.items():
        own = data[data["label"] == label]
        assert ys == pytest.approx(list(own["mean"]), abs=0.1)  # of a pixel
        assert xs == pytest.approx(list(own["effort"]), abs=0.2)
    points = pareto(found, "uniform").data
    means = points[(points["kind"] == "mean") & (points["role"] != "reference")].set_index("label")
    drawn = values_of(shown.tab.evaluate(DRAWN, "pareto"))
    assert set(drawn) == set(means.index)
    for label, ([x], [y]) in drawn.items():
        assert [x, y] == pytest.approx([means.loc[label, "cost"] / 1e9, means.loc[label, "score"]], abs=0.1)
    on_front = int(means["on_front"].astype(bool).sum())
    steps = shown.tab.locator("#pareto .plot .front").get_attribute("d")
    assert steps.count("H") == on_front - 1


def test_the_caption_follows_the_axis(shown, study):
    found = frames.read(study.url, "study")
    curves = shown.tab.locator("#curves")
    said = set()
    efforts: dict[str, Effort] = {"training FLOPs": "flops", "examples seen": "examples_seen"}
    for axis, effort in efforts.items():
        curves.get_by_label(axis).check()
        caption = curves.locator(".caption").inner_text()
        assert caption == learning_curves(found, "uniform", effort).texts.caption
        said.add(caption)
    assert len(said) == 2
    assert shown.complaints == []


MARKERS = """
[...document.querySelectorAll('#pareto .plot .bars')].map(bars => {
  const { label } = bars.dataset;
  const ends = part => {
    const bar = bars.querySelector(part);
    return bar ? [Number(bar.dataset.low), Number(bar.dataset.high)] : [];
  };
  const plot = bars.closest('svg');
  const mark = plot.querySelector(`.marks[data-label="${label}"] path`);
  const style = getComputedStyle(mark);
  const half = style.fill.match(/url\\("?#(.*?)"?\\)/);
  const fills = half
    ? [...document.getElementById(half[1]).children].map(stop => getComputedStyle(stop).stopColor)
    : [style.fill];
  return {label, score: ends('.of-y'), flops: ends('.of-x'), fill: fills.map(fill => fill === style.stroke)};
})
"""


def test_error_bars_and_fills_equal_the_printed_ones(opened, new_lab, a_run):
    ends = {
        "uniform": ([0.40, 0.44, 0.37], [3e9, 3e9, 3e9]),
        "close": ([0.42, 0.46, 0.41], [2.9e9, 3.3e9, 3.4e9]),
        "joint": ([0.65, 0.69, 0.61], [8e9, 8.2e9, 8.1e9]),
        "low": ([0.1, 0.12, 0.1], [9e9, 9e9, 9e9]),
    }
    lab = new_lab(
        *(
            a_run(name, [0.1, scores[seed]], seed, flops=flops[seed])
            for name, (scores, flops) in ends.items()
            for seed in range(3)
        )
    )
    data = pareto(frames.read(lab.url, "study"), "uniform").data
    means = data[data["kind"] == "mean"].set_index("label")
    assert set(means["standing"]) == {"front", "ambiguous", "dominated"}
    shown = opened(build(lab.url, "study", lab.folder / "report", "uniform")[0])
    filled = {"front": [True], "ambiguous": [True, False], "dominated": [False]}
    for scheme in ("light", "dark"):
        shown.tab.emulate_media(color_scheme=scheme)
        black = "#000000" if scheme == "light" else "#f2f2f2"
        until(
            shown.tab,
            f"document.querySelector('#pareto .plot .marks path[stroke=\"{black}\"]') !== null",
        )
        markers = {marker["label"]: marker for marker in shown.tab.evaluate(MARKERS)}
        assert set(markers) == set(ends)
        for label, marker in markers.items():
            mean = means.loc[label]
            assert marker["score"] == pytest.approx([mean["low"], mean["high"]])
            spans = mean["cost_high"] > mean["cost_low"]
            giga = [mean["cost_low"] / 1e9, mean["cost_high"] / 1e9]
            assert marker["flops"] == (pytest.approx(giga) if spans else [])
            assert marker["fill"] == filled[mean["standing"]], label
    assert shown.complaints == []


def test_the_data_of_a_figure_as_a_table(opened, study, page):
    shown = opened(page)
    shown.tab.locator("#pareto summary").click()
    until(
        shown.tab, "document.querySelectorAll('#pareto .numbers tbody tr').length > 0"
    )  # soon after it opens
    lines = shown.tab.evaluate(CELLS.format("#pareto .numbers"))
    summary = tables.summary(tables.finals(frames.read(study.url, "study"), "uniform"))
    score = summary.column_named("score")
    for label in ("uniform", "independent", "joint"):
        mean = next(line for line in lines if line[0] == label and line[1].startswith("mean"))
        assert f"{mean[3]} ± {mean[4]}" == summary.cell(label, score).text
    shown.tab.locator("#pareto .series label", has_text="joint").click()
    until(shown.tab, "!document.querySelector('#pareto .numbers .scroll').textContent.includes('joint')")
    assert "joint" not in shown.tab.locator("#pareto .numbers .scroll").text_content()


@pytest.mark.parametrize(("name", "make"), [("summary", tables.summary), ("speedups", tables.speedup_table)])
def test_every_cell_shows_its_explanation(shown, study, name, make):
    """The dialog of each cell against its explanation."""
    origins = Origins.read(study.url, ["study"])
    table = make(tables.finals(frames.read(study.url, "study"), "uniform"))
    cells = shown.tab.evaluate(OPEN_ALL, name)
    assert len(cells) >= 15
    for cell in cells:
        told = origins.explain(table, cell["row"], cell["column"])
        assert cell["title"] == f"{cell['row']} · {told.header}"
        assert told.text in cell["body"]
        assert told.formula in cell["body"]
        made, ran, *differs = cell["tables"]
        for run in told.runs:
            assert run.fingerprint[:12] in made
            for number in (run.value, *run.inputs.values(), *run.against.values()):
                assert number is None or f"{number:.6g}".replace("-", "−") in made
            for attempt in run.attempts:
                assert attempt.host in ran
                assert attempt.state in ran
        for key, (theirs, ours) in (told.differences or {}).items():
            assert all(part in differs[0] for part in (key, theirs or "—", ours or "—"))
    assert "lost its node" in shown.tab.locator("#table-failures").inner_text()


def test_everything_is_reached_by_keyboard(opened, page):
    """Tab reaches all controls, with visible focus; Enter opens a dialog, Escape closes it."""
    shown = opened(page)
    tab = shown.tab
    seen: list[dict[str, str]] = []
    for _ in range(400):
        tab.keyboard.press("Tab")
        now = tab.evaluate(
            "(() => { const e = document.activeElement; if (e === document.body) return null;"
            " const style = getComputedStyle(e);"
            " return { tag: e.tagName, row: e.dataset.row ?? '', column: e.dataset.column ?? '',"
            " name: e.name ?? '', outline: style.outlineStyle + ' ' + style.outlineWidth }; })()"
        )
        if now is None:
            break
        seen.append(now)
    wanted = tab.evaluate(
        "[...document.querySelectorAll('a[href], button, summary, input[type=checkbox],"
        " input[type=radio]:checked')].filter(control => control.checkVisibility()).length"
    )
    reached = [one for one in seen if one["tag"] in ("A", "BUTTON", "SUMMARY", "INPUT")]
    assert len(reached) == wanted
    assert {one["outline"] for one in reached} == {"solid 3px"}
    cell = tab.locator("button[data-row=joint][data-column=score]").first
    cell.focus()
    tab.keyboard.press("Enter")
    assert tab.locator("dialog").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog").is_visible()
    assert tab.evaluate("document.activeElement.dataset.column") == "score"


def test_controls_drive_the_figures(opened, page):
    shown = opened(page)
    tab = shown.tab
    lines, bands = (tab.locator(f"#curves .plot .{part}") for part in ("line", "band"))
    before = lines.count()
    assert bands.count() == before == 3
    tab.locator("#curves .series label", has_text="joint").locator("input").uncheck()
    assert lines.count() == bands.count() == before - 1
    tab.locator("#curves .series button", has_text="None").click()
    assert lines.count() == 0
    tab.locator("#curves .series button", has_text="All").click()
    assert lines.count() == before + 1  # the reference, too
    ticks = "[...document.querySelectorAll('#curves .plot text:not([class])')].map(t => t.textContent).join()"
    linear = tab.evaluate(ticks)
    for side in ("x", "y"):
        tab.locator(f"#curves input[name=curves-{side}][value=log]").check()
        assert tab.evaluate(ticks) != linear
        linear = tab.evaluate(ticks)
    tab.locator("#curves input[value='training FLOPs']").check()
    assert tab.locator("#curves .plot .title.x").text_content() == "training FLOPs (GFLOP)"
    tab.locator("#curves .plot .marks[data-label=joint] path").last.hover()
    tip = tab.locator("#curves .tip")
    assert tip.inner_text().startswith("joint\n")
    assert "over 3 seeds" in tip.inner_text()
    assert shown.complaints == []


def test_a_drag_zooms_and_a_double_click_shows_all_again(opened, page):
    shown = opened(page)
    tab = shown.tab
    plot = tab.locator("#curves .plot svg")
    plot.scroll_into_view_if_needed()
    whole = tab.evaluate(DRAWN, "curves")
    box = plot.bounding_box()
    tab.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.2 * box["height"])
    tab.mouse.down()
    tab.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.6 * box["height"])
    tab.mouse.up()
    near = tab.evaluate(DRAWN, "curves")
    assert near["x"][0][1] > whole["x"][0][1]
    assert near["x"][-1][1] < whole["x"][-1][1]
    assert near["y"][-1][1] < whole["y"][-1][1]
    plot.dblclick()
    assert tab.evaluate(DRAWN, "curves") == whole
    assert shown.complaints == []


def test_switching_to_dark_mode_while_the_page_is_open(opened, page):
    shown = opened(page)
    colour = "document.querySelector('#curves .plot .line[data-label=uniform]').getAttribute('stroke')"
    assert shown.tab.evaluate(colour) == "#000000"
    shown.tab.emulate_media(color_scheme="dark")
    until(shown.tab, f"{colour} === '#f2f2f2'")


HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "quotes \"' & $x$ %{y} \\ 🦄 \u2028 end",
    "x" * 300,
]


def test_hostile_names_are_shown_as_text(opened, new_lab, a_run):
    runs = [a_run("uniform", [0.1, 0.2], seed) for seed in (0, 1)]
    runs += [a_run("joint", [0.2, 0.3], seed, label=label) for label in HOSTILE for seed in (0, 1)]
    runs += [a_run("broken", [0.1], label="broken <b>", ends="fail")]
    lab = new_lab(*runs, question=f"{HOSTILE[0]} {HOSTILE[3]}")
    page = build(lab.url, "study", lab.folder / "report")[0]
    check_html(page)
    for width in (1280, 400):
        shown = opened(page, width)
        tab = shown.tab
        assert tab.evaluate("window.hacked") is None
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        labels = tab.locator("#curves .series .one span").all_text_contents()
        assert labels[1:5] == HOSTILE
        for label in HOSTILE:
            button = tab.locator(
                f"#table-summary button[data-row={json.dumps(label, ensure_ascii=False)}][data-column=score]"
            )
            button.click()
            assert label in tab.locator("#provenance-title").text_content()
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
            tab.keyboard.press("Escape")
        tab.locator("#pareto .series button", has_text="All").click()
        told = set()
        for place in range(tab.locator("#pareto .plot .marks path").count()):
            tab.locator("#pareto .plot .marks path").nth(place).hover(force=True)
            told.add(tab.locator("#pareto .tip strong").inner_text())
        assert any(text.startswith(HOSTILE[0]) for text in told)
        assert tab.evaluate("window.hacked") is None
        assert shown.complaints == []
        assert shown.requests == [page.as_uri()]


def test_a_page_without_results(opened, new_lab, a_run):
    lab = new_lab(a_run("uniform", ends="fail"), a_run("joint", ends="none"))
    shown = opened(build(lab.url, "study", lab.folder / "report")[0], 400)
    text = shown.tab.locator("body").inner_text()
    assert "Unfinished: 0 of 2 runs have completed; 1 failed, 1 pending. There is no final score yet." in text
    assert "Scores below" not in text
    assert "Nothing has been evaluated yet." in text
    assert "it broke <b>here</b>" in text
    assert shown.complaints == []
    assert shown.tab.locator(".plot").count() == 0


def test_an_unfinished_study(opened, new_lab, a_run):
    lab = new_lab(
        a_run("uniform", [0.1, 0.2]),
        a_run("uniform", [0.1], 1, ends="never"),
        a_run("joint", [0.3, 0.4]),
        a_run("joint", [0.3], 1, ends="fail"),
    )
    shown = opened(build(lab.url, "study", lab.folder / "report")[0])
    text = shown.tab.locator("body").inner_text()
    assert (
        "Unfinished: 2 of 4 runs have completed; 1 running, 1 failed. Scores below are of the completed runs"
        in text
    )
    assert "joint scores 40.0%, 20.0 points above uniform, by one seed" in text
    assert "1 of 2" in shown.tab.locator("#table-summary").inner_text()
    assert shown.complaints == []


def test_a_study_without_prices(opened, new_lab, a_run):
    lab = new_lab(a_run("uniform", [0.1, 0.2], flops=0.0), a_run("joint", [0.3, 0.4], flops=0.0))
    shown = opened(build(lab.url, "study", lab.folder / "report")[0])
    text = shown.tab.locator("body").inner_text()
    assert "No figure" not in text
    assert "examples seen" in shown.tab.locator("#pareto .plot").inner_text()  # what is known of their cost
    assert "2 of 2 runs have no planned price" in text
    assert "2.0× fewer examples" in text
    assert "FLOPs" not in shown.tab.locator(".answer").inner_text()
    assert shown.complaints == []


def test_a_score_that_is_infinite_is_a_gap(opened, new_lab, a_run):
    lab = new_lab(a_run("uniform", [0.1, float("inf"), 0.3]), a_run("joint", [0.2, 0.3, float("-inf")]))
    [page, *_] = build(lab.url, lab.name, lab.folder)
    assert opened(page).complaints == []
