"""Build keys: digests of everything that a study's reports show, to know when to write them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from jestlab.analysis.files import write_whole
from jestlab.platform import plugins
from jestlab.platform.spec.options import custom_code
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    Acceptance,
    Attempt,
    Budget,
    Cost,
    Experiment,
    Member,
    Need,
    Note,
    Published,
    Retraction,
    Run,
    Tag,
)
from jestlab.platform.store.trust import is_trusted

BUILD_FILE = ".made-from.json"
"""File with the build key of a study's reports: tables, figures, and the page."""

PAGE_BUILD_FILE = ".page-made-from.json"
"""File with the build key of the page, if the page is newer than the other reports."""


@dataclass(frozen=True)
class Build:
    """The origin of a study's reports."""

    made_from: str  # build key
    files: tuple[str, ...]  # paths of the files, relative to the study's folder
    notes: tuple[str, ...] = ()  # one line for each report that could not be made

    def write(self, folder: Path, name: str = BUILD_FILE) -> None:
        """Write it to the folder of the reports."""
        write_whole(folder / name, json.dumps(asdict(self), indent=1) + "\n")


def read(path: Path) -> Build | None:
    """Read a build; None if the file is missing or isn't valid."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return Build(found["made_from"], tuple(map(str, found["files"])), tuple(found["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_build(folder: Path, key: str, name: str = BUILD_FILE) -> Build | None:
    """Read the build of a folder's reports; None if the key differs or a file is missing."""
    build = read(folder / name)
    if build is None or build.made_from != key:
        return None
    return build if all((folder / file).is_file() for file in build.files) else None


def remove_stale(folder: Path, kept: Collection[str]) -> None:
    """Remove the files of earlier reports that are not kept, unless they have been changed since."""
    path = folder / BUILD_FILE
    if (before := read(path)) is None:
        return
    written_ns = path.stat().st_mtime_ns
    root = folder.resolve()
    parents = {folder}
    for name in set(before.files) - set(kept):
        file = folder / name
        is_ours = file.resolve().is_relative_to(root) and not file.is_symlink() and file.is_file()
        if is_ours and file.stat().st_mtime_ns <= written_ns:
            file.unlink()
            parents.add(file.parent)
    if not kept:
        path.unlink()
    for parent in sorted(parents, key=lambda parent: -len(parent.parts)):
        with suppress(OSError):  # it isn't empty
            parent.rmdir()


def build_key(store: Store, study: Study) -> str:
    """Compute the build key of a study's reports: a digest of everything that they show.

    It covers the code that makes them (jestlab's and custom code), the study, its runs, their results and
    costs, published rows, notes, tags, and the number of runs that could share a reference with the study's.
    """
    digest = hashlib.sha256()
    named = (custom_code(report) for part in (*study.studies.values(), study) for report in part.reports)
    custom = [f"{name} {plugins.digest(kind, name)}" for kind, name in filter(None, named)]
    if custom:
        custom += [f"trusted {is_trusted(store, part)}" for part in (*study.studies, study.name)]
    for part in ([version("jestlab"), study.to_dict()], _code_state(), custom, *_store_state(store, study)):
        digest.update(json.dumps(part, default=str).encode())
    return digest.hexdigest()


@cache
def _code_state() -> list[Any]:
    """Return the names, sizes, and modification times of the files that make reports."""
    import jestlab.analysis

    folder = Path(jestlab.analysis.__file__).parent
    files = [*Path(__file__).parent.glob("*.py"), *folder.rglob("*.*")]
    stats = ((path, path.stat()) for path in sorted(files) if "__pycache__" not in path.parts)
    return [(path.name, stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _store_state(store: Store, study: Study) -> Iterator[Sequence[Any]]:
    """Yield the rows of the store that a study's reports depend on."""
    runs = select(Member.run_id).where(Member.experiment == study.name)
    queries = [
        select(Member.label, Member.position, Member.needed, Run.fingerprint, Run.state, Run.reason)
        .add_columns(Run.step, Run.total_steps)
        .join(Run, Run.id == Member.run_id)
        .where(Member.experiment == study.name)
        .order_by(Member.position, Member.label),
        select(Attempt.run_id, Attempt.number, Attempt.state, Attempt.heartbeat_at, Attempt.ended_at)
        .where(Attempt.run_id.in_(runs))
        .order_by(Attempt.run_id, Attempt.number),
        select(Cost.__table__).where(Cost.run_id.in_(runs)).order_by(Cost.run_id, Cost.component),
        select(Budget.__table__).where(Budget.run_id.in_(runs)).order_by(Budget.run_id),
        # A part of a union may have been launched again by itself.
        select(Experiment.name, Experiment.spec)
        .where(Experiment.name.in_(study.studies))
        .order_by(Experiment.name),
    ]
    latest: tuple[Any, ...] = (Published.updated_at, Note.id, Tag.id, Run.id, Need.run_id)
    latest += (Acceptance.created_at, Retraction.created_at)
    with store.reading() as connection:
        for query in (*queries, *(select(func.count(), func.max(column)) for column in latest)):
            yield [tuple(row) for row in connection.execute(query)]
