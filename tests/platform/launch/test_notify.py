"""Messages about launches, received by a local webhook."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import labs_support as labs
import pytest

from jestlab.platform import dependencies
from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import controller, notify
from jestlab.platform.planning import deciding

pytest.importorskip("apprise")

SECRET = "s3cr3t-t0ken"
MEANS = {"uniform": 0.5, "joint": 0.7, "other": 0.51}
CLAIMS = [
    {"statement": "Joint is better", "of": "joint", "above": "uniform"},
    {"statement": "Other is better", "of": "other", "above": "uniform"},
]
DECIDING: dict[str, Any] = {
    "program": "toy_programs:draw",
    "base": {"spread": 0.05},
    "runs": {name: {"mean": mean, "salt": name[0]} for name, mean in MEANS.items()},
    "score": ["toy/score"],
}
"""A study whose first claim six seeds decide, and whose second no number of seeds decides."""


class Webhook(ThreadingHTTPServer):
    """A service that keeps what it receives, and answers with `status` once `answering` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[dict[str, Any]] = []
        self.status = 200
        self.answering = threading.Event()
        self.answering.set()

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server_port}/{SECRET}"

    @property
    def titles(self) -> list[str]:
        return [message["title"] for message in self.received]


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Webhook)
        self.server.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.server.answering.wait()
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def webhook(configure, monkeypatch) -> Iterator[Webhook]:
    monkeypatch.setattr(notify, "SECONDS", 120.0)  # on a busy machine, the import of apprise takes seconds
    with Webhook() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        configure(server.url)
        yield server
        server.answering.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def configure(tmp_path, monkeypatch):
    """Write settings with services to notify."""

    def write(*services: str) -> None:
        file = tmp_path / "config.yaml"
        file.write_text(json.dumps({"notify": services}))
        monkeypatch.setenv("JESTLAB_CONFIG", str(file))

    return write


def launched(root, spec, *words: str, code: int = 0) -> str:
    done = labs.here("launch", spec, *words, root=root)
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert SECRET not in said
    assert not [path for path in root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    return said


def test_a_finished_launch_sends_its_verdicts_duration_and_report(root, machine, webhook):
    claims = [{"statement": "Joint wins", "of": "joint", "above": "uniform", "measure": "toy/score"}]
    spec = labs.write_study(root.parent, claims=claims)
    said = launched(root, spec)
    assert "notify:" not in said
    [message] = webhook.received
    assert (message["title"], message["type"]) == ("jestlab: toy finished", "success")
    first, verdict, report = message["message"].splitlines()
    assert first.startswith("3 completed, after ") and verdict.endswith(" Joint wins: undecided")
    assert report == f"report: {root}/reports/toy/report.html"
    launched(root, spec)  # has nothing to run
    assert len(webhook.received) == 1


def test_a_failed_launch_and_its_retry_name_the_runs_and_their_reasons(root, machine, webhook):
    launched(root, labs.write_study(root.parent, runs={"a": {}, "b": {"fail_at": 3}}), code=1)
    labs.here("retry", "toy", root=root)
    assert webhook.titles == ["jestlab: toy failed"] * 2
    for message, counts in zip(
        webhook.received, ("1 completed, 1 failed, after", "1 failed, after"), strict=True
    ):
        lines = message["message"].splitlines()
        assert lines[0].startswith(counts)
        assert lines[1] == "b/0 failed: FloatingPointError: diverged at step 3"


def test_claims_are_sent_once_when_they_are_decided(root, machine, webhook, monkeypatch):
    """The first launch stops after the decision, and the second one continues for the other claim."""
    add_round = deciding.add_round

    def stop(plan: Any, before: Any, ahead: Any) -> Any:
        if max(ahead.seeds.values()) > 6:
            raise UserError("stopped")
        return add_round(plan, before, ahead)

    spec = labs.write_study(root.parent, claims=CLAIMS, seeds={"until": "decided"}, **DECIDING)
    with monkeypatch.context() as patch:
        patch.setattr(deciding, "add_round", stop)
        launched(root, spec, "--no-reports", code=1)
    launched(root, spec, "--no-reports")
    assert sorted(webhook.titles[:2]) == ["jestlab: toy 1 claim decided", "jestlab: toy failed"]
    decided, _, finished = sorted(webhook.received, key=lambda message: message["title"])
    assert decided["title"] == "jestlab: toy 1 claim decided"
    assert decided["message"].splitlines() == [
        "✓ Joint is better: holds",
        "1 of 2 claims decided, 1 open; the launch continues",
    ]
    assert finished["title"] == "jestlab: toy finished"
    assert "✓ Joint is better: holds\n? Other is better: undecided" in finished["message"]


def test_a_launch_that_reaches_its_budget_says_so(root, machine, webhook):
    """The first three seeds take longer than 4 ms."""
    slow = DECIDING | {"base": {"spread": 0.05, "pause": 0.01}}
    seeds = {"until": "decided", "budget": {"hours": 1e-6}}
    launched(root, labs.write_study(root.parent, claims=CLAIMS[1:], seeds=seeds, **slow), "--no-reports")
    assert webhook.titles == ["jestlab: toy budget reached"]


def test_a_launch_that_ends_with_an_error_is_reported_unless_nothing_has_begun(
    root, machine, webhook, monkeypatch
):
    spec = labs.write_study(root.parent)
    launched(root, spec, "--max-chip-hours", "1", code=1)  # whose estimate is unknown
    assert webhook.received == []

    def fail(*_: object, **__: object) -> None:
        raise OSError("no space left\nTraceback")

    monkeypatch.setattr(controller, "launch", fail)
    launched(root, spec, code=1)
    [message] = webhook.received
    assert message["message"] == "the launch ended with an error: no space left"


def test_a_service_that_fails_is_a_warning_without_its_url(root, machine, webhook, configure):
    webhook.status = 500
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # doesn't listen
        port = unused.getsockname()[1]
        configure(webhook.url, f"json://127.0.0.1:{port}/{SECRET}", f"unknown://{SECRET}")
        said = launched(root, labs.write_study(root.parent))
    assert "notify: service 1 of 3: the message was not accepted" in said
    assert "notify: service 2 of 3: the message was not accepted" in said
    assert "notify: service 3 of 3: not a valid URL of apprise" in said


def test_a_service_that_does_not_answer_delays_nothing_beyond_the_limit(root, machine, webhook, monkeypatch):
    monkeypatch.setattr(notify, "SECONDS", 0.2)
    webhook.answering.clear()
    assert "notify: service 1 of 1: no answer within 0.2 s" in launched(root, labs.write_study(root.parent))


def test_without_apprise_a_launch_warns_by_one_line(root, machine, webhook, monkeypatch):
    installed = dependencies.installed
    monkeypatch.setattr(dependencies, "installed", lambda name: name != "apprise" and installed(name))
    assert launched(root, labs.write_study(root.parent)).count("pip install 'jestlab[notify]'") == 1
    assert webhook.received == []


def test_doctor_warns_without_apprise(root, webhook, monkeypatch):
    def found() -> list[tuple[str, str]]:
        checks = json.loads(labs.here("doctor", "--no-jax", "--json", root=root).stdout)
        return [(each["level"], each["remedy"]) for each in checks if each["check"] == "notify"]

    assert found() == [("ok", "")]
    installed = dependencies.installed
    monkeypatch.setattr(dependencies, "installed", lambda name: name != "apprise" and installed(name))
    assert found() == [("warning", "apprise isn't installed: pip install 'jestlab[notify]'")]


def test_settings_never_show_a_service(tmp_path, monkeypatch):
    for value in (f"{{a: 'slack://{SECRET}'}}", f"[{SECRET}]", f"['slack://{SECRET}', 3]"):
        (tmp_path / "config.yaml").write_text(f"notify: {value}")
        monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "config.yaml"))
        with pytest.raises(UserError, match="notify: must be a URL of apprise") as error:
            Settings.find()
        assert SECRET not in str(error.value)
    (tmp_path / "config.yaml").write_text(f"notify: slack://{SECRET}")
    assert SECRET not in repr(Settings.find())


def test_claims_that_cannot_be_read_do_not_fail_the_launch(root, machine, webhook, monkeypatch):
    def fail(*_: object) -> None:
        raise OSError("the store is away")

    monkeypatch.setattr(deciding, "claims_status", fail)
    claims = [{"statement": "Joint wins", "of": "joint", "above": "uniform", "measure": "toy/score"}]
    launched(root, labs.write_study(root.parent, claims=claims), "--no-reports")
    [message] = webhook.received
    assert message["message"].endswith("\nthe claims can't be read: the store is away")
