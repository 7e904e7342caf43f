"""The origin and the owner of experiments, and whether users trust the code of imported ones.

An archive may come from anyone, and a spec names commands and functions. An imported experiment can only be
viewed until its user trusts it. Launching a spec with its name makes it an experiment of this user.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from sqlalchemy import select, update

from jestlab.platform.digests import size_and_digest
from jestlab.platform.errors import UserError
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import ExperimentRow
from jestlab.platform.whoami import user_name


@dataclass(frozen=True)
class Origin:
    """The origin of an imported experiment.

    Attributes:
        archive: Name of the archive's file.
        sha256: Digest of the archive.
        imported_at: Time of the import, UTC.
        trusted_at: When its user trusted it, UTC; None if it is not trusted.
    """

    archive: str
    sha256: str
    imported_at: str
    trusted_at: str | None = None

    def to_json(self) -> str:
        """Return the text that the store keeps."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def parse(cls, text: str) -> "Origin":
        """Parse the text that the store keeps."""
        return cls(**json.loads(text))


def imported_from(path: Path) -> Origin:
    """Return the origin of experiments that are imported from an archive now."""
    _, digest = size_and_digest(path)
    return Origin(path.name.encode(errors="replace").decode(), digest, now().isoformat(timespec="seconds"))


def origin_of(store: Store, experiment: str) -> Origin | None:
    """Return the origin of an experiment; None if it was launched here; UserError if it doesn't exist."""
    with store.reading() as connection:
        text = of_experiment(connection, experiment, ExperimentRow.origin)
    return None if text is None else Origin.parse(text)


def is_trusted(store: Store, experiment: str) -> bool:
    """Return whether the code that an experiment names may be executed; True if it doesn't exist."""
    rows = store.rows(select(ExperimentRow.origin).where(ExperimentRow.name == experiment))
    return all(row.origin is None or Origin.parse(row.origin).trusted_at is not None for row in rows)


def refuse_untrusted(store: Store, experiment: str) -> None:
    """Raise UserError if an experiment was imported and is not trusted."""
    origin = origin_of(store, experiment)
    if origin is not None and origin.trusted_at is None:
        raise UserError(
            f"{experiment} was imported from {origin.archive} and is not trusted: list its code with "
            f"jestlab trust {experiment} --dry-run, then trust it with jestlab trust {experiment}"
        )


def named_code(store: Store, experiment: str) -> Sequence[tuple[str, str]]:
    """Return the custom code of an experiment, without programs: the use and the name of each.

    This is code in configs (rules, losses, …), custom figures and tables of reports, and a custom executor.
    """
    from jestlab.platform.dependencies import EXECUTORS
    from jestlab.platform.spec.options import custom_code_in

    found: dict[tuple[str, str], None] = {}
    for _, _, config in store.launched(experiment):
        code = config.get("code")
        found |= dict.fromkeys(("config", str(name)) for name in (code if isinstance(code, dict) else ()))
    spec = store.spec(experiment)
    found |= dict.fromkeys((kind, name) for kind, name, _ in custom_code_in(spec))
    resources = spec.get("resources")
    place = resources.get("on") if isinstance(resources, dict) else None
    if place is not None and place not in EXECUTORS:
        found["executor", str(place)] = None
    return list(found)


def trust(store: Store, experiment: str) -> None:
    """Trust an imported experiment; experiments that were launched here are always trusted."""
    origin = origin_of(store, experiment)
    if origin is None or origin.trusted_at is not None:
        return
    trusted = replace(origin, trusted_at=now().isoformat(timespec="seconds"))
    unchanged = (ExperimentRow.name == experiment, ExperimentRow.origin == origin.to_json())
    with store.writing() as connection:
        connection.execute(update(ExperimentRow).where(*unchanged).values(origin=trusted.to_json()))


def check_names_available(store: Store, studies: Mapping[str, Collection[str]]) -> None:
    """Check that recording studies won't replace other experiments with the same names.

    A study can change: more seeds, another axis, other runs. But a study that shares no run with the
    experiment of its name is another study, if any run of the experiment has completed. An experiment of
    another user is protected, unless it was imported.

    Raises:
        UserError: A name is not available; the message names the options.
    """
    columns = (ExperimentRow.owner, ExperimentRow.host, ExperimentRow.origin)
    for name, fingerprints in studies.items():
        for owner, host, origin in store.rows(select(*columns).where(ExperimentRow.name == name)):
            if owner not in (None, user_name()) and origin is None:
                place = "" if host is None else f", launched on {host}"
                raise UserError(
                    f"{name} is an experiment of {owner}{place}: choose another name, or --replace it"
                )
        states = store.states(store.members(name))
        if RunState.COMPLETED in states.values() and states.keys().isdisjoint(fingerprints):
            raise UserError(
                f"there is an experiment {name} already with {len(states)} other runs: --replace it, or "
                "choose another name to keep both"
            )
