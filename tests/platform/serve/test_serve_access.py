"""Who may ask the server what: hosts, tokens, forms of other pages, paths, texts that would be markup."""

from __future__ import annotations

import http.client
from urllib.parse import quote

import plans_support as plans
import pytest

from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve import sql
from jestlab.platform.serve.access import BODY_BYTES, Access
from jestlab.platform.store.annotations import Subject, add_note, notes
from jestlab.platform.store.store import Store

RUN = plans.run("joint", config={"steps": 3})
HOSTILE = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\"'&amp;"
NOTE = {"text": "good", "by": "me"}

on_sqlite = plans.ON_SQLITE


@pytest.fixture
def recorded(lab: Lab) -> Lab:
    store = Store.open(lab.store_url)
    store.record(plans.plan(RUN))
    store.close()
    return lab


def noted(lab: Lab) -> list[str]:
    store = Store.open(lab.store_url)
    found = [f"{note.text} {note.author}" for note in notes(store, Subject(experiment="toy"))]
    store.close()
    return found


@on_sqlite
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8270", 200),
        ("[::1]:1", 200),
        ("LOCALHOST:80", 200),
        ("evil.example", 421),  # DNS rebinding
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example:8270", 421),
        ("", 421),
        ("127.0.0.1@evil.example", 421),
        ("10.0.0.1", 421),
    ],
)
def test_only_our_own_names_are_served(serving, recorded, host, status):
    server = serving(recorded)
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.putrequest("GET", "/", skip_host=True)
    connection.putheader("Host", host)
    connection.endheaders()
    assert connection.getresponse().status == status
    connection.close()


@on_sqlite
def test_elsewhere_than_on_loopback_reading_takes_the_token(serving, recorded):
    server = serving(recorded, host="0.0.0.0", names=("lab.example.org",))
    assert server.get("/").status == 401
    assert server.get("/", authorization="Bearer wrong").status == 401
    assert server.get("/", cookie="jestlab-token=wrong").status == 401
    assert server.get("/", authorization="Bearer a-token-of-the-tests-0123").status == 200
    assert server.get("/?token=wrong").status == 401
    told = server.get("/experiment/toy?token=a-token-of-the-tests-0123&sort=run")
    assert (told.status, told.headers["location"]) == (303, "/experiment/toy?sort=run")  # in no history
    cookie = told.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert server.get("/", cookie=cookie.partition(";")[0]).status == 200
    assert (
        server.get("/", host="lab.example.org", authorization="Bearer a-token-of-the-tests-0123").status
        == 200
    )
    assert (
        server.get("/", host="evil.example", authorization="Bearer a-token-of-the-tests-0123").status == 421
    )


@on_sqlite
def test_nothing_is_written_without_being_asked_for(serving, recorded):
    server = serving(recorded)
    assert server.post("/experiment/toy/note", NOTE).status == 403
    assert "--write" in server.post("/experiment/toy/note", NOTE).text
    assert '<form method="post"' not in server.get("/experiment/toy", accept="text/html").text
    assert noted(recorded) == []


@on_sqlite
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"cookie": ""}, 401),
        ({"cookie": "jestlab-token=wrong"}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),  # another server of this machine, which gets our cookie
        ({"origin": "", "sec_fetch_site": "cross-site"}, 403),
        ({"origin": "", "sec_fetch_site": "same-site"}, 403),
        ({"origin": "", "sec_fetch_site": "same-origin"}, 303),
        ({"origin": ""}, 403),
        ({"origin": "", "cookie": "", "authorization": "Bearer a-token-of-the-tests-0123"}, 303),  # a program
        ({"host": "evil.example"}, 421),
    ],
)
def test_forms_of_other_pages_write_nothing(serving, recorded, headers, status):
    server = serving(recorded, writes=True)
    assert server.post("/experiment/toy/note", NOTE, **headers).status == status
    assert noted(recorded) == (["good me"] if status == 303 else [])


@on_sqlite
def test_other_pages_may_link_to_ours_and_embed_nothing(serving, recorded):
    server = serving(recorded)
    other = {"sec_fetch_site": "cross-site"}
    assert server.get("/sql?q=SELECT+1", **other, sec_fetch_mode="no-cors").status == 403
    assert server.get("/experiment/toy/live", **other, sec_fetch_mode="cors").status == 403
    shown = server.get("/", **other, sec_fetch_mode="navigate")
    assert shown.status == 200
    assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in shown.headers


@on_sqlite
@pytest.mark.parametrize(
    "path",
    [
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2fapp.py",
        "/static/%2e%2e/access.py",
        "/../../etc/passwd",
        "/run/..%2f..%2f..%2fetc%2fpasswd/log",
        "/run/%00/log",
        "/experiment/..%2f..%2fetc/live",
        "/experiment/toy/figure/toy/..%2f..%2fresults.db",
        "//etc/passwd",
    ],
)
def test_paths_lead_nowhere(serving, recorded, path):
    answer = serving(recorded).get(path)
    assert answer.status in (400, 404, 405)
    assert b"root:" not in answer.body
    assert b"import" not in answer.body


@on_sqlite
def test_a_log_that_leads_out_of_the_lab_is_not_read(serving, recorded, tmp_path):
    (tmp_path / "secret.txt").write_text("the secret")
    folder = recorded.root / RUN.directory
    folder.mkdir(parents=True)
    (folder / "log.txt").symlink_to(tmp_path / "secret.txt")
    answer = serving(recorded).get(f"/run/{RUN.fingerprint}/log")
    assert answer.status == 400
    assert "the secret" not in answer.text


@on_sqlite
def test_long_bodies_and_other_methods_are_refused(serving, recorded):
    server = serving(recorded, writes=True)
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert server.ask(method, "/", None, {}).status == 405
    try:
        status = server.post("/experiment/toy/note", b"text=" + b"x" * (BODY_BYTES + 1)).status
    except OSError:
        status = 400  # it hung up while the body came
    assert status >= 400
    assert noted(recorded) == []


@on_sqlite
def test_hostile_texts_are_shown_as_text(serving, lab, tmp_path):
    store = Store.open(lab.store_url)
    run = plans.run("joint", config={"steps": 3, "note": HOSTILE}, point={"x": HOSTILE})
    store.record(plans.plan(run, question=HOSTILE))
    attempt = plans.begun(store, run, lab.root / run.directory)
    attempt.log(1, {"loss": 1.0, HOSTILE: 2.0})
    attempt.evaluation(1, 64, 1e6, {f"toy/{HOSTILE[:30]}": 0.5})
    attempt.fail(HOSTILE)
    (lab.root / run.directory).mkdir(parents=True, exist_ok=True)
    (lab.root / run.directory / "log.txt").write_text(HOSTILE)
    add_note(store, Subject(experiment="toy"), HOSTILE, HOSTILE)
    store.close()
    server = serving(lab, writes=True)
    pages = [
        "/",
        "/experiment/toy",
        "/experiment/toy/results",
        f"/run/{run.fingerprint}",
        f"/compare?run={run.fingerprint}",
        "/runs?where=%3Cscript%3E",
        "/runs?columns=%3Cscript%3Ewindow.ran%3C/script%3E",
        "/sql?q=SELECT+%27%3Cscript%3Ewindow.ran+%3D+1%3C/script%3E%27",
        "/experiment/%3Cscript%3E",
        "/%3Cscript%3Ewindow.ran",
    ]
    for path in pages:
        said = server.get(path, accept="text/html").text
        assert "<script>window.ran" not in said, path
        assert "<img src=x" not in said, path


def test_the_password_of_the_store_appears_nowhere(serving, recorded):
    server = serving(recorded, writes=True)
    password = recorded.store_url.partition("://")[2].partition("@")[0].partition(":")[2]
    if not password:
        pytest.skip("this store has no password")
    for path in ("/", "/experiment/toy", "/experiment/toy/results", "/sql?q=SELECT+nothing", "/runs"):
        assert password not in server.get(path, accept="text/html").text


@on_sqlite
def test_sql_only_reads(serving, recorded):
    server = serving(recorded)
    for statement in (
        "DELETE FROM run",
        "ATTACH 'x.db' AS x",
        "PRAGMA journal_mode = DELETE",
        "SELECT 1; DROP TABLE run",
    ):
        answer = server.get("/sql?q=" + statement.replace(" ", "+").replace(";", "%3B"), accept="text/html")
        assert 'role="alert"' in answer.text
    assert '<td class="left long">1</td>' in server.get("/sql?q=SELECT+COUNT(*)+FROM+v_runs").text


def test_sql_is_limited_in_rows_and_time_and_tells_no_secret(serving, recorded, monkeypatch):
    monkeypatch.setattr(sql, "SECONDS", 0.5)
    monkeypatch.setattr(sql, "MOST", 5)
    server = serving(recorded)

    def asked(query):
        return server.get(f"/sql?q={quote(query)}", accept="text/html").text

    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT {} FROM n"
    page = asked(numbers.format(9, "i"))
    assert "5 rows" in page
    assert "there are more" in page
    assert "took longer than 0.5 s" in asked(numbers.format(10**12, "COUNT(*)"))
    if recorded.store_url.startswith("sqlite"):  # PostgreSQL: what its role may read
        for query in (
            "SELECT * FROM attempt",
            "SELECT token FROM attempt",
            "SELECT MAX(a.token) FROM attempt a",
        ):
            assert "attempt.token is prohibited" in asked(query)
    assert "attempt.token" not in asked("SELECT * FROM v_attempts")


def test_addresses_that_only_this_machine_reaches():
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"):
        assert Access.of(host, "x" * 20, writes=False).open
    for host in ("0.0.0.0", "::", "10.0.0.7", "lab.example.org"):
        access = Access.of(host, "x" * 20, writes=False)
        assert not access.open
        assert not access.serves("evil.example")
    assert Access.of("0.0.0.0", "x" * 20, writes=False).serves("10.0.0.7:80")
    assert not Access.of("10.0.0.7", "x" * 20, writes=False).serves("10.0.0.8")
    assert "xxx" not in repr(Access.of("::1", "x" * 20, writes=False))
