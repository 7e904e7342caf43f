"""What speaks against results: retractions, and numbers that mix code, package versions or data.

`provenance.code` compares runs; this module applies it to the store's views and to tables.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .connection import connect, frame
from .provenance.code import JESTLAB, Accepted, Made, differing, made_by, made_with_different, odd_ones

if TYPE_CHECKING:
    from sqlalchemy import Connection

MIXED = "‡"
"""Sign of cells that mix."""

ADOPTED = "adopted"
"""Program of the runs that `jestlab adopt` has taken in."""

_RUNS = """
    SELECT fingerprint, program, CASE WHEN program = 'command' THEN config END AS config
    FROM v_runs WHERE experiment = :experiment"""
_ATTEMPTS = """
    SELECT fingerprint, number, state, started_at, first_step, sources, inputs, versions, git_commit,
        LENGTH(git_patch) AS changes
    FROM v_attempts WHERE experiment = :experiment"""
_SPEC = "SELECT spec FROM v_experiments WHERE experiment = :experiment"
_ACCEPTED = "SELECT accepted FROM v_acceptances WHERE experiment = :experiment"
_RETRACTED = "SELECT fingerprint, reason FROM v_retractions WHERE experiment = :experiment"


class Marks(NamedTuple):
    """What speaks against the rows of a table.

    Attributes:
        struck: Row → why its results are wrong.
        mixed: Rows whose numbers mix code, versions, or data.
        notes: The same in sentences.
    """

    struck: Mapping[str, str]
    mixed: frozenset[str]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Soundness:
    """What is known of how the results of some experiments were made.

    Attributes:
        retracted: Fingerprint → why the results are wrong.
        made: Fingerprint → what the run was made by.
        scripts: Fingerprint → what the run executes: only what executes the same is compared.
        accepted: Differences that do not count.
    """

    retracted: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    accepted: Accepted = ()

    @classmethod
    def read(cls, store: str | Connection, experiments: Iterable[str]) -> Soundness:
        """Read it from a store.

        Args:
            store: SQLAlchemy URL of the store, or a connection from `connect`.
            experiments: Their names.
        """
        from sqlalchemy import text

        retracted: dict[str, str] = {}
        made: dict[str, Made] = {}
        scripts: dict[str, str] = {}
        accepted: list[Mapping[str, Sequence[str]]] = []
        with connect(store) as connection:
            for name in experiments:
                runs = frame(connection, _RUNS, experiment=name)
                programs = dict(zip(runs["fingerprint"], runs["program"], strict=True))
                configs = dict(zip(runs["fingerprint"], runs["config"], strict=True))
                scripts |= {run: _script(program, configs[run]) for run, program in programs.items()}
                packages = _packages(connection, name)
                # Grouped in plain Python: pandas takes a millisecond a group, and there may be thousands.
                attempts: dict[str, list[Mapping[str, Any]]] = {}
                for row in connection.execute(text(_ATTEMPTS), {"experiment": name}).mappings():
                    attempts.setdefault(row["fingerprint"], []).append({**row})
                made |= {run: made_by(programs[run], its, packages) for run, its in attempts.items()}
                accepted += map(json.loads, frame(connection, _ACCEPTED, experiment=name)["accepted"])
                retracted |= retractions(connection, name)
        return cls(retracted, made, scripts, accepted)

    def marks(self, runs_of_rows: Mapping[str, Iterable[str]]) -> Marks:
        """Find the rows of a table whose numbers mix code, versions, or data, or rest on retracted results.

        Args:
            runs_of_rows: Row → fingerprints of its runs.
        """
        of_rows = {row: dict.fromkeys(runs) for row, runs in runs_of_rows.items()}
        struck: dict[str, str] = {}
        notes: dict[str, None] = {}
        mixed: set[str] = set()
        for row, runs in of_rows.items():
            if reasons := dict.fromkeys(self.retracted[run] for run in runs if run in self.retracted):
                struck[row] = "; ".join(" ".join(reason.split()) for reason in reasons)
                notes[f"{row} is retracted: {struck[row]}"] = None
            for alike in self._by_script(runs).values():
                if found := differing([self.made[run] for run in alike], self.accepted):
                    mixed.add(row)
                    notes[f"{MIXED} {row}: seeds were {made_with_different(found)}"] = None
        for item, rows in self._odd_rows({row: of_rows[row] for row in of_rows if row not in mixed}):
            mixed.update(rows)
            different = made_with_different([item])
            notes[f"{MIXED} {', '.join(rows)}: {different} than the other rows"] = None
        if theirs := [row for row, runs in of_rows.items() if any(self._is_adopted(run) for run in runs)]:
            notes[f"not run by jestlab, but adopted from another tool: {', '.join(theirs)}"] = None
        return Marks(struck, frozenset(mixed), tuple(notes))

    def _is_adopted(self, run: str) -> bool:
        return self.scripts.get(run) == ADOPTED

    def _by_script(self, runs: Iterable[str]) -> dict[str, list[str]]:
        """Group runs by what they execute; those of which nothing is known are left out."""
        found: dict[str, list[str]] = {}
        for run in runs:
            if run in self.made:
                found.setdefault(self.scripts[run], []).append(run)
        return found

    def _odd_rows(self, of_rows: Mapping[str, Iterable[str]]) -> list[tuple[str, list[str]]]:
        """Find rows that were made by something else than most that execute the same: (item, rows)."""
        by_script: dict[str, dict[str, Made]] = {}
        for row, runs in of_rows.items():
            for script, its in self._by_script(runs).items():
                by_script.setdefault(script, {})[row] = self.made[its[0]]
        return [
            (item, odd)
            for rows in by_script.values()
            for item, odd in odd_ones(rows, self.accepted).items()
            if item != JESTLAB
        ]


def retractions(connection: Connection, experiment: str) -> dict[str, str]:
    """Return why results of an experiment are wrong, by fingerprint."""
    rows = frame(connection, _RETRACTED, experiment=experiment)
    return dict(zip(rows["fingerprint"].map(str), rows["reason"].map(str), strict=True))


def _script(program: str, config: str) -> str:
    """Say what a run executes: its program, of a command also the words."""
    if program != "command":
        return program
    return json.dumps(json.loads(config or "{}").get("command"))


def _packages(connection: Connection, experiment: str) -> list[str]:
    """Return the packages that a study wants recorded."""
    specs = frame(connection, _SPEC, experiment=experiment)["spec"]
    record = json.loads(specs.iloc[0] or "{}").get("record", {}) if len(specs) else {}
    return [str(name) for name in record.get("packages", ())]
