"""`jestlab export` and `jestlab import`: nothing is lost between databases, nothing better is overwritten,
and nothing gets in that does not belong there."""

from __future__ import annotations

import gzip
import io
import json
import math
import tarfile
from dataclasses import replace
from datetime import timedelta
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from archives_support import add, head, members, put, rewrite
from click.testing import CliRunner
from rows_support import added_after
from sqlalchemy import insert, text

from jestlab.analysis import frames, published, query, tables
from jestlab.platform.cli import cli
from jestlab.platform.errors import UserError
from jestlab.platform.lab import exporting as archives
from jestlab.platform.lab import merging
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import tables as rows
from jestlab.platform.store.annotations import Subject, add_note, add_tags, tags
from jestlab.platform.store.engine import writable
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rerun import start_over
from jestlab.platform.store.store import Store
from jestlab.platform.store.views import VIEWS

RUNS = list(plans.reference_and_two().runs)
REFERENCE, JOINT, UNIFORM = RUNS
SOURCES = json.dumps({"ridge.py": "e" * 64})


def fill(lab):
    """An experiment with all that a store can hold about it, and another one."""
    store = Store.open(lab.store_url)
    toy = store.record(plans.plan(*RUNS))
    store.record(plans.plan(UNIFORM, plans.run("waiting"), name="other"))
    stores.attempt(
        store, REFERENCE, scores={"toy/score": 0.5}, loss=(2.0, 1.0), git_patch="- ä\n+ b", sources=SOURCES
    )
    time: dict[str, Any] = {
        "startup_seconds": 2.5,
        "training_seconds": 9.0,
        "reached_step": 2**40,
        "saved_step": None,
    }
    stores.attempt(store, JOINT, RunState.FAILED, started=stores.START - timedelta(hours=1), **time)
    stores.attempt(
        store, JOINT, number=2, scores={"toy/score": 0.75, "a/b/c": math.inf}, loss=(math.inf, 0.5)
    )
    stores.attempt(store, UNIFORM, scores={"toy/score": 0.25})
    with store.writing() as connection:
        connection.execute(text("UPDATE metric SET value = NULL WHERE step = 2"))
        budget = {"run_id": stores.run_id(store, JOINT), "chip": "v5e", "chips": 4, "chip_hours": 0.5}
        connection.execute(insert(rows.Budget).values(**budget))
        artifact = {
            "run_id": stores.run_id(store, JOINT),
            "name": "weights",
            "sha256": "0" * 64,
            "size": 2**40,
        }
        connection.execute(insert(rows.Artifact).values(**artifact, uri=f"{JOINT.directory}/checkpoints"))
        code = {"sha256": "e" * 64, "text": "print('λ')"}
        connection.execute(insert(rows.Source).values(**code))
        said = {"reason": "ä", "author": "Ada", "created_at": stores.START}
        accepted = {"experiment_id": toy, "accepted": '{"code ridge.py":["a",null]}'}
        connection.execute(insert(rows.Acceptance).values(**accepted, **said))
        retracted = {"run_id": stores.run_id(store, REFERENCE), "number": 1}
        connection.execute(insert(rows.Retraction).values(**retracted, **said))
    add_note(store, Subject(experiment="toy"), "it’s\n“done”", "Ada")
    add_note(store, Subject(fingerprint=JOINT.fingerprint), "good", "Bo")
    add_tags(store, Subject(fingerprint=JOINT.fingerprint), ["keep"])
    import_cells(store, [cell for cell in published.paper() if cell.table == "laion"])
    for run in RUNS:
        stores.folder(lab, run)
    (lab.reports / "toy").mkdir(parents=True)
    (lab.reports / "toy" / "table.md").write_text("| table |")
    return store


@pytest.fixture
def lab(tmp_path, store_url):
    lab = Lab.find(tmp_path / "lab", store_url)
    fill(lab)
    return lab


def export(lab, path, *experiments, checkpoints=False):
    return archives.write(lab, Store.open(lab.store_url), path, experiments, checkpoints)


def take(lab, path):
    return merging.merge(lab, Store.open(lab.store_url), path)


def everything(lab):
    """All views as text, the experiment's table as people see it, and all files."""
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
    return {
        **views,
        "table": tables.summary(tables.finals(frames.read(lab.store_url, "toy"))).render("json"),
        **files,
    }


@pytest.mark.parametrize(
    ("store_url", "ending"),
    [("sqlite", "tar.zst"), ("sqlite", "tar.gz"), ("postgresql", "tar.zst")],
    indirect=["store_url"],
)
def test_a_lab_comes_out_as_it_went_in_and_goes_back(lab, tmp_path, ending):
    """From either database to SQLite, by either compression."""
    path = tmp_path / f"lab.{ending}"
    written = export(lab, path, checkpoints=True)
    assert (written.experiments, written.runs, written.files) == (["other", "toy"], 4, 7)
    copy = Lab.find(tmp_path / "copy")
    merged = take(copy, path)
    assert (merged.new, merged.replaced, merged.kept, merged.experiments) == (4, 0, 0, ["other", "toy"])
    assert everything(copy) == everything(lab)
    before = everything(copy)
    again = take(copy, path)
    assert (again.new, again.replaced, again.kept, again.experiments) == (0, 0, 4, [])
    assert everything(copy) == before
    assert {p.name for p in tmp_path.iterdir()} <= {
        "lab",
        "copy",
        path.name,
        "results.db",
        "results.db-wal",
        "results.db-shm",
    }
    assert not list(copy.root.glob(".*"))


def test_from_sqlite_into_postgresql(tmp_path, postgres):
    lab, copy = Lab.find(tmp_path / "lab"), Lab.find(tmp_path / "copy", postgres)
    fill(lab)
    export(lab, tmp_path / "lab.tar.zst", checkpoints=True)
    take(copy, tmp_path / "lab.tar.zst")
    assert everything(copy) == everything(lab)
    Store.open(copy.store_url).record(plans.plan(plans.run("next"), name="next"))  # new ids do not collide
    stores.attempt(Store.open(copy.store_url), plans.run("next"))


@plans.ON_SQLITE
def test_one_experiment_with_what_it_needs_and_without_checkpoints(lab, tmp_path):
    export(lab, tmp_path / "toy.tar.gz", "toy")
    copy = Lab.find(tmp_path / "copy")
    assert take(copy, tmp_path / "toy.tar.gz").experiments == ["toy"]
    files = {path.relative_to(copy.root).as_posix() for path in copy.root.rglob("*") if path.is_file()}
    assert {f for f in files if f.startswith("runs")} == {f"{run.directory}/log.txt" for run in RUNS}
    assert "reports/toy/table.md" in files
    assert tables.summary(tables.finals(frames.read(copy.store_url, "toy"))).render("md") == tables.summary(
        tables.finals(frames.read(lab.store_url, "toy"))
    ).render("md")
    with pytest.raises(UserError, match="did you mean 'toy'"):
        export(lab, tmp_path / "x.tar.gz", "toi")
    assert not (tmp_path / "x.tar.gz").exists()


@plans.ON_SQLITE
def test_a_needed_run_goes_along_wherever_it_stands(lab, tmp_path):
    store = Store.open(lab.store_url)
    store.record(plans.plan(REFERENCE, JOINT, name="only"))
    with store.writing() as connection:
        connection.execute(text("DELETE FROM member WHERE name = 'reference'"))
    assert export(lab, tmp_path / "only.tar.gz", "only").runs == 2
    copy = Lab.find(tmp_path / "copy")
    assert take(copy, tmp_path / "only.tar.gz").new == 2
    assert set(Store.open(copy.store_url).run(JOINT.fingerprint).needs) == {"selection.reference"}


def test_rows_are_json_for_every_reader(victim):
    def refuse(constant):
        raise AssertionError(constant)

    for member, content in members(victim[1]):
        if member.name.startswith("tables/"):
            for line in content.splitlines():
                json.loads(line, parse_constant=refuse)


def score(lab, run):
    found = query.select(
        lab.store_url,
        "evaluations",
        f"fingerprint = '{run.fingerprint}' and name = 'toy/score'",
        ["value"],
        limit=1,
    )
    return found.rows[0][0] if found.rows else None


@plans.ON_SQLITE
@pytest.mark.parametrize(
    "here, taken",
    [
        ("COMPLETED", False),
        ("FAILED", True),
        ("PREEMPTED", True),
        ("never begun", True),
        ("RUNNING", False),
        ("PENDING", False),  # claimed by a launcher
    ],
)
def test_a_completed_run_wins_over_others_that_are_over(lab, tmp_path, here, taken):
    export(lab, tmp_path / "lab.tar.zst", checkpoints=True)
    other = Lab.find(tmp_path / "copy")
    store = Store.open(other.store_url)
    ours = plans.run("my-joint", JOINT.program, JOINT.config, needs=JOINT.needs)  # the same, by another name
    assert ours.fingerprint == JOINT.fingerprint
    store.record(plans.plan(REFERENCE, ours, name="mine"))
    add_tags(store, Subject(fingerprint=JOINT.fingerprint), ["mine"])
    if here != "never begun":
        stores.attempt(store, ours, RunState(here), scores={"toy/score": 0.125})
    (stores.folder(other, ours) / "ours").touch()
    merged = take(other, tmp_path / "lab.tar.zst")
    assert (merged.kept == 0) is taken
    assert score(other, JOINT) == (0.75 if taken else 0.125)
    folder = other.root / ours.directory
    assert (folder / "ours").exists() is not taken and (folder / "log.txt").exists()
    assert not (other.root / JOINT.directory).exists()
    assert tags(store, Subject(fingerprint=JOINT.fingerprint)) == ["keep", "mine"]
    if taken:
        [[log]] = query.select(other.store_url, "attempts", "label = 'joint' and number = 2", ["log"]).rows
        assert log == f"{ours.directory}/log.txt"
        assert query.select(other.store_url, "artifacts", "label = 'joint'", ["uri"]).rows == [
            (f"{ours.directory}/checkpoints",)
        ]


@plans.ON_SQLITE
def test_what_was_running_is_not_running_here(lab, tmp_path):
    stores.attempt(Store.open(lab.store_url), plans.run("waiting"), RunState.RUNNING)
    export(lab, tmp_path / "lab.tar.gz")
    copy = Lab.find(tmp_path / "copy")
    take(copy, tmp_path / "lab.tar.gz")
    found = query.select(copy.store_url, "attempts", "label = 'waiting'", ["state", "reason"]).rows
    assert found == [("PREEMPTED", "was running when it was exported")]
    assert query.select(copy.store_url, "runs", "label = 'waiting'", ["state"]).rows == [("PREEMPTED",)]


@plans.ON_SQLITE
def test_a_run_that_starts_over_goes_along_with_its_earlier_attempts(lab, tmp_path):
    store = Store.open(lab.store_url)
    assert start_over(store, [JOINT.fingerprint]) == [JOINT.fingerprint]
    stores.attempt(store, JOINT, number=3, log=f"runs/joint.again3-{JOINT.fingerprint[:8]}/log.txt")
    export(lab, tmp_path / "lab.tar.gz")
    copy = Lab.find(tmp_path / "copy")
    assert take(copy, tmp_path / "lab.tar.gz").new == 4
    logs = [query.select(each.store_url, "attempts", columns=["label", "log"]).rows for each in (lab, copy)]
    assert sorted(logs[0]) == sorted(logs[1])


@plans.ON_SQLITE
def test_the_later_launch_of_an_experiment_counts(lab, tmp_path):
    export(lab, tmp_path / "first.tar.gz")
    store = Store.open(lab.store_url)
    store.record(plans.plan(UNIFORM))
    merged = take(lab, tmp_path / "first.tar.gz")
    assert (merged.experiments, merged.kept_experiments) == ([], ["toy"])
    assert len(store.runs("toy")) == 1
    export(lab, tmp_path / "second.tar.gz")
    copy = Lab.find(tmp_path / "copy")
    assert take(copy, tmp_path / "first.tar.gz").experiments == ["other", "toy"]
    assert take(copy, tmp_path / "second.tar.gz").experiments == ["toy"]
    assert len(Store.open(copy.store_url).runs("toy")) == 1


@plans.ON_SQLITE
def test_published_results_are_of_the_whole_lab(lab, tmp_path):
    export(lab, tmp_path / "toy.tar.gz", "toy")
    copy = Lab.find(tmp_path / "copy")
    assert take(copy, tmp_path / "toy.tar.gz").published == 0
    assert published.stored(copy.store_url) == []
    export(lab, tmp_path / "lab.tar.gz")
    assert take(copy, tmp_path / "lab.tar.gz").published == 18
    assert published.stored(copy.store_url) == published.stored(lab.store_url) != []


@plans.ON_SQLITE
def test_the_later_import_of_a_published_cell_counts(lab, tmp_path):
    export(lab, tmp_path / "first.tar.gz")
    store, copy = Store.open(lab.store_url), Lab.find(tmp_path / "copy")
    cells = published.stored(lab.store_url)
    import_cells(store, [replace(cells[0], note="seen again")])
    export(lab, tmp_path / "second.tar.gz")
    assert [take(copy, tmp_path / f"{name}.tar.gz").published for name in ("first", "second", "first")] == [
        18,
        1,
        0,
    ]
    assert published.stored(copy.store_url) == [replace(cells[0], note="seen again"), *cells[1:]]


@pytest.mark.parametrize(("schema", "published_cells"), [("0002", 0), ("0004", 18)])
def test_an_archive_of_an_older_schema_lacks_what_came_later(victim, schema, published_cells):
    def older(contents):
        head(schema=schema)(contents)
        added = added_after(schema) | ({} if published_cells else {"published": ()})
        for table, columns in added.items():
            name = f"tables/{table}.jsonl"
            if table in ("lab", "launcher", "saved_query"):  # of one store only
                continue
            lines = map(json.loads, contents.pop(name).splitlines())
            left = [{key: line[key] for key in line if key not in columns} for line in lines]
            if columns:
                contents[name] = b"".join(json.dumps(line).encode() + b"\n" for line in left)

    rewrite(victim[1], older)
    merged = take(*victim)
    assert (merged.new, merged.published) == (4, published_cells)
    store = victim[0].store_url
    assert set(query.select(store, "attempts", columns=["sources"]).rows) == {(None,)}
    assert query.select(store, "retractions").rows == query.select(store, "sources").rows == []


# ---- archives that are not to be believed


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive")
    lab = Lab.find(folder / "lab")
    fill(lab)
    export(lab, folder / "lab.tar.gz")
    return (folder / "lab.tar.gz").read_bytes()


@pytest.fixture
def victim(tmp_path, archive):
    (tmp_path / "bad.tar.gz").write_bytes(archive)
    lab = Lab.find(tmp_path / "deep" / "lab")
    Store.open(lab.store_url)
    return lab, tmp_path / "bad.tar.gz"


def refused(victim, match):
    lab, path = victim
    with pytest.raises(UserError, match=match) as error:
        take(lab, path)
    assert "\n" not in str(error.value)
    assert {p.name for p in lab.root.iterdir()} <= {"results.db", "results.db-wal", "results.db-shm"}
    assert {p.name for p in path.parent.iterdir()} == {"bad.tar.gz", "deep"}
    assert query.select(lab.store_url, "runs").rows == []


@pytest.mark.parametrize(
    "change, match",
    [
        (head(schema="9999"), "newer than this jestlab's .*: upgrade jestlab"),
        (head(format=2), "of another format"),
        (add("../../evil"), "does not belong there"),
        (add("/tmp/evil"), "does not belong there"),
        (add("runs/../../evil/x"), "does not belong there"),
        (add("results.db"), "does not belong there"),
        (add("runs/evil"), "does not belong there"),
        (add("runs/evil/.spool"), "does not belong there"),
        (add("runs/.evil/x"), "does not belong there"),
        (add("tables/launcher.jsonl"), "does not belong there"),
        (add("tables/run.jsonl", b"[1]\n"), "a line of run is not a row"),
        (add("tables/run.jsonl", b"\xff\n"), "a line of run is not a row"),
        (put("run", directory="../../evil"), "damaged: run"),
        (put("run", directory="runs/reference-00000000"), "damaged: run"),
        (put("run", directory="runs/.."), "damaged: run"),
        (put("run", fingerprint="short"), "damaged"),
        (put("run", state="WON"), "damaged: run"),
        (put("run", seed="0"), "damaged: '0' for run.seed"),
        (put("run", config=None), "damaged: None for run.config"),
        (put("experiment", name="../evil"), "damaged: experiment"),
        (put("attempt", log="../../etc/passwd"), "damaged: the path"),
        (put("artifact", uri="/etc/passwd"), "damaged: the path"),
        (put("attempt", started_at="yesterday"), "damaged: 'yesterday'"),
        (put("evaluation", attempt=99), "no attempt 99"),
        (put("need", needs="0" * 64), "has another fingerprint than"),
        (put("metric", steps=[1, 2, 3]), "damaged"),
        (put("cost", flops="much"), "damaged: 'much'"),
        (lambda contents: contents.pop("tables/published.jsonl"), "lacks tables/published.jsonl"),
        (put("published", printed=None), "damaged: None for published.printed"),
        (put("published", printed="<b>"), "damaged.* column printed: '<b>' is not a number"),
        (put("published", unit="miles"), "damaged.* column unit: 'miles' is not a unit"),
        (put("published", variant="L"), "damaged.* column variant: row 1 of laion has"),
    ],
)  # fmt: skip
def test_what_does_not_belong_there_is_refused_whole(victim, change, match):
    rewrite(victim[1], change)
    refused(victim, match)


def test_a_change_that_the_checksums_do_not_know(victim):
    rewrite(victim[1], put("evaluation", value=0.99), honest=False)
    refused(victim, "has changed since it was written .tables/evaluation.jsonl.")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE]
)
def test_links_and_devices_are_refused(victim, kind):
    found = members(victim[1])
    with tarfile.open(victim[1], "w:gz") as tar:
        tar.addfile(found[0][0], io.BytesIO(found[0][1]))
        member = tarfile.TarInfo("runs/a/link")
        member.type, member.linkname = kind, "/etc/passwd"
        tar.addfile(member)
    refused(victim, "does not belong there")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.7])
def test_an_archive_that_is_cut_short(victim, share):
    content = gzip.decompress(victim[1].read_bytes())
    victim[1].write_bytes(gzip.compress(content[: int(len(content) * share)]))
    refused(victim, "cut short|damaged")


def test_an_archive_that_ends_between_two_files(victim):
    found = members(victim[1])
    with tarfile.open(victim[1], "w:gz") as tar:
        for member, content in found[:-1]:
            tar.addfile(member, io.BytesIO(content))
    refused(victim, "is cut short: copy it again")


def test_what_is_no_archive(victim, tmp_path):
    victim[1].write_bytes(b"PK not a gzip at all" * 100)
    refused(victim, "is damaged, or not an archive of jestlab")
    with tarfile.open(victim[1], "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("hello.txt"))
    refused(victim, "is not an archive of jestlab")
    with pytest.raises(UserError, match=r"NAME\.tar\.zst or NAME\.tar\.gz"):
        take(victim[0], tmp_path / "lab.zip")


def test_a_crash_while_it_is_merged_leaves_no_rows(victim, monkeypatch):
    def crash(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(merging._Merge, "_move_files", crash)
    with pytest.raises(KeyboardInterrupt):
        take(*victim)
    monkeypatch.undo()
    assert query.select(victim[0].store_url, "runs").rows == []
    assert take(*victim).new == 4


def test_the_verbs(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    fill(lab)

    def called(*arguments):
        return CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False, standalone_mode=False)

    path = tmp_path / "out" / "lab.tar.zst"
    written = json.loads(called("export", path, "toy", "--root", lab.root, "--json").output)
    assert (written["experiments"], written["runs"]) == (["toy"], 3)
    assert "runs: 3 new" in called("import", path, "--root", tmp_path / "copy").output
    assert json.loads(called("import", path, "--root", tmp_path / "copy", "--json").output)["kept"] == 3
    with pytest.raises(UserError, match="no archive"):
        called("import", tmp_path / "nowhere.tar.gz", "--root", tmp_path / "copy")
    for verb in ("export", "import", "gc", "doctor"):
        shown = called(verb, "--help").output
        assert "Examples:" in shown and "--json" in shown


def beats(url, run):
    """Write what a worker does at each heartbeat, without waiting for anyone."""
    engine = writable(url)
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL lock_timeout = 300"))
        identity = connection.execute(
            text(
                "SELECT id, run_id FROM attempt WHERE run_id = (SELECT id FROM run WHERE fingerprint = :its)"
            ),
            {"its": run.fingerprint},
        ).one()
        connection.execute(text("UPDATE run SET step = step + 1 WHERE id = :id"), {"id": identity.run_id})
        metric = {"run_id": identity.run_id, "step": 10_000, "value": 1.0}
        name = connection.scalar(text("SELECT id FROM metric_name"))
        connection.execute(insert(rows.Metric).values(**metric, name_id=name))
    engine.dispose()


def test_workers_write_while_an_archive_is_taken_in(tmp_path, postgres, monkeypatch):
    """Of runs in the archive and of others."""
    theirs, lab = Lab.find(tmp_path / "theirs"), Lab.find(tmp_path / "lab", postgres)
    fill(theirs)
    export(theirs, tmp_path / "lab.tar.gz")
    store, other = Store.open(postgres), plans.run("at work", config={"steps": 3})
    store.record(plans.plan(UNIFORM, other, name="mine"))
    stores.attempt(store, other, RunState.RUNNING, loss=(1.0,))
    stores.attempt(store, UNIFORM, RunState.RUNNING, loss=(1.0,))
    files_moved = merging._Merge._move_files

    def last(merge, experiments):
        beats(postgres, other)
        beats(postgres, UNIFORM)
        files_moved(merge, experiments)

    monkeypatch.setattr(merging._Merge, "_move_files", last)
    merged = take(lab, tmp_path / "lab.tar.gz")
    assert (merged.new, merged.replaced, merged.kept) == (3, 0, 1)
