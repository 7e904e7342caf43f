"""The pages in a real browser, over a real SQLite and a real PostgreSQL: live, narrow, dark, by keyboard."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import labs_support as labs
import plans_support as plans
import pytest
import yaml
from sqlalchemy import create_engine, text

from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.annotations import Subject, notes, tags
from jestlab.platform.store.store import Store

STUDY = {
    "base": {"steps": 60, "pause": 0.15},
    "runs": {"reference": {}, "joint": {"needs": ["reference"]}, "uniform": {"steps": 80}},
    "seeds": 2,
    "question": "Is it faster?",
    "reports": [{"table": {"baseline": "uniform"}}],
}
STATE = "document.querySelector('tr[data-place=\"{}\"] [data-cell=state]').textContent"


playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")


def until(tab, expression, seconds=60):
    """Wait until something holds in the page; Playwright's own waiting is what the page's policy forbids."""
    for _ in range(20 * seconds):
        with suppress(playwright.Error):  # the page is just being left for another one
            if tab.evaluate(expression):
                return
        tab.wait_for_timeout(50)
    pytest.fail(f"never so: {expression}")


def fingerprints(url: str) -> dict[str, str]:
    engine = create_engine(url)
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT label, seed, fingerprint FROM v_runs")).all()
    engine.dispose()
    return {f"{label}/{seed}": fingerprint for label, seed, fingerprint in rows}


@pytest.fixture
def finished(root, tmp_path) -> Lab:
    """A lab in which a study of toys has run."""
    spec = labs.write_study(tmp_path, **STUDY | {"base": {"steps": 20}, "seeds": 2})
    assert labs.here("launch", spec, root=root).returncode == 0
    return Lab.find(root)


def test_pages_go_on_while_runs_train(root, tmp_path, store_url, serving, visited, monkeypatch):
    monkeypatch.setenv("JESTLAB_STORE", store_url)
    spec = labs.write_study(tmp_path, **STUDY)
    lab = Lab.find(root)
    with labs.started("launch", spec, "--parallel", 3, root=root) as launch:
        labs.wait_until(lambda: _is_recorded(lab), 60.0)
        server = serving(lab)
        shown = visited(f"{server.url}/experiment/toy")
        tab = shown.tab
        until(tab, STATE.format(0) + ".includes('running')")
        cell = "document.querySelector('tr[data-place=\"0\"] [data-cell=progress] span')"
        steps = f"Number({cell}.textContent.split(' ')[0])"
        before = tab.evaluate(steps)
        until(tab, f"{steps} > {before}")
        points = "(document.querySelector('#losses path.line')?.getAttribute('d').split('L').length ?? 0)"
        until(tab, f"{points} > 2")
        drawn = tab.evaluate(points)
        until(tab, f"{points} > {drawn}")
        assert "60" in tab.locator("tr[data-place='0'] [data-cell=progress]").text_content()
        run = visited(f"{server.url}/run/{fingerprints(store_url)['uniform/0'][:12]}")
        assert run.tab.url.endswith(fingerprints(store_url)["uniform/0"])
        until(tab, "document.querySelector('.states').textContent.includes('6 completed')", 120)
        until(tab, "document.querySelector('#table-summary tbody tr') !== null")
        until(run.tab, "document.querySelector('[data-cell=state]').textContent.includes('completed')")
        launch.communicate()
    asked = {url for page in (shown, run) for url in page.requests}
    assert all(url.startswith((server.url, "data:")) for url in asked)
    assert shown.complaints == run.complaints == []


def _is_recorded(lab: Lab) -> bool:
    store = Store.open_readonly(lab.store_url)
    if store is None:
        return False
    try:
        return any(row.name == "toy" for row in store.experiments())
    finally:
        store.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_pages_fit_and_are_accessible(finished, serving, visited, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    server = serving(finished, writes=True)
    runs = fingerprints(finished.store_url)
    pages = [
        "/",
        "/experiment/toy",
        f"/run/{runs['joint/0']}",
        f"/compare?run={runs['joint/0']}&run={runs['uniform/0']}",
        "/runs?where=seed+%3D+0",
        f"/sql?q={quote('SELECT state, COUNT(*) FROM v_runs GROUP BY 1')}",
        "/published",
        "/experiment/nowhere",
    ]
    for path in pages:
        shown = visited(server.url + path, width, scheme)
        if path == "/experiment/toy":
            until(shown.tab, "document.querySelector('#table-summary tbody tr') !== null")
        shown.tab.wait_for_timeout(200)
        for summary in shown.tab.locator("summary").all():
            summary.click()
        found = axe.Axe().run(shown.tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        assert shown.tab.evaluate("document.documentElement.scrollWidth") <= width, path
        refused = [said for said in shown.complaints if "404" not in said or path != "/experiment/nowhere"]
        assert refused == [], path


def test_everything_is_reached_by_keyboard(finished, serving, visited):
    server = serving(finished)
    tab = visited(f"{server.url}/").tab
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(20):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.textContent") == "toy":
            break
    tab.keyboard.press("Enter")
    until(tab, "location.pathname === '/experiment/toy'")
    tab.locator("input[name=run]").first.focus()
    tab.keyboard.press("Space")
    tab.locator("input[name=run]").nth(2).focus()
    tab.keyboard.press("Space")
    tab.keyboard.press("Enter")
    until(tab, "location.pathname === '/compare'")
    until(tab, "document.querySelectorAll('#curves path.line').length === 2")


def test_the_table_is_sorted_found_in_and_filtered(finished, serving):
    server = serving(finished)

    def shown(query):
        page = server.get(f"/experiment/toy?{query}").text
        return re.findall(r'class="name" href="[^"]*">([^<]*)<', page)

    assert len(shown("")) == 6
    assert set(shown("find=JOINT")) == {"joint"}
    assert shown("state=FAILED") == []
    assert shown("sort=run")[0] == "joint"
    assert shown("sort=-run")[0] == "uniform"
    assert server.get("/experiment/toy?sort=shoesize").status == 400


def test_what_is_written_says_who(finished, serving):
    server = serving(finished, writes=True)
    run = fingerprints(finished.store_url)["joint/0"]
    assert (
        server.post("/experiment/toy/note", {"text": "nice", "by": "Ada"}).headers["location"]
        == "/experiment/toy"
    )
    assert server.post(f"/run/{run}/tag", {"names": "best, keep", "by": "Ada"}).status == 303
    assert server.post(f"/run/{run}/untag", {"names": "keep"}).status == 303
    assert server.post(f"/run/{run}/tag", {"names": "a/b", "by": "Ada"}).status == 400
    assert server.post(f"/run/{run}/accept", {"reason": "x"}).status == 400
    assert server.post("/sql/save", {"name": "mine", "q": "SELECT 1", "by": "Ada"}).status == 303
    assert "mine" in server.get("/sql").text
    assert server.post("/sql/forget", {"name": "mine"}).status == 303
    assert server.post("/sql/forget", {"name": "mine"}).status == 400
    store = Store.open(finished.store_url)
    [note] = notes(store, Subject(experiment="toy"))
    assert (note.text, note.author) == ("nice", "Ada")
    assert tags(store, Subject(fingerprint=run)) == ["best"]
    store.close()
    [(author,)] = sqlite3.connect(finished.root / "results.db").execute(
        "SELECT author FROM v_notes WHERE kind = 'tag'"
    )
    assert author == "Ada"


def test_runs_are_cancelled_and_retried_from_a_page(root, tmp_path, serving):
    runs = {"slow": {"steps": 1_000, "pause": 0.1}, "broken": {"fail_at": 2}}
    spec = labs.write_study(tmp_path, runs=runs)
    lab = Lab.find(root)
    with labs.started("launch", spec, "--parallel", 2, root=root) as launch:
        labs.wait_until(lambda: _is_recorded(lab), 60.0)
        server = serving(lab, writes=True)
        labs.wait_until(lambda: _states(root).get("slow") == "RUNNING", 60.0)
        slow = fingerprints(lab.store_url)["slow/0"]
        assert server.post(f"/run/{slow}/cancel", {"by": "Ada"}).status == 303
        labs.wait_until(lambda: _states(root)["slow"] == "CANCELLED", 60.0)
        launch.communicate()
    assert _states(root) == {"slow": "CANCELLED", "broken": "FAILED"}
    assert server.post("/experiment/toy/retry", {"by": "Ada"}).status == 303
    attempts = "SELECT attempts FROM v_runs WHERE run = 'broken'"
    labs.wait_until(
        lambda: (
            sqlite3.connect(root / "results.db").execute(attempts).fetchone() == (2,)
            and _states(root)["broken"] == "FAILED"
        ),
        60.0,
    )
    page = server.get("/experiment/toy").text
    assert "retried in `jestlab serve`" in page
    assert "Ada" in page


def test_tables_and_figures_are_saved_as_the_report_has_them(finished, serving, visited):
    assert labs.here("report", "toy", root=finished.root).returncode == 0
    folder = finished.root / "reports" / "toy" / "report"
    tab = visited(f"{serving(finished).url}/experiment/toy").tab
    until(tab, "document.querySelector('#table-summary tbody tr') !== null")
    for name in ("summary.csv", "summary.tex", "summary.provenance.json"):
        with tab.expect_download() as waiting:
            tab.locator(f"button[data-save-file='{name}']").first.click()
        saved = Path(waiting.value.path()).read_bytes()
        if name.endswith(".json"):
            assert json.loads(saved)["files"] == json.loads((folder / name).read_text())["files"]
        else:
            assert saved == (folder / name).read_bytes()
    with tab.expect_download() as waiting:
        tab.locator("button[data-save-plot='.svg']").first.click()
    assert Path(waiting.value.path()).read_bytes() == (folder / waiting.value.suggested_filename).read_bytes()
    server = serving(finished)
    assert server.get("/experiment/toy/file/study.yaml").body == (folder / "study.yaml").read_bytes()
    assert server.get("/experiment/toy/file/results.db").status == 404


def test_results_that_are_replaced_keep_what_was_chosen(finished, serving, visited):
    shown = visited(f"{serving(finished).url}/experiment/toy")
    tab = shown.tab
    until(tab, "document.querySelectorAll('#curves path.line').length > 1")
    kept = "[document.querySelector('#reproduce'), document.querySelector('#curves .plot svg')]"
    tab.evaluate(f"{kept}.forEach((each) => each.mine = true)")
    box = tab.locator("#curves .series input").first
    hidden = tab.locator("#curves .series label").first.text_content()
    box.uncheck()
    tab.locator("#curves .controls label", has_text="log").first.click()
    tab.locator("#curves details.numbers summary").click()
    assert labs.here("retract", "toy/joint/1", "wrong data", root=finished.root).returncode == 0
    until(tab, "document.querySelector('#answer').textContent.includes('retracted')")
    assert tab.evaluate(f"{kept}.every((each) => each.mine)")
    assert not box.is_checked()
    assert tab.locator("#curves .series label").first.text_content().split("(")[0] == hidden.split("(")[0]
    assert tab.locator("#curves .controls input[value=log]").first.is_checked()
    assert tab.evaluate("document.querySelector('#curves details.numbers').open")
    lines = "[...document.querySelectorAll('#curves path.line')].map((each) => each.dataset.label)"
    drawn = tab.evaluate(lines)
    assert drawn and hidden.split(" (")[0] not in drawn
    assert shown.complaints == []


def test_the_results_of_a_union_are_those_of_its_studies(root, tmp_path, serving):
    for name in ("mine", "theirs"):
        runs = {"runs": {"uniform": {}, "joint": {"needs": []}}, "base": {"steps": 10, "lab": name}}
        labs.write_study(tmp_path, **STUDY | runs | {"name": name}).rename(tmp_path / f"{name}.yaml")
    both = tmp_path / "both.yaml"
    both.write_text(yaml.safe_dump({"name": "both", "studies": ["mine.yaml", "theirs.yaml"]}))
    assert labs.jestlab("launch", both, root=root).returncode == 0
    page = serving(Lab.find(root)).get("/experiment/both/results").text
    assert 'id="study-mine"' in page
    assert 'id="study-theirs"' in page
    images = re.findall(r'src="(/experiment/both/figure/[^"]+)"', page)
    assert all(serving(Lab.find(root)).get(image).body.startswith(b"\x89PNG") for image in images)


def _states(root) -> dict[str, str]:
    return dict(sqlite3.connect(root / "results.db").execute("SELECT run, state FROM v_runs"))


@plans.ON_SQLITE
def test_several_labs_stand_side_by_side(tmp_path, lab, serving):
    other = Lab.find(tmp_path / "other")
    for each, name in ((lab, "mine"), (other, "mine"), (other, "theirs")):
        each.root.mkdir(exist_ok=True)
        store = Store.open(each.store_url)
        store.record(plans.plan(plans.run("joint", config={"steps": 3, "lab": each.root.name}), name=name))
        store.close()
    server = serving(lab, other)
    front = server.get("/").text
    assert front.count(">mine</a>") == 2
    assert "/experiment/mine?lab=other" in front
    assert server.get("/experiment/theirs?lab=lab").status == 404
    assert "lab other" in server.get("/experiment/mine?lab=other").text
    runs = fingerprints(other.store_url)
    assert server.get(f"/run/{runs['joint/0']}?lab=other").status == 200
    assert server.get("/?lab=nowhere").status in (200, 404)


@plans.ON_SQLITE
def test_a_store_that_goes_away_is_told_and_comes_back(lab, serving, tmp_path):
    store = Store.open(lab.store_url)
    store.record(plans.plan(plans.run("joint", config={"steps": 3})))
    store.close()
    server = serving(lab)
    path = lab.store_url.removeprefix("sqlite:///")
    Path(path).rename(tmp_path / "away.db")
    answer = server.get("/", accept="text/html")
    assert answer.status == 503
    assert "tries again" in answer.text
    (tmp_path / "away.db").rename(path)
    assert server.get("/").status == 200


@plans.ON_SQLITE
def test_without_experiments_the_page_says_what_to_do(lab, serving):
    Store.open(lab.store_url).close()
    assert "jestlab launch quickstart" in serving(lab).get("/").text
