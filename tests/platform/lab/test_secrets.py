"""The store's URL from Secret Manager, over HTTP."""

import pytest
from fake_google import FakeGoogle
from google.auth.credentials import AnonymousCredentials

from jestlab.platform.errors import StoreUnreachable, UserError
from jestlab.platform.lab import secret
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.secret import fetch_secret, store_url_of

REFERENCE = "projects/our-lab/secrets/jestlab-store/versions/latest"
URL = "postgresql+psycopg://ada:correct-horse@db.example/lab"


@pytest.fixture
def google(monkeypatch):
    monkeypatch.setattr("google.auth.default", lambda scopes: (AnonymousCredentials(), None))
    monkeypatch.setattr(secret, "_BACKOFF_SECONDS", 0.0)
    server = FakeGoogle()
    server.secrets[REFERENCE] = URL + "\n"
    monkeypatch.setattr(secret, "ENDPOINT", server.url)
    yield server
    server.stop()


def test_only_valid_references_are_requested_and_a_url_takes_precedence(google):
    environment = {"JESTLAB_STORE": "sqlite:///x.db", "JESTLAB_STORE_SECRET": REFERENCE}
    assert store_url_of(environment) == "sqlite:///x.db"
    assert store_url_of({}) is None
    for reference in ("jestlab-store", REFERENCE + "/../../x", "projects/a/secrets/b/versions/1?x=1"):
        with pytest.raises(UserError, match="expected projects/PROJECT"):
            fetch_secret(reference)
    assert google.requests == []


def test_a_lab_resolves_its_reference(google, monkeypatch, tmp_path):
    monkeypatch.delenv("JESTLAB_STORE", raising=False)
    monkeypatch.setenv("JESTLAB_STORE_SECRET", REFERENCE)
    assert Lab.find(tmp_path).store_url == URL


def test_failed_requests_are_repeated_and_their_errors_have_one_line(google):
    google.faults = [429, 503]
    assert fetch_secret(REFERENCE) == URL + "\n"
    google.faults = [503] * 8
    with pytest.raises(StoreUnreachable, match="Secret Manager answers 503"):
        fetch_secret(REFERENCE)
    for fault, message in ((403, "needs the role"), (404, "answers 404"), (401, "Google Cloud|answers 401")):
        google.faults = [fault] * 8
        with pytest.raises(UserError, match=message) as raised:
            fetch_secret(REFERENCE)
        assert "\n" not in str(raised.value)
    google.stop()
    with pytest.raises(StoreUnreachable, match="Secret Manager: ConnectionError"):
        fetch_secret(REFERENCE)


def test_errors_do_not_show_the_answer(google, monkeypatch):
    monkeypatch.setattr(google, "answer", lambda *_: {"payload": {"data": "Y29ycmVjdC1ob3JzZQ==%%%"}})
    with pytest.raises(UserError, match="contains no text") as raised:
        fetch_secret(REFERENCE)
    assert "Y29" not in str(raised.value)
