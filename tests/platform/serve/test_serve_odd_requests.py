"""Whatever is asked for, the answer is a page, data, or one clear line."""

import os
import shutil
from contextlib import closing
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.platform.serve.conftest import HOST, STUDY, TOKEN, Answer, record

from jestlab.platform.lab.lab import Lab
from jestlab.platform.serve import run as pages_of_runs
from jestlab.platform.serve.app import PAGES
from jestlab.platform.store.store import Store

pytestmark = pytest.mark.both_databases

# fmt: off
ODD = (
    "", " ", ".", "..", "\0", "a\0b", "\n", "\ud7ff", "é" * 300, "%", "%00", "%s", "'", '"', "\\", ";",
    "-1", "0", "1e400", "nan", "9" * 19, "9" * 5000, "-" + "9" * 5000, "٣", "²", "(" * 5000,
    "a" * 20_000, "not " * 5000, "seed = " + "9" * 5000, "seed = 1e999", "config." + "a." * 500,
    "seed like '" + "%" * 99 + "'", "seed = 0 and " * 2000 + "seed = 0", "x.y[0]", "SELECT '\0'",
    "SELECT " + "9" * 5000, "SELECT 1e999, -1e999",
    "SELECT x'00ff'", "SELECT " + "(" * 2000 + "1" + ")" * 2000,
    "SELECT", "EXPLAIN SELECT 1", "VALUES (1)", "--", "{x}",
    "abcdef", "0" * 64, "f" * 64, "toy", "loss", "RUNNING", "joint", "token", "..%2f..%2fetc", "SELECT *",
    "(" * 3000 + "seed = 0" + ")" * 3000, "not " * 2000 + "seed = 0", "summary.csv", "joint\nx", "[" * 3000,
)
KEYS = (
    "lab", "page", "sort", "state", "find", "from", "width", "metric", "run", "data", "where",
    "columns", "order", "q", "tok", "by", "text", "names", "reason", "name",
)
# fmt: on
PARTS = {"name": "toy", "study": "toy", "figure": "summary.png", "file": "summary.csv", "step": "1"}
ACTIONS = ("note", "tag", "untag", "accept", "save", "forget", "{file}")
FORMS = [
    f"POST {place}/{action}"
    for place in ("/experiment/{name}", "/run/{fingerprint}", "/sql")
    for action in ACTIONS
]


@pytest.fixture
def lab(tmp_path: Path, store_url: str) -> Lab:
    (tmp_path / "lab").mkdir()
    return Lab.find(tmp_path / "lab", store_url)


@pytest.fixture
def run(lab: Lab) -> str:
    """The fingerprint of a run of a recorded study."""
    return next(iter(record(lab, STUDY).values()))


@pytest.fixture
def log(lab: Lab, run: str) -> Path:
    """The path of the run's log, in a folder that exists."""
    with closing(Store.open(lab.store_url)) as store:
        path = lab.root / store.run(run).directory / "log.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.fixture
def asks(lab, run, client):
    """Send a request as a browser of ours; an exception of the application counts as 500."""
    asking = client(lab, writes=True)

    def ask(method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        own = {"host": HOST, "origin": f"http://{HOST}", "cookie": f"jestlab-token={TOKEN}"}
        try:
            answer: Answer = asking.request(method, path, body, own | headers)
        except Exception as error:
            return Answer(500, {}, repr(error).encode())
        return answer

    return ask


def is_clear(answer: Answer) -> bool:
    """Whether an answer is no error of the server, and an error of the asker's is one line."""
    return answer.status < 500 and (answer.status < 400 or (b"\n" not in answer.body and answer.body != b""))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    template=st.sampled_from([*PAGES, "/static/{name}", "/{name}", *FORMS]),
    parts=st.lists(st.sampled_from(ODD) | st.text(max_size=20), min_size=6, max_size=6),
    is_right=st.lists(st.booleans(), min_size=6, max_size=6),
    query=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(ODD) | st.text(max_size=20), max_size=4),
)
def test_no_address_and_no_form_is_an_error_of_the_server(asks, run, template, parts, is_right, query):
    right = PARTS | {"fingerprint": run}
    odd = dict(zip(right, zip(parts, is_right, strict=True), strict=True))
    values = {name: right[name] if use else part for name, (part, use) in odd.items()}
    method, _, path = template.rpartition(" ")
    path = path.format_map({name: quote(value, safe="") for name, value in values.items()})
    given = urlencode(query)
    answer = asks("POST", path, given.encode()) if method else asks("GET", f"{path}?{given}")
    assert is_clear(answer), (answer.status, answer.body[:500])


@pytest.mark.parametrize("path", ["/runs", "/sql", "/experiment/toy", "/compare"])
def test_no_value_is_an_error_of_the_server(asks, run, path):
    for value in ODD:
        query = urlencode(
            {"where": value, "q": value, "sort": value, "page": value, "run": run, "metric": value}
        )
        answer = asks("GET", f"{path}?{query}")
        assert is_clear(answer), (value[:50], answer.status, answer.body[:500])


@pytest.mark.parametrize("host", ["[", "[::1]x", "localhost:" + "9" * 5000, "localhost:x", "é", ""])
@pytest.mark.parametrize("origin", ["http://[", "//", "null", "é"])
def test_no_header_is_an_error_of_the_server(asks, host, origin):
    for method, path in (("GET", "/nowhere"), ("GET", f"/?token={TOKEN}"), ("GET", "/experiment/toi")):
        assert is_clear(asks(method, path, host=host, origin=origin))
    assert is_clear(asks("POST", "/experiment/toy/note", b"text=x", host=host, origin=origin))
    cookie = "jestlab-token=\xe9"
    assert is_clear(asks("POST", "/experiment/toy/note", b"text=x", origin=origin, cookie=cookie))


@pytest.mark.parametrize("kind", ["folder", "pipe", "nothing"])
def test_a_log_that_is_no_file_is_reported_in_one_line(log, asks, run, kind):
    {"folder": log.mkdir, "pipe": lambda: os.mkfifo(log), "nothing": lambda: None}[kind]()
    for query in ("", "?from=0", "?from=" + "9" * 5000):
        answer = asks("GET", f"/run/{run}/log{query}")
        assert "start" not in answer.headers and answer.body.startswith(b"The log is"), answer.body


def test_a_log_is_read_in_parts(log, asks, run, monkeypatch):
    monkeypatch.setattr(pages_of_runs, "TAIL_BYTES", 4)
    log.write_bytes(b"0123456789")
    for query, start, part in (
        ("", "6", b"6789"),
        ("?from=3", "3", b"3456"),
        ("?from=10", "10", b""),
        ("?from=11", "6", b"6789"),
    ):
        answer = asks("GET", f"/run/{run}/log{query}")
        assert (answer.headers["start"], answer.body) == (start, part), query


def test_a_store_that_was_moved_away_is_reported_by_every_page(lab, asks, run):
    if not lab.store_url.startswith("sqlite"):
        pytest.skip("a server is stopped elsewhere")
    path = Path(lab.store_url.removeprefix("sqlite:///"))
    shutil.move(path, path.with_name("away.db"))
    for template in PAGES:
        address = template.format_map(PARTS | {"fingerprint": run})
        for query in ("", "?q=SELECT+1&where=seed+%3D+0"):
            answer = asks("GET", address + query)
            assert answer.status in (200, 400, 503), (address, answer.body)
            assert answer.status == 200 or (b"store" in answer.body and b"\n" not in answer.body), answer.body
    assert asks("GET", "/sql?q=SELECT+1").status == 503
    shutil.move(path.with_name("away.db"), path)
    assert asks("GET", "/sql?q=SELECT+1").status == 200
