"""The page of a study: its HTML, and in a real browser from disk, without network access."""

import io
import json
import re
import shutil

import pytest
from PIL import Image
from tests.analysis.report.conftest import Run, by_class, by_id, check_accessible, parse_page, words

from jestlab.analysis import tables
from jestlab.analysis.figures import Plot, learning_curves, pareto
from jestlab.analysis.report import build
from jestlab.analysis.results import read as read_frames
from jestlab.analysis.tables.explain import Origins

pytestmark = pytest.mark.usefixtures("figure_stubs")
full = pytest.mark.full

DRAWN_BY_MATPLOTLIB = Plot._drawn


@pytest.fixture
def built(new_lab):
    """A function that builds the page of an experiment with given runs."""

    def make(*runs, **options):
        lab = new_lab(*runs, **options)
        return build(lab.url, "study", lab.folder / "report")[0]

    return make


@pytest.fixture(scope="module")
def results(study):
    return read_frames(study.url, "study")


@pytest.fixture(scope="module")
def finals(results):
    return tables.finals(results, "uniform")


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


def test_hostile_names_and_infinite_scores(built):
    runs = [Run("uniform", [0.1, 0.2], seed) for seed in (0, 1)]
    runs += [Run("joint", [0.2, 0.3], seed, label=label) for label in HOSTILE for seed in (0, 1)]
    runs += [Run("broken", [0.1], label="broken <b>", ends="fail")]
    runs += [Run("infinite", [float("inf"), 0.3, float("-inf")])]
    hostile = built(*runs, question=f"{HOSTILE[0]} {HOSTILE[3]}")
    tree = parse_page(hostile)
    rows = {button.get("data-row") for button in by_id(tree, "table-summary").iter("button")}
    assert rows == {"uniform", *HOSTILE, "broken <b>", "infinite"}
    assert [script.get("type") for script in tree.iter("script")] == ["application/json", "module"]
    csv = data_of(hostile)["files"]["summary.csv"]["text"]
    assert HOSTILE[0] in csv  # an embedded file cannot end the script
    assert "null" in json.dumps(data_of(hostile)["figures"]["curves"])  # a gap


def test_without_results(built):
    reports = [{"kind": "table", "name": "comparison"}, {"kind": "speedup"}]
    page = parse_page(built(Run("uniform", ends="fail"), Run("joint", ends="none"), reports=reports))
    text = words(page)
    assert "Unfinished: 0 of 2 runs have completed; 1 failed, 1 pending. No run has a final" in text
    assert "Scores below" not in text
    assert "Nothing has been evaluated yet." in text
    assert "it broke <b>here</b>" in text
    assert by_class(page, "plot") == by_class(page, "claim") == []
    assert all(section.get("id") != "claims" for section in page.iter("section"))
    missing = [words(line).partition(":")[0] for line in by_id(page, "not-made").iter("li")]
    assert missing == ["Comparison", "Speedup"]


def test_notes_and_equal_tables_are_shown_once_and_backticks_are_code(built):
    scores = {"uniform": 0.2, "joint": 0.3}
    runs = [Run(name, [0.1, score], seed) for name, score in scores.items() for seed in (0, 1)]
    metrics = ["shapes/zero_shot", "shapes_retrieval/i2t_r1"]
    reports = [{"kind": "table", "score": metrics}, {"kind": "table", "columns": ["score"]}]
    claim = {"statement": "`joint` learns more", "of": "joint", "above": "uniform"}
    page = parse_page(built(*runs, question="Compare both", reports=reports, claims=[claim]))
    results = by_id(page, "results")
    names = [table.get("data-table") for table in by_class(results, "scroll")]
    assert names == ["summary", "speedups", "summary-2"]
    notes = [words(note) for note in results.iter("li")]
    assert notes[-1] == "See also the notes of Final scores ."
    assert len(set(notes)) == len(notes)
    assert words(by_class(results, "caption")[0]).startswith("study: Compare both. Scores in %")
    assert "joint" in [words(code) for code in by_id(page, "claims").iter("code")]
    assert "`" not in "".join(words(part) for part in page.iter("section") if part.get("id") != "reproduce")


def test_the_largest_numbers(built):
    scores = {"uniform": 1e300, "joint": 1.7e308, "none": 0.0}
    page = built(*(Run(name, [0.1, score], seed) for name, score in scores.items() for seed in (0, 1)))
    text = words(parse_page(page))
    assert "1e+300" in text and "1.7e+308" in text
    assert not re.search(r"\d{30}", text)


def test_an_unfinished_study_without_prices(built):
    html = built(
        Run("uniform", [0.1, 0.2], flops=None),
        Run("uniform", [0.1], 1, ends="never", flops=None),
        Run("joint", [0.3, 0.4], flops=None),
        Run("joint", [0.3], 1, ends="fail", flops=None),
    )
    page = parse_page(html)
    (banner,) = by_class(page, "banner")
    assert words(banner).startswith(
        "Unfinished: 2 of 4 runs have completed; 1 running, 1 failed. Scores below are of the completed runs"
    )
    assert "1 of 2" in words(by_id(page, "table-summary"))
    assert "No figure" not in words(page)
    assert list(data_of(html)["figures"]["pareto"]["variants"]) == ["examples seen"]  # the known cost
    assert "4 of 4 runs have no planned price" in words(page)
    answer = words(by_id(page, "answer"))
    assert "joint scores 40.0%, 20.0 points above uniform, by one seed" in answer
    assert "2.0× fewer examples" in answer
    assert "FLOPs" not in answer


# ---- in a browser

CELLS = "[...document.querySelectorAll('{} tbody tr')].map(r => [...r.children].map(c => c.textContent))"
OPEN_ALL = """
async name => {
  const dialog = document.querySelector('dialog');
  const cells = [];
  for (const button of document.querySelectorAll(`#table-${name} button`)) {
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
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    shown = opened(page, width, scheme)
    check_accessible(shown, width)
    shown.tab.locator("button[data-row=joint][data-column=delta]").click()
    until(shown.tab, shown.tab.locator("dialog").is_visible)
    found = axe.Axe().run(shown.tab, context="dialog")
    assert found.violations_count == 0, found.generate_report()
    box = shown.tab.locator("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_tables_equal_the_tables(shown, finals):
    for name, table in (("summary", tables.summary(finals)), ("speedups", tables.speedup_table(finals))):
        rows = shown.tab.evaluate(CELLS.format(f"#table-{name}"))
        assert rows == [[cell.text + cell.mark for cell in line.cells] for line in table.lines]
    answer = shown.tab.locator(".answer").text_content()
    row = next(row for row in rows if row[0] == "joint")  # of speed-ups
    assert f"with {row[3]} fewer examples" in answer
    summary = tables.summary(finals)
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
    """Return label → x and y of its marks, read from their places between the ticks."""
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


def test_figures_draw_the_printed_data(shown, results):
    drawn = values_of(shown.tab.evaluate(DRAWN, "curves"))
    data = learning_curves(results, "uniform").data
    competing = data[data["role"] != "reference"]
    assert set(drawn) == set(competing["label"])
    for label, (xs, ys) in drawn.items():
        own = data[data["label"] == label]
        assert ys == pytest.approx(list(own["mean"]), abs=0.1)  # of a pixel
        assert xs == pytest.approx(list(own["effort"]), abs=0.2)
    points = pareto(results, "uniform").data
    means = points[(points["kind"] == "mean") & (points["role"] != "reference")].set_index("label")
    drawn = values_of(shown.tab.evaluate(DRAWN, "pareto"))
    assert set(drawn) == set(means.index)
    for label, ([x], [y]) in drawn.items():
        assert [x, y] == pytest.approx([means.loc[label, "cost"] / 1e9, means.loc[label, "score"]], abs=0.1)
    on_front = int(means["on_front"].astype(bool).sum())
    steps = shown.tab.locator("#pareto .plot .front").get_attribute("d")
    assert steps.count("H") == on_front - 1


def test_every_cell_shows_its_explanation(shown, study, finals):
    origins = Origins.read(study.url, ["study"])
    for name, table in (("summary", tables.summary(finals)), ("speedups", tables.speedup_table(finals))):
        cells = shown.tab.evaluate(OPEN_ALL, name)
        assert len(cells) >= 15
        for cell in cells:
            told = origins.explain(table, cell["row"], cell["column"])
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


def test_controls_drive_the_figures(opened, page, results):
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
    caption = learning_curves(results, "uniform", "flops").texts.caption
    assert tab.locator("#curves .caption").inner_text() == caption
    tab.locator("#curves .plot .marks[data-label=joint] path").last.hover()
    tip = tab.locator("#curves .tip")
    assert tip.inner_text().startswith("joint\n")
    assert "95% CI" in tip.inner_text()
    assert shown.complaints == []


@pytest.fixture
def mailed(opened, page, tmp_path):
    """The page without its other files, opened with access to the clipboard."""
    yield from open_mailed(opened, page, tmp_path)


@pytest.fixture
def mailed_drawn(opened, study, tmp_path, monkeypatch):
    """The same with all printed figures."""
    monkeypatch.setattr(Plot, "_drawn", DRAWN_BY_MATPLOTLIB)
    yield from open_mailed(opened, build(study.url, "study", tmp_path / "drawn", "uniform")[0], tmp_path)


def open_mailed(opened, page, folder):
    shown = opened(shutil.copy(page, folder / "mailed.html"))
    shown.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield shown.tab
    assert shown.complaints == []
    assert all(request.startswith(("file:", "data:", "blob:")) for request in shown.requests)


def press(tab, section, form, verb):
    """Press a button that copies or saves, and return it once it shows the result."""
    label = re.compile(f"^{re.escape(form)}$")
    button = tab.locator(f"{section} .files button[data-{verb}]", has_text=label).first.element_handle()
    button.click()
    until(tab, lambda: button.text_content() != form)
    return button


def test_tables_and_figures_are_copied_and_saved(mailed, page, finals, tmp_path):
    table = tables.summary(finals)
    for form, text in (("LaTeX", table.latex()), ("CSV", table.csv()), ("Markdown", table.markdown())):
        assert press(mailed, "#results", form, "copy-file").text_content() == "Copied"
        assert mailed.evaluate("navigator.clipboard.readText()") == text
    mailed.locator("#curves input[value='training FLOPs']").check()  # saved is the figure that is shown
    for section, form, verb, name in (
        ("#results", "summary.tex", "save-file", "summary.tex"),
        ("#curves", "PDF", "save-plot", "curves_flops.pdf"),
        ("#curves", "provenance", "save-plot", "curves_flops.provenance.json"),
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
def test_figures_are_copied_as_images_and_saved_without_a_clipboard(mailed_drawn, finals):
    mailed = mailed_drawn
    assert press(mailed, "#pareto", "PNG", "copy-plot").text_content() == "Copied"
    with Image.open(io.BytesIO(bytes(mailed.evaluate(IMAGE)))) as copied:
        assert copied.width > 1100  # sharp enough for print
        assert len(copied.convert("RGB").getcolors(1 << 24) or []) > 50  # something is drawn
    mailed.reload()
    mailed.evaluate(
        "window.kept = navigator.clipboard; Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    assert press(mailed, "#results", "CSV", "copy-file").text_content() == "Copied"
    assert mailed.evaluate("window.kept.readText()") == tables.summary(finals).csv()
    with mailed.expect_download() as download:  # an image cannot be selected in a field
        assert press(mailed, "#pareto", "PNG", "copy-plot").text_content().startswith("Saved")
    assert download.value.suggested_filename == "pareto.png"


@full
def test_the_data_of_a_figure_as_a_table(opened, finals, page):
    shown = opened(page)
    shown.tab.locator("#pareto summary").click()
    until(shown.tab, lambda: shown.tab.locator("#pareto .numbers tbody tr").count())
    lines = shown.tab.evaluate(CELLS.format("#pareto .numbers"))
    summary = tables.summary(finals)
    score = summary.column_named("score")
    for label in ("uniform", "independent", "joint"):
        mean = next(line for line in lines if line[0] == label and line[1].startswith("mean"))
        assert f"{mean[3]} ± {mean[4]}" == summary.cell(label, score).text
    shown.tab.locator("#pareto .series label", has_text="joint").click()
    numbers = shown.tab.locator("#pareto .numbers .scroll")
    until(shown.tab, lambda: "joint" not in numbers.text_content())
