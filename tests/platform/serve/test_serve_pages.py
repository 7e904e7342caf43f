"""What pages show, and what their forms write."""

import html
import json
import math
import re
import threading
from contextlib import closing
from unittest.mock import Mock
from urllib.parse import quote, urlencode

import labs_support as labs
import plans_support as plans
import pytest
from pytest import approx
from sqlalchemy import text, update
from tests.platform.serve.conftest import STUDY, record
from tests.waiting import wait_until

from jestlab.platform.exchange.adopt import Adoption
from jestlab.platform.exchange.source_run import AdoptOptions, SourceRun
from jestlab.platform.lab.lab import Lab
from jestlab.platform.launch import detached
from jestlab.platform.launch.status import Watch
from jestlab.platform.planning.plan import plan
from jestlab.platform.serve import experiment, results
from jestlab.platform.serve import labs as serving_labs
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.annotations import Subject, notes, save_query, saved_queries, tags
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow, EvaluationRow, run_key

RUN = plans.run("joint", config={"steps": 3})


def test_labs_without_experiments_and_studies_without_results(lab, client):
    asks = client(lab)
    assert "jestlab launch quickstart" in asks.get("/").text
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(RUN))
    for path in ("/experiment/toy/results", f"/run/{RUN.fingerprint}"):
        assert asks.get(path).status == 200, path


def test_every_page_answers(lab, runs, client, monkeypatch):
    monkeypatch.setattr(results, "_PAUSE_FACTOR", 0)  # results are made again at once
    run, other = runs["joint/0"], runs["uniform/0"]
    asks = client(lab)
    for path in (
        "/", "/experiment/toy", "/experiment/toy/losses", "/experiment/toy/results",
        f"/run/{run}", f"/run/{run}/curves", f"/run/{run}/log",
        "/runs?where=seed+%3D+0", f"/compare?run={run}&run={other}", f"/compare?run={run}&data",
        f"/sql?q={quote('SELECT state, COUNT(*) FROM v_runs GROUP BY 1')}",
    ):  # fmt: skip
        assert asks.get(path).status == 200, path
    page = asks.get("/experiment/toy").text
    assert page.index('id="answer"') < page.index('<table class="runs') < page.index('id="table-summary"')
    assert 'id="answer"' not in asks.get("/experiment/toy", live="1").text
    shown = asks.get("/experiment/toy/results")
    assert 'id="table-summary"' in shown.text
    assert asks.get("/experiment/toy/results", if_none_match=shown.headers["etag"]).status == 304
    assert asks.get(f"/run/{run[:12]}").headers["location"] == f"/run/{run}"
    assert "6 completed" in asks.get("/").text
    assert len(json.loads(asks.get(f"/compare?run={run}&run={other}&data").body)["charts"]["loss"]) == 2
    for path in ("/experiment/toi", "/run/000000000000", "/nowhere", "/experiment/toy/file/results.db"):
        assert asks.get(path).status == 404, path


def test_live_curves_have_the_color_of_their_label(lab, runs, client):
    asks = client(lab)
    [lines] = json.loads(asks.get("/experiment/toy/losses").body)["charts"].values()
    colors = {one["label"]: one["color"] for one in lines}
    assert len(lines) > len(colors) == len(set(colors.values()))
    assert all(one["color"] == colors[one["label"]] for one in lines)
    page = asks.get("/experiment/toy").text
    assert all(f"background: {color.replace(' ', '')}" in page for color in colors.values())


def test_files_are_those_of_the_report(lab, runs, client):
    assert labs.here("report", "toy", "--store", lab.store_url, root=lab.root).returncode == 0
    folder = lab.root / "reports" / "toy" / "report"
    asks = client(lab)
    figure = next(path.name for path in folder.glob("*.svg"))
    for name in ("summary.csv", "summary.tex", "study.yaml", figure):
        assert asks.get(f"/experiment/toy/file/{name}").body == (folder / name).read_bytes(), name


def test_a_union_shows_the_results_of_its_studies(lab, client):
    parts = {name: STUDY | {"name": name, "base": {"steps": 10, "part": name}} for name in ("mine", "theirs")}
    record(lab, {"name": "both", "studies": parts})
    asks = client(lab)
    page = asks.get("/experiment/both/results").text
    assert 'id="study-mine"' in page and 'id="study-theirs"' in page
    for image in re.findall(r'src="(/experiment/both/figure/[^"]+)"', page):
        assert asks.get(image).body.startswith(b"\x89PNG")


def table_of(page):
    """Return the texts of the cells in each row of the table of runs, and the headers."""
    _, table = page.split('<table class="runs', 1)
    table, *_ = table.partition("</table>")
    rows = [
        [
            " ".join(re.sub("<[^>]*>", " ", cell).split())
            for cell in re.findall("<t[hd].*?</t[hd]>", row, re.S)
        ]
        for row in re.findall("<tr.*?</tr>", table, re.S)
    ]
    return rows[0], rows[1:]


def test_runs_are_grouped_by_label_and_seeds_are_sent_when_opened(lab, runs, client):
    asks = client(lab)
    headers, rows = table_of(asks.get("/experiment/toy").text)
    assert headers == [
        "run",
        "mean toy/score, %",
        "Δ uniform",
        "state",
        "mean loss",
        "mean time",
        "mean FLOPs",
    ]
    assert [row[0] for row in rows] == ["reference ×2 seeds", "joint ×2 seeds", "uniform ×2 seeds"]
    _, joint, uniform = (dict(zip(headers, row, strict=True)) for row in rows)
    # The scores of joint are 55% and 70%: the mean ± 12.706 · 10.607 / √2, by Student's t with one degree.
    assert joint["mean toy/score, %"] == "62.5 [−32.8, 157.8]" and joint["Δ uniform"].startswith("−")
    assert joint["state"] == "✓ 2 completed" and uniform["Δ uniform"] == ""
    page = asks.get("/experiment/toy?open=joint").text
    _, rows = table_of(page)
    assert [row[0] for row in rows] == [
        "reference ×2 seeds",
        "joint ×2 seeds",
        "seed 0",
        "seed 1",
        "uniform ×2 seeds",
    ]
    assert runs["joint/0"] in page and runs["uniform/0"] not in page
    assert 'href="/experiment/toy?open=joint"' not in page  # a second click closes it


def test_the_table_is_searched_filtered_and_sorted(lab, runs, client):
    def shown(query):
        return [row[0] for row in table_of(client(lab).get(f"/experiment/toy?{query}").text)[1]]

    assert shown("find=JOINT") == ["joint ×2 seeds"]
    assert shown(f"find={runs['joint/1'][:12]}") == ["joint/1"]
    assert shown("state=FAILED") == []
    assert shown("sort=run")[0] == "joint ×2 seeds"
    assert shown("sort=-run")[0] == "uniform ×2 seeds"
    assert [label.split()[0] for label in shown("sort=-score")] == ["uniform", "joint", "reference"]
    assert shown("sort=-loss&open=joint")[1:] == ["joint ×2 seeds", "seed 1", "seed 0", "reference ×2 seeds"]
    assert client(lab).get("/experiment/toy?sort=shoesize").status == 400


def test_many_labels_are_on_several_pages(lab, runs, client, monkeypatch):
    monkeypatch.setattr(experiment, "PER_PAGE", 2)
    asks = client(lab)
    first, second = (asks.get(f"/experiment/toy?page={page}&sort=run").text for page in (1, 2))
    assert [len(table_of(page)[1]) for page in (first, second)] == [2, 1]
    assert "/experiment/toy?sort=run&amp;page=2" in first and "Page 2 of 2" in second


def scores_of(page):
    """Return the texts of the cells in each row of the table of last scores."""
    table = page[page.index('id="scores"') : page.index("</table>")]
    rows = re.findall("<tr>.*?</tr>", html.unescape(table), re.S)
    return [[cell for cell in map(str.strip, re.findall(r">([^<>]+)<", row)) if cell] for row in rows]


def test_labels_are_compared_by_means_paired_by_seed(lab, runs, client):
    asks = client(lab)
    page = asks.get("/compare?run=toy/joint&run=toy/uniform").text
    assert set(re.findall(r'href="/run/([0-9a-f]+)"', page)) == {
        fingerprint for name, fingerprint in runs.items() if not name.startswith("reference")
    }
    # Uniform, the baseline of the study, is the base, although it isn't the first.
    assert scores_of(page) == [
        ["score", "toy/joint", "Δ", "toy/uniform"],
        ["toy/score (%) ↑", "62.5 [−32.8, 157.8]", "−5.0 [−5.0, −5.0]", "67.5 [−27.8, 162.8]"],
    ]
    assert "Single runs" not in page and 'class="bad" data-label="Δ">−5.0' in page and ">steps</th>" in page
    page = asks.get("/compare?run=toy/joint&run=toy/uniform&base=toy/joint").text
    assert scores_of(page)[0] == ["score", "toy/joint", "toy/uniform", "Δ"]
    assert scores_of(page)[1][-1] == "+5.0 [+5.0, +5.0]" and "base=toy%2Funiform" in page
    answer = asks.get("/compare?run=toy/joint&run=toy/uniform&base=toy/unifrom")
    assert answer.status == 400 and "did you mean 'toy/uniform'?" in answer.text


def test_a_run_is_compared_with_the_baseline_of_its_study(lab, runs, client):
    asks = client(lab)
    page = asks.get(f"/run/{runs['joint/0']}").text
    [link] = re.findall(r'href="(/compare[^"]*)">Compare with the baseline, uniform<', page)
    assert scores_of(asks.get(html.unescape(link)).text)[0] == ["score", "toy/uniform", "toy/joint", "Δ"]
    assert "<span>score " in page and re.findall(r'<th scope="row"><b>(\w+)</b>', page) == ["steps"]
    page = asks.get(f"/run/{runs['uniform/0']}").text
    assert "Compare with the baseline" not in page and '<th scope="row"><b>' not in page


def test_one_seed_has_no_interval(lab, runs, client):
    asks = client(lab)
    page = asks.get("/compare?run=toy/uniform/0&run=toy/joint/0").text
    assert scores_of(page)[1][1:] == ["60.0", "55.0", "−5.0"]
    assert "Single runs, without intervals" in page and 'class="bad"' not in page
    page = asks.get("/compare?run=toy/joint").text  # seeds of one label are compared with each other
    assert scores_of(page)[1][-1] == "+15.0"
    assert ">seed</th>" in page


def test_compared_curves_have_the_colors_of_their_labels(lab, runs, client):
    asks = client(lab)
    [lines] = json.loads(asks.get("/experiment/toy/losses").body)["charts"].values()
    colors = {one["name"]: one["color"] for one in lines}
    names = urlencode([("run", "toy/joint"), ("run", runs["uniform/0"]), ("data", "1")])
    lines = json.loads(asks.get(f"/compare?{names}").body)["charts"]["toy/score"]
    assert [(line["name"], line["y"]) for line in lines] == [
        ("toy/joint/0", approx([55.0])), ("toy/joint/1", approx([70.0])), ("toy/uniform/0", approx([60.0])),
    ]  # fmt: skip
    assert all(line["color"] == colors[line["name"].removeprefix("toy/")] for line in lines)
    assert [line["label"] for line in lines] == ["toy/joint", "toy/joint", "toy/uniform/0"]


def test_whether_percent_is_from_0_to_100_is_decided_by_all_runs_of_a_study(lab, runs, client):
    high = update(EvaluationRow).where(EvaluationRow.run_id == run_key(runs["joint/0"])).values(value=45.0)
    with closing(Store.open(lab.store_url)) as store, store.writing() as connection:
        connection.execute(high)
    asks, run = client(lab), runs["uniform/0"]
    [line] = json.loads(asks.get(f"/compare?run={run}&data").body)["charts"]["toy/score"]
    assert line["y"] == approx([0.6]) and "<span>score 0.6%" in asks.get(f"/run/{run}").text


def test_names_of_compared_runs_mean_one_run(tmp_path, lab, runs, client):
    other = Lab.find(tmp_path / "other")
    other.root.mkdir()
    record(other, STUDY | {"base": {"steps": 11}})
    record(other, STUDY | {"name": "elsewhere", "base": {"steps": 10, "part": "b"}})
    asks = client(lab, other)
    for query, status, line in (
        ("run=toy/jiont/0", 404, "expected experiment/label/seed; did you mean 'toy/joint/0'?"),
        ("run=toi/joint/0", 404, "no experiment 'toi'"),
        ("run=toy/joint/0", 400, "several labs have runs named 'toy/joint/0': add one of lab=lab, lab=other"),
    ):
        answer = asks.get(f"/compare?{query}")
        assert answer.status == status and line in answer.text, query
    assert runs["joint/0"] in asks.get("/compare?run=toy/joint/0&lab=lab").text
    assert asks.get("/compare?run=elsewhere/joint/0").status == 200


def test_the_page_of_a_run_folds_failures_and_shows_the_exception_first(lab, client):
    failing = plans.run("joint", config={"steps": 3})
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(failing))
        for number, error in enumerate(("no device", "step 3", "step 4"), start=1):
            attempt = plans.begun(store, failing, lab.root / failing.directory)
            attempt.fail(f"exit code 1: line {number} | ValueError: {error}")
    page = client(lab).get(f"/run/{failing.fingerprint}").text
    banner, *_ = page[page.index('role="alert"') :].partition("</p>")
    assert "<b>ValueError: step 4 (exit code 1)</b> ×2" in banner and "#log" in banner
    rows = re.findall(r'<tr><th scope="row">([^<]*)</th>.*?<b>(.*?)</b>', page[page.index('id="attempts"') :])
    assert rows == [("1", "ValueError: no device (exit code 1)"), ("2–3", "ValueError: step 4 (exit code 1)")]


def test_the_page_of_a_run_names_the_code_of_an_installed_jestlab(lab, client):
    """Attempts with different code aren't folded, and custom code is listed after it, or alone."""
    failing = plans.run("joint", config={"steps": 3})
    codes = "0.1.0+code.111111111111", "0.1.0+code.222222222222", None
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(failing))
        for number, jestlab in enumerate(codes, start=1):
            plans.begun(store, failing, lab.root / failing.directory).fail("exit code 1: no device")
            versions = json.dumps({"jestlab": jestlab}) if jestlab else None
            made = {"git_commit": None, "git_patch": None, "versions": versions, "code_commit": "c0ffee"}
            with store.writing() as connection:
                connection.execute(update(AttemptRow).where(AttemptRow.number == number).values(**made))
    page = client(lab).get(f"/run/{failing.fingerprint}").text
    shown = re.findall(r'data-label="code">([^<]*)<', page)
    assert shown == [f"{codes[0]}; custom c0ffee", f"{codes[1]}; custom c0ffee", "custom c0ffee"]


def test_charts_of_a_run_have_all_axes_and_units(lab, runs, client):
    asks = client(lab)
    run = runs["joint/0"]
    titles = json.loads(asks.get(f"/run/{run}/curves").body)["titles"]
    assert titles == {"loss": "loss", "toy/score": "toy/score (%) ↑"}
    charts = json.loads(asks.get(f"/run/{run}/curves?metric=loss&metric=toy/score").body)["charts"]
    [loss], [score] = charts.values()
    assert loss["x"]["steps"] == [*range(1, 11)] and loss["x"]["examples"] == [
        64 * step for step in range(1, 11)
    ]
    assert (score["x"]["steps"], score["y"]) == ([10], approx([55.0]))


@pytest.mark.both_databases
def test_curves_have_all_points(tmp_path, store_url, client):
    (tmp_path / "lab").mkdir()
    lab = Lab.find(tmp_path / "lab", store_url)
    run = record(lab, STUDY)["joint/0"]
    asks = client(lab)
    lines = json.loads(asks.get("/experiment/toy/losses").body)["charts"]["loss"]
    [loss] = json.loads(asks.get(f"/run/{run}/curves").body)["charts"]["loss"]
    assert [line["x"] for line in lines] == [[*range(1, 11)]] * 6 and loss["x"]["steps"] == [*range(1, 11)]


@pytest.mark.parametrize("odd", [math.inf, -math.inf, math.nan])
def test_numbers_that_json_lacks_are_gaps(lab, client, odd):
    planned = plan(StudySpec.parse(STUDY))
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, planned)
        for run in planned.runs:
            attempt = plans.begun(store, run, lab.root / run.directory)
            for step, value in enumerate((1.0, odd, 0.5), start=1):
                metrics = {"loss": value, "seconds": value, "examples_seen": value, "toy/huge": 1e308}
                attempt.log(step, metrics)
                known = value if math.isfinite(value) else None
                attempt.evaluation(step, 64 * step, known, {"toy/score": value}, seconds=known)
            attempt.progress(3, 3)
            attempt.complete()
    asks, name = client(lab), f"/run/{run.fingerprint}"
    for path in (
        "/", "/experiment/toy", "/experiment/toy/results", name, "/runs?where=seed+%3D+0",
        "/compare?run=toy/joint&run=toy/uniform",
    ):  # fmt: skip
        assert asks.get(path).status == 200, path
    for path in (
        "/experiment/toy/losses", "/experiment/toy/losses?metric=seconds", f"{name}/curves?metric=seconds",
        f"{name}/curves?metric=toy/score", "/compare?run=toy/joint&run=toy/uniform&data=1",
    ):  # fmt: skip
        answer = asks.get(path)
        assert answer.status == 200, (path, answer.text)
        found = json.loads(answer.body, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
        for metric, lines in found["charts"].items():
            scale = 100 if metric == "toy/score" else 1
            expected = [None] * 3 if metric == "toy/huge" else [scale, None, scale / 2]
            assert [line["y"] for line in lines] == [expected] * len(lines) != [], (path, metric)
    [score] = json.loads(asks.get(f"{name}/curves").body)["charts"]["toy/score"]
    assert score["x"]["examples"] == [1.0, 128, 0.5] and score["x"]["time (s)"] == [1.0, approx(0.75), 0.5]


def test_long_curves_are_thinned_and_have_means_for_smoothing(lab, client):
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(RUN))
        attempt = plans.begun(store, RUN, lab.root / RUN.directory)
        for step in range(1, 8_001):
            attempt.log(step, {"loss": 11.0 if step % 10 == 0 else 1.0, "seconds": 60.0 * step})
        attempt.complete()
    [loss] = json.loads(client(lab).get(f"/run/{RUN.fingerprint}/curves").body)["charts"]["loss"]
    assert len(loss["x"]["steps"]) == len(loss["y"]) == len(loss["mean"]) < 8_000
    assert max(loss["y"]) == 11.0
    assert loss["x"]["time (days)"][-1] == approx(8_000 / 60 / 24)
    assert sum(loss["y"]) / len(loss["y"]) > 3 and loss["mean"] == approx([2.0] * len(loss["y"]), abs=0.2)


def test_notes_tags_and_queries_are_written_with_their_author(lab, runs, client):
    sends = client(lab, writes=True)
    run = runs["joint/0"]
    for path, form, status in (
        ("/experiment/toy/note", {"text": "nice", "by": "Ada"}, 303),
        (f"/run/{run}/tag", {"names": "best, keep", "by": "Ada"}, 303),
        (f"/run/{run}/untag", {"names": "keep"}, 303),
        (f"/run/{run}/tag", {"names": "a/b", "by": "Ada"}, 400),
        (f"/run/{run}/accept", {"reason": "x"}, 400),
        ("/experiment/toy/accept", {"reason": "x"}, 400),
        ("/experiment/toy/shred", {}, 400),
        ("/other/toy/note", {"text": "x"}, 404),
        ("/sql/save", {"name": "mine", "q": "SELECT 1", "by": "Ada"}, 303),
        ("/sql/shred", {"name": "mine"}, 400),
    ):
        assert sends.post(path, form).status == status, path
    assert "mine" in sends.get("/sql").text
    assert [sends.post("/sql/forget", {"name": "mine"}).status for _ in range(2)] == [303, 400]
    with closing(Store.open(lab.store_url)) as store:
        [note] = notes(store, Subject(experiment="toy"))
        assert (note.text, note.author) == ("nice", "Ada")
        assert tags(store, Subject(fingerprint=run)) == ["best"]
        with store.reading() as connection:
            assert connection.scalar(text("SELECT author FROM v_notes WHERE kind = 'tag'")) == "Ada"


def test_cancel_and_retry_start_the_commands(lab, client, tmp_path, monkeypatch):
    log = tmp_path / "command.log"

    def start(lab, study, words):
        """Run the command in this process."""
        done = labs.here(*words, "--store", lab.store_url)
        return detached.DetachedLaunch(1, log, done.returncode or None)

    monkeypatch.setattr(detached, "start", start)
    sends = client(lab, writes=True)
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(RUN))
        assert sends.post("/experiment/toy/retry", {"by": "Ada"}).status == 303
        assert sends.post(f"/run/{RUN.fingerprint}/cancel", {"by": "Ada"}).status == 303
        assert store.run(RUN.fingerprint).state == "CANCELLED"
    assert "retried in `jestlab serve`" in sends.get("/experiment/toy").text
    page = sends.get(f"/run/{RUN.fingerprint}").text
    assert "cancelled in `jestlab serve`" in page and "Ada" in page
    log.write_text("a note\njestlab: toy is launched already\n")
    refuse = Mock(return_value=detached.DetachedLaunch(1, log, 1))
    monkeypatch.setattr(detached, "start", refuse)
    refused = sends.post("/experiment/toy/retry", {"by": "Ada"})
    assert (refused.status, refused.text) == (400, "toy is launched already")
    assert [call.args[1] for call in refuse.call_args_list] == ["retry toy"]


def test_several_labs_are_listed_together_and_each_has_its_queries(tmp_path, lab, client):
    other = Lab.find(tmp_path / "other")
    for each, name in ((lab, "mine"), (other, "mine"), (other, "theirs")):
        each.root.mkdir(exist_ok=True)
        with closing(Store.open(each.store_url)) as store:
            run = plans.run("joint", config={"steps": 3, "lab": each.root.name})
            plans.record(store, plans.plan(run, name=name))
            save_query(store, "query", "SELECT 1", "Ada")
    sends = client(lab, other, writes=True)
    front = sends.get("/").text
    assert front.count(">mine</a>") == 2
    assert "/experiment/mine?lab=other" in front
    assert sends.get("/experiment/theirs?lab=lab").status == 404
    assert "lab other" in sends.get("/experiment/mine?lab=other").text
    assert sends.get(f"/run/{run.fingerprint}?lab=other").status == 200

    page = sends.get("/sql?lab=other&q=SELECT+1").text
    forms = [
        dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        for form in page.split("<form ")
        if 'method="post"' in form
    ]
    assert [form["lab"] for form in forms] == ["other", "other"]
    for action in ("forget", "save"):
        refused = sends.post(f"/sql/{action}", {"name": "query", "q": "SELECT 2"})
        assert (refused.status, refused.text) == (400, "several labs have queries: give one: lab, other")
    assert sends.post("/sql/forget", forms[0]).status == 303
    with closing(Store.open(lab.store_url)) as mine, closing(Store.open(other.store_url)) as theirs:
        assert ([each.sql for each in saved_queries(mine)], saved_queries(theirs)) == (["SELECT 1"], [])


def test_viewers_get_the_last_status_while_the_next_one_is_read(lab, runs, client, monkeypatch):
    asks = client(lab)
    assert "6 completed" in asks.get("/experiment/toy").text
    monkeypatch.setattr(serving_labs, "INTERVAL_SECONDS", 0.0)
    reading = threading.Event()
    read = Watch.update
    monkeypatch.setattr(Watch, "update", lambda watch: reading.wait(60) and read(watch))
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(RUN, name="toy"))  # other runs
    assert "6 completed" in asks.get("/experiment/toy", live="1").text
    reading.set()
    wait_until(lambda: "6 completed" not in asks.get("/experiment/toy", live="1").text)


def test_an_adopted_run_appears_on_the_page_of_a_launched_study(lab, runs, client, monkeypatch):
    asks = client(lab)
    assert "6 runs" in asks.get("/experiment/toy").text
    with closing(Store.open(lab.store_url)) as store:
        Adoption(store, "toy", "csv", "/t.csv", AdoptOptions(), "Ada").adopt(
            SourceRun("csv:t.csv#old", "old", {}, metrics={"loss": {1: 0.5}}, state="COMPLETED")
        )
        [adopted] = store.rows(text("SELECT fingerprint, label FROM v_runs WHERE program = 'adopted'"))
    # The status is older than the run, which has no color yet.
    assert asks.get(f"/compare?run={adopted.fingerprint}&run={runs['joint/0']}").status == 200
    monkeypatch.setattr(serving_labs, "INTERVAL_SECONDS", 0.0)
    wait_until(lambda: "7 runs" in asks.get("/experiment/toy").text)
    assert adopted.label in asks.get("/experiment/toy", live="1").text
