"""`jestlab export` and `jestlab import`: nothing is lost, and nothing better is overwritten."""

import json

import plans_support as plans
import pytest
import stores_support as stores
from archives_support import JOINT, REFERENCE, UNIFORM, called, export, fill, take
from sqlalchemy import text

from jestlab.analysis import published, query, tables
from jestlab.analysis.results import read as read_frames
from jestlab.platform.errors import UserError
from jestlab.platform.exchange import archive_read
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.annotations import Subject, add_tags, tags
from jestlab.platform.store.engine import closing_engine, writable
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import start_over
from jestlab.platform.store.store import Store
from jestlab.platform.store.views import VIEWS


def table(lab: Lab) -> str:
    return tables.summary(tables.finals(read_frames(lab.store_url, "toy"))).render("json")


def everything(lab: Lab) -> dict[str, object]:
    """Return the rows of all views, a table of results, and all files."""
    views = {}
    for name in VIEWS:
        columns = [column for column in query.select(lab.store_url, name).columns if column != "origin"]
        views[name] = sorted(map(repr, query.select(lab.store_url, name, columns=columns).rows))
    files = {
        path.relative_to(lab.root).as_posix(): path.read_bytes()
        for folder in ("runs", "reports")
        for path in (lab.root / folder).rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }
    return {**views, "table": table(lab), **files}


@pytest.mark.parametrize(
    ("source", "target"),
    [("sqlite", "sqlite"), ("sqlite", "postgresql"), ("postgresql", "sqlite")],
)
def test_a_lab_is_the_same_after_export_and_import(filled, copy, tmp_path, request, source, target):
    lab, path = filled, tmp_path / "lab.zip"
    if source == "postgresql":
        lab = Lab.find(tmp_path / "lab", request.getfixturevalue("postgresql_url"))
        fill(lab)
    if target == "postgresql":
        copy = Lab.find(tmp_path / "on server", request.getfixturevalue("postgresql_url"))
    written = export(lab, path, checkpoints=True)
    assert (written.experiments, written.runs, written.files) == (["other", "toy"], 4, 7)
    merged = take(copy, path)
    assert (merged.new, merged.replaced, merged.kept, merged.experiments) == (4, 0, 0, ["other", "toy"])
    before = everything(lab)
    assert everything(copy) == before
    again = take(copy, path)
    assert (again.new, again.replaced, again.kept, again.experiments) == (0, 0, 4, [])
    assert everything(copy) == before
    assert not list(copy.root.glob(".*"))
    assert not list(tmp_path.glob(".*"))
    with_new_ids = Store.open(copy.store_url)
    plans.record(with_new_ids, plans.plan(plans.run("next"), name="next"))
    stores.attempt(with_new_ids, plans.run("next"))


def test_exports_one_experiment_with_its_needs_and_without_checkpoints(filled, copy, tmp_path):
    export(filled, tmp_path / "toy.zip", "toy")
    assert take(copy, tmp_path / "toy.zip").experiments == ["toy"]
    files = {path.relative_to(copy.root).as_posix() for path in copy.root.rglob("*") if path.is_file()}
    logs = {f"{run.directory}/log.txt" for run in (REFERENCE, JOINT, UNIFORM)}
    assert {file for file in files if file.startswith("runs")} == logs
    assert "reports/toy/table.md" in files
    assert table(copy) == table(filled)
    with pytest.raises(UserError, match="did you mean 'toy'"):
        export(filled, tmp_path / "x.zip", "toi")
    assert not (tmp_path / "x.zip").exists()


def test_exports_needed_runs_of_other_experiments(lab, copy, tmp_path):
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(REFERENCE, JOINT, name="only"))
    with store.writing() as connection:
        connection.execute(text("DELETE FROM member WHERE name = 'reference'"))
    assert export(lab, tmp_path / "only.zip", "only").runs == 2
    assert take(copy, tmp_path / "only.zip").new == 2
    assert set(Store.open(copy.store_url).run(JOINT.fingerprint).needs) == {"selection.reference"}


@pytest.mark.parametrize(
    ("state", "is_replaced"), [("COMPLETED", False), ("FAILED", True), (None, True), ("RUNNING", False)]
)
def test_a_completed_run_replaces_one_that_ended_early(filled, copy, tmp_path, state, is_replaced):
    export(filled, tmp_path / "lab.zip", checkpoints=True)
    store = Store.open(copy.store_url)
    ours = plans.run("my-joint", JOINT.program, JOINT.config, needs=JOINT.needs)
    assert ours.fingerprint == JOINT.fingerprint
    plans.record(store, plans.plan(REFERENCE, ours, name="mine"))
    add_tags(store, Subject(fingerprint=JOINT.fingerprint), ["mine"])
    if state is not None:
        stores.attempt(store, ours, RunState(state), scores={"toy/score": 0.125})
    (stores.folder(copy, ours) / "ours").touch()
    assert (take(copy, tmp_path / "lab.zip").kept == 0) is is_replaced
    scores = f"SELECT value FROM evaluation WHERE run_id = {stores.run_id(store, JOINT)} AND dataset = 'toy'"
    assert stores.rows(store, scores) == [(0.75 if is_replaced else 0.125,)]
    assert (copy.root / ours.directory / "ours").exists()
    assert (copy.root / JOINT.directory / "log.txt").exists() is is_replaced
    assert tags(store, Subject(fingerprint=JOINT.fingerprint)) == ["keep", "mine"]
    if is_replaced:
        [[log]] = query.select(copy.store_url, "attempts", "label = 'joint' and number = 2", ["log"]).rows
        assert log == f"{JOINT.directory}/log.txt"
        [[uri]] = query.select(copy.store_url, "artifacts", "label = 'joint'", ["uri"]).rows
        assert uri == f"{JOINT.directory}/checkpoints"


def test_running_attempts_are_preempted_in_the_copy_and_earlier_ones_are_kept(lab, copy, tmp_path):
    store = Store.open(lab.store_url)
    assert start_over(store, [JOINT.fingerprint]) == [JOINT.fingerprint]
    stores.attempt(store, JOINT, number=3, log=f"runs/joint.again3-{JOINT.fingerprint[:16]}/log.txt")
    stores.attempt(store, plans.run("waiting"), RunState.RUNNING)
    export(lab, tmp_path / "lab.zip")
    assert take(copy, tmp_path / "lab.zip").new == 4
    logs = [query.select(each.store_url, "attempts", columns=["label", "log"]).rows for each in (lab, copy)]
    assert sorted(logs[0]) == sorted(logs[1])
    found = query.select(copy.store_url, "attempts", "label = 'waiting'", ["state", "reason"]).rows
    assert found == [("PREEMPTED", "was running when it was exported")]
    assert query.select(copy.store_url, "runs", "label = 'waiting'", ["state"]).rows == [("PREEMPTED",)]


def test_the_later_import_of_a_published_cell_wins(lab, copy, tmp_path):
    export(lab, tmp_path / "toy.zip", "toy")
    assert take(copy, tmp_path / "toy.zip").published == 0  # they belong to the lab
    export(lab, tmp_path / "first.zip")
    cells = published.stored(lab.store_url)
    changed = cells[0].model_copy(update={"note": "seen again"})
    import_cells(Store.open(lab.store_url), [changed])
    export(lab, tmp_path / "second.zip")
    for name, expected in (("first", 18), ("second", 1), ("first", 0)):
        assert take(copy, tmp_path / f"{name}.zip").published == expected
    assert published.stored(copy.store_url) == [changed, *cells[1:]]


def test_a_crash_during_an_import_leaves_no_rows(copy, path, monkeypatch):
    with monkeypatch.context() as crashing, pytest.raises(ZeroDivisionError):
        crashing.setattr(archive_read, "move_files", lambda *_: 1 / 0)
        take(copy, path)
    assert query.select(copy.store_url, "runs").rows == []
    assert take(copy, path).new == 4


def test_commands(filled, tmp_path):
    path = tmp_path / "out" / "lab.zip"
    written = json.loads(called("export", path, "toy", "--root", filled.root, "--json").output)
    assert (written["experiments"], written["runs"]) == (["toy"], 3)
    assert "runs: 3 new" in called("import", path, "--root", tmp_path / "copy").output
    assert json.loads(called("import", path, "--root", tmp_path / "copy", "--json").output)["kept"] == 3
    with pytest.raises(UserError, match="no archive"):
        called("import", tmp_path / "nowhere.zip", "--root", tmp_path / "copy")


def test_workers_do_not_wait_for_an_import(path, tmp_path, postgresql_url, monkeypatch):
    """Neither workers of runs in the archive nor others."""
    store, other = Store.open(postgresql_url), plans.run("at work", config={"steps": 3})
    plans.record(store, plans.plan(UNIFORM, other, name="mine"))
    for run in (other, UNIFORM):
        stores.attempt(store, run, RunState.RUNNING, loss=(1.0,))
    move_files, point = archive_read.move_files, "id, 1, 10000, 1.0"

    def before_the_end(*arguments):
        with closing_engine(writable(postgresql_url)) as engine, engine.begin() as worker:
            worker.execute(text("SET LOCAL lock_timeout = 300"))
            for key in (stores.run_id(store, run) for run in (other, UNIFORM)):
                worker.execute(text(f"UPDATE run SET step = step + 1 WHERE id = {key}"))
                worker.execute(text(f"INSERT INTO metric SELECT {point} FROM run WHERE id = {key}"))
        move_files(*arguments)

    monkeypatch.setattr(archive_read, "move_files", before_the_end)
    merged = take(Lab.find(tmp_path / "lab", postgresql_url), path)
    assert (merged.new, merged.replaced, merged.kept) == (3, 0, 1)
