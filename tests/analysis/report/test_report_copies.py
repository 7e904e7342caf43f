"""Everything in the one file: copying and saving tables and figures from a page that was mailed."""

from __future__ import annotations

import io
import json
import re
import shutil

import pytest
from PIL import Image

from jestlab.analysis import frames, tables
from jestlab.analysis.report import build

READ = "navigator.clipboard.readText()"
IMAGE = """
async () => {
  const [item] = await navigator.clipboard.read();
  const bytes = new Uint8Array(await (await item.getType('image/png')).arrayBuffer());
  return [item.types, [...bytes]];
}
"""


@pytest.fixture
def mailed(page, tmp_path):
    """The page alone, as a colleague has it."""
    return shutil.copy(page, tmp_path / "mailed.html")


@pytest.fixture
def tab(opened, mailed):
    shown = opened(mailed)
    shown.tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield shown.tab
    assert shown.complaints == []
    assert shown.requests[0] == mailed.as_uri()
    assert all(request.startswith(("file:", "data:", "blob:")) for request in shown.requests)


def press(tab, section, form, verb):
    """Press a button, and return it once it has said what it did."""
    button = tab.locator(
        f"{section} .files button[data-{verb}]", has_text=re.compile(f"^{re.escape(form)}$")
    ).first
    handle = button.element_handle()
    handle.click()
    for _ in range(200):
        if handle.text_content() != form:
            return handle
        tab.wait_for_timeout(50)
    pytest.fail(f"{form} said nothing")


def test_tables_are_copied_in_three_forms(tab, study):
    table = tables.summary(tables.finals(frames.read(study.url, "study"), "uniform"))
    for form, text in (("LaTeX", table.latex()), ("CSV", table.csv()), ("Markdown", table.markdown())):
        button = press(tab, "#results", form, "copy-file")
        assert button.text_content() == "Copied"
        assert tab.evaluate(READ) == text
        assert tab.locator("p[role=status]").text_content() == "Copied"
    for _ in range(100):
        if button.text_content() == "Markdown":
            break
        tab.wait_for_timeout(50)
    assert button.text_content() == "Markdown"


def test_without_a_clipboard_texts_are_copied_all_the_same(opened, mailed, study):
    shown = opened(mailed)
    tab = shown.tab
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.evaluate(
        "window.kept = navigator.clipboard; Object.defineProperty(navigator, 'clipboard', {value: undefined})"
    )
    assert press(tab, "#results", "CSV", "copy-file").text_content() == "Copied"
    table = tables.summary(tables.finals(frames.read(study.url, "study"), "uniform"))
    assert tab.evaluate("window.kept.readText()") == table.csv()
    with tab.expect_download() as download:  # an image cannot be selected in a field
        assert press(tab, "#pareto", "PNG", "copy-plot").text_content().startswith("Saved")
    assert download.value.suggested_filename == "pareto.png"


def test_figures_are_copied_as_images(tab, page):
    assert press(tab, "#pareto", "PNG", "copy-plot").text_content() == "Copied"
    types, content = tab.evaluate(IMAGE)
    assert types == ["image/png"]
    with (
        Image.open(io.BytesIO(bytes(content))) as copied,
        Image.open(page.parent / "report" / "pareto.png") as own,
    ):
        assert copied.width > own.width  # sharp enough for print
        assert copied.width / copied.height == pytest.approx(own.width / own.height, rel=0.01)
        assert len(copied.convert("RGB").getcolors(1 << 24) or []) > 50  # something is drawn


def test_files_are_saved_as_they_lie_beside_the_page(tab, page, tmp_path):
    beside = page.parent / "report"
    for section, form, verb, name in (
        ("#results", "summary.tex", "save-file", "summary.tex"),
        ("#results", "summary.provenance.json", "save-file", "summary.provenance.json"),
        ("#curves", "SVG", "save-plot", "curves.svg"),
        ("#curves", "PDF", "save-plot", "curves.pdf"),
        ("#curves", "provenance", "save-plot", "curves.provenance.json"),
        ("#reproduce", "Save study.yaml", "save-file", "study.yaml"),
    ):
        if form.startswith("Save"):
            tab.locator("#reproduce summary").first.click()
        with tab.expect_download() as download:
            press(tab, section, form, verb)
        download.value.save_as(tmp_path / name)
        assert download.value.suggested_filename == name
        assert (tmp_path / name).read_bytes() == (beside / name).read_bytes()


def test_the_figure_that_is_shown_is_the_one_that_is_saved(tab):
    tab.locator("#curves input[value='training FLOPs']").check()
    with tab.expect_download() as download:
        press(tab, "#curves", "PDF", "save-plot")
    assert download.value.suggested_filename == "curves_flops.pdf"


def test_every_button_has_a_name_of_its_own_that_begins_with_what_it_shows(tab):
    buttons = tab.locator(".files button").all()
    assert len(buttons) > 25
    names = []
    for button in buttons:
        shown, name = button.text_content(), button.get_attribute("aria-label")
        assert name is None or name.startswith(shown)
        names.append(name or shown)
    assert len(set(names)) == len(names)


def test_a_page_is_small_and_says_all_without_scripts(browser, mailed):
    assert mailed.stat().st_size < 1_000_000
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(mailed.as_uri())
    assert tab.locator("#curves .plot img").count() == 1  # as it is printed
    assert tab.locator("#curves .plot img").bounding_box()["width"] > 300
    assert tab.locator("button[data-copy-file]").first.is_hidden()
    context.close()


def test_an_embedded_file_cannot_end_the_script(new_lab, a_run, tmp_path):
    lab = new_lab(a_run("uniform", [0.1, 0.2]), a_run("joint", [0.2, 0.3], label="</script><b>"))
    text = build(lab.url, "study", tmp_path / "out")[0].read_text()
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    assert "</script><b>" in json.loads(data[1])["files"]["summary.csv"]["text"]


def test_a_caption_that_is_not_on_the_figure_is_in_the_page(new_lab, a_run, tmp_path):
    figure = {"width": "3.25in", "caption": "none"}
    lab = new_lab(
        a_run("uniform", [0.1, 0.2]),
        a_run("joint", [0.2, 0.3]),
        reports=[{"kind": "speedup", "figure": figure}],
    )
    paths = build(lab.url, "study", tmp_path / "out")
    assert tmp_path / "out" / "report" / "speedup.txt" in paths
    text = paths[0].read_text()
    caption = (tmp_path / "out" / "report" / "speedup.txt").read_text().splitlines()[-1]
    assert caption.startswith("Score: mean of")
    assert '<p class="caption">Score: mean of' in text.partition('id="speedup"')[2].partition("</section>")[0]
    with Image.open(tmp_path / "out" / "report" / "speedup.png") as image:
        assert image.width == 650
