"""Who may ask for what: hosts, tokens, forms of other pages, paths, and texts that could be markup."""

import re
import socket
from contextlib import closing
from types import SimpleNamespace
from urllib.parse import quote

import plans_support as plans
import pytest
from sqlalchemy import text
from tests.platform.serve.conftest import TOKEN

from jestlab.analysis.query import Limits
from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve import search
from jestlab.platform.serve.access import BODY_BYTES, Access
from jestlab.platform.store.annotations import Subject, add_note, notes
from jestlab.platform.store.store import Store

RUN = plans.run("joint", config={"steps": 3})
HOSTILE = "<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\"'&amp;"
NOTE = {"text": "good", "by": "me"}
BEARER = f"Bearer {TOKEN}"


@pytest.fixture
def recorded(lab: Lab) -> Lab:
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(RUN))
    return lab


def noted(lab: Lab) -> list[str]:
    with closing(Store.open(lab.store_url)) as store:
        return [f"{note.text} {note.author}" for note in notes(store, Subject(experiment="toy"))]


def test_addresses_other_than_loopback_need_the_token_for_reading(client, recorded):
    asks = client(recorded, host="0.0.0.0", names=("Lab.example.org",))
    for headers, status in (
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"cookie": "jestlab-token=wrong"}, 401),
        ({"authorization": BEARER}, 200),
        ({"host": "lab.example.org", "authorization": BEARER}, 200),
        ({"host": "evil.example", "authorization": BEARER}, 400),
    ):
        assert asks.get("/", **headers).status == status, headers
    assert asks.get("/?token=wrong").status == 401
    answer = asks.get(f"/experiment/toy?token={TOKEN}&sort=run")
    assert (answer.status, answer.headers["location"]) == (303, "/experiment/toy?sort=run")  # not in history
    assert asks.get(f"//evil.example?token={TOKEN}").headers["location"] == "/evil.example"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert asks.get("/", cookie=cookie.partition(";")[0]).status == 200


def test_a_proxy_on_this_machine_needs_the_token_for_reading(client, recorded):
    named = client(recorded, names=("lab.example.org",))
    for host in ("lab.example.org", "127.0.0.1:8270", "localhost"):  # a proxy may pass on either name
        assert named.get("/sql?q=SELECT+1", host=host).status == 401, host
        assert named.get("/", host=host, authorization=BEARER).status == 200, host
    unnamed = client(recorded, names=("localhost",))
    assert unnamed.get("/").status == 200
    for header in (
        "x_forwarded_for",
        "x_forwarded_host",
        "x_forwarded_proto",
        "forwarded",
        "via",
        "x_real_ip",
        "x_forwarded",
        "x_original_host",
    ):
        assert unnamed.get("/", **{header: "10.0.0.9"}).status == 401, header
        assert unnamed.get("/", **{header: "10.0.0.9"}, authorization=BEARER).status == 200, header
    unnamed.http_version = "1.0"  # as nginx asks, which adds no header
    assert [unnamed.get("/", authorization=each).status for each in ("", BEARER)] == [401, 200]


def test_writes_nothing_without_the_option(client, recorded):
    asks = client(recorded)
    assert asks.get("/", host="evil.example").status == 400  # DNS rebinding
    refused = asks.post("/experiment/toy/note", NOTE)
    assert refused.status == 403
    assert "--write" in refused.text
    assert '<form method="post"' not in asks.get("/experiment/toy", accept="text/html").text
    assert noted(recorded) == []


def test_forms_of_other_pages_write_nothing(client, recorded):
    sends = client(recorded, writes=True)
    for headers, status in (
        ({"cookie": ""}, 401),
        ({"cookie": "jestlab-token=wrong"}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9"}, 403),  # another server of this machine, which gets our cookie
        ({"origin": "", "sec_fetch_site": "cross-site"}, 403),
        ({"origin": "", "sec_fetch_site": "same-site"}, 403),
        ({"origin": ""}, 403),
        ({"host": "evil.example"}, 400),
    ):
        assert sends.post("/experiment/toy/note", NOTE, **headers).status == status, headers
    assert sends.post(f"/experiment/toy/note?token={TOKEN}", NOTE, cookie="").status == 401
    assert noted(recorded) == []
    for headers in (
        {},
        {"origin": "", "sec_fetch_site": "same-origin"},
        {"origin": "", "cookie": "", "authorization": BEARER},  # a program
    ):
        assert sends.post("/experiment/toy/note", NOTE, **headers).status == 303, headers
    assert noted(recorded) == ["good me"] * 3


def test_other_pages_may_link_but_not_embed(client, recorded):
    asks = client(recorded)
    other = {"sec_fetch_site": "cross-site"}
    assert asks.get("/sql?q=SELECT+1", **other, sec_fetch_mode="no-cors").status == 403
    assert asks.get("/experiment/toy/losses", **other, sec_fetch_mode="cors").status == 403
    for site in ("cross-site", "same-site"):  # the latter is another port of this machine
        for dest in ("iframe", "frame", "embed", "object", "fencedframe", "image", "script", "empty"):
            headers = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": dest}
            assert asks.get("/sql?q=SELECT+1", **headers).status == 403, headers
    linked = other | {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert asks.get("/", **linked, sec_purpose="prefetch;prerender").status == 403
    assert asks.get(f"/?token={TOKEN}", **other, sec_fetch_mode="no-cors").status == 403
    assert asks.get("/", **linked).status == 200
    shown = asks.get("/", **other, sec_fetch_mode="navigate")
    assert shown.status == 200
    assert "frame-ancestors 'none'" in shown.headers["content-security-policy"]
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in shown.headers


def test_paths_and_links_lead_to_no_files(client, recorded, tmp_path):
    for path in (
        "/static/../../../../etc/passwd", "/static/..%2f..%2fapp.py", "/static/%2e%2e/access.py",
        "/../../etc/passwd", "/run/..%2f..%2f..%2fetc%2fpasswd/log", "/run/%00/log", "//etc/passwd",
        "/experiment/..%2f..%2fetc/live", "/experiment/toy/figure/toy/..%2f..%2fresults.db",
    ):  # fmt: skip
        answer = client(recorded).get(path)
        assert answer.status in (400, 404, 405), path
        assert b"root:" not in answer.body
        assert b"import" not in answer.body
    (tmp_path / "secret.txt").write_text("the secret")
    folder = recorded.root / RUN.directory
    folder.mkdir(parents=True)
    (folder / "log.txt").symlink_to(tmp_path / "secret.txt")
    answer = client(recorded).get(f"/run/{RUN.fingerprint}/log")
    assert answer.status == 400
    assert "the secret" not in answer.text


def test_rejects_long_bodies_and_other_methods(client, recorded):
    sends = client(recorded, writes=True)
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        assert sends.request(method, "/").status == 405
    longest = b"text=" + b"x" * (BODY_BYTES - 5)
    assert sends.post("/experiment/toy/note", longest + b"x").status == 413
    assert noted(recorded) == []
    assert sends.post("/experiment/toy/note", longest).status == 303


def test_hostile_texts_are_shown_as_text(client, lab):
    run = plans.run("joint", config={"steps": 3, "note": HOSTILE}, point={"x": HOSTILE})
    folder = lab.root / run.directory
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(run, question=HOSTILE))
        attempt = plans.begun(store, run, folder)
        attempt.log(1, {"loss": 1.0, HOSTILE: 2.0})
        attempt.evaluation(1, 64, 1e6, {f"toy/{HOSTILE[:30]}": 0.5})
        attempt.fail(HOSTILE)
        add_note(store, Subject(experiment="toy"), HOSTILE, HOSTILE)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log.txt").write_text(HOSTILE)
    asks = client(lab, writes=True)
    for path in (
        "/", "/experiment/toy", "/experiment/toy/results", f"/run/{run.fingerprint}",
        f"/compare?run={run.fingerprint}", "/runs?where=%3Cscript%3E",
        "/runs?columns=%3Cscript%3Ewindow.ran%3C/script%3E",
        "/sql?q=SELECT+%27%3Cscript%3Ewindow.ran+%3D+1%3C/script%3E%27", "/experiment/%3Cscript%3E",
        "/%3Cscript%3Ewindow.ran",
    ):  # fmt: skip
        page = asks.get(path, accept="text/html").text
        assert "<script>window.ran" not in page, path
        assert "<img src=x" not in page, path


@pytest.mark.full
def test_no_page_shows_the_password_of_the_store(client, tmp_path, postgresql_url):
    password = postgresql_url.partition("://")[2].partition("@")[0].partition(":")[2]
    assert password
    lab = Lab.find(tmp_path, postgresql_url)
    with closing(Store.open(lab.store_url)) as store:
        plans.record(store, plans.plan(RUN))
    asks = client(lab, writes=True)
    for path in ("/", "/experiment/toy", "/experiment/toy/results", "/sql?q=SELECT+nothing", "/runs"):
        assert password not in asks.get(path, accept="text/html").text


@pytest.fixture
def asked(client, tmp_path, store_url):
    """Ask for SQL over a store with an attempt, whose token must not be in the answer."""
    with closing(Store.open(store_url)) as store:
        plans.record(store, plans.plan(RUN))
        plans.begun(store, RUN, tmp_path).complete()
        with store.reading() as connection:
            token = connection.scalar(text("SELECT token FROM attempt"))
    asks = client(Lab.find(tmp_path, store_url))

    def ask(query):
        page = asks.get(f"/sql?q={quote(query)}", accept="text/html").text
        assert token not in page and token[::-1] not in page, query
        return page

    return ask


@pytest.mark.both_databases
def test_sql_writes_nothing_and_shows_no_secrets(asked):
    for query in (
        "DELETE FROM run", "SELECT * FROM attempt", 'SELECT token FROM "attempt"', "TABLE attempt",
        "SELECT TOKEN FROM ATTEMPT", "SELECT a FROM public.attempt AS a",
        "SELECT to_jsonb(a) FROM attempt AS a", "SELECT a::text FROM attempt AS a",
        "SELECT MAX(attempt.token) FROM attempt", "SELECT reverse(token) FROM attempt",
        "WITH a AS (SELECT * FROM/**/attempt) SELECT token FROM a",
        r'SELECT token FROM U&"\0061ttempt"', r"SELECT * FROM attempt WHERE E'\'' <> ' --'",
        "SELECT query_to_xml('SELECT * FROM att' || 'empt', true, false, '')",
        "SELECT table_to_xml('att' || 'empt', true, false, '')",
        "SELECT schema_to_xml('public', true, false, '')",
        "SELECT * FROM ts_stat('SELECT to_tsvector(token) FROM att' || 'empt')",
        "SELECT set_config('role', 'none', true)", "SELECT most_common_vals FROM pg_stats",
    ):  # fmt: skip
        assert 'role="alert"' in asked(query), query
    assert "<td>1</td>" in asked("SELECT COUNT(*) FROM v_runs")
    assert 'role="alert"' not in asked("SELECT * FROM v_attempts")


@pytest.mark.both_databases
def test_sql_is_limited_in_rows_bytes_and_time(asked, store_url, monkeypatch):
    monkeypatch.setattr(search, "READING", Limits(5, 100_000, 20))
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT {} FROM n"
    database = store_url.partition(":")[0]
    long = {"sqlite": "hex(zeroblob({} / 2))", "postgresql": "repeat('x', {})"}[database].format
    wide = [long(30_000)]
    if database == "postgresql":
        wide += [f"{container}({long(30_000)})" for container in ("to_jsonb", "array_agg", "ROW")]
        outside = f"SELECT {long(300_000)}) AS answer UNION ALL SELECT * FROM (SELECT ''"
        assert "syntax error" in asked(outside)
    for count, cell, rows, more in (
        (9, "i", 5, True),
        (5, "i", 5, False),
        *((900, cell, 3, True) for cell in wide),
    ):
        page = asked(f"{numbers.format(count, cell)} GROUP BY i")
        assert f"{rows} rows" in page and ("there are more" in page) == more and len(page) < 200_000, cell
    for cells in (long(100_002), ", ".join([long(30_000)] * 4)):
        assert re.search("too big|longer than 100,000 bytes", asked(numbers.format(2, cells)))
    monkeypatch.setattr(search, "READING", Limits(5, 100_000, 0.2))
    assert "took longer than 0.2 s" in asked(numbers.format(10**12, "COUNT(*)"))


@pytest.mark.parametrize("bound", ["::1", "0.0.0.0", "127.0.0.1"])
def test_only_own_names_are_served(client, recorded, bound):
    asks = client(recorded, host=bound)
    for host in ("localhost", "127.0.0.1:8270", "[::1]:1", "LOCALHOST:80"):
        assert asks.get("/", host=host, authorization=BEARER).status == 200, host
    for host in (
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8270", "127.0.0.1@evil.example",
        "203.0.113.7",
    ):  # fmt: skip
        assert asks.get("/", host=host, authorization=BEARER).status == 400, host


def test_a_server_on_all_addresses_has_those_of_this_machine(monkeypatch):
    found = [SimpleNamespace(family=socket.AF_INET, address="10.0.0.7"),
             SimpleNamespace(family=socket.AF_INET6, address="fe80::1%eth0")]  # fmt: skip
    monkeypatch.setattr("psutil.net_if_addrs", lambda: {"eth0": found})
    everywhere, one = (Access.of(host, "x" * 20, writes=False).hosts for host in ("0.0.0.0", "10.0.0.7"))
    assert {"10.0.0.7", "[fe80::1]", "localhost"} <= everywhere and one == {"10.0.0.7"}


def test_addresses_that_are_read_without_the_token():
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.1.2.3"):
        assert Access.of(host, "x" * 20, writes=False).open
    for host in ("0.0.0.0", "::", "10.0.0.7", "lab.example.org"):
        assert not Access.of(host, "x" * 20, writes=False).open
    for names, is_open in (((), True), (("localhost", "[::1]"), True), (("lab.example.org",), False)):
        assert Access.of("127.0.0.1", "x" * 20, writes=False, names=names).open == is_open
    assert "xxx" not in repr(Access.of("::1", "x" * 20, writes=False))
