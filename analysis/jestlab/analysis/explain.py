"""Where a number is from: the chain from a cell of a table down to runs, attempts, commits and configs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .connection import connect, frame

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

    from .rendering import Column, Table

_RUNS = """
    SELECT fingerprint, run, seed, state, step, config, directory
    FROM v_runs WHERE experiment = :experiment"""

_ATTEMPTS = """
    SELECT fingerprint, number, state, reason, executor, host, device, started_at, ended_at, git_commit,
        CASE WHEN git_patch IS NULL OR git_patch = '' THEN 0 ELSE 1 END AS patched, log
    FROM v_attempts WHERE experiment = :experiment"""


@dataclass(frozen=True)
class Attempt:
    """One go at a run.

    Attributes:
        number: 1, 2, … within the run.
        state: How it ended, or RUNNING.
        reason: Why, if it did not complete.
        executor: Where it was launched.
        host: Name of the machine; None where it is not known.
        device: What it computed on.
        started_at: UTC, to the second.
        ended_at: UTC, to the second.
        git_commit: Of the code.
        patched: Whether the code held changes that were not committed; the store has them.
        log: Its log, relative to the lab's root.
    """

    number: int
    state: str
    reason: str | None
    executor: str | None
    host: str | None
    device: str | None
    started_at: str | None
    ended_at: str | None
    git_commit: str | None
    patched: bool
    log: str | None

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.host, self.device) if part)
        code = (self.git_commit or "of an unknown commit")[:20]
        code += " with uncommitted changes" if self.patched else ""
        when = " to ".join(part for part in (self.started_at, self.ended_at) if part)
        why = f" ({self.reason.strip().splitlines()[0]})" if self.reason and self.reason.strip() else ""
        parts = (f"{self.number} {self.state}{why}", where, f"code {code}", when)
        return "; ".join(part for part in parts if part)


@dataclass(frozen=True)
class Contribution:
    """What one run gave to a cell.

    Attributes:
        experiment: Name of the study.
        run: The run's name in the study.
        label: Its name and values on the axes.
        seed: Replicate.
        fingerprint: Its identity.
        value: Its part of the number; None where it has none.
        inputs: What that was made from, by name.
        against: The same of the run that it is compared with; empty where it is not.
        state: Of the run.
        step: Steps done.
        directory: Its folder, relative to the lab's root.
        attempts: All goes at it.
    """

    experiment: str
    run: str
    label: str
    seed: int
    fingerprint: str
    value: float | None
    inputs: dict[str, float | None]
    against: dict[str, float | None]
    state: str
    step: int
    directory: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True)
class Explanation:
    """Where the number of a cell is from.

    Attributes:
        table: Name of the table.
        row: Name of the row.
        column: Key of the column.
        header: The column's heading.
        text: What the cell says.
        formula: How its number comes about.
        runs: What own runs gave to it.
        baseline: The row that it is compared with; None for none.
        differences: Config key → what the baseline has, what this row has; as JSON, None where it has none.
        published: For a published cell: source, table, position, printed, value, citation, data, note, …, and
            check (what came of calculating it again; empty where it follows from no other).
    """

    table: str
    row: str
    column: str
    header: str
    text: str
    formula: str
    runs: tuple[Contribution, ...] = ()
    baseline: str | None = None
    differences: Mapping[str, tuple[str | None, str | None]] | None = None
    published: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.row} · {self.header}: {self.text}   (table {self.table})", self.formula]
        lines += ["", *in_print(self.published)] if self.published else []
        lines += ["", *self._of_runs()] if self.runs else []
        if self.differences is not None:
            lines += ["", f"config, where it differs from {self.baseline}:"]
            lines += [
                f"  {key}: {_or_dash(theirs)} → {_or_dash(ours)}"
                for key, (theirs, ours) in self.differences.items()
            ] or ["  nowhere"]
        return "\n".join(lines)

    def _of_runs(self) -> list[str]:
        lines = []
        for run in self.runs:
            made = [f"{name} {number(value)}" for name, value in run.inputs.items()]
            made += [f"{name} of {self.baseline} {number(value)}" for name, value in run.against.items()]
            from_ = f" from {', '.join(made)}" if made else ""
            lines.append(f"{number(run.value)}{from_}")
            lines.append(
                f"  run {run.experiment}/{run.label}/{run.seed}, {run.fingerprint[:12]}, {run.state} at step "
                f"{run.step}, in {run.directory}"
            )
            lines += [f"  attempt {attempt}" for attempt in run.attempts]
        return lines


class Origins:
    """What is behind the runs of some experiments, read from the store once."""

    def __init__(self, runs: pd.DataFrame, attempts: pd.DataFrame) -> None:
        self._runs = runs
        self._attempts = attempts
        self._configs: dict[tuple[str, str], dict[str, str]] = {}

    @classmethod
    def read(cls, url: str, experiments: Sequence[str]) -> Origins:
        """Everything that explanations of these experiments' cells may need.

        Args:
            url: SQLAlchemy URL of the store.
            experiments: Their names.

        Raises:
            FileNotFoundError: The URL names a SQLite file that does not exist.
            ValueError: What is there is no results store.
        """
        import pandas as pd

        if not experiments:
            return cls(pd.DataFrame(), pd.DataFrame())
        with connect(url) as connection:
            return cls.load(connection, experiments)

    @classmethod
    def load(cls, connection: Connection, experiments: Sequence[str]) -> Origins:
        """As `read`, over a connection from `connect`: beside other reads, in the same moment."""
        import pandas as pd

        parts: list[tuple[pd.DataFrame, pd.DataFrame]] = []
        for experiment in experiments:
            runs = frame(connection, _RUNS, experiment=experiment)
            attempts = frame(connection, _ATTEMPTS, experiment=experiment)
            parts.append((runs.assign(experiment=experiment), attempts))
        runs, attempts = (pd.concat(of_all, ignore_index=True) for of_all in zip(*parts, strict=True))
        # A run may stand in several studies, and in one under several labels.
        return cls(runs, attempts.drop_duplicates(["fingerprint", "number"]))

    def explain(self, table: Table, row: str, column: str) -> Explanation:
        """Where the number of a cell is from.

        Args:
            table: That it stands in.
            row: The row's name, or the beginning of it.
            column: The column's key or heading, or the beginning of it.

        Raises:
            ValueError: There is no such row or column, or several.
        """
        name, shown = table.row_named(row), table.column_named(column)
        cell = table.cell(name, shown)
        about = Explanation(
            table=table.name,
            row=name,
            column=shown.key,
            header=f"{shown.group} {shown.header}".strip(),
            text=cell.text + cell.mark,
            formula=shown.formula or "what the row is called",
        )
        printed = _published(table, name, shown.key)
        if printed is not None:
            return replace(about, published=printed)
        baseline = table.baselines.get(name)
        return replace(
            about,
            runs=self.contributions(table, name, shown),
            baseline=baseline,
            differences=None if baseline is None else self.differences(table, name, baseline),
        )

    def contributions(self, table: Table, row: str, column: Column) -> tuple[Contribution, ...]:
        """What each run gave to a cell, by seed; none for a cell that rests on no run."""
        if table.parts is None:
            return ()
        mine = table.parts[table.parts["row"] == row]
        theirs = table.parts[table.parts["row"] == table.baselines.get(row)].set_index("seed")
        found = []
        for _, part in mine.iterrows():
            run = self.run(str(part["fingerprint"]), str(part["experiment"]))
            compared = theirs.loc[part["seed"]] if column.compares and part["seed"] in theirs.index else {}
            found.append(
                Contribution(
                    experiment=str(part["experiment"]),
                    run=str(run["run"]),
                    label=str(part["label"]),
                    seed=int(part["seed"]),
                    fingerprint=str(part["fingerprint"]),
                    value=finite(part.get(column.key)),
                    inputs={key: finite(part.get(key)) for key in column.inputs},
                    against={key: finite(compared.get(key)) for key in column.inputs if len(compared)},
                    state=str(run["state"]),
                    step=int(run["step"]),
                    directory=str(run["directory"]),
                    attempts=self.attempts(str(part["fingerprint"])),
                )
            )
        return tuple(found)

    def attempts(self, fingerprint: str) -> tuple[Attempt, ...]:
        """All goes at a run, in their order."""
        return self._attempts_by_run.get(fingerprint, ())

    def differences(self, table: Table, row: str, other: str) -> dict[str, tuple[str | None, str | None]]:
        """Config keys in which the first run of a row differs from that of another, their values as JSON."""
        if table.parts is None:
            return {}
        firsts = []
        for name in (other, row):
            first = table.parts[table.parts["row"] == name].head(1)
            if first.empty:
                return {}
            firsts.append((str(first["experiment"].iloc[0]), str(first["fingerprint"].iloc[0])))
        return self.between(*firsts)

    def between(
        self, other: tuple[str, str], one: tuple[str, str]
    ) -> dict[str, tuple[str | None, str | None]]:
        """Config keys in which two runs, each an experiment and a fingerprint, differ: values of the other
        and of the one."""
        theirs, ours = (self._config(*named) for named in (other, one))
        keys = sorted({*theirs, *ours})
        return {key: (theirs.get(key), ours.get(key)) for key in keys if theirs.get(key) != ours.get(key)}

    def _config(self, experiment: str, fingerprint: str) -> dict[str, str]:
        """Dotted key → value as JSON."""
        named = (experiment, fingerprint)
        if named not in self._configs:
            self._configs[named] = _flat(json.loads(str(self.run(fingerprint, experiment)["config"]) or "{}"))
        return self._configs[named]

    def run(self, fingerprint: str, experiment: str) -> Mapping[Any, Any]:
        """What the store says of a run: run, seed, state, step, config (JSON), directory."""
        return self._runs_by_name[experiment, fingerprint]

    @cached_property
    def _runs_by_name(self) -> dict[tuple[str, str], Mapping[Any, Any]]:
        return {(run["experiment"], run["fingerprint"]): run for run in self._runs.to_dict("records")}

    @cached_property
    def _attempts_by_run(self) -> dict[str, tuple[Attempt, ...]]:
        found: dict[str, list[Attempt]] = {}
        for row in self._attempts.to_dict("records"):
            told: dict[str, Any] = {str(k): None if _is_missing(v) else v for k, v in row.items()}
            for key in ("started_at", "ended_at"):
                told[key] = None if told[key] is None else str(told[key])[:19]
            fingerprint = str(told.pop("fingerprint"))
            attempt = Attempt(**told | {"number": int(told["number"]), "patched": bool(told["patched"])})
            found.setdefault(fingerprint, []).append(attempt)
        return {run: tuple(sorted(all_, key=lambda each: each.number)) for run, all_ in found.items()}


def in_print(said: Mapping[Any, Any]) -> list[str]:
    """What is known of a published cell, in lines.

    Args:
        said: As in `Explanation.published`.
    """
    where = f"{said['source']}, table {said['table']}, row {said['position']}"
    lines = [f"printed {said['printed']!r} in {where}"]
    return lines + [
        f"{name}: {said[name]}" for name in ("citation", "data", "note", "check") if said.get(name)
    ]


def _published(table: Table, row: str, column: str) -> dict[str, Any] | None:
    """What was printed for a cell; None where nothing was."""
    if table.published is None:
        return None
    cells = table.published
    found = cells[(cells["row"] == row) & (cells["column"] == column)]
    if found.empty:
        return None
    said = found.drop(columns=["row", "column"]).iloc[0].to_dict()
    return {str(key): value.item() if hasattr(value, "item") else value for key, value in said.items()}


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Dotted key → value as JSON."""
    flat: dict[str, str] = {}
    for key, value in config.items():
        path = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{path}.")
        else:
            flat[path] = json.dumps(value, ensure_ascii=False)
    return flat


def finite(value: Any) -> float | None:
    """A number of a frame; None where there is none, or it is infinite."""
    if value is None or _is_missing(value) or math.isinf(value):
        return None
    return float(value)


def _is_missing(value: Any) -> bool:
    import pandas as pd

    return bool(pd.isna(value))


def number(value: float | None) -> str:
    """How a number is shown where it is explained: six digits, as the store has it."""
    return "—" if value is None else f"{value:.6g}".replace("-", "−")


def _or_dash(value: str | None) -> str:
    return "—" if value is None else value
