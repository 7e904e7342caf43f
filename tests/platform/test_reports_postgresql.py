"""The analysis of a study is the same on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from contextlib import closing

import plans_support as plans
import pytest
import stores_support as stores
from postgres_support import PASSWORD
from sqlalchemy import text

from jestlab.analysis.report import build, gather
from jestlab.analysis.results import Snapshot, opened
from jestlab.analysis.results import experiments as experiments_in
from jestlab.analysis.results import read as read_frames
from jestlab.platform.store.store import Store

# Text that locales sort in other ways than bytes do.
LABELS = ["B-run", "a run", "Über", "c_run"]


def fill(url: str) -> None:
    """Create a store with a study of eight runs."""
    runs = [plans.run(name, config={"name": name}, seed=seed) for name in LABELS for seed in (0, 1)]
    with closing(Store.open(url)) as store:
        plans.record(store, plans.plan(*runs, name="study"))
        plans.record(store, plans.plan(*runs[:2], name="Another"))
        for number, run in enumerate(runs):
            scores = {"shapes/zero_shot": 0.1 * number, "shapes/10_shot": 0.7 - 0.05 * number}
            stores.attempt(store, run, scores=scores, loss=(3.0, 2.0 - 0.1 * number, 1.0))


@pytest.fixture(scope="module")
def urls(tmp_path_factory, postgres_server) -> Iterator[tuple[str, str]]:
    """The same study on SQLite and on PostgreSQL, for tests that only read."""
    found = (f"sqlite:///{tmp_path_factory.mktemp('lab') / 'results.db'}", postgres_server.new_database())
    for url in found:
        fill(url)
    yield found
    postgres_server.drop(found[1])


def test_frames_are_equal(urls):
    import pandas as pd

    on_sqlite, on_postgresql = (read_frames(url, "study") for url in urls)
    for name in ("runs", "scores", "costs"):
        pd.testing.assert_frame_equal(getattr(on_sqlite, name), getattr(on_postgresql, name))
    assert on_sqlite.labels == on_postgresql.labels == LABELS
    assert experiments_in(urls[0]) == experiments_in(urls[1]) == ["Another", "study"]
    losses = []
    for url in urls:
        with opened(url) as store:
            losses.append(store.metrics("study", ["loss", "it's none"]))
    pd.testing.assert_frame_equal(losses[0], losses[1])
    assert len(losses[0]) == 24


def test_one_moment_is_read(postgres, monkeypatch):
    fill(postgres)
    read_one, store = Snapshot.select, Store.open(postgres)
    before = read_frames(postgres, "study")

    def read_one_while_a_worker_writes(*args, **kwargs):
        frame = read_one(*args, **kwargs)
        with store.writing() as writing:
            writing.execute(text("DELETE FROM evaluation"))
            writing.execute(text("DELETE FROM cost"))
        return frame

    monkeypatch.setattr(Snapshot, "select", read_one_while_a_worker_writes)
    after = read_frames(postgres, "study")
    assert len(after.scores) == len(before.scores) > 0
    assert len(after.costs) == len(before.costs) > 0
    store.close()


def test_a_server_that_cannot_be_read_is_one_line_without_a_password(postgres_server, postgres):
    for url in (
        postgres_server.url("nowhere"),
        postgres.replace("lab:", "stranger:"),
        postgres.replace("127.0.0.1:", "127.0.0.1:x"),
        "postgresql://lab@127.0.0.1:1/x?password=open%20sesame%3F",
        postgres,  # empty
    ):
        with pytest.raises(ValueError, match=r"cannot read results from|is not a database URL") as error:
            read_frames(url, "study")
        assert "sesame" not in str(error.value)
        assert PASSWORD not in str(error.value)
        assert "\n" not in str(error.value)


def test_reports_are_equal(urls, tmp_path):
    one, other = (gather(url, "study", "a run", "scoring") for url in urls)
    assert one.answer == other.answer
    assert [part.name for part in one.tables] == [part.name for part in other.tables]
    for part, same in zip(one.tables, other.tables, strict=True):
        for form in ("markdown", "latex", "csv", "html", "json"):
            assert getattr(part.table, form)() == getattr(same.table, form)()
    for figure, drawn in zip(one.figures, other.figures, strict=True):
        assert figure.variants == drawn.variants
    assert one.sections[-1].recipe == other.sections[-1].recipe
    assert len(one.history.newest() or "") == len(other.history.newest() or "") == len("2026-01-01 00:00:00")
    for path in build(gather(urls[1], "study"), tmp_path / "report"):
        assert PASSWORD.encode() not in path.read_bytes(), path
