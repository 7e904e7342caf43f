"""`jestlab serve` as a process: it says where it is, answers, and ends with Ctrl-C."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from contextlib import closing, contextmanager

import labs_support as labs
import plans_support as plans
import pytest

from jestlab.platform.store.store import Store


@pytest.fixture
def recorded(root):
    root.mkdir(parents=True, exist_ok=True)
    with closing(Store.open(f"sqlite:///{root / 'results.db'}")) as store:
        store.record(plans.plan(plans.run("joint", config={"steps": 3})))
    return root


@contextmanager
def serving(*options, root):
    """A server as people start it, and the address that it prints."""
    with labs.started("serve", "--port", 0, *options, root=root) as process:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()


def ended(process, number):
    process.send_signal(number)
    return process.wait(15)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_and_ends_when_it_is_asked_to(recorded, number):
    with serving(root=recorded) as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert "token" not in url
        with urllib.request.urlopen(url) as answer:
            assert b"/experiment/toy" in answer.read()
        assert ended(process, number) in (0, 130, -number)


def test_whoever_may_write_gets_a_token(recorded, monkeypatch):
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "a-token-of-the-tests")
    with serving("--write", root=recorded) as (process, url):
        assert url.endswith("/?token=a-token-of-the-tests")
        ended(process, signal.SIGINT)


def test_scripts_get_the_address_and_the_token(recorded):
    with serving("--json", "--write", root=recorded) as (process, line):
        said = json.loads(line)
        question = urllib.request.Request(
            f"{said['url']}experiment/toy/note",
            b"text=by+a+script&by=Ada",
            {"Authorization": f"Bearer {said['token']}"},
        )
        with urllib.request.urlopen(question) as answer:
            assert "by a script" in answer.read().decode()
        ended(process, signal.SIGINT)


def test_labs_are_served_with_stores_elsewhere(recorded, tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_ROOT", str(recorded))
    (tmp_path / "theirs").mkdir()
    elsewhere = (recorded / "results.db").rename(tmp_path / "elsewhere.db")
    with closing(Store.open(f"sqlite:///{recorded / 'results.db'}")) as store:
        store.record(plans.plan(plans.run("joint", config={"steps": 3}), name="mine"))
    options = ("--lab", recorded, "--lab", f"{tmp_path / 'theirs'}=sqlite:///{elsewhere}")
    with labs.started("serve", "--port", 0, *options, root=recorded) as process:
        with urllib.request.urlopen(process.stdout.readline().strip()) as answer:
            page = answer.read().decode()
        assert "/experiment/mine?lab=lab" in page
        assert "/experiment/toy?lab=theirs" in page
        ended(process, signal.SIGINT)


def test_what_cannot_be_served_is_told_in_a_line(recorded, tmp_path, monkeypatch):
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        busy = labs.here("serve", "--port", taken.getsockname()[1], root=recorded)
    assert busy.returncode == 1
    assert "try another --port" in busy.stderr
    nothing = labs.here("serve", root=tmp_path / "nowhere")
    assert nothing.returncode == 1
    assert "launch a study first" in nothing.stderr
    monkeypatch.setenv("JESTLAB_SERVE_TOKEN", "short")
    short = labs.here("serve", "--write", root=recorded)
    assert "shorter than 16 characters" in short.stderr
    assert "short " not in short.stdout
