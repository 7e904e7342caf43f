"""Figures, tables and executors that an imported study names are executed only once its user trusts it."""

from __future__ import annotations

import json
from pathlib import Path

import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner

from jestlab.platform import reports
from jestlab.platform.cli import cli
from jestlab.platform.errors import UserError
from jestlab.platform.lab import exporting, merging
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import Plan
from jestlab.platform.spec.load import load_stored
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

EVIL = """
from pathlib import Path
Path(__file__).with_name("executed").touch()

def scatter(results):
    from matplotlib.figure import Figure
    return Figure(figsize=(1, 1))

def counts(results):
    return results.final.groupby("label")[["step"]].count()

class Evil:
    pass
"""
REFUSED = "toy was imported from lab.tar.gz and is not trusted: see what it would execute with jestlab trust"


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    """The file that the study names, which says when it is executed."""
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path / "evil.py"


@pytest.fixture
def ours(tmp_path: Path, evil: Path) -> Lab:
    """A lab with a study that was imported."""
    theirs = Lab.find(tmp_path / "theirs")
    store = Store.open(theirs.store_url)
    study = {
        "name": "toy",
        "runs": {"a": {}},
        "metrics": {"*": {"goal": "max"}},
        "resources": {"on": f"{evil}:Evil"},
        "reports": [f"{evil}:scatter", {"table": {"name": f"{evil}:counts"}}, "curves"],
    }
    runs = [plans.run("a"), plans.run("b", config={"code": {f"{evil}:clipped": {"digest": "0" * 16}}})]
    store.record(Plan(Study.parse(study), tuple(runs)))
    for run in runs:
        stores.attempt(store, run, RunState.COMPLETED, scores={"toy/score": 0.5}, loss=(1.0,))
    exporting.write(theirs, store, tmp_path / "lab.tar.gz")
    lab = Lab.find(tmp_path / "ours")
    merging.merge(lab, Store.open(lab.store_url), tmp_path / "lab.tar.gz", False)
    return lab


def called(*arguments):
    return CliRunner().invoke(cli, [*map(str, arguments)], standalone_mode=False)


def test_nothing_of_an_imported_study_is_executed_before_it_is_trusted(ours, evil):
    at = ("--root", ours.root)
    executed = evil.with_name("executed")
    page = called("report", "toy", *at).output.strip()
    assert Path(page).read_text().count(REFUSED) == 2
    for verb in (("plot", "toy", "--kind", "scatter"), ("table", "counts", "toy"), ("retry", "toy")):
        error = called(*verb, *at).exception
        assert str(error).startswith(REFUSED) and "\n" not in str(error), (verb, error)
    for verb in (
        ("plot", "toy", "--kind", "curves"),
        ("table", "toy"),
        ("status", "toy"),
        ("logs", "toy", "a"),
    ):
        called(*verb, *at)
    called("cancel", "toy", *at)
    study = load_stored("toy", Store.open(ours.store_url).spec("toy"))
    notes: list[str] = []
    written = reports.write(ours, study, notes.append)
    assert {path.stem for path in written if path.parent.name == "toy"} == {"report", "curves"}
    assert [note.partition(":")[0] for note in notes] == ["no scatter yet", "no counts yet"]
    assert all(REFUSED in note for note in notes)
    assert not executed.exists()


def test_trust_shows_what_would_be_executed_and_lets_it_be(ours, evil):
    at = ("--root", ours.root)
    looked = called("trust", "toy", "--dry-run", *at).output
    for kind, name in {
        "figure": "scatter",
        "table": "counts",
        "executor": "Evil",
        "config": "clipped",
    }.items():
        assert f"{evil}:{name}" in looked and kind in looked, (kind, looked)
    before = called("report", "toy", *at).output.strip()
    assert REFUSED in Path(before).read_text()
    told = json.loads(called("trust", "toy", "--json", *at).output)
    assert {"kind": "executor", "name": f"{evil}:Evil"} in told["code"] and told["trusted"]
    page = Path(called("report", "toy", *at).output.strip())
    assert REFUSED not in page.read_text() and '<section id="scatter">' in page.read_text()
    assert "| a" in called("table", "counts", "toy", *at).output
    assert evil.with_name("executed").exists()


def test_what_the_user_names_is_executed_as_the_users_own(ours, evil, tmp_path):
    """The code is theirs, whoever made the results."""
    (tmp_path / "mine.py").write_text(
        "def ends(results):\n    return results.final.groupby('label').count()\n"
    )
    done = called("table", f"{tmp_path}/mine.py:ends", "toy", "--root", ours.root)
    assert "| a" in done.output and not evil.with_name("executed").exists()


def test_an_executor_that_an_attempt_of_an_archive_names_is_not_asked(ours, evil):
    with Store.open(ours.store_url).writing() as connection:
        connection.exec_driver_sql("UPDATE attempt SET executor = ?", (f"{evil}:Evil",))
    for verb in (("status", "toy"), ("logs", "toy", "a"), ("cancel", "toy"), ("report", "toy")):
        called(*verb, "--root", ours.root)
    assert not evil.with_name("executed").exists()


def test_a_spec_of_ones_own_of_that_name_is_trusted(ours, evil, tmp_path):
    store = Store.open(ours.store_url)
    study = load_stored("toy", store.spec("toy"))
    store.record(Plan(study, (plans.run("a"),)))
    assert not isinstance(called("table", "counts", "toy", "--root", ours.root).exception, UserError)
    assert evil.with_name("executed").exists()
