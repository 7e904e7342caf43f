"""`jestlab serve`: its options, what it prints, and how it ends."""

import json
import signal
import socket
import urllib.request
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from urllib.parse import quote, urlsplit

import labs_support as labs
import plans_support as plans
import psutil
import pytest

from jestlab.platform.serve import server as servers
from jestlab.platform.serve.access import Access
from jestlab.platform.store.store import Store


@pytest.fixture
def recorded(root):
    root.mkdir(parents=True, exist_ok=True)
    with closing(Store.open(f"sqlite:///{root / 'results.db'}")) as store:
        plans.record(store, plans.plan(plans.run("joint", config={"steps": 3})))
    return root


@pytest.fixture
def server(recorded):
    """Start the command with options: (process, URL that it prints)."""
    with ExitStack() as stack:

        def start(*options):
            process = stack.enter_context(labs.started("serve", "--port", 0, *options, root=recorded))
            return process, process.stdout.readline().strip()

        yield start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serves_until_it_is_stopped(server, number):
    process, url = server()
    with urllib.request.urlopen(url) as answer:
        assert b"/experiment/toy" in answer.read()
    process.send_signal(number)
    assert process.wait(15) in (0, 130, -number)


@pytest.mark.parametrize("host, start", [("127.0.0.2", "http://127.0.0.2:"), ("127.1", "http://127.0.0.1:")])
def test_prints_the_address_that_answers(server, host, start):
    _, url = server("--host", host)
    assert url.startswith(start)
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    place = urlsplit(url)
    for sent in ({}, upgrade | {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}):
        with closing(HTTPConnection(place.netloc)) as connection:
            connection.request("GET", f"/?{place.query}", headers=sent)
            assert connection.getresponse().status in (200, 303)


def test_no_query_takes_the_memory_of_the_machine(server):
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000) "
    query = quote(f"{numbers} SELECT json_group_array(hex(zeroblob(900000))) FROM n")  # 1.8 GB
    process, url = server()
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

    monkeypatch.setattr(servers, "serve", serve)
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


def test_serves_several_labs_with_stores_elsewhere(recorded, served, tmp_path):
    theirs, other = tmp_path / "lr=0.1", tmp_path / "a=b"
    labs.here("serve", "--lab", recorded, "--lab", theirs, "--lab", f"{other}=sqlite:///{tmp_path}/else.db")
    own = [(path.name, f"sqlite:///{path}/results.db") for path in (recorded, theirs)]
    assert served == [[*own, ("a=b", f"sqlite:///{tmp_path}/else.db")]]


def test_errors_are_one_line(recorded, tmp_path, monkeypatch):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        for options, error in (
            (("--port", taken.getsockname()[1]), "try another --port"),
            (("--host", "a..b"), "not the name of a host"),
            (("--host", "a" * 80), "not the name of a host"),
            (("--lab", recorded), "--lab and --root"),
        ):
            refused = labs.here("serve", *options, root=recorded)
            assert refused.returncode and error in refused.stderr, options
    assert "launch a study first" in labs.here("serve", root=tmp_path / "nowhere").stderr
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "short")
    assert "shorter than 16 characters" in labs.here("serve", "--write", root=recorded).stderr
