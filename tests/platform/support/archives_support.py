"""Archives of labs: a lab with rows of every kind, and changes to archives."""

import hashlib
import io
import json
import math
import tarfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import plans_support as plans
import stores_support as stores
from click.testing import CliRunner, Result
from sqlalchemy import insert, text

from jestlab.analysis import published
from jestlab.platform.cli import cli
from jestlab.platform.exchange import archive_read as merging
from jestlab.platform.exchange import archive_write as exporting
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store import tables
from jestlab.platform.store.annotations import Subject, add_note, add_tags
from jestlab.platform.store.published import import_cells
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

Contents = dict[str, bytes]
Change = Callable[[Contents], object]

REFERENCE, JOINT, UNIFORM = plans.reference_and_two().runs


def export(lab: Lab, path: Path, *experiments: str, checkpoints: bool = False) -> exporting.Written:
    return exporting.write(lab, Store.open(lab.store_url), path, experiments, checkpoints)


def take(lab: Lab, path: Path, replace: bool = False) -> merging.Merged:
    return merging.merge(lab, Store.open(lab.store_url), path, replace)


def called(*words: object) -> Result:
    """Call a command, and let its errors through."""
    return CliRunner().invoke(cli, [*map(str, words)], catch_exceptions=False, standalone_mode=False)


def fill(lab: Lab) -> None:
    """Fill a lab with the experiments `toy` and `other`, with rows and files of every kind."""
    store = Store.open(lab.store_url)
    store.record(plans.plan(REFERENCE, JOINT, UNIFORM))
    store.record(plans.plan(UNIFORM, plans.run("waiting"), name="other"))
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
        tables.Budget: {"run_id": joint, "chip": "v5e", "chips": 4, "chip_hours": 0.5},
        tables.Artifact: {"run_id": joint, **weights},
        tables.Source: {"sha256": "e" * 64, "text": "print('λ')"},
        tables.Acceptance: {"run_id": joint, "accepted": '{"code ridge.py":["a",null]}', **by_ada},
        tables.Retraction: {"run_id": reference, "number": 1, **by_ada},
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


def members(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as tar:
        return [(member, content.read()) for member in tar if (content := tar.extractfile(member))]


def rewrite(path: Path, change: Change, update_checksums: bool = True) -> None:
    """Replace an archive by a changed one."""
    contents = {member.name: content for member, content in members(path)}
    change(contents)
    if update_checksums:
        del contents["checksums.json"]
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        contents["checksums.json"] = json.dumps(checksums).encode()
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def put(table: str, **columns: Any) -> Change:
    """Change the first row of a table."""

    def change(contents: Contents) -> None:
        first, _, rest = contents[f"tables/{table}.jsonl"].partition(b"\n")
        contents[f"tables/{table}.jsonl"] = json.dumps(json.loads(first) | columns).encode() + b"\n" + rest

    return change


def head(**values: Any) -> Change:
    """Change values of the archive's own description."""

    def change(contents: Contents) -> None:
        contents["jestlab.json"] = json.dumps(json.loads(contents["jestlab.json"]) | values).encode()

    return change


def add(name: str, content: bytes = b"x") -> Change:
    return lambda contents: contents.update({name: content})
