"""Provenance as pages and files carry it: every cell of a table, every run, and a file beside each figure.

For cells it is what `Origins.explain` says of one, in a form that a page can hold for thousands: what cells
share is said once, numbers by row and column, attempts by run, config differences by row. The page puts them
together when a cell is opened.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from ..connection import shown
from ..tables.core import Table
from .explain import Attempt, Origins, number, published_lines
from .history import History

SUFFIX = ".provenance.json"
"""What the name of a provenance file ends in."""


def of_table(table: Table, origins: Origins) -> dict[str, Any]:
    """Return the provenance of all cells of a table.

    Args:
        table: With its parts.
        origins: Of the experiments that its runs belong to.

    Returns:
        Plain JSON: columns (key → header, formula, inputs, compares), rows (key → runs by fingerprint, seeds,
        texts of what each contributes by column or input, baseline, differences) and published (row → column
        → what was printed, in lines). For rows not named like their runs, labels as well.
    """
    columns = {
        column.key: {
            "header": f"{column.group} {column.header}".strip(),
            "formula": column.formula,
            "inputs": list(column.inputs),
            "compares": column.compares,
        }
        for column in table.columns
    }
    published: dict[str, dict[str, list[str]]] = {}
    for cell in [] if table.published is None else table.published.to_dict("records"):
        published.setdefault(str(cell["row"]), {})[str(cell["column"])] = published_lines(cell)
    rows = {
        row: {
            **({"labels": parts.labels} if any(label != row for label in parts.labels) else {}),
            "runs": [fingerprint for _, fingerprint in parts.runs],
            "seeds": parts.seeds,
            "values": {name: [number(value) for value in values] for name, values in parts.values.items()},
            "baseline": parts.baseline,
            **({"against": name} if (name := table.shown.get(parts.baseline or "")) else {}),
            "differences": None
            if parts.differences is None
            else [[key, ours or "—", theirs or "—"] for key, (theirs, ours) in parts.differences.items()],
        }
        for row, parts in origins.rows(table).items()
    }
    return {"columns": columns, "rows": rows, "published": published}


def of_runs(tables: Iterable[Table], origins: Origins) -> dict[str, Any]:
    """Return what is known of the runs behind tables, by fingerprint: name, state, folder and attempts.

    Args:
        tables: With their parts.
        origins: Of the experiments that the runs belong to.
    """
    found: dict[str, Any] = {}
    for table in tables:
        if table.parts is None:
            continue
        pairs = table.parts[["experiment", "fingerprint"]].drop_duplicates()
        for experiment, fingerprint in pairs.astype(str).itertuples(index=False):
            if fingerprint in found:
                continue
            run = origins.run(fingerprint, experiment)
            found[fingerprint] = {
                "name": f"{experiment}/{run['run']}/{run['seed']}",
                "state": f"{run['state']} at step {int(run['step']):,}" if run["step"] else str(run["state"]),
                "directory": str(run["directory"]),
                "attempts": [
                    [
                        str(attempt.number),
                        f"{attempt.state}: {attempt.why}" if attempt.why else attempt.state,
                        attempt.where or "—",
                        _code(attempt),
                        attempt.started_at or "—",
                        attempt.ended_at or "—",
                        attempt.log or "—",
                    ]
                    for attempt in origins.attempts(fingerprint)
                ],
            }
    return found


def _code(attempt: Attempt) -> str:
    """Write the user's own code, and jestlab's apart."""
    jestlab = (attempt.git_commit or "—")[:12] + (" with changes" if attempt.patched else "")
    return f"{attempt.own}; jestlab {jestlab}" if attempt.own else jestlab


@dataclass(frozen=True)
class Sources:
    """What a report was made from: enough to make it again, and to compare.

    Attributes:
        url: URL of the store.
        history: What the store knows of the experiment besides results.
        options: Options of the report: baseline, scope.
    """

    url: str
    history: History
    options: dict[str, str | None]

    @cached_property
    def common(self) -> dict[str, Any]:
        """What holds for every file of the report. Without a date: the same results give the same bytes."""
        version, commit = code()
        runs = self.history.runs
        return {
            "store": shown(self.url),  # without its password
            "experiment": self.history.experiment,
            "options": self.options,
            "newest_result": self.history.newest() or None,
            "jestlab": {"version": version, "commit": commit},
            "runs": dict(zip(map(str, runs["fingerprint"]), map(str, runs["state"]), strict=True)),
        }

    def document(self, data: bytes, files: dict[str, bytes]) -> str:
        """Return the provenance file of one table or figure, JSON.

        Args:
            data: All that the files show, as CSV.
            files: Content by name.
        """
        content = {
            "files": {name: {"sha256": _sha256(made)} for name, made in sorted(files.items())},
            "data_sha256": _sha256(data),
            **self.common,
        }
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def code() -> tuple[str | None, str | None]:
    """Return the version of jestlab and the commit of this code's checkout; None where there is none."""
    try:
        version: str | None = metadata.version("jestlab")
    except metadata.PackageNotFoundError:
        version = None
    here = Path(__file__)
    # An installed copy may be inside a checkout of something else, whose commit says nothing about this code.
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return version, None
    commit = _git(here.parent, "rev-parse", "HEAD")
    changed = _git(here.parents[4], "status", "--porcelain", "--untracked-files=no")
    return version, f"{commit.strip()}{' with changes' if changed else ''}" if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    """Standard output of git; None if it fails or is not installed."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
