"""Build keys: digests of everything that a study's reports show, to know when to write them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from sqlalchemy import func, select

from jestlab.analysis.files import write_whole
from jestlab.platform import plugins
from jestlab.platform.spec.options import custom_code
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    AcceptanceRow,
    AttemptRow,
    BudgetRow,
    CostRow,
    ExperimentRow,
    MemberRow,
    NeedRow,
    NoteRow,
    PublishedRow,
    RegistrationRow,
    RetractionRow,
    RunRow,
    TagRow,
)
from jestlab.platform.store.trust import is_trusted

BUILD_FILE = ".made-from.json"
"""File with the build key of a study's reports: tables, figures, and the page."""


class Build(BaseModel):
    """The origin of a study's reports.

    Attributes:
        made_from: Build key; empty if the reports are out of date.
        files: Paths of the files, relative to the study's folder.
        notes: One line for each report that could not be made.
    """

    made_from: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Write it to the folder of the reports."""
        write_whole(folder / BUILD_FILE, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Build | None:
        """Read the build of a folder's reports; None if there is none, or it isn't valid."""
        try:
            return cls.model_validate_json((folder / BUILD_FILE).read_bytes())
        except (OSError, ValueError):
            return None

    def is_current(self, folder: Path, key: str) -> bool:
        """Return whether the reports have this key, and all files exist."""
        return self.made_from == key and all((folder / file).is_file() for file in self.files)


def remove_stale(folder: Path, kept: Collection[str]) -> None:
    """Remove the files of earlier reports that are not kept, unless they have been changed since."""
    if (before := Build.read(folder)) is None:
        return
    path, root = folder / BUILD_FILE, folder.resolve()
    written_ns = path.stat().st_mtime_ns
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


def build_key(store: Store, study: StudySpec) -> str:
    """Compute the build key of a study's reports: a digest of everything that they show.

    It covers the code that makes them (jestlab's and custom code), the study, its runs, their results and
    costs, published rows, notes, tags, and the number of runs that could share a reference with the study's.
    """
    digest = hashlib.sha256()
    named = (custom_code(report) for part in (*study.studies.values(), study) for report in part.reports)
    custom = [f"{name} {plugins.digest(kind, name)}" for kind, name, _ in filter(None, named)]
    if custom:
        custom += [f"trusted {is_trusted(store, part)}" for part in (*study.studies, study.name)]
    for part in (
        [version("jestlab"), study.to_dict()],
        _code_state(),
        custom,
        *store_state(store, study.name, study.studies),
    ):
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


def store_state(store: Store, study: str, parts: Collection[str] = ()) -> Iterator[Sequence[str]]:
    """Yield the rows of the store that the reports of a study, or of a union of some studies, depend on."""
    is_member = MemberRow.experiment == study
    runs = select(MemberRow.run_id).where(is_member)
    run = (RunRow.id, RunRow.fingerprint, RunRow.state, RunRow.reason, RunRow.step, RunRow.total_steps)
    attempt = (AttemptRow.id, AttemptRow.state, AttemptRow.heartbeat_at, AttemptRow.ended_at)
    queries = [
        select(MemberRow.run_id, MemberRow.label, MemberRow.position, MemberRow.needed).where(is_member),
        select(*run).where(RunRow.id.in_(runs)),
        select(*attempt).where(AttemptRow.run_id.in_(runs)),
        select(CostRow.__table__).where(CostRow.run_id.in_(runs)),
        select(BudgetRow.__table__).where(BudgetRow.run_id.in_(runs)),
        # A part of a union may have been launched again by itself.
        select(ExperimentRow.name, ExperimentRow.spec).where(ExperimentRow.name.in_((study, *parts))),
    ]
    latest: tuple[Any, ...] = (PublishedRow.updated_at, NoteRow.id, TagRow.id, RunRow.id, NeedRow.run_id)
    latest += (AcceptanceRow.created_at, RetractionRow.created_at, RegistrationRow.created_at)
    queries += (select(func.count(), func.max(column)) for column in latest)
    with store.reading() as connection:
        for query in queries:
            yield sorted(map(repr, connection.execute(query)))
