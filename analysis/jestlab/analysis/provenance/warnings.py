"""Warn of rows with retracted results, and of rows made with different code, data, or packages (‡).

`code` decides what counts as different.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..results import Snapshot, attempts_of, opens_store, runs_of
from .code import JESTLAB, Accepted, Made, differing, made_by, made_with_different, odd_ones

MIXED = "‡"
"""Mark of numbers that were made with different code, data, or packages."""

ADOPTED = "adopted"
"""Program of the runs that `jestlab adopt` imported."""

_ACCEPTED = "SELECT accepted FROM v_acceptances WHERE experiment = :experiment"
_RETRACTED = "SELECT fingerprint, reason FROM v_retractions WHERE experiment = :experiment"


@dataclass(frozen=True)
class Origins:
    """How the runs of some experiments were made, in the terms of the module `code`.

    Attributes:
        retracted: Fingerprint → why the results are wrong.
        made: Fingerprint → code, data, and packages.
        scripts: Fingerprint → the executed program or command. Only runs that share it are compared.
        accepted: Accepted differences.
    """

    retracted: Mapping[str, str] = field(default_factory=dict)
    made: Mapping[str, Made] = field(default_factory=dict)
    scripts: Mapping[str, str] = field(default_factory=dict)
    accepted: Accepted = ()

    @classmethod
    def read(cls, store: Snapshot, experiments: Iterable[str]) -> "Origins":
        """Read how the runs of experiments were made."""
        retracted: dict[str, str] = {}
        made: dict[str, Made] = {}
        scripts: dict[str, str] = {}
        accepted: list[Mapping[str, list[str]]] = []
        for name in experiments:
            packages = store.study(name)[1].get("record", {}).get("packages", ())
            attempts: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
            for row in store.once(attempts_of, name):
                attempts[row["fingerprint"]].append(row)
            runs = store.once(runs_of, name)[["fingerprint", "program", "config"]]
            for run, program, config in runs.itertuples(index=False):
                is_command = program == "command"
                scripts[run] = json.dumps(json.loads(config).get("command")) if is_command else program
                if run in attempts:
                    made[run] = made_by(program, attempts[run], packages)
            accepted += map(json.loads, store.select(_ACCEPTED, experiment=name)["accepted"])
            retracted |= retractions(store, name)
        return cls(retracted, made, scripts, accepted)

    def marks(
        self, runs_of_rows: Mapping[str, Iterable[str]]
    ) -> tuple[Mapping[str, str], frozenset[str], tuple[str, ...]]:
        """Find the problems of the rows of a table, given as row → fingerprints of its runs.

        Returns:
            Row → why its results are wrong; the rows that were made with different code, data, or packages;
            and all problems, one per note.
        """
        rows = {row: dict.fromkeys(runs) for row, runs in runs_of_rows.items()}
        struck: dict[str, str] = {}
        notes: dict[str, None] = {}
        by_script: dict[str, dict[str, list[Made]]] = {}
        for row, runs in rows.items():
            if reasons := dict.fromkeys(self.retracted[run] for run in runs if run in self.retracted):
                struck[row] = "; ".join(" ".join(reason.split()) for reason in reasons)
                notes[f"{row} is retracted: {struck[row]}"] = None
            for run in runs:
                if run in self.made:
                    by_script.setdefault(self.scripts[run], {}).setdefault(row, []).append(self.made[run])
        mixed: set[str] = set()
        odd: set[str] = set()
        for made_by_row in by_script.values():
            for row, made in made_by_row.items():
                if items := differing(made, self.accepted):
                    mixed.add(row)
                    notes[f"{MIXED} {row}: seeds were {made_with_different(items)}"] = None
            uniform = {row: made[0] for row, made in made_by_row.items() if row not in mixed}
            for item, odd_rows in odd_ones(uniform, self.accepted).items():
                if item != JESTLAB:  # only the seeds within a row must have the same version of jestlab
                    odd.update(odd_rows)
                    different = made_with_different([item])
                    notes[f"{MIXED} {', '.join(odd_rows)}: {different} than the other rows"] = None
        if adopted := [row for row in rows if ADOPTED in map(self.scripts.get, rows[row])]:
            notes[f"not run by jestlab, but adopted from another tool: {', '.join(adopted)}"] = None
        return struck, frozenset(mixed | odd), tuple(notes)


@opens_store
def retractions(store: Snapshot, experiment: str) -> dict[str, str]:
    """Return why results of an experiment are wrong, by fingerprint."""
    rows = store.select(_RETRACTED, experiment=experiment)
    return dict(zip(rows["fingerprint"].map(str), rows["reason"].map(str), strict=True))
