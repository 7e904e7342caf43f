"""Archives of labs: a lab with rows of every kind, and changes to archives."""

import json
import math
import sqlite3
import zipfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import plans_support as plans
import stores_support as stores
from click.testing import CliRunner, Result
from sqlalchemy import insert, text

from jestlab.analysis import published
from jestlab.platform.cli import cli
from jestlab.platform.exchange.archive_read import ImportSummary, read_archive
from jestlab.platform.exchange.archive_write import ArchiveSummary, write_archive
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import tables
from jestlab.platform.store.annotations import Subject, add_note, add_tags
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

REFERENCE, JOINT, UNIFORM = plans.reference_and_two().runs


def export(lab: Lab, path: Path, *experiments: str, checkpoints: bool = False) -> ArchiveSummary:
    return write_archive(lab, Store.open(lab.store_url), path, experiments, checkpoints)


def take(lab: Lab, path: Path) -> ImportSummary:
    return read_archive(lab, Store.open(lab.store_url), path)


def called(*words: object) -> Result:
    """Call a command, and let its errors through."""
    return CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=False, standalone_mode=False)


def fill(lab: Lab) -> None:
    """Fill a lab with the experiments `toy` and `other`, with rows and files of every kind."""
    store = Store.open(lab.store_url)
    plans.record(store, plans.plan(REFERENCE, JOINT, UNIFORM))
    plans.record(store, plans.plan(UNIFORM, plans.run("waiting"), name="other"))
    code: dict[str, Any] = {"git_patch": "- ä\n+ b", "sources": json.dumps({"ridge.py": "e" * 64})}
    stores.attempt(store, REFERENCE, scores={"toy/score": 0.5}, loss=(2.0, 1.0), environment="{}", **code)
    spent: dict[str, Any] = {"startup_seconds": 2.5, "reached_step": 2**40, "saved_step": None}
    hour = timedelta(hours=1)
    stores.attempt(store, JOINT, RunState.FAILED, started=stores.START - hour, **spent)
    scores = {"toy/score": 0.75, "a/b/c": math.inf}
    stores.attempt(store, JOINT, number=2, scores=scores, loss=(math.inf, 0.5))
    stores.attempt(store, UNIFORM, scores={"toy/score": 0.25})
    reference, joint = stores.run_id(store, REFERENCE), stores.run_id(store, JOINT)
    by_ada = {"reason": "ä", "author": "Ada", "created_at": stores.START}
    weights = {"name": "weights", "sha256": "0" * 64, "size": 2**40, "uri": f"{JOINT.directory}/checkpoints"}
    rows: dict[Any, dict[str, Any]] = {
        tables.BudgetRow: {"run_id": joint, "chip": "v5e", "chips": 4, "chip_hours": 0.5},
        tables.ArtifactRow: {"run_id": joint, **weights},
        tables.SourceRow: {"sha256": "e" * 64, "text": "print('λ')"},
        tables.AcceptanceRow: {"run_id": joint, "accepted": '{"code ridge.py":["a",null]}', **by_ada},
        tables.RetractionRow: {"run_id": reference, "number": 1, **by_ada},
    }
    with store.writing() as connection:
        connection.execute(text("UPDATE metric SET value = NULL WHERE step = 2"))
        for table, row in rows.items():
            connection.execute(insert(table).values(**row))
    add_note(store, Subject(experiment="toy"), "it’s\n“done”", "Ada")
    add_note(store, Subject(fingerprint=JOINT.fingerprint), "good", "Bo")
    add_tags(store, Subject(fingerprint=JOINT.fingerprint), ["keep"])
    import_cells(store, [cell for cell in published.paper() if cell.table == "laion"])
    for run in (REFERENCE, JOINT, UNIFORM):
        stores.folder(lab, run)
    (lab.reports / "toy").mkdir(parents=True)
    (lab.reports / "toy" / "table.md").write_text("| table |")
    store.close()


def rewrite(path: Path, sql: str) -> None:
    """Change the store in an archive by SQL, without its constraints."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    with closing(sqlite3.connect(":memory:")) as store:
        store.deserialize(files["results.db"])
        store.executescript(f"PRAGMA ignore_check_constraints = ON; {sql}")
        files["results.db"] = store.serialize()
    path.unlink()
    for name, content in files.items():
        add(path, name, content)


def add(path: Path, name: str, content: bytes = b"x") -> None:
    """Add a file to an archive."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
