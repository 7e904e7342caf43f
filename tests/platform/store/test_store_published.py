"""Published cells in the store: what an import changes, and that nothing is lost."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from jestlab.analysis import published, query
from jestlab.platform.store.published import Imported, import_cells
from jestlab.platform.store.store import Store

PAPER = published.paper()


def in_order(cells):
    return sorted(cells, key=lambda cell: cell.key)


def test_importing_twice_changes_nothing(store, store_url):
    done = import_cells(store, PAPER)
    assert done == Imported(new=233)
    assert in_order(published.stored(store_url)) == in_order(PAPER)
    before = query.frame(store_url, view="published")
    again = import_cells(store, PAPER)
    assert again == Imported(unchanged=233)
    assert query.frame(store_url, view="published").equals(before)  # including the time of the import


def test_an_import_neither_removes_nor_contradicts_cells(store, store_url):
    import_cells(store, PAPER)
    laion = [cell for cell in PAPER if cell.table == "laion"]
    done = import_cells(store, laion[:-2])
    assert done.kept == 2  # only of this table
    cell = next(c for c in PAPER if c.table == "laion" and not c.baseline)
    with pytest.raises(ValueError, match=r"position of the baseline of .*is '7' here"):
        import_cells(store, [cell.model_copy(update={"position": 7, "baseline": True})])
    cell = next(c for c in PAPER if c.key[1:] == ("laion", 1, "examples_seen"))
    with pytest.raises(ValueError, match="method of row 1 of laion is 'Other' here and 'LAION-440M'"):
        import_cells(store, [cell.model_copy(update={"method": "Other"})])
    assert in_order(published.stored(store_url)) == in_order(PAPER)


@pytest.mark.both_databases
def test_several_imports_at_once(store, store_url):
    def one(_):
        with closing(Store.open(store_url)) as store:
            return import_cells(store, PAPER)

    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(one, range(3)))
    assert all(d.new + d.unchanged + d.changed == 233 for d in done)
    assert in_order(published.stored(store_url)) == in_order(PAPER)
