"""Where experiments came from, and whether what their archives say may be executed.

An archive may come from anybody, and a spec names commands and functions. So an imported experiment is to
look at, until its user has seen what it would execute, and trusts it. Launching a spec of its name makes it
one's own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sqlalchemy import select, update

from jestlab.platform.errors import UserError
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import Experiment, Member, Run


@dataclass(frozen=True)
class Origin:
    """Where an imported experiment came from.

    Attributes:
        archive: Name of the archive's file.
        sha256: Of the archive.
        imported_at: When, UTC.
        trusted_at: When its user decided that it may be executed, UTC; None if nobody did.
    """

    archive: str
    sha256: str
    imported_at: str
    trusted_at: str | None = None

    def to_json(self) -> str:
        """Write it as the store keeps it."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> Origin:
        """Read what the store keeps."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Executed:
    """What would be executed for runs of an experiment.

    Attributes:
        label: Name of the run and its values on the axes.
        program: Name of the program.
        config: Of the run.
    """

    label: str
    program: str
    config: dict[str, object]


def imported_from(path: Path) -> Origin:
    """Return the origin of what is imported now from an archive."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Origin(path.name.encode(errors="replace").decode(), digest, now().isoformat(timespec="seconds"))


def origin_of(store: Store, experiment: str) -> Origin | None:
    """Return where an experiment came from; None if it was launched here.

    Raises:
        UserError: No such experiment; the message names the nearest.
    """
    with store.reading() as connection:
        text = of_experiment(connection, experiment, Experiment.origin)
    return None if text is None else Origin.parse(text)


def is_trusted(store: Store, experiment: str) -> bool:
    """Whether what an experiment names may be executed; of one that is not there yet, yes."""
    with store.reading() as connection:
        text = connection.scalar(select(Experiment.origin).where(Experiment.name == experiment))
    return text is None or Origin.parse(text).trusted_at is not None


def refuse_untrusted(store: Store, experiment: str) -> None:
    """Raise UserError if an experiment came from an archive and its user does not trust it yet."""
    origin = origin_of(store, experiment)
    if origin is not None and origin.trusted_at is None:
        raise UserError(
            f"{experiment} was imported from {origin.archive} and is not trusted: see what it would execute "
            f"with jestlab trust {experiment} --dry-run, then jestlab trust {experiment}; or launch a spec "
            "of your own"
        )


def executed(store: Store, experiment: str) -> Sequence[Executed]:
    """List what would be executed for the runs of an experiment, in the study's order."""
    with store.reading() as connection:
        rows = connection.execute(
            select(Member.label, Run.program, Run.config)
            .join(Run, Run.id == Member.run_id)
            .where(Member.experiment == experiment)
            .order_by(Member.position, Member.label)
        ).all()
    return [Executed(row.label, row.program, json.loads(row.config)) for row in rows]


def named_code(store: Store, experiment: str) -> Sequence[tuple[str, str]]:
    """List the code of its author that an experiment names beside programs: what it is used as, and where.

    That is what configs name (rules, losses, …), the figures and tables of its reports, and its executor.
    """
    from jestlab.platform.spec.options import custom_code_in
    from jestlab.platform.spec.resources import EXECUTORS

    found: dict[tuple[str, str], None] = {}
    for run in executed(store, experiment):
        code = run.config.get("code")
        found |= dict.fromkeys(("config", str(name)) for name in (code if isinstance(code, dict) else ()))
    spec = store.spec(experiment)
    found |= dict.fromkeys((kind, name) for kind, name, _ in custom_code_in(spec))
    resources = spec.get("resources")
    place = resources.get("on") if isinstance(resources, dict) else None
    if place is not None and place not in EXECUTORS:
        found["executor", str(place)] = None
    return list(found)


def trust(store: Store, experiment: str) -> None:
    """Let an imported experiment be executed. One that was launched here is trusted anyway."""
    origin = origin_of(store, experiment)
    if origin is None or origin.trusted_at is not None:
        return
    trusted = replace(origin, trusted_at=now().isoformat(timespec="seconds"))
    with store.writing() as connection:
        connection.execute(
            update(Experiment)
            .where(Experiment.name == experiment, Experiment.origin == origin.to_json())
            .values(origin=trusted.to_json())
        )
