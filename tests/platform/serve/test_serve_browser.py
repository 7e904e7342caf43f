"""Pages in a real browser over a real server: live, accessible, on narrow screens, by keyboard."""

from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import labs_support as labs
import plans_support as plans
import pytest
from tests.platform.serve.conftest import STUDY, TOKEN

from jestlab.platform.planning.plan import plan
from jestlab.platform.serve import experiment
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.annotations import Subject, notes
from jestlab.platform.store.store import Store

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

HAS_RESULTS = "document.querySelector('#table-summary tbody tr') !== null"
LINES = "[...document.querySelectorAll('#curves path.line')].map((each) => each.dataset.label)"


def until(tab, expression, seconds=60):
    """Wait for a condition in the page; its security policy forbids Playwright's own way of waiting."""
    for _ in range(20 * seconds):
        with suppress(playwright.Error):  # the page is being replaced by another one
            if tab.evaluate(expression):
                return
        tab.wait_for_timeout(50)
    pytest.fail(f"never true: {expression}")


def test_pages_follow_runs(lab, serving, visited):
    planned = plan(StudySpec.parse(STUDY | {"seeds": 1}))
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, planned)
        first, *others = (plans.begun(store, run, lab.root / run.directory) for run in planned.runs)
        url = serving(lab)
        run = visited(f"{url}/run/{planned.runs[0].fingerprint}")
        cards = "[...document.querySelectorAll('#curves button .title')].map((each) => each.textContent)"
        until(run.tab, f"{cards}.join() === 'loss'")  # nothing is logged yet
        shown = visited(f"{url}/?token={TOKEN}")
        tab = shown.tab
        tab.locator("a", has_text="toy").first.click()
        until(tab, "location.pathname === '/experiment/toy'")
        row = "document.querySelector('table.runs tbody tr').textContent"
        until(tab, f"{row}.includes('running')")
        points = "(document.querySelector('#losses path.line')?.getAttribute('d').split('L').length ?? 0)"
        for step in (2, 4, 6):
            first.log(step - 1, {"loss": 2.0 / step})
            first.log(step, {"loss": 1.0 / step})
            first.progress(step, 10)
            first.flush()
            until(tab, f"{row}.includes('{step} of 10')")
            until(tab, f"{points} >= {step}")

        until(run.tab, "document.querySelector('#curves > .plot path.line') !== null")
        for attempt in (first, *others):
            attempt.evaluation(10, 640, 1e6, {"toy/score": 0.5})
            attempt.complete()
    until(tab, f"{row}.includes('completed')")
    until(tab, HAS_RESULTS)
    until(run.tab, "document.querySelector('[data-live=status]').textContent.includes('completed')")
    until(run.tab, f"{cards}.join() === 'loss,toy/score (%) ↑'")
    tab.locator("button[popovertarget='export-summary']").click()
    with tab.expect_download() as waiting:
        tab.locator("button[data-save='summary.csv']").first.click()
    assert b"uniform" in Path(waiting.value.path()).read_bytes()
    tab.locator("#table-summary td button:visible").first.click()
    until(tab, "document.querySelector('dialog').open")
    assert "Computed from" in tab.locator("dialog").inner_text()
    asked = {address for page in (shown, run) for address in page.requests}
    assert all(address.startswith((url, "data:", "blob:")) for address in asked)
    assert shown.complaints == run.complaints == []


def test_labels_open_in_place_and_a_table_is_one_tab_stop(lab, runs, serving, visited):
    shown = visited(f"{serving(lab)}/experiment/toy")
    tab = shown.tab
    stops = "[...document.querySelectorAll('table.runs :is(a, input)')].filter((each) => each.tabIndex === 0)"
    seeds = "document.querySelectorAll('table.runs tr.seed').length"
    tab.evaluate("window.isSamePage = true")
    tab.locator("table.runs a.toggle", has_text="joint").click()
    until(tab, f"{seeds} === 2 && location.search === '?open=joint'")
    tab.locator("table.runs thead a", has_text="loss").click()
    until(tab, "document.querySelector('table.runs th[aria-sort] a').textContent === 'mean loss'")
    assert tab.evaluate(f"{stops}.length") == 1
    tab.locator("table.runs a.toggle", has_text="joint").focus()
    tab.keyboard.press("ArrowDown")
    assert tab.evaluate("document.activeElement.textContent") == "seed 0"
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("Enter")
    until(tab, f"{seeds} === 0")
    assert tab.evaluate("document.activeElement.textContent") == "joint"
    assert tab.evaluate(f"{stops}.length === 1 && window.isSamePage")
    assert shown.complaints == []


def test_live_updates_keep_page_order_and_ticked_runs(lab, serving, visited, monkeypatch):
    monkeypatch.setattr(experiment, "PER_PAGE", 2)
    planned = plan(StudySpec.parse(STUDY | {"seeds": 1}))
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, planned)
        uniform, joint = (
            plans.begun(store, run, lab.root / run.directory)
            for name in ("uniform", "joint")
            for run in planned.runs
            if run.label == name
        )
        for attempt, loss in ((uniform, 3.0), (joint, 2.0)):
            attempt.log(1, {"loss": loss})
            attempt.progress(1, 10)
            attempt.flush()
        shown = visited(f"{serving(lab)}/experiment/toy")
        tab = shown.tab
        tab.evaluate("window.isSamePage = true")
        names = "[...document.querySelectorAll('table.runs .name')].map((each) => each.textContent).join()"
        tab.locator("table.runs thead a", has_text="loss").click()
        until(tab, f"{names} === 'joint/0,uniform/0'")
        tab.locator("input[value='toy/joint/0']").check()
        joint.log(2, {"loss": 4.0})
        joint.progress(2, 10)
        joint.flush()
        until(tab, f"{names} === 'uniform/0,joint/0'")
        assert tab.locator("input[name=run]:checked").get_attribute("value") == "toy/joint/0"
        tab.locator(".pager a[rel=next]").click()
        until(tab, f"{names} === 'reference/0' && document.querySelector('.pager a[rel=prev]') !== null")
        assert "sort=loss" in tab.locator(".pager a[rel=prev]").get_attribute("href")
        assert tab.locator("input[type=hidden][name=sort]").get_attribute("value") == "loss"
        assert tab.evaluate("window.isSamePage")
        tab.locator("input[value='toy/reference/0']").check()
        tab.locator("button", has_text="Compare selected").click()
        until(tab, "location.pathname === '/compare'")
        assert set(parse_qs(urlsplit(tab.url).query)["run"]) == {"toy/reference/0", "toy/joint/0"}
    assert shown.complaints == []


def test_small_charts_are_enlarged_and_keys_are_filtered(lab, runs, serving, visited):
    shown = visited(f"{serving(lab)}/run/{runs['joint/0']}")
    tab = shown.tab
    title = "document.querySelector('#curves > .plot .title.y')?.textContent"
    until(tab, f"{title} === 'loss'")
    tab.locator("#curves .grid button", has_text="toy/score").click()
    until(tab, f"{title} === 'toy/score (%) ↑'")
    tab.locator("summary", has_text="All keys").click()
    tab.locator("input[data-filter]").fill("STEPS")
    visible = "[...document.querySelectorAll('#keys tbody tr')].filter((row) => !row.hidden).length"
    assert tab.evaluate(visible) == 1
    assert shown.complaints == []


def test_forms_write_with_the_token(lab, runs, serving, visited):
    tab = visited(f"{serving(lab)}/experiment/toy?token={TOKEN}").tab
    tab.locator("details.actions summary").click()
    form = tab.locator("form[action$='/note']")
    form.locator("input[name=text]").fill("looks good")
    form.locator("input[name=by]").fill("Ada")
    form.locator("button").click()
    until(tab, "location.pathname !== '/experiment/toy' || document.querySelector('main ul.notes') !== null")
    with closing(Store.open(lab.store_url)) as store:
        found = notes(store, Subject(experiment="toy"))
    assert [(note.text, note.author) for note in found] == [("looks good", "Ada")]


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_pages_fit_and_are_accessible(lab, runs, serving, visited, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    url = serving(lab)
    for path in (
        "/", "/experiment/toy", f"/run/{runs['joint/0']}", "/runs?where=seed+%3D+0",
        f"/compare?run={runs['joint/0']}&run={runs['uniform/0']}", "/experiment/nowhere",
        f"/sql?q={quote('SELECT state, COUNT(*) FROM v_runs GROUP BY 1')}",
    ):  # fmt: skip
        shown = visited(url + path, width, scheme)
        if path == "/experiment/toy":
            until(shown.tab, HAS_RESULTS)
        shown.tab.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
        found = axe.Axe().run(shown.tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        assert shown.tab.evaluate("document.documentElement.scrollWidth") <= width, path
        complaints = [text for text in shown.complaints if "404" not in text or path != "/experiment/nowhere"]
        assert complaints == [], path


@pytest.mark.full
def test_replaced_results_keep_what_was_chosen(lab, runs, serving, visited):
    shown = visited(f"{serving(lab)}/experiment/toy")
    tab = shown.tab
    until(tab, f"{LINES}.length > 1")
    kept = "[document.querySelector('#reproduce'), document.querySelector('#curves .plot svg')]"
    tab.evaluate(f"{kept}.forEach((each) => each.mine = true)")
    tab.locator("#curves button.runs").click()
    hidden = tab.locator("#curves .runs label").first.text_content()
    tab.locator("#curves .runs input").first.uncheck()
    tab.locator("#curves .tools button", has_text="log x").click()
    tab.locator("#curves details.numbers summary").click()
    words = ("retract", "toy/joint/1", "wrong data", "--store", lab.store_url)
    assert labs.here(*words, root=lab.root).returncode == 0
    until(tab, "document.querySelector('#answer').textContent.includes('retracted')")
    assert tab.evaluate(f"{kept}.every((each) => each.mine)")
    assert tab.locator("#curves .tools button", has_text="log x").get_attribute("aria-pressed") == "true"
    assert tab.evaluate("document.querySelector('#curves details.numbers').open")
    drawn = tab.evaluate(LINES)
    assert drawn and hidden.split(" (")[0] not in drawn
    assert shown.complaints == []
