"""The page of a study: its HTML, and in a real browser from disk, without network access."""

import base64
import csv
import gzip
import io
import itertools
import json
import re
import shutil

import numpy as np
import pytest
from PIL import Image
from tests.analysis.conftest import StoredRun
from tests.analysis.report.conftest import by_class, by_id, parse_page, words

from jestlab.analysis import tables
from jestlab.analysis.figures import Plot, learning_curves, pareto
from jestlab.analysis.report import build, gather
from jestlab.analysis.results import read as read_frames
from jestlab.analysis.tables.explain import explain

pytestmark = pytest.mark.usefixtures("figure_stubs")
full = pytest.mark.full

DRAWN_BY_MATPLOTLIB = Plot._drawn


@pytest.fixture
def built(new_store, tmp_path):
    """A function that builds the page of an experiment with given runs."""

    def make(*runs, spec=None, **options):
        percent = {"metrics": {"*": {"goal": "max", "unit": "percent"}}}
        store = new_store().add(*runs, spec=percent | (spec or {}), **options)
        store.execute("UPDATE v_costs SET actual_hours = 0.5")
        return build(gather(store.url, "study"), tmp_path / "report")[0]

    return make


@pytest.fixture(scope="module")
def results(study):
    return read_frames(study.url, "study")


@pytest.fixture(scope="module")
def printed(results):
    """The summary and the speed-ups."""
    finals = tables.finals(results, "uniform")
    return {"summary": tables.summary(finals), "speedups": tables.speedup_table(finals)}


# ---- HTML

HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "quotes \"' & $x$ %{y} \\ 🦄 \u2028 end",
    "x" * 300,
]


def data_of(page):
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL
    )
    assert found is not None
    return json.loads(found[1], parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_is_one_small_file(page, parsed_page):
    """It has a static figure for readers without scripts."""
    assert page.stat().st_size < 1_000_000
    images = [image.get("src", "") for image in by_id(parsed_page, "curves").iter("img")]
    assert [image[:10] for image in images] == ["data:image"]
    assert not re.search(r'(?:src|href)="(?!#|data:)', page.read_text().partition("<script")[0])


def test_the_definition_of_a_column_is_that_of_its_button(parsed_page):
    targets = [element.get("popovertarget", "") for element in by_class(parsed_page, "info")]
    popovers = [each.get("id", "") for each in parsed_page.iter() if each.get("popover") is not None]
    abouts = [name for name in popovers if name.startswith("about-")]
    assert len(targets) > 10 and sorted(targets) == sorted(abouts)


def test_hostile_names_and_infinite_scores(built):
    runs = [StoredRun("uniform", [0.1, 0.2], seed=seed) for seed in (0, 1)]
    runs += [StoredRun("joint", [0.2, 0.3], seed=seed, label=label) for label in HOSTILE for seed in (0, 1)]
    runs += [StoredRun("broken", [0.1], label="broken <b>", state="FAILED")]
    runs += [StoredRun("infinite", [float("inf"), 0.3, float("-inf")])]
    runs += [StoredRun("largest", [0.1, 1.7e308], seed=seed) for seed in (0, 1)]
    hostile = built(*runs, question=f"{HOSTILE[0]} {HOSTILE[3]}")
    tree = parse_page(hostile)
    buttons = by_id(tree, "table-summary").iter("button")
    rows = {button.get("data-row") for button in buttons} - {None}
    assert rows == {"uniform", *HOSTILE, "broken <b>", "infinite", "largest"}
    assert "1.7e+308" in words(tree) and not re.search(r"\d{30}", words(tree))
    assert [script.get("type") for script in tree.iter("script")] == [None, "application/json", "module"]
    csv = gzip.decompress(base64.b64decode(data_of(hostile)["files"]["summary.csv"]))
    assert HOSTILE[0] in csv.decode()  # an embedded file cannot end the script
    assert "null" in json.dumps(data_of(hostile)["figures"]["curves"])  # a gap


def test_without_results(built):
    runs = [StoredRun("uniform", [], state="FAILED", reason="it broke <b>here</b>")]
    runs += [StoredRun("joint", [], state="PENDING")]
    reports = [{"kind": "table", "name": "comparison"}, {"kind": "speedup"}]
    page = parse_page(built(*runs, spec={"reports": reports}))
    text = words(page)
    assert "Unfinished: 0 of 2 runs have completed; 1 failed, 1 pending. No run has a final" in text
    assert "Scores below" not in text
    assert "Nothing has been evaluated yet." in text
    assert "it broke <b>here</b>" in text
    assert by_class(page, "plot") == by_class(page, "claim") == []
    assert all(section.get("id") != "claims" for section in page.iter("section"))
    missing = [words(line).partition(":")[0] for line in by_id(page, "not-made").iter("li")]
    assert missing == ["Comparison", "Speedup"]


def test_equal_failures_are_one_row_with_the_error_first(built):
    reason = "exit code 1: loading data | ValueError: no shards"
    runs = [StoredRun("uniform", [], seed=seed, state="FAILED", reason=reason) for seed in range(3)]
    page = parse_page(built(*runs, StoredRun("joint", [], state="FAILED", reason="RuntimeError: other")))
    rows = [[words(cell) for cell in row] for row in by_id(page, "table-failures").iter("tr")][1:]
    assert [row[:3] for row in rows] == [
        ["ValueError: no shards", "3", "uniform/0, uniform/1, uniform/2"],
        ["RuntimeError: other", "1", "joint/0"],
    ]
    assert "exit code 1: loading data" in rows[0]


def test_a_failure_links_to_its_log_if_the_page_is_in_its_lab(study, tmp_path):
    contents = gather(study.url, "study", "uniform")
    page, *files = build(contents, tmp_path / "reports" / "study")
    assert 'href="../../' not in page.read_text()
    (failures,) = (file for file in files if file.name == "failures.csv")
    (row,) = csv.DictReader(failures.read_text().splitlines())
    log = tmp_path / row["log"]
    log.parent.mkdir(parents=True)
    log.touch()
    build(gather(study.url, "study", "uniform"), tmp_path / "reports" / "study")
    assert f'href="../../{row["log"]}"' in page.read_text()


def test_notes_and_equal_tables_are_shown_once_and_backticks_are_code(built, stored_runs):
    runs = [*stored_runs("uniform", *[[0.1, 0.2]] * 2), *stored_runs("joint", *[[0.1, 0.3]] * 2)]
    metrics = ["shapes/zero_shot", "shapes_retrieval/i2t_r1"]
    reports = [{"kind": "table", "score": metrics}, {"kind": "table", "columns": ["score"]}]
    claim = {"statement": "`joint` learns more", "of": "joint", "above": "uniform"}
    page = parse_page(built(*runs, question="Compare both", spec={"reports": reports, "claims": [claim]}))
    results = by_id(page, "results")
    names = [table.get("data-table") for table in by_class(results, "scroll")]
    assert names == ["summary", "summary-2"]
    notes = [words(note) for note in results.iter("li")]
    assert len(set(notes)) == len(notes)
    assert words(by_class(results, "caption")[0]).startswith("Mean of 2 seeds [95% confidence interval]")
    assert "joint" in [words(code) for code in by_id(page, "claims").iter("code")]
    assert "`" not in "".join(words(part) for part in page.iter("section") if part.get("id") != "reproduce")


def test_the_answer_and_a_note_say_that_there_is_one_seed(built):
    page = parse_page(built(StoredRun("uniform", [0.1, 0.4]), StoredRun("joint", [0.1, 0.5])))
    results = by_id(page, "results")
    assert words(by_class(page, "answer")[0]).endswith("by 10.0 points (one seed).")
    assert [words(note) for note in results.iter("li")] == ["† one seed only: its spread is unknown"]
    assert [words(each) for each in by_class(results, "caption")] == ["Numbers open their provenance."]
    assert words(by_class(by_id(page, "curves"), "caption")[0]) == "Dotted: final value of uniform."


def test_an_unfinished_study_without_prices(built):
    html = built(
        StoredRun("uniform", [0.1, 0.2], flops_per_step=None),
        StoredRun("uniform", [0.1], seed=1, state="RUNNING", flops_per_step=None),
        StoredRun("joint", [0.3, 0.4], flops_per_step=None),
        StoredRun("joint", [0.3], seed=1, state="FAILED", flops_per_step=None),
    )
    page = parse_page(html)
    (banner,) = by_class(page, "banner")
    assert "2 of 4 runs have completed; 1 running, 1 failed. Scores below are of" in words(banner)
    assert "1 of 2" in words(by_id(page, "table-summary"))
    assert "No figure" not in words(page)
    assert list(data_of(html)["figures"]["pareto"]["variants"]) == ["examples seen"]  # the known cost
    assert "4 of 4 runs have no planned price" in words(page)
    answer = words(by_id(page, "answer"))
    assert "Examples at least 2.0× fewer" in answer and "FLOPs" not in answer.partition("Learning curves")[0]


# ---- in a browser

CELLS = (
    "[...document.querySelectorAll('{} tbody tr')].map(r => [...r.children].map(c => c.textContent.trim()))"
)
OPEN_ALL = """
async name => {
  const dialog = document.querySelector('dialog');
  const cells = [];
  for (const button of document.querySelectorAll(`#table-${name} td button`)) {
    button.click();
    while (!dialog.open) await new Promise(requestAnimationFrame);
    const [title, body] = ['h2', '.body'].map(part => dialog.querySelector(part).textContent);
    const tables = [...dialog.querySelectorAll('table')].map(table => table.textContent);
    cells.push({...button.dataset, title, body, tables});
    dialog.close();
  }
  return cells;
}
"""


def until(tab, holds):
    """Wait for a condition; Playwright's own waiting violates the policy of the page."""
    for _ in range(1200):
        if holds():
            return
        tab.wait_for_timeout(50)
    pytest.fail("the condition was never true")


def test_no_network_access(opened, page):
    shown = opened(page)
    assert shown.requests == [page.as_uri()]
    assert shown.complaints == []
    # And there can be none: the browser enforces the policy.
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


@full
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_fits_and_is_accessible(opened, page, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shown = opened(page, width, scheme)
    for summary in shown.tab.locator("summary").all():
        summary.click()
    shown.tab.locator("#curves button.runs").click()
    found = axe.run(shown.tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
    assert found.violations_count == 0, found.generate_report()
    assert shown.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.complaints == []
    shown.tab.keyboard.press("Escape")  # closes the menu
    shown.tab.locator("button[data-row=joint][data-column=delta]").click()
    until(shown.tab, shown.tab.locator("dialog").is_visible)
    found = axe.run(shown.tab, context="dialog")
    assert found.violations_count == 0, found.generate_report()
    box = shown.tab.locator("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


OUTSIDE = """
() => [...document.querySelectorAll('.answer *, .tile, table.cards :is(.name, td)')]
  .filter(each => each.getBoundingClientRect().right > 390).map(each => each.textContent.trim())
"""


def test_long_and_right_to_left_names_fit_a_phone(opened, built):
    names = ["uniform", "x" * 60, "انتخاب مشترک دسته‌ها"]
    runs = [
        StoredRun(name, [0.1, 0.4 + 0.1 * place + 0.01 * seed], seed=seed)
        for place, name in enumerate(names)
        for seed in (0, 1)
    ]
    tab = opened(built(*runs, question="Which is best?"), 390).tab
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    assert tab.evaluate(OUTSIDE) == []
    assert tab.locator(".answer .chip").inner_text() == f"✓ Best: {names[2]}"


def test_tables_and_the_answer_are_the_printed_ones(shown, printed):
    for name, table in printed.items():
        rows = shown.tab.evaluate(CELLS.format(f"#table-{name}"))
        assert rows == [[cell.text + cell.mark for cell in line.cells] for line in table.lines]
    tiles = shown.tab.locator(".tile").all_inner_texts()
    table = printed["speedups"]
    assert f"{table.cell('joint', table.column_named('fewer_examples')).text} fewer" in tiles[1]
    delta = printed["summary"].cell("joint", printed["summary"].column_named("delta")).text
    assert delta.split()[0] in tiles[0]


DRAWN = """
name => {
  const plot = document.querySelector(`#${name} .plot svg`);
  const number = text => Number(text.textContent.replaceAll(',', '').replace('−', '-'));
  const texts = [...plot.querySelectorAll('text:not([class])')];
  const along = (side, anchor) => texts.filter(text => text.getAttribute('text-anchor') === anchor)
    .map(text => [Number(text.getAttribute(side)) - (side === 'y' ? 4 : 0), number(text)]);
  const marks = [...plot.querySelectorAll('.marks')].filter(group => !group.matches('.seeds')).map(group =>
    [group.dataset.label, [...group.children].map(mark => {
      const { e, f } = mark.transform.baseVal[0].matrix;
      return [e, f];
    })]);
  return { x: along('x', 'middle'), y: along('y', 'end'), marks: Object.fromEntries(marks) };
}
"""


def test_figures_draw_the_printed_data(shown, results):
    """One line relates the places of ticks and marks to their values."""
    curves, points = learning_curves(results, "uniform").data, pareto(results, "uniform").data
    curves = curves[(curves["role"] != "reference") & (curves["kind"] == "mean")]
    means = points[(points["kind"] == "mean") & (points["role"] != "reference")]
    means = means.assign(cost=means["cost"] / 1e9)
    for name, data, *columns in (("curves", curves, "effort", "mean"), ("pareto", means, "cost", "score")):
        drawn = shown.tab.evaluate(DRAWN, name)
        assert set(drawn["marks"]) == set(data["label"])
        for place, (side, column) in enumerate(zip("xy", columns, strict=True)):
            known = list(drawn[side])
            for label, marks in drawn["marks"].items():
                values = data.loc[data["label"] == label, column]
                known += zip((mark[place] for mark in marks), values, strict=True)
            places, values = np.array(known, float).T
            values = 10 * np.log10(values) if (name, side) == ("pareto", "x") else values
            assert np.polyval(np.polyfit(places, values, 1), places) == pytest.approx(values, abs=0.2)
    steps = shown.tab.locator("#pareto .plot .front").get_attribute("d")
    assert steps.count("H") == int(means["on_front"].astype(bool).sum()) - 1


def test_every_cell_shows_its_explanation(shown, study, printed):
    for name, table in printed.items():
        cells = shown.tab.evaluate(OPEN_ALL, name)
        assert len(cells) >= 15
        for cell in cells:
            told = explain(study.url, table, cell["row"], cell["column"])
            assert cell["title"] == f"{cell['row']} · {told.header}"
            assert told.text in cell["body"]
            assert told.formula in cell["body"]
            made, ran, *differs = cell["tables"]
            for run in told.runs:
                assert run["fingerprint"][:12] in made
                for number in (run["value"], *run["inputs"].values(), *run["against"].values()):
                    assert number is None or f"{number:.6g}".replace("-", "−") in made
                for attempt in run["attempts"]:
                    assert attempt["host"] in ran
                    assert attempt["state"] in ran
            for key, (theirs, ours) in (told.differences or {}).items():
                assert all(part in differs[0] for part in (key, theirs or "—", ours or "—"))
    assert "lost its node" in shown.tab.locator("#table-failures").inner_text()


def test_a_click_on_a_header_sorts_the_rows(opened, page):
    tab = opened(page).tab
    rows = tab.locator("#table-summary tbody th .name")
    score, run = (
        tab.locator("#table-summary th", has=tab.get_by_role("button", name=name, exact=True))
        for name in ("score", "run")
    )
    assert rows.all_inner_texts() == ["reference", "uniform", "independent", "joint"]
    score.get_by_role("button", name="score", exact=True).click()
    assert rows.all_inner_texts() == ["reference", "joint", "independent", "uniform"]
    assert score.get_attribute("aria-sort") == "descending"
    tab.keyboard.press("Enter")
    assert rows.all_inner_texts() == ["reference", "uniform", "independent", "joint"]
    assert score.get_attribute("aria-sort") == "ascending"
    run.locator(".sort").click()
    assert rows.all_inner_texts() == ["reference", "independent", "joint", "uniform"]
    assert (run.get_attribute("aria-sort"), score.get_attribute("aria-sort")) == ("ascending", None)
    score.locator(".info").click()  # the definition stays
    assert tab.locator("[popover]:popover-open").inner_text().startswith("mean over seeds")
    assert run.get_attribute("aria-sort") == "ascending"
    assert tab.locator("#speedups summary").inner_text().split("\n")[-1].endswith("× fewer examples")
    tab.locator("#costs summary").click()
    for column in ("run", "runs"):  # the row of totals stays last
        tab.locator("#table-costs").get_by_role("button", name=column, exact=True).click()
        assert tab.locator("#table-costs tbody th .name").last.inner_text() == "all runs"


MADE = """
sections => {
  const row = text => `<tr><th>${text}</th></tr>`;
  const bodies = sections.map(([title, ...texts]) =>
    `<tbody><tr class="section"><th>${title}</th></tr>${texts.map(row).join('')}</tbody>`);
  const head = '<thead><tr><th><button class="sort">x</button></th></tr></thead>';
  document.querySelector('#table-summary').innerHTML = `<table>${head}${bodies.join('')}</table>`;
}
"""
ROWS = "[...document.querySelectorAll('#table-summary tbody')].map(s => [...s.rows].map(r => r.textContent))"


def test_sections_are_sorted_by_the_first_numbers_of_cells(opened, page):
    tab = opened(page).tab
    first = ["∞ (1/3)", "> 2.5 TFLOP, not reached", "1.5M", "≥ 40.0k†", "9,600", "$0.01"]
    second = ["+16.3 [+7.4, +25.3]", "3 of 4", "2.0×", "1.9%", "1.2e-05", "−2.0 [−3.1, −0.9]", "−10"]
    tab.evaluate(MADE, [["A", "—", *sorted(first), "none 5"], ["B", *sorted(second)]])
    tab.locator("#table-summary .sort").click()
    assert tab.evaluate(ROWS) == [["A", *first, "—", "none 5"], ["B", *second]]
    tab.locator("#table-summary .sort").click()
    assert tab.evaluate(ROWS) == [["A", *first[::-1], "—", "none 5"], ["B", *second[::-1]]]


TICKS = "[...document.querySelectorAll('#curves .plot text:not([class])')].map(t => t.textContent).join()"


def test_controls_drive_the_figures(opened, page, results):
    shown = opened(page)
    tab = shown.tab
    lines, bands = (tab.locator(f"#curves .plot .{part}") for part in ("line", "band"))
    assert bands.count() == lines.count() == 3
    assert tab.locator("#curves .plot .seed").count() == 9  # three seeds each
    tab.locator("#curves button.runs").click()
    tab.locator("#curves .runs label", has_text="joint").locator("input").uncheck()
    assert lines.count() == bands.count() == 2
    tab.locator("#curves .runs button", has_text="None").click()
    assert lines.count() == 0
    tab.locator("#curves .runs button", has_text="All").click()
    assert lines.count() == 4  # the reference, too
    tab.locator("#curves button.runs").click()
    before = tab.evaluate(TICKS)
    for side in ("x", "y"):
        button = tab.locator("#curves .tools button", has_text=f"log {side}")
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        assert tab.evaluate(TICKS) != before
        before = tab.evaluate(TICKS)
    tab.locator("#curves select[name=over]").select_option("training FLOPs")
    assert tab.locator("#curves .plot .title.x").text_content() == "training FLOPs (GFLOP)"
    caption = learning_curves(results, "uniform", "flops").texts.caption
    assert tab.locator("#curves .numbers .caption").text_content() == caption
    assert shown.complaints == []


def test_the_pointer_and_the_keyboard_read_values_and_highlight_labels(opened, page):
    tab = opened(page).tab
    plot, tip = tab.locator("#curves .plot"), tab.locator("#curves .tip")
    lit = "[...document.querySelectorAll('#curves .plot .line.lit')].map(line => line.dataset.label).join()"
    tab.locator("#curves .plot .marks[data-label=joint] path").last.hover()
    assert tip.inner_text().startswith("256 examples seen")
    rows = [row.inner_text().split("\n")[0] for row in tip.locator(".row").all()]
    values = [float(row.inner_text().split("\n")[1].split()[0]) for row in tip.locator(".row").all()]
    assert sorted(rows) == ["independent", "joint", "uniform"]
    assert values == sorted(values, reverse=True)
    assert "[" in tip.locator(".row").first.inner_text()  # the interval
    assert tab.evaluate(lit) == "joint"
    tab.locator("#curves h2").hover()
    assert tab.evaluate(lit) == "" and not tip.is_visible()
    tab.locator("#curves .plot .end[data-label=independent] text").hover()
    assert tab.evaluate(lit) == "independent"
    plot.focus()
    tab.keyboard.press("Escape")
    assert tab.evaluate(lit) == ""
    for heading in ("64 examples seen", "128 examples seen"):
        tab.keyboard.press("ArrowRight")
        assert tip.inner_text().startswith(heading)
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate(lit) == "uniform"
    box = plot.bounding_box()
    reset = tab.locator("#curves .tools button", has_text="Reset zoom")
    before = tab.evaluate(TICKS)
    assert not reset.is_visible()
    tab.mouse.move(box["x"] + 200, box["y"] + 50)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 400, box["y"] + 150)
    tab.mouse.up()
    assert tab.evaluate(TICKS) != before
    reset.click()
    assert tab.evaluate(TICKS) == before
    assert plot.bounding_box() == box  # nothing moved


COLORS = """
() => Object.fromEntries(['curves', 'pareto'].map(name => [name, Object.fromEntries(
  [...document.querySelectorAll(`#${name} .end`)].map(end => [end.dataset.label, getComputedStyle(end).color])
)]))
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_label_has_one_color_in_all_figures_and_at_every_visit(opened, page, results, scheme):
    tab = opened(page, scheme=scheme).tab
    found = tab.evaluate(COLORS)
    assert found["curves"] == found["pareto"]
    expected = {label: getattr(results.colors[label], scheme) for label in found["curves"]}
    assert found["curves"] == {
        label: f"rgb({', '.join(str(int(color[i : i + 2], 16)) for i in (1, 3, 5))})"
        for label, color in expected.items()
    }
    tab.locator("#curves button.runs").click()
    tab.locator("#curves .runs label", has_text="independent").locator("input").uncheck()
    fewer = tab.evaluate(COLORS)["curves"]
    assert fewer == {label: color for label, color in found["curves"].items() if label != "independent"}
    tab.reload()
    assert tab.evaluate(COLORS) == found


BOXES = """
name => [...document.querySelectorAll(`#${name} .end text`)].map(text => {
  const box = text.getBoundingClientRect();
  return [box.left, box.top, box.right, box.bottom];
})
"""


def test_names_overlap_neither_each_other_nor_the_edge_and_many_are_in_a_legend(opened, built):
    runs = [StoredRun(f"run {i}", [0.2, 0.3 + 0.001 * i], seed=seed) for i in range(8) for seed in (0, 1)]
    runs += [StoredRun("a name that is much too long for the margin of a chart", [0.1, 0.2])]
    tab = opened(built(*runs)).tab
    for name in ("curves", "pareto"):
        boxes = tab.evaluate(BOXES, name)
        plot = tab.locator(f"#{name} .plot").bounding_box()
        assert len(boxes) >= 3
        assert all(box[2] <= plot["x"] + plot["width"] for box in boxes)
        for a, b in itertools.combinations(boxes, 2):
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] + 1 or b[3] <= a[1] + 1
    assert tab.locator("#curves .line").count() == 8
    tab.locator("#curves button.runs").click()
    tab.locator("#curves .runs button", has_text="All").click()
    assert tab.locator("#curves .end").count() == 0
    assert tab.locator("#curves .legend li").count() == 9
    tab.locator("#curves .legend li").last.hover()
    assert tab.locator("#curves .plot .line.lit").count() == 1


@pytest.fixture
def mailed(opened, page, tmp_path, request, study, monkeypatch):
    """The page without its other files, opened with access to the clipboard; "drawn" has printed figures."""
    if getattr(request, "param", "") == "drawn":
        monkeypatch.setattr(Plot, "_drawn", DRAWN_BY_MATPLOTLIB)
        page = build(gather(study.url, "study", "uniform"), tmp_path / "drawn")[0]
    shown = opened(shutil.copy(page, tmp_path / "mailed.html"))
    shown.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield shown.tab
    assert shown.complaints == []
    assert all(request.startswith(("file:", "data:", "blob:")) for request in shown.requests)


def press(tab, section, form, verb):
    """Press a button that copies or saves, and return it once it shows the result."""
    label = re.compile(f"^(Copy as |Save )?{re.escape(form)}$")
    tab.locator(f"{section} button[popovertarget^=export]").first.click()
    button = tab.locator(f"{section} .files button[data-{verb}]", has_text=label).first.element_handle()
    before = button.text_content()
    button.click()
    until(tab, lambda: button.text_content() != before)
    tab.keyboard.press("Escape")
    return button


def test_tables_and_figures_are_copied_and_saved(mailed, page, printed, tmp_path):
    table = printed["summary"]
    for form, text in (("LaTeX", table.latex()), ("CSV", table.csv()), ("Markdown", table.markdown())):
        assert press(mailed, "#results", form, "copy").text_content() == "Copied"
        assert mailed.evaluate("navigator.clipboard.readText()") == text
    mailed.locator("#curves select[name=over]").select_option(
        "training FLOPs"
    )  # saved is the figure that is shown
    for section, form, verb, name in (
        ("#results", "summary.tex", "save", "summary.tex"),
        ("#curves", "PDF", "save", "curves_flops.pdf"),
        ("#curves", "provenance", "save", "curves_flops.provenance.json"),
    ):
        with mailed.expect_download() as download:
            press(mailed, section, form, verb)
        assert download.value.suggested_filename == name
        download.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_bytes() == (page.parent / "report" / name).read_bytes()


IMAGE = """
async () => {
  const [item] = await navigator.clipboard.read();
  return [...new Uint8Array(await (await item.getType('image/png')).arrayBuffer())];
}
"""


@full
@pytest.mark.parametrize("mailed", ["drawn"], indirect=True)
def test_figures_are_copied_as_images_and_saved_without_a_clipboard(mailed, printed):
    assert press(mailed, "#pareto", "PNG", "copy").text_content() == "Copied"
    with Image.open(io.BytesIO(bytes(mailed.evaluate(IMAGE)))) as copied:
        assert copied.width > 1100  # sharp enough for print
        assert len(copied.convert("RGB").getcolors(1 << 24) or []) > 50  # something is drawn
    mailed.reload()
    mailed.evaluate(
        "window.kept = navigator.clipboard; Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    assert press(mailed, "#results", "CSV", "copy").text_content() == "Copied"
    assert mailed.evaluate("window.kept.readText()") == printed["summary"].csv()
    with mailed.expect_download() as download:  # an image cannot be selected in a field
        assert press(mailed, "#pareto", "PNG", "copy").text_content().startswith("Saved")
    assert download.value.suggested_filename == "pareto.png"


@full
def test_the_data_of_a_figure_as_a_table(opened, printed, page):
    shown = opened(page)
    shown.tab.locator("#pareto .numbers summary").click()
    until(shown.tab, lambda: shown.tab.locator("#pareto .numbers tbody tr").count())
    lines = shown.tab.evaluate(CELLS.format("#pareto .numbers"))
    summary = printed["summary"]
    score = summary.column_named("score")
    for label in ("uniform", "independent", "joint"):
        mean = next(line for line in lines if line[0] == label and line[1].startswith("mean"))
        assert mean[3] in summary.cell(label, score).text
    shown.tab.locator("#pareto button.runs").click()
    shown.tab.locator("#pareto .runs label", has_text="joint").click()
    numbers = shown.tab.locator("#pareto .numbers .scroll")
    until(shown.tab, lambda: "joint" not in numbers.text_content())
