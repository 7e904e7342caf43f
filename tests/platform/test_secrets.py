"""The store's URL from Secret Manager, asked as it is asked in the cloud: over HTTP."""

import pytest
from fake_google import FakeGoogle
from google.auth.credentials import AnonymousCredentials

from jestlab.platform import secrets
from jestlab.platform.errors import UserError

REFERENCE = "projects/our-lab/secrets/jestlab-store/versions/latest"
URL = "postgresql+psycopg://ada:correct-horse@db.example/lab"


@pytest.fixture
def google(monkeypatch):
    monkeypatch.setattr("google.auth.default", lambda scopes: (AnonymousCredentials(), None))
    server = FakeGoogle()
    server.secrets[REFERENCE] = URL + "\n"
    yield server
    server.stop()


def test_a_url_in_the_environment_is_taken_as_it_is(google):
    environment = {"JESTLAB_STORE": "sqlite:///x.db", "JESTLAB_STORE_SECRET": REFERENCE}
    assert secrets.store_url(environment, google.url) == "sqlite:///x.db"
    assert secrets.store_url({}, google.url) is None
    assert google.requests == []


def test_a_reference_is_resolved(google):
    assert secrets.store_url({"JESTLAB_STORE_SECRET": REFERENCE}, google.url) == URL


def test_many_hosts_that_ask_at_once_are_answered_in_the_end(google):
    google.faults = [429, 503]
    assert secrets.fetch(REFERENCE, google.url) == URL + "\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [(403, "give the service account the role"), (404, "there is no such version"), (401, "Google Cloud")],
)
def test_a_refusal_is_one_line_with_the_remedy(google, fault, said):
    google.faults = [fault] * 8
    with pytest.raises(UserError, match=said) as raised:
        secrets.fetch(REFERENCE, google.url)
    assert "\n" not in str(raised.value)


def test_no_answer_is_an_error(google):
    google.stop()
    with pytest.raises(UserError, match="cannot be reached: ConnectionError"):
        secrets.fetch(REFERENCE, google.url)


def test_an_answer_that_is_none_is_an_error_that_does_not_show_it(google, monkeypatch):
    monkeypatch.setattr(google, "answer", lambda *_: {"payload": {"data": "Y29ycmVjdC1ob3JzZQ==%%%"}})
    with pytest.raises(UserError, match="holds no text") as raised:
        secrets.fetch(REFERENCE, google.url)
    assert "Y29" not in str(raised.value)


@pytest.mark.parametrize(
    "reference", ["jestlab-store", REFERENCE + "/../../x", "projects/a/secrets/b/versions/1?x=1"]
)
def test_only_a_reference_is_asked_for(google, reference):
    with pytest.raises(UserError, match="write projects/PROJECT"):
        secrets.fetch(reference, google.url)
    assert google.requests == []
