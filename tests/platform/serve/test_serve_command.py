"""`jestlab serve`: its options, what it prints, and how it ends."""

import json
import signal
import socket
import urllib.request
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import labs_support as labs
import plans_support as plans
import psutil
import pytest

from jestlab.platform.serve import server
from jestlab.platform.serve.access import Access
from jestlab.platform.store.store import Store


@pytest.fixture
def recorded(root):
    root.mkdir(parents=True, exist_ok=True)
    with closing(Store.open(f"sqlite:///{root / 'results.db'}")) as store:
        plans.record(store, plans.plan(plans.run("joint", config={"steps": 3})))
    return root


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_stopped(recorded, number):
    with labs.started("serve", "--port", 0, root=recorded) as process:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(url) as answer:
            assert b"/experiment/toy" in answer.read()
        process.send_signal(number)
        assert process.wait(15) in (0, 130, -number)


@pytest.mark.parametrize("host, start", [("127.0.0.2", "http://127.0.0.2:"), ("127.1", "http://127.0.0.1:")])
def test_prints_the_address_that_answers(recorded, host, start):
    with labs.started("serve", "--port", 0, "--host", host, root=recorded) as process:
        url = process.stdout.readline().strip()
        assert url.startswith(start)
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers = upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        place = urlsplit(url)
        for sent in ({}, headers):
            with closing(HTTPConnection(place.netloc)) as connection:
                connection.request("GET", f"/?{place.query}", headers=sent)
                assert connection.getresponse().status in (200, 303)


def test_no_query_takes_the_memory_of_the_machine(recorded):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) "
    query = quote(f"{numbers} SELECT json_group_array(hex(zeroblob(900000))) FROM n")  # 1.8 GB
    with labs.started("serve", "--port", 0, root=recorded) as process:
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}sql?q={query}") as answer:
            assert b"takes too much memory: ask for less" in answer.read()
        assert psutil.Process(process.pid).memory_info().rss < 1e9


@pytest.fixture
def served(monkeypatch):
    """Let the command return as soon as it serves; collect what it serves."""
    calls = []

    def serve(labs, *, host, port, writes, token, names, ready):
        calls.append([(lab.root.name, lab.store_url) for lab in labs])
        ready(f"http://{host}:{port}/", Access.of(host, token or "a-new-token", writes=writes, names=names))

    monkeypatch.setattr(server, "serve", serve)
    return calls


def test_prints_the_address_with_the_token_where_one_is_needed(recorded, served, monkeypatch):
    def printed(*options):
        return labs.here("serve", "--port", 1, *options, root=recorded).stdout

    assert printed() == "http://127.0.0.1:1/\n"
    assert printed("--host", "0.0.0.0") == "http://0.0.0.0:1/?token=a-new-token\n"
    assert json.loads(printed("--json")) == {"url": "http://127.0.0.1:1/", "token": None}
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "a-token-of-the-tests")
    assert printed("--write") == "http://127.0.0.1:1/?token=a-token-of-the-tests\n"
    assert json.loads(printed("--write", "--json"))["token"] == "a-token-of-the-tests"
    assert served == [[("lab", f"sqlite:///{recorded / 'results.db'}")]] * 5


def test_serves_several_labs_with_stores_elsewhere(recorded, served, tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_ROOT", str(recorded))
    labs.here("serve", "--lab", recorded, "--lab", f"{tmp_path / 'theirs'}=sqlite:///{tmp_path}/else.db")
    assert served == [
        [("lab", f"sqlite:///{recorded / 'results.db'}"), ("theirs", f"sqlite:///{tmp_path}/else.db")]
    ]
    labs.here(
        "serve", "--lab", tmp_path / "lr=0.1", "--lab", f"{tmp_path / 'a=b'}=sqlite:///{tmp_path}/else.db"
    )
    assert served[1] == [
        ("lr=0.1", f"sqlite:///{tmp_path}/lr=0.1/results.db"),
        ("a=b", f"sqlite:///{tmp_path}/else.db"),
    ]
    both = labs.here("serve", "--lab", recorded, root=tmp_path / "other")
    assert "--lab and --root" in both.stderr


def test_errors_are_one_line(recorded, tmp_path, monkeypatch):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        busy = labs.here("serve", "--port", taken.getsockname()[1], root=recorded)
    assert busy.returncode == 1
    assert "try another --port" in busy.stderr
    for host in ("a..b", "a" * 80):
        assert "not the name of a host" in labs.here("serve", "--host", host, root=recorded).stderr
    nothing = labs.here("serve", root=tmp_path / "nowhere")
    assert nothing.returncode == 1
    assert "launch a study first" in nothing.stderr
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "short")
    short = labs.here("serve", "--write", root=recorded)
    assert "shorter than 16 characters" in short.stderr
