"""What reports were made from: a stamp beside them, so that they are not made again where nothing changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis.files import write_whole

if TYPE_CHECKING:
    from jestlab.platform.spec.schema import Study
    from jestlab.platform.store.store import Store

NAME = ".made-from.json"
"""Of all reports of a study: tables, figures and the page."""

PAGE_NAME = ".page-made-from.json"
"""Of its page alone, and of what lies beside that in `report/`."""


@dataclass(frozen=True)
class Stamp:
    """Of the reports of one study.

    Attributes:
        made_from: A digest of all that they depend on.
        files: Theirs, relative to their folder.
        notes: What was said about those that could not be made.
    """

    made_from: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def write(self, folder: Path, name: str = NAME) -> None:
        """Put it beside the reports."""
        text = json.dumps({"made_from": self.made_from, "files": self.files, "notes": self.notes}, indent=1)
        write_whole(folder / name, text + "\n")


def read(folder: Path, made_from: str, name: str = NAME) -> Stamp | None:
    """The stamp in a folder, if its reports are made from what is given, and all still there."""
    try:
        found = json.loads((folder / name).read_text(encoding="utf-8"))
        stamp = Stamp(found["made_from"], tuple(found["files"]), tuple(found["notes"]))
    except (OSError, ValueError, KeyError, TypeError):  # none, or none of ours
        return None
    if stamp.made_from != made_from or not all((folder / file).is_file() for file in stamp.files):
        return None
    return stamp


def remove(folder: Path) -> None:
    """Take stamps away: what is written next to them is not what they say."""
    for name in (NAME, PAGE_NAME):
        (folder / name).unlink(missing_ok=True)


def made_from(store: Store, study: Study) -> str:
    """A digest of what the reports of a study depend on.

    That is the code that makes them, the study, its runs and their attempts as the store has them, all of
    which change whenever there are new results; what they were planned to cost; published rows, notes and
    tags; and how many runs there are that could share a reference with them.
    """
    digest = hashlib.sha256()
    for part in ([version("jestlab"), study.to_dict()], _code(), *_of_store(store, study)):
        digest.update(json.dumps(part, default=str).encode())
    return digest.hexdigest()


@cache
def _code() -> list[Any]:
    """The files that make tables, figures and pages, by size and time of change when first asked."""
    import jestlab.analysis

    folder = Path(jestlab.analysis.__file__).parent
    files = [Path(__file__).with_name("reports.py"), *folder.rglob("*.*")]
    stats = ((path, path.stat()) for path in sorted(files) if "__pycache__" not in path.parts)
    return [(path.name, stat.st_size, stat.st_mtime_ns) for path, stat in stats]


def _of_store(store: Store, study: Study) -> Iterator[Sequence[Any]]:
    """Rows of the store on which a study's reports depend."""
    from sqlalchemy import func, select

    from jestlab.platform.store.tables import (
        Attempt,
        Budget,
        Cost,
        Experiment,
        Member,
        Need,
        Note,
        Published,
        Run,
        Tag,
    )  # fmt: skip

    mine = (
        select(Member.run_id)
        .join(Experiment, Experiment.id == Member.experiment_id)
        .where(Experiment.name == study.name)
    )
    places = (
        select(Member.label, Member.position, Member.needed, Run.fingerprint, Run.state, Run.reason, Run.step)
        .add_columns(Run.total_steps)
        .join(Run, Run.id == Member.run_id)
        .join(Experiment, Experiment.id == Member.experiment_id)
        .where(Experiment.name == study.name)
        .order_by(Member.position, Member.label)
    )
    attempts = (
        select(Attempt.run_id, Attempt.number, Attempt.state, Attempt.reason)
        .add_columns(Attempt.started_at, Attempt.heartbeat_at, Attempt.ended_at)
        .where(Attempt.run_id.in_(mine))
        .order_by(Attempt.run_id, Attempt.number)
    )
    costs = select(Cost.__table__).where(Cost.run_id.in_(mine)).order_by(Cost.run_id, Cost.component)
    budgets = select(Budget.__table__).where(Budget.run_id.in_(mine)).order_by(Budget.run_id)
    parts = (  # of a union: as they were launched last, maybe alone
        select(Experiment.name, Experiment.spec)
        .where(Experiment.name.in_(study.studies))
        .order_by(Experiment.name)
    )
    counts = (
        select(func.count(), func.max(Published.updated_at)).select_from(Published),
        *(select(func.count(), func.max(table.id)).select_from(table) for table in (Note, Tag, Run)),
        select(func.count()).select_from(Need),
    )
    with store.reading() as connection:
        for query in (places, attempts, costs, budgets, parts, *counts):
            yield [tuple(row) for row in connection.execute(query)]
