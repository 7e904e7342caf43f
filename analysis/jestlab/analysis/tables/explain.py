"""Explain a number in a table: formula, runs, attempts, code, and config.

`Origins.explain` explains one cell for the command line. `Origins.page_data` has the same data about all
cells, from which the script of a page composes the explanation of a cell.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from ..configs import flat
from ..provenance.code import code_of, commit_text, made_with_different
from ..provenance.history import History, load
from ..results import Snapshot, opened
from .core import Column, Table, records

_RUN_COLUMNS = ("fingerprint", "state", "step", "directory", "config")

Differences = Mapping[str, tuple[str | None, str | None]]
"""Config key → value of the baseline, value of this row; as JSON, None for a missing value."""


@dataclass(frozen=True)
class Explanation:
    """The source of the number in a cell.

    Attributes:
        table: Name of the table.
        row: Displayed name of the row.
        column: Key of the column.
        header: Heading of the column.
        text: Text of the cell.
        formula: Formula of the number.
        runs: For each run: experiment, label, seed, fingerprint, state, step, directory, retracted (the
            reason, or None), attempts (of `History.attempts`), value (its number in this column),
            inputs of the value by name, and against: the inputs of the baseline's run with the same seed.
        baseline: Displayed name of the row to compare with; None without one.
        differences: Differences from the config of the baseline; None without one.
        published: For a published cell: its columns in `v_published`, and check, the result of recalculating
            it from other cells.
        accepted: One line for each acceptance of differences between the runs.
    """

    table: str
    row: str
    column: str
    header: str
    text: str
    formula: str
    runs: Sequence[Mapping[str, Any]] = ()
    baseline: str | None = None
    differences: Differences | None = None
    published: Mapping[str, Any] | None = None
    accepted: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.row} · {self.header}: {self.text}   (table {self.table})", self.formula]
        lines += ["", *_published_lines(self.published)] if self.published else []
        lines += [""] if self.runs else []
        for run in self.runs:
            numbers = [f"{name} {number(value)}" for name, value in run["inputs"].items()]
            numbers += [
                f"{name} of {self.baseline} {number(value)}" for name, value in run["against"].items()
            ]
            lines.append(number(run["value"]) + (f" from {', '.join(numbers)}" if numbers else ""))
            lines.append(
                f"  run {_name(run)}, {run['fingerprint'][:12]}, {_state(run)}, in {run['directory']}"
            )
            for attempt in run["attempts"]:
                place, *texts, start, end, log = _attempt_texts(attempt)
                texts += [" to ".join(time for time in (start, end) if time), log]
                lines.append(f"  attempt {place} {'; '.join(text for text in texts if text)}")
        if self.differences is not None:
            lines += ["", f"config differences from {self.baseline}:"]
            lines += [
                f"  {key}: {theirs or '—'} → {ours or '—'}"
                for key, (theirs, ours) in self.differences.items()
            ] or ["  none"]
        lines += ["", *self.accepted] if self.accepted else []
        of_code = {str(run["attempts"][-1]["sources"]): run for run in self.runs if run["attempts"]}
        if len(of_code) > 1:
            first, second = map(_name, list(of_code.values())[:2])
            lines += ["", f"runs were {made_with_different(['code'])}: jestlab diff {first} {second}"]
        return "\n".join(lines)


def _name(run: Mapping[str, Any]) -> str:
    return f"{run['experiment']}/{run['label']}/{run['seed']}"


class Origins:
    """The runs and attempts that produced the numbers in tables of some experiments."""

    def __init__(self, histories: Iterable[History]) -> None:
        """Use the histories of the experiments."""
        self._histories = {history.experiment: history for history in histories}

    @cached_property
    def _runs(self) -> dict[str, dict[str, Any]]:
        """Fingerprint → columns of the run, which several studies may share, and its attempts by number."""
        runs: dict[str, dict[str, Any]] = {}
        for history in self._histories.values():
            for run in records(history.runs[[*_RUN_COLUMNS]]):
                retracted = history.retracted.get(run["fingerprint"])
                runs[run["fingerprint"]] = {**run, "retracted": retracted, "attempts": {}}
            for attempt in history.attempts:  # one for each label of the run
                runs[attempt["fingerprint"]]["attempts"][attempt["number"]] = attempt
        return runs

    @classmethod
    def read(cls, store: str | Snapshot, experiments: Sequence[str]) -> Origins:
        """Read the histories of experiments from the store at a SQLAlchemy URL, or from a snapshot of it.

        Raises:
            FileNotFoundError: The URL names a SQLite file that doesn't exist.
            ValueError: The URL doesn't name a results store.
        """
        if not experiments:
            return cls([])
        with opened(store) as snapshot:
            histories = [snapshot.once(load, experiment) for experiment in experiments]
            return cls([history for history in histories if history is not None])

    def explain(self, table: Table, row: str, column: str) -> Explanation:
        """Explain the number in a cell.

        Args:
            table: The table.
            row: Name of the row, or a unique prefix of it.
            column: Key or heading of the column, or a unique prefix of it.

        Raises:
            ValueError: The row or column doesn't exist, or isn't unique.
        """
        name, shown = table.row_named(row), table.column_named(column)
        cell, baseline = table.cell(name, shown), table.baselines.get(name)
        rows, published = self._rows(table), _published(table).get(name, {}).get(shown.key)
        compared = None if published or baseline is None else table.shown.get(baseline, baseline)
        differences: Differences | None = None if compared is None else {}
        runs: list[dict[str, Any]] = []
        if not published and name in rows:
            differences = rows[name]["differences"]
            runs = self._contributions(rows[name], rows.get(str(baseline)) if shown.compares else None, shown)
        studies = dict.fromkeys(run["experiment"] for run in runs)
        return Explanation(
            table=table.name,
            row=table.shown.get(name, name),
            column=shown.key,
            header=f"{shown.group} {shown.header}".strip(),
            text=cell.text + cell.mark,
            formula=shown.formula or "name of the row",
            runs=runs,
            baseline=compared,
            differences=differences,
            published=published,
            accepted=tuple(line for study in studies for line in self._histories[study].accepted),
        )

    def page_data(self, tables: Mapping[str, Table]) -> dict[str, Any]:
        """Return the explanations of all cells, as plain JSON that doesn't repeat what cells share.

        Args:
            tables: Name on the page → table.

        Returns:
            "tables": name → columns (key → header, formula, inputs, compares), rows as in `_rows` but with
            values as texts, and published (row → column → lines).
            "runs": fingerprint → name, state, directory, and the texts of its attempts.
        """
        data: dict[str, Any] = {"tables": {}, "runs": {}}
        for key, table in tables.items():
            columns = {
                column.key: {
                    "header": f"{column.group} {column.header}".strip(),
                    "formula": column.formula,
                    "inputs": column.inputs,
                    "compares": column.compares,
                }
                for column in table.columns
            }
            rows = self._rows(table)
            for row in rows.values():
                row["values"] = {name: [*map(number, values)] for name, values in row["values"].items()}
                for fingerprint, name in zip(row["runs"], row.pop("names"), strict=True):
                    run = self._runs[fingerprint]
                    attempts = map(_attempt_texts, run["attempts"].values())
                    data["runs"][fingerprint] = {
                        "name": "/".join(map(str, name)),
                        "state": _state(run),
                        "directory": run["directory"],
                        "attempts": [[text or "—" for text in texts] for texts in attempts],
                    }
            published = {
                row: {column: _published_lines(cell) for column, cell in cells.items()}
                for row, cells in _published(table).items()
            }
            data["tables"][key] = {"columns": columns, "rows": rows, "published": published}
        return data

    def _rows(self, table: Table) -> dict[str, dict[str, Any]]:
        """Return the source of the numbers in each row that has runs.

        Returns:
            Name → runs (fingerprints), names (experiment, label, and seed of each run), seeds, values (key of
            a column or name of an input → a number or None for each run), baseline (a row) and against (its
            displayed name), differences; labels, if they differ from the name of the row.
        """
        parts = table.parts
        if parts is None:
            return {}
        # The first column names the rows.
        names = dict.fromkeys(name for column in table.columns[1:] for name in (column.key, *column.inputs))
        values = {
            name: [value if math.isfinite(value) else None for value in parts[name].astype(float)]
            for name in names
            if name in parts
        }
        runs = [str(fingerprint) for fingerprint in parts["fingerprint"]]
        full_names = list(parts[["experiment", "label", "seed"]].itertuples(index=False, name=None))
        places = {str(row): at for row, at in parts.groupby("row", sort=False).indices.items()}
        rows = {}
        for row, at in places.items():
            baseline = table.baselines.get(row)
            differences: Any = None if baseline is None else {}
            if baseline in places:
                differences = self._differences(runs[places[baseline][0]], runs[at[0]])
            rows[row] = {
                "runs": [runs[i] for i in at],
                "names": [full_names[i] for i in at],
                "seeds": [int(full_names[i][2]) for i in at],
                "values": {name: [numbers[i] for i in at] for name, numbers in values.items()},
                "baseline": baseline,
                "against": table.shown.get(baseline or "", baseline),
                "differences": differences,
            }
            if any(full_names[i][1] != row for i in at):
                rows[row]["labels"] = [full_names[i][1] for i in at]
        return rows

    def _contributions(
        self, row: Mapping[str, Any], other: Mapping[str, Any] | None, column: Column
    ) -> list[dict[str, Any]]:
        """Return `Explanation.runs` of a row, compared with another one."""

        def numbers(row: Mapping[str, Any], place: int, *names: str) -> dict[str, float | None]:
            return {name: row["values"][name][place] for name in names if name in row["values"]}

        contributions = []
        for place, (experiment, label, seed) in enumerate(row["names"]):
            run = {name: value for name, value in self._runs[row["runs"][place]].items() if name != "config"}
            against: dict[str, float | None] = {}
            if other is not None and seed in other["seeds"]:
                against = numbers(other, other["seeds"].index(seed), *column.inputs)
            contributions.append(
                {"experiment": experiment, "label": label, "seed": seed}
                | run
                | {
                    "attempts": [*run["attempts"].values()],
                    "value": numbers(row, place, column.key).get(column.key),
                }
                | {"inputs": numbers(row, place, *column.inputs), "against": against}
            )
        return contributions

    def _differences(self, other: str, run: str) -> Differences:
        """Return the differences between the configs of two runs."""
        theirs, ours = (_flat_config(self._runs[each]["config"]) for each in (other, run))
        keys = sorted({*theirs, *ours})
        return {key: (theirs.get(key), ours.get(key)) for key in keys if theirs.get(key) != ours.get(key)}


@lru_cache(maxsize=1024)
def _flat_config(config: str) -> dict[str, str]:
    """Return dotted key → value as JSON."""
    return {
        key: json.dumps(value, ensure_ascii=False) for key, value in flat(json.loads(config or "{}")).items()
    }


def _published(table: Table) -> dict[str, dict[str, dict[str, Any]]]:
    """Return row → column → published cell, as in `Explanation.published`."""
    cells: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in [] if table.published is None else table.published.to_dict("records"):
        columns = cells.setdefault(str(cell.pop("row")), {})
        columns[str(cell.pop("column"))] = {str(key): value for key, value in cell.items()}
    return cells


def _published_lines(cell: Mapping[str, Any]) -> list[str]:
    where = f"{cell['source']}, table {cell['table']}, row {cell['position']}"
    details = [f"{name}: {cell[name]}" for name in ("citation", "data", "note", "check") if cell.get(name)]
    return [f"printed {cell['printed']!r} in {where}", *details]


def _state(run: Mapping[str, Any]) -> str:
    step = f" at step {int(run['step']):,}" if run["step"] else ""  # some programs don't report steps
    retracted = f", retracted: {run['retracted']}" if run["retracted"] else ""
    return f"{run['state']}{step}{retracted}"


def _attempt_texts(attempt: Mapping[str, Any]) -> list[str]:
    """Return number, state, host and device, code, start, end, and log; unknown ones are empty."""
    reason = (attempt["reason"] or "").strip().partition("\n")[0]
    jestlab = f"jestlab {commit_text(attempt['git_commit'], attempt['patched'])}"
    return [
        str(attempt["number"]),
        f"{attempt['state']}: {reason}" if reason else attempt["state"],
        ", ".join(part for part in (attempt["host"], attempt["device"]) if part),
        "; ".join(part for part in (code_of(attempt), jestlab) if part),
        attempt["started_at"] or "",
        attempt["ended_at"] or "",
        attempt["log"] or "",
    ]


def number(value: float | None) -> str:
    """Format a number with six digits; a dash for a missing number."""
    return "—" if value is None else f"{value:.6g}".replace("-", "−")
