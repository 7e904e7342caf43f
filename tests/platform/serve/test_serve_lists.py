"""The list of experiments, the search for runs, and SQL."""

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock
from urllib.parse import urlencode

import labs_support as labs
import plans_support as plans
import pytest
from tests.platform.serve.conftest import STUDY, record
from tests.platform.serve.test_serve_browser import until
from tests.waiting import wait_until

from jestlab.platform.serve import experiments, overviews, search
from jestlab.platform.store.annotations import Subject, add_tags
from jestlab.platform.store.store import Store

RUN = plans.run("joint", config={"steps": 3})


def test_runs_are_found_by_words_and_by_conditions(lab, runs, client):
    asks = client(lab)

    def found(**query):
        page = asks.get(f"/runs?{urlencode(query)}").text
        return re.findall(r'aria-label="compare toy/([^"]*)"', page), page

    every, page = found()
    assert set(every) == set(runs) and f'href="/run/{runs["joint/0"]}">joint/0</a>' in page
    assert set(found(where="JOINT")[0]) == {"joint/0", "joint/1"}
    assert found(where="toy/joint/1")[0] == ["joint/1"]
    assert found(where="completed joint 0000000")[0] == []
    assert found(where="seed = 1 and label = 'joint'")[0] == ["joint/1"]
    assert set(found(where="steps = 12")[0]) == {"uniform/0", "uniform/1"}
    assert 'role="alert">' in found(where="sead = 1")[1]


def test_scores_of_a_search_are_those_of_each_experiment(lab, runs, client):
    score = {"name": "summed", "score": ["toy/score"], "base": {"steps": 10, "part": "b"}, "metrics": {}}
    record(lab, STUDY | score)
    page = client(lab).get("/runs?where=joint/0").text
    cells = dict(re.findall(r'compare (\w+)/joint/0.*?data-label="score">([^<]*)<', page, re.DOTALL))
    assert cells == {"toy": "55.0%", "summed": "0.55"}


def test_sql_shows_examples_descriptions_and_errors(lab, runs, client):
    asks = client(lab)
    page = asks.get("/sql").text
    assert "One row for each run of each study" in page and "name of the study" in page
    for example in search.EXAMPLES.values():
        answer = asks.get(f"/sql?{urlencode({'q': example})}").text
        assert 'role="alert"' not in answer and "Download CSV" in answer
    query = "SELECT label,\n  sead FROM v_runs"
    assert "no such column: sead" in asks.get(f"/sql?{urlencode({'q': query})}").text


def test_results_of_sql_are_downloaded_as_csv(lab, runs, client, monkeypatch):
    asks = client(lab)
    address = f"/sql.csv?{urlencode({'q': 'SELECT label, seed, NULL AS x FROM v_runs ORDER BY 1, 2'})}"
    answer = asks.get(address)
    assert answer.headers["content-disposition"] == 'attachment; filename="query.csv"'
    assert answer.text.splitlines()[:3] == ["label,seed,x", "joint,0,", "joint,1,"]
    assert asks.get(f"/sql.csv?{urlencode({'q': 'SELECT 1 FORM x'})}").status == 400
    monkeypatch.setattr(search, "DOWNLOADING", replace(search.DOWNLOADING, rows=5))
    assert asks.get(address).text.startswith("the result has more than 5 rows")


def test_experiments_are_filtered_and_the_last_active_comes_first(lab, runs, client):
    with closing(Store.open(lab.store_url)) as store:
        add_tags(store, Subject(experiment="toy"), ["paper"], "Ada")
        plans.record(store, plans.plan(RUN, name="later"))
    asks = client(lab)

    def shown(query):
        return re.findall(r'href="/experiment/(\w+)"', asks.get(f"/?{query}").text)

    assert shown("") == ["later", "toy"]
    assert shown("tag=paper") == shown("find=FASTER+paper") == ["toy"]
    assert shown("find=paper+later") == []
    with closing(Store.open(lab.store_url)) as store:
        plans.begun(store, RUN, lab.root / RUN.directory).progress(1, 3)
        [late] = [each for each in store.experiments() if each.name == "later"]
        assert late.active_at and late.updated_at and late.active_at > late.updated_at and late.owner
    assert "1 running" in asks.get("/").text


def test_answers_of_experiments_follow_and_are_updated(lab, runs, client, monkeypatch):
    computed = Mock(side_effect=overviews.overview_of)
    monkeypatch.setattr(overviews, "overview_of", computed)
    asks = client(lab)
    assert '<span class="more">…</span>' in asks.get("/").text
    wait_until(lambda: '<span class="more">uniform, toy/score</span>' in asks.get("/").text)
    page = asks.get("/").text
    assert re.search(r'best"><span><b>[\d.]+%</b>', page) and re.search(r'answer">[^\n]*joint', page)
    assert '<svg class="spark"' not in page  # the runs were evaluated once
    for _ in range(3):
        asks.get("/")
    assert computed.call_count == 1
    words = ("retract", "toy/joint/1", "wrong data", "--store", lab.store_url)
    assert labs.here(*words, root=lab.root).returncode == 0
    wait_until(lambda: asks.get("/") and computed.call_count == 2)
    monkeypatch.setattr(experiments, "MOST_RUNS", 1)
    assert "On its page: it has 6 runs" in (large := client(lab)).get("/").text
    assert large.get("/experiment/toy/results").status == 200 and "On its page" not in large.get("/").text
    assert computed.call_count == 2


def test_search_by_keyboard_and_compare(lab, runs, serving, visited):
    shown = visited(serving(lab))
    tab = shown.tab
    tab.keyboard.press("/")
    tab.keyboard.type("toy/joint")
    tab.keyboard.press("Enter")
    until(tab, "location.pathname === '/runs' && document.querySelectorAll('tbody tr').length === 2")
    assert tab.locator(".bar a[aria-current]").inner_text() == "Search"
    assert tab.locator(".search").count() == 0
    compare = tab.locator("button", has_text="Compare selected")
    assert compare.is_disabled()
    for box in tab.locator("tbody input").all():
        box.check()
    compare.click()
    until(tab, "location.pathname === '/compare'")
    assert shown.complaints == []


def test_queries_are_edited_and_run_by_keyboard(lab, runs, serving, visited):
    shown = visited(f"{serving(lab)}/sql")
    tab, query = shown.tab, shown.tab.locator("textarea")
    query.fill("SELECT * FORM v_runs")
    query.press("Control+Enter")
    until(tab, "document.querySelector('[role=alert]')?.textContent.includes('FORM')")
    query.fill("SELECT * FROM v_runs")
    query.press("Meta+Enter")
    until(tab, "document.querySelectorAll('main tbody tr').length === 6")
    with tab.expect_download() as waiting:
        tab.locator("a", has_text="Download CSV").click()
    assert Path(waiting.value.path()).read_text().startswith("experiment,question,")
    assert shown.complaints == []


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1280, "dark"), (390, "light")])
def test_lists_fit_and_are_accessible(lab, runs, serving, visited, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    url = serving(lab)
    queries = ("SELECT * FROM v_runs", "SELECT sead FROM v_runs")
    paths = (
        "/",
        "/?find=nothing",
        "/runs",
        "/runs?where=joint",
        "/runs?where=sead+%3D+1",
    )
    for path in (*paths, *(f"/sql?{urlencode({'q': query})}" for query in queries), "/nowhere"):
        tab = visited(url + path, width, scheme).tab
        found = axe.Axe().run(tab, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})
        assert found.violations_count == 0, f"{path}: {found.generate_report()}"
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
