"""Published cells in the store: what an import changes, and that every way out gives them back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import plans_support as plans
import pytest
from sqlalchemy import text

from jestlab.analysis import published, query
from jestlab.platform.errors import UserError
from jestlab.platform.store import backup
from jestlab.platform.store.published import import_cells, remove_source
from jestlab.platform.store.store import Store

PAPER = published.paper()


def in_order(cells):
    return sorted(cells, key=lambda cell: cell.key)


@pytest.fixture
def store(store_url):
    with closing(Store.open(store_url)) as store:
        yield store


def test_what_goes_in_is_what_analysis_reads_and_doing_it_again_changes_nothing(store, store_url):
    done = import_cells(store, PAPER)
    assert (done.new, done.unchanged, done.changed, done.left) == (233, 0, [], [])
    assert in_order(published.stored(store_url)) == in_order(PAPER)
    before = query.frame(store_url, view="published")
    again = import_cells(store, PAPER)
    assert (again.new, again.unchanged, again.changed, again.left) == (0, 233, [], [])
    assert query.frame(store_url, view="published").equals(before)  # the time of the import, too


@plans.ON_SQLITE
def test_a_changed_cell_is_updated_and_said(store, store_url):
    import_cells(store, PAPER)
    cell = next(c for c in PAPER if c.key[1:] == ("comparison", 13, "mean_delta"))
    mended = [replace(c, printed="+0.9", value=0.009, bold=False) if c == cell else c for c in PAPER]
    done = import_cells(store, mended)
    assert (done.new, done.unchanged) == (0, 232)
    (change,) = done.changed
    assert change.key == cell.key
    assert (change.before, change.after) == (
        {"printed": "+1.8", "value": 0.018, "bold": 1},
        {"printed": "+0.9", "value": 0.009, "bold": 0},
    )
    assert in_order(published.stored(store_url)) == in_order(mended)


@plans.ON_SQLITE
def test_cells_that_an_import_does_not_hold_stay_and_are_said(store, store_url):
    import_cells(store, PAPER)
    laion = [cell for cell in PAPER if cell.table == "laion"]
    done = import_cells(store, laion[:-2])
    assert done.left == [cell.key for cell in in_order(laion[-2:])]  # of that table, and of no other
    assert len(published.stored(store_url)) == 233


@plans.ON_SQLITE
def test_sources_are_apart(store, store_url):
    import_cells(store, PAPER)
    mine = [replace(cell, source="Doe") for cell in PAPER if cell.table == "laion"]
    assert import_cells(store, mine).new == 18
    with pytest.raises(UserError, match="nothing published by 'Dow' in the store: did you mean 'Doe'"):
        remove_source(store, "Dow")
    assert remove_source(store, published.PAPER) == 233
    assert in_order(published.stored(store_url)) == in_order(mine)


@plans.ON_SQLITE
def test_no_group_gets_a_second_baseline(store, store_url):
    import_cells(store, PAPER)
    other = replace(
        next(c for c in PAPER if c.table == "laion" and not c.baseline), position=7, baseline=True
    )
    with pytest.raises(UserError, match="laion has its baseline in row 5 in the store, in row 7 now"):
        import_cells(store, [other])
    assert len(published.stored(store_url)) == 233


@plans.ON_SQLITE
def test_no_row_says_two_things(store, store_url):
    import_cells(store, PAPER)
    other = replace(next(c for c in PAPER if c.key[1:] == ("laion", 1, "examples_seen")), method="Other")
    with pytest.raises(
        UserError, match="laion, row 1: method is 'LAION-440M' in the store, where coco/mean_r1"
    ):
        import_cells(store, [other])
    assert in_order(published.stored(store_url)) == in_order(PAPER)


def test_several_may_import_at_once(store_url):
    Store.open(store_url).close()

    def one(_):
        with closing(Store.open(store_url)) as store:
            return import_cells(store, PAPER)

    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(one, range(4)))
    assert all(d.new + d.unchanged + len(d.changed) == 233 for d in done)
    assert in_order(published.stored(store_url)) == in_order(PAPER)


def test_a_backup_has_them(store, store_url, tmp_path, postgres_server):
    """Into the other kind of database."""
    import_cells(store, PAPER)
    backup.back_up(store_url, tmp_path / "backup.db")
    to_server = store_url.startswith("sqlite")
    url = postgres_server.new_database() if to_server else f"sqlite:///{tmp_path / 'again.db'}"
    backup.restore(tmp_path / "backup.db", url)
    assert in_order(published.stored(url)) == in_order(PAPER)
    with closing(Store.open(url)) as restored:  # new ids do not collide
        assert import_cells(restored, [replace(PAPER[0], source="Doe")]).new == 1
    if to_server:
        postgres_server.drop(url)


def test_questions_of_the_view(store, store_url):
    import_cells(store, PAPER)
    found = query.select(
        store_url,
        "published",
        "table_name = 'comparison' and quantity = 'mean_delta' and ours and value > 0.02",
        ["method", "variant", "printed"],
    )
    assert found.rows == [("JEST++", "B", "+2.8")]


def test_a_cell_can_be_there_only_once(store):
    import_cells(store, PAPER[:1])
    again = (
        "INSERT INTO published (source, table_name, position, group_name, method, variant, data, citation, "
        "citation_key, ours, baseline, accounting, quantity, printed, value, unit, bold, note, updated_at) "
        "SELECT source, table_name, position, group_name, method, variant, data, citation, citation_key, "
        "ours, baseline, accounting, quantity, printed, value, unit, bold, note, updated_at FROM published"
    )
    with pytest.raises(Exception, match=r"(?i)unique"), store.writing() as connection:
        connection.execute(text(again))
