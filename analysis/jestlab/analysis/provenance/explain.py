"""Explain one number: the chain from a cell of a table down to runs, attempts, commits and configs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..configs import flat
from ..results import Snapshot, opened
from ..tables.core import Column, Table
from .code import OWN_PROGRAMS, digests_of, unified_diff
from .history import History, load, sources_in

_CHANGED = " with uncommitted changes"

Differences = dict[str, tuple[str | None, str | None]]
"""Config key → value of the other run, value of this run; as JSON, None where a run has none."""


@dataclass(frozen=True)
class Attempt:
    """One attempt at a run.

    Attributes:
        number: 1, 2, … within the run.
        state: How it ended, or RUNNING.
        reason: Why, if it did not complete.
        executor: Executor that launched it.
        host: Name of the machine; None if unknown.
        device: What it computed on.
        started_at: UTC, to the second.
        ended_at: UTC, to the second.
        git_commit: Commit of jestlab's code.
        patched: Whether jestlab's code had uncommitted changes; the store has them.
        log: Path of its log, relative to the lab's root.
        program: What it executed.
        sources: Files of the user's own code → SHA-256; None if unknown, or there is no such code.
        inputs: Recorded files that it read → SHA-256; None if the spec names none.
        code_commit: Commit of the repository of the user's own code.
        code_patched: Whether that had uncommitted changes.
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
    program: str
    sources: Mapping[str, str] | None = None
    inputs: Mapping[str, str | None] | None = None
    code_commit: str | None = None
    code_patched: bool = False

    def __str__(self) -> str:
        jestlab = (self.git_commit or "of an unknown commit")[:20]
        jestlab += _CHANGED if self.patched else ""
        when = " to ".join(part for part in (self.started_at, self.ended_at) if part)
        why = f" ({self.why})" if self.why else ""
        return "; ".join(
            part
            for part in (f"{self.number} {self.state}{why}", self.where, self.own, f"jestlab {jestlab}", when)
            if part
        )

    @property
    def own(self) -> str:
        """The user's own code and data, in words; empty if there is none."""
        parts = []
        if self.sources is None and self.program not in OWN_PROGRAMS:
            parts.append("code not recorded")
        if self.sources is not None:
            commit = f" of commit {self.code_commit[:12]}" if self.code_commit else ""
            changed = _CHANGED if self.code_patched else ""
            parts.append(f"code {digests_of(self.sources)}{commit}{changed}")
        if self.inputs:
            parts.append(f"data {digests_of(self.inputs)}")
        return ", ".join(parts)

    @property
    def where(self) -> str:
        """Host and device, as far as they are known."""
        return ", ".join(part for part in (self.host, self.device) if part)

    @property
    def why(self) -> str:
        """First line of the reason; empty if there is none."""
        return next(iter((self.reason or "").strip().splitlines()), "")


@dataclass(frozen=True)
class Contribution:
    """What one run contributed to a cell.

    Attributes:
        experiment: Name of the study.
        run: The run's name in the study.
        label: Its name and values on the axes.
        seed: Replicate.
        fingerprint: Fingerprint of the run.
        value: The run's part of the number; None where it has none.
        inputs: Numbers that the value was computed from, by name.
        against: The same numbers of the run that it is compared with; empty if there is none.
        state: State of the run.
        step: Steps done.
        directory: Its folder, relative to the lab's root.
        attempts: All attempts at the run.
        retracted: Why its results are wrong; None if nobody says so.
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
    retracted: str | None = None


@dataclass(frozen=True)
class Explanation:
    """Where the number in a cell comes from.

    Attributes:
        table: Name of the table.
        row: Name of the row, as the table shows it.
        column: Key of the column.
        header: Heading of the column.
        text: Text of the cell.
        formula: How the number is computed.
        runs: What our own runs contributed.
        baseline: The row that this one is compared with; None if there is none.
        differences: Config key → value of the baseline, value of this row; as JSON, None where it has none.
        published: For a published cell: source, table, position, printed, value, citation, data, note, …, and
            check (result of recalculating it; empty if it follows from no other cell).
        accepted: Differences between the runs that somebody accepted, a line each.
        source: How the user's own code of later runs differs from that of the first, as unified diffs.
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
    accepted: tuple[str, ...] = ()
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.row} · {self.header}: {self.text}   (table {self.table})", self.formula]
        lines += ["", *published_lines(self.published)] if self.published else []
        lines += ["", *self._run_lines()] if self.runs else []
        if self.differences is not None:
            lines += ["", f"config differences from {self.baseline}:"]
            lines += [
                f"  {key}: {theirs or '—'} → {ours or '—'}"
                for key, (theirs, ours) in self.differences.items()
            ] or ["  none"]
        lines += ["", *self.accepted] if self.accepted else []
        lines += ["", "the code of its runs differs:", self.source] if self.source else []
        return "\n".join(lines)

    def _run_lines(self) -> list[str]:
        lines = []
        for run in self.runs:
            made = [f"{name} {number(value)}" for name, value in run.inputs.items()]
            made += [f"{name} of {self.baseline} {number(value)}" for name, value in run.against.items()]
            lines.append(number(run.value) + (f" from {', '.join(made)}" if made else ""))
            at = f" at step {run.step}" if run.step else ""  # a program need not report its progress
            lines.append(
                f"  run {run.experiment}/{run.label}/{run.seed}, {run.fingerprint[:12]}, {run.state}{at}, "
                f"in {run.directory}"
            )
            lines += [f"  retracted: {run.retracted}"] if run.retracted else []
            lines += [f"  attempt {attempt}" for attempt in run.attempts]
        return lines


@dataclass(frozen=True)
class RowParts:
    """What the numbers of one row were computed from; lists have one entry a run.

    Attributes:
        runs: Experiment and fingerprint of each run.
        labels: Their labels.
        seeds: Their replicates.
        values: Column or input → numbers of the runs; None where a run has none.
        baseline: The row that this one is compared with; None if there is none.
        differences: Config keys in which the first runs of the two differ; None without a baseline.
    """

    runs: list[tuple[str, str]]
    labels: list[str]
    seeds: list[int]
    values: dict[str, list[float | None]]
    baseline: str | None
    differences: Differences | None

    def numbers(self, names: Iterable[str], place: int) -> dict[str, float | None]:
        """Return the numbers of one run by name; None where it has none."""
        return {name: self.values[name][place] if name in self.values else None for name in names}


class Origins:
    """The runs and attempts behind the tables of some experiments."""

    def __init__(self, histories: Iterable[History] = ()) -> None:
        self._runs: dict[tuple[str, str], dict[str, Any]] = {}
        self._attempts: dict[str, dict[int, Attempt]] = {}  # of each run, by number
        self._configs: dict[tuple[str, str], dict[str, str]] = {}
        self._retracted: dict[str, str] = {}
        self._texts: Mapping[str, str] = {}
        self._accepted: dict[str, tuple[str, ...]] = {}
        for history in histories:
            for run in history.runs.to_dict("records"):
                self._runs[history.experiment, run["fingerprint"]] = {str(k): v for k, v in run.items()}
            self._retracted |= history.retracted
            self._accepted[history.experiment] = history.accepted
            # A run may occur in several studies, and in one under several labels.
            for row in history.attempts.to_dict("records"):
                attempt = _attempt(row)
                self._attempts.setdefault(row["fingerprint"], {}).setdefault(attempt.number, attempt)

    @classmethod
    def read(cls, store: str | Snapshot, experiments: Sequence[str]) -> Origins:
        """Read all that explaining cells of these experiments may need.

        Args:
            store: SQLAlchemy URL of the store, or a snapshot of it.
            experiments: Names of the experiments.

        Raises:
            FileNotFoundError: The URL names a SQLite file that does not exist.
            ValueError: The URL names something that is not a results store.
        """
        if not experiments:
            return cls()
        with opened(store) as snapshot:
            histories = [snapshot.once(load, experiment) for experiment in experiments]
            found = cls(history for history in histories if history is not None)
            found._texts = sources_in(snapshot.connection, found._differing())
        return found

    def _differing(self) -> set[str]:
        """Return the digests of files of users' code that runs have in several states."""
        states: dict[str, set[str]] = {}
        for attempts in self._attempts.values():
            for attempt in attempts.values():
                for name, digest in (attempt.sources or {}).items():
                    states.setdefault(name, set()).add(digest)
        return {digest for digests in states.values() if len(digests) > 1 for digest in digests}

    def explain(self, table: Table, row: str, column: str) -> Explanation:
        """Explain where the number in a cell comes from.

        Args:
            table: The cell's table.
            row: Name of the row, or the beginning of it.
            column: Key or heading of the column, or the beginning of it.

        Raises:
            ValueError: There is no such row or column, or several.
        """
        name, shown = table.row_named(row), table.column_named(column)
        cell = table.cell(name, shown)
        about = Explanation(
            table=table.name,
            row=table.shown.get(name, name),
            column=shown.key,
            header=f"{shown.group} {shown.header}".strip(),
            text=cell.text + cell.mark,
            formula=shown.formula or "name of the row",
        )
        printed = _published(table, name, shown.key)
        if printed is not None:
            return replace(about, published=printed)
        rows = self.rows(table)
        if name not in rows:
            baseline = table.baselines.get(name)
            called = None if baseline is None else table.shown.get(baseline, baseline)
            return replace(about, baseline=called, differences=None if baseline is None else {})
        mine = rows[name]
        theirs = rows.get(mine.baseline or "") if shown.compares else None
        runs = tuple(self._contribution(mine, theirs, place, shown) for place in range(len(mine.runs)))
        studies = dict.fromkeys(experiment for experiment, _ in mine.runs)
        accepted = tuple(line for study in studies for line in self._accepted.get(study, ()))
        called = None if mine.baseline is None else table.shown.get(mine.baseline, mine.baseline)
        told = replace(about, runs=runs, baseline=called, differences=mine.differences)
        return replace(told, accepted=accepted, source=self._source(runs))

    def rows(self, table: Table) -> dict[str, RowParts]:
        """Return what the numbers of each row of a table were computed from, for rows that rest on runs."""
        parts = table.parts
        if parts is None:
            return {}
        # The first column names the rows.
        names = dict.fromkeys(name for column in table.columns[1:] for name in (column.key, *column.inputs))
        values = {name: parts[name].astype(float).tolist() for name in names if name in parts}
        runs = list(zip(parts["experiment"].map(str), parts["fingerprint"].map(str), strict=True))
        labels, seeds = [str(label) for label in parts["label"]], [int(seed) for seed in parts["seed"]]
        positions = {str(row): at for row, at in parts.groupby("row", sort=False).indices.items()}
        found = {}
        for row, at in positions.items():
            baseline = table.baselines.get(row)
            differences: Differences | None = None if baseline is None else {}
            if baseline in positions:
                differences = self._between(runs[positions[baseline][0]], runs[at[0]])
            found[row] = RowParts(
                runs=[runs[i] for i in at],
                labels=[labels[i] for i in at],
                seeds=[seeds[i] for i in at],
                values={
                    name: [known[i] if math.isfinite(known[i]) else None for i in at]
                    for name, known in values.items()
                },
                baseline=baseline,
                differences=differences,
            )
        return found

    def run(self, fingerprint: str, experiment: str) -> Mapping[str, Any]:
        """Return what the store says of a run: run, seed, state, step, config (JSON), directory."""
        return self._runs[experiment, fingerprint]

    def attempts(self, fingerprint: str) -> tuple[Attempt, ...]:
        """Return all attempts at a run, in their order."""
        return tuple(attempt for _, attempt in sorted(self._attempts.get(fingerprint, {}).items()))

    def _source(self, runs: Sequence[Contribution]) -> str:
        """Write how the user's own code of runs differs from that of the first of them."""
        last = [(run, run.attempts[-1].sources) for run in runs if run.attempts]
        known = [(run, sources) for run, sources in last if sources is not None]
        said: dict[str, None] = {}
        for _, sources in known[1:]:
            if diff := unified_diff(known[0][1], sources, self._texts):
                said[diff] = None
        return "\n".join(said)

    def _contribution(
        self, mine: RowParts, theirs: RowParts | None, place: int, column: Column
    ) -> Contribution:
        """What the run at a place of a row contributed to its number in a column."""
        experiment, fingerprint = mine.runs[place]
        run, seed = self.run(fingerprint, experiment), mine.seeds[place]
        return Contribution(
            experiment=experiment,
            run=str(run["run"]),
            label=mine.labels[place],
            seed=seed,
            fingerprint=fingerprint,
            value=mine.numbers([column.key], place)[column.key],
            inputs=mine.numbers(column.inputs, place),
            against=theirs.numbers(column.inputs, theirs.seeds.index(seed))
            if theirs and seed in theirs.seeds
            else {},
            state=str(run["state"]),
            step=int(run["step"]),
            directory=str(run["directory"]),
            attempts=self.attempts(fingerprint),
            retracted=self._retracted.get(fingerprint),
        )

    def _between(self, other: tuple[str, str], one: tuple[str, str]) -> Differences:
        """Config keys in which two runs differ, each given as experiment and fingerprint."""
        theirs, ours = self._config(*other), self._config(*one)
        keys = sorted({*theirs, *ours})
        return {key: (theirs.get(key), ours.get(key)) for key in keys if theirs.get(key) != ours.get(key)}

    def _config(self, experiment: str, fingerprint: str) -> dict[str, str]:
        """Dotted key → value as JSON."""
        named = (experiment, fingerprint)
        if named not in self._configs:
            config = json.loads(str(self.run(fingerprint, experiment)["config"]) or "{}")
            self._configs[named] = {
                key: json.dumps(value, ensure_ascii=False) for key, value in flat(config).items()
            }
        return self._configs[named]


def published_lines(cell: Mapping[Any, Any]) -> list[str]:
    """Describe a published cell in lines.

    Args:
        cell: As in `Explanation.published`.
    """
    where = f"{cell['source']}, table {cell['table']}, row {cell['position']}"
    details = [f"{name}: {cell[name]}" for name in ("citation", "data", "note", "check") if cell.get(name)]
    return [f"printed {cell['printed']!r} in {where}", *details]


def number(value: float | None) -> str:
    """Format a number of an explanation with six digits; a dash where there is none."""
    return "—" if value is None else f"{value:.6g}".replace("-", "−")


def _attempt(row: Mapping[Any, Any]) -> Attempt:
    """An attempt from a row of `History.attempts`."""
    import pandas as pd

    names = (
        "state", "reason", "executor", "host", "device", "started_at", "ended_at", "git_commit", "log",
        "program", "code_commit", "sources", "inputs",
    )  # fmt: skip
    fields: dict[str, Any] = {name: None if pd.isna(row[name]) else row[name] for name in names}
    for name in ("sources", "inputs"):
        fields[name] = None if fields[name] is None else json.loads(fields[name])
    for name in ("started_at", "ended_at"):
        fields[name] = None if fields[name] is None else str(fields[name])[:19]
    fields |= {"patched": bool(row["patched"]), "code_patched": bool(row["code_patched"])}
    return Attempt(**fields, number=int(row["number"]))


def _published(table: Table, row: str, column: str) -> dict[str, Any] | None:
    """What was printed in a cell; None if nothing was."""
    if table.published is None:
        return None
    cells = table.published
    found = cells[(cells["row"] == row) & (cells["column"] == column)]
    if found.empty:
        return None
    cell = found.drop(columns=["row", "column"]).iloc[0].to_dict()
    return {str(key): value.item() if hasattr(value, "item") else value for key, value in cell.items()}
