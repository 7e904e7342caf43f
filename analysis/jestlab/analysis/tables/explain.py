"""Explain a number in a table: formula, runs, attempts, code, and config.

`explain` explains one cell for the command line. `page_data` returns the same data for all cells, from which
the script of a page composes the explanation of each cell.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..configs import flat
from ..provenance.code import code_of, jestlab_of
from ..provenance.history import History, load
from ..results import Snapshot
from .core import Record, Table, plain, records

_RUN_COLUMNS = ("fingerprint", "state", "step", "directory", "config")
_IDENTITY = ("row", "experiment", "run", "label", "seed", "fingerprint")
"""Columns of `Table.parts` that identify a row and a run; all others are numbers of the run."""

_Parts = Mapping[str, Sequence[Record]]
Differences = Mapping[str, tuple[str | None, str | None]]
"""Config key → (value of the baseline, value of the row) as JSON; None for a missing value."""


@dataclass(frozen=True)
class Explanation:
    """The source of the number in a cell.

    Attributes:
        row: Displayed name of the row.
        runs: For each run: experiment, label, seed, fingerprint, state, step, directory, retracted (the
            reason, or None), attempts (as in `History.attempts`), value (the run's number in this column),
            inputs (name → number from which the value is computed), and against (the same inputs of the
            baseline's run with the same seed).
        baseline: Displayed name of the row to compare with; None without one.
        differences: Differences from the config of the baseline; None without a baseline.
        published: For a published cell, its columns in `v_published`.
        accepted: One line for each acceptance of differences between the runs.
    """

    row: str
    header: str
    text: str
    formula: str
    runs: Sequence[Mapping[str, Any]] = ()
    baseline: str | None = None
    differences: Differences | None = None
    published: Record | None = None
    accepted: tuple[str, ...] = ()

    def __str__(self) -> str:
        blocks = [[f"{self.row} · {self.header}: {self.text}", self.formula]]
        if self.published:
            blocks.append(_published_lines(self.published))
        blocks.append([line for run in self.runs for line in self._run_lines(run)])
        if self.differences is not None:
            changes = [
                f"  {key}: {old or '—'} → {new or '—'}" for key, (old, new) in self.differences.items()
            ]
            blocks.append([f"config differences from {self.baseline}:", *(changes or ["  none"])])
        blocks.append([*self.accepted])
        return "\n\n".join("\n".join(lines) for lines in blocks if lines)

    def _run_lines(self, run: Record) -> list[str]:
        numbers = [f"{name} {number(value)}" for name, value in run["inputs"].items()]
        numbers += [f"{name} of {self.baseline} {number(value)}" for name, value in run["against"].items()]
        attempts = [[text for text in _attempt_texts(attempt) if text] for attempt in run["attempts"]]
        return [
            number(run["value"]) + (f" from {', '.join(numbers)}" if numbers else ""),
            f"  run {_name(run)}, {run['fingerprint'][:12]}, {_state(run)}, in {run['directory']}",
            *(f"  attempt {first} {'; '.join(others)}" for first, *others in attempts),
        ]


def explain(store: str | Snapshot, table: Table, row: str, column: str) -> Explanation:
    """Explain the number in a cell.

    Args:
        store: SQLAlchemy URL of the store of the table's experiments, or a snapshot of it.
        row: Name of the row, or a unique prefix of it.
        column: Key or heading of the column, or a unique prefix of it.

    Raises:
        FileNotFoundError: The URL names a SQLite file that doesn't exist.
        ValueError: The row or column doesn't exist, or isn't unique.
    """
    histories = [history for name in table.experiments if (history := load(store, name)) is not None]
    name, shown = table.row_named(row), table.column_named(column)
    cell, published = table.cell(name, shown), _published(table).get(name, {}).get(shown.key)
    baseline = None if published else table.baselines.get(name)
    runs, parts = _runs(histories), _parts(table)
    row_parts = [] if published else parts.get(name, [])
    others = {part["seed"]: part for part in parts.get(str(baseline), ()) if shown.compares}
    studies = {part["experiment"] for part in row_parts}
    return Explanation(
        row=table.shown.get(name, name),
        header=shown.title,
        text=cell.text + cell.mark,
        formula=shown.formula or "name of the row",
        runs=[
            {
                **{key: part[key] for key in ("experiment", "label", "seed")},
                **{key: value for key, value in run.items() if key != "config"},
                "attempts": [*run["attempts"].values()],
                "value": _numbers(part, shown.key).get(shown.key),
                "inputs": _numbers(part, *shown.inputs),
                "against": _numbers(others.get(part["seed"], {}), *shown.inputs),
            }
            for part in row_parts
            for run in [runs[part["fingerprint"]]]
        ],
        baseline=None if baseline is None else table.shown.get(baseline, baseline),
        differences=_differences(runs, parts, name, baseline),
        published=published,
        accepted=tuple(text for each in histories if each.experiment in studies for text in each.accepted),
    )


def page_data(histories: Iterable[History], tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return the data that explain all cells, as plain JSON in which shared data occur once.

    Args:
        histories: Histories of the tables' experiments.
        tables: Name on the page → table.

    Returns:
        "tables": name → columns (key → header, formula, inputs, compares), published (row → column → lines),
        and rows, for those with runs: name → runs (fingerprints), names (experiment/label/seed), seeds,
        values (key of a column or name of an input → a text for each run), baseline (a row), against (the
        displayed name of the baseline), and differences.
        "runs": fingerprint → state, directory, and the texts of the run's attempts.
    """
    runs, data = _runs(histories), {}
    for key, table in tables.items():
        columns = {
            column.key: {
                "header": column.title, "formula": column.formula, "inputs": column.inputs,
                "compares": column.compares,
            }
            for column in table.columns
        }  # fmt: skip
        names = dict.fromkeys(name for column in table.columns for name in (column.key, *column.inputs))
        rows, parts = {}, _parts(table)
        for row, row_parts in parts.items():
            baseline, numbers = table.baselines.get(row), [_numbers(part, *names) for part in row_parts]
            rows[row] = {
                "runs": [part["fingerprint"] for part in row_parts],
                "names": [_name(part) for part in row_parts],
                "seeds": [part["seed"] for part in row_parts],
                "values": {name: [number(each[name]) for each in numbers] for name in numbers[0]},
                "baseline": baseline,
                "against": table.shown.get(baseline or "", baseline),
                "differences": _differences(runs, parts, row, baseline),
            }
        published = {
            row: {column: _published_lines(cell) for column, cell in cells.items()}
            for row, cells in _published(table).items()
        }
        data[key] = {"columns": columns, "rows": rows, "published": published}
    texts = {
        fingerprint: {
            "state": _state(run),
            "directory": run["directory"],
            "attempts": [[text or "—" for text in _attempt_texts(each)] for each in run["attempts"].values()],
        }
        for fingerprint, run in runs.items()
    }
    return {"tables": data, "runs": texts}


def _runs(histories: Iterable[History]) -> dict[str, dict[str, Any]]:
    """Return fingerprint → columns and attempts (by number) of the run; several studies may share a run."""
    runs: dict[str, dict[str, Any]] = {}
    for history in histories:
        for run in records(history.runs[[*_RUN_COLUMNS]]):
            retracted = history.retracted.get(run["fingerprint"])
            runs[run["fingerprint"]] = {**run, "retracted": retracted, "attempts": {}}
        for attempt in history.attempts:  # repeated for each label of the run
            runs[attempt["fingerprint"]]["attempts"][attempt["number"]] = attempt
    return runs


def _differences(
    runs: Mapping[str, Record], parts: _Parts, row: str, baseline: str | None
) -> Differences | None:
    """Return the differences between the configs of two rows; empty if one of them has no runs."""
    if baseline is None:
        return None
    firsts = [parts[name][0]["fingerprint"] for name in (baseline, row) if name in parts]
    configs = [_flat_config(runs[run]["config"]) for run in firsts] or [{}]
    theirs, ours = configs[0], configs[-1]
    keys = sorted({*theirs, *ours})
    return {key: (theirs.get(key), ours.get(key)) for key in keys if theirs.get(key) != ours.get(key)}


def _parts(table: Table) -> _Parts:
    """Group `Table.parts` by row."""
    parts: dict[str, list[Record]] = {}
    for part in [] if table.parts is None else records(table.parts):
        parts.setdefault(part["row"], []).append(part)
    return parts


def _numbers(part: Record, *names: str) -> dict[str, float | None]:
    """Return name → number for the names that the part has; None for an unknown number."""
    return {name: plain(part[name]) for name in names if name in part and name not in _IDENTITY}


@lru_cache(maxsize=1024)
def _flat_config(config: str) -> dict[str, str]:
    """Return dotted key → value as JSON."""
    values = flat(json.loads(config or "{}"))
    return {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}


def _published(table: Table) -> dict[str, dict[str, Record]]:
    """Return row → column → published cell, as in `Explanation.published`."""
    cells: dict[str, dict[str, Record]] = {}
    for cell in [] if table.published is None else map(dict, records(table.published)):
        cells.setdefault(cell.pop("row"), {})[cell.pop("column")] = cell
    return cells


def _published_lines(cell: Record) -> list[str]:
    where = f"{cell['source']}, table {cell['table']}, row {cell['position']}"
    details = [f"{name}: {cell[name]}" for name in ("citation", "data", "note") if cell.get(name)]
    return [f"printed {cell['printed']!r} in {where}", *details]


def _name(part: Record) -> str:
    return f"{part['experiment']}/{part['label']}/{part['seed']}"


def _state(run: Record) -> str:
    step = f" at step {int(run['step']):,}" if run["step"] else ""  # some programs don't report steps
    retracted = f", retracted: {run['retracted']}" if run["retracted"] else ""
    return f"{run['state']}{step}{retracted}"


def _attempt_texts(attempt: Record) -> list[str]:
    """Return number, state, host and device, code, start and end, and log; empty texts if unknown."""
    reason = (attempt["reason"] or "").strip().partition("\n")[0]
    return [
        str(attempt["number"]),
        f"{attempt['state']}: {reason}" if reason else attempt["state"],
        ", ".join(filter(None, (attempt["host"], attempt["device"]))),
        "; ".join(filter(None, (code_of(attempt), jestlab_of(attempt)))),
        " to ".join(filter(None, (attempt["started_at"], attempt["ended_at"]))),
        attempt["log"] or "",
    ]


def number(value: float | None) -> str:
    """Format a number with six digits; a dash for a missing number."""
    return "—" if value is None else f"{value:.6g}".replace("-", "−")
