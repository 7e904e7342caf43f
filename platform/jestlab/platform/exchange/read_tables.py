"""Reads runs from tables in CSV and Parquet files, of whatever tool or spreadsheet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jestlab.platform.errors import UserError, nearest, shown
from jestlab.platform.exchange.damage import Damaged, attempted, refuse
from jestlab.platform.exchange.source_run import Curve, FoundRun, nested, whole
from jestlab.platform.exchange.tables import Table, is_number, parsed, table
from jestlab.platform.words import on_one_line

_PREFIX = "config."
_REPLACED = "points that a later row of the same step replaced"


def read(
    path: Path,
    run: Sequence[str] = (),
    step: str = "step",
    config: Sequence[str] = (),
    source: str | None = None,
    seed: str = "seed",
    damaged: Damaged = refuse,
) -> Iterator[FoundRun]:
    """Yield the runs in a table.

    A table that has the column `step` has a row for each step of each run, in any order. A table without it
    has a row for each run, whose metrics are at step 0.

    What names a run is its row's cell in the column `run`, or its cells in the columns that are given. If
    several are given, they are config, too. Without such a column a table with steps is one run, named like
    the file; in a table without steps the runs are numbered from 1.

    Each other column is config or a metric:

    - A column `config.x.y` is config, at the key x.y. In Parquet it may be in a structure `config`.
    - The columns that are given as `config`, and that of seeds, are config.
    - If none are given, a column of mostly texts or truth values is config, if its cells are the same in all
      rows of each run. In a table with steps a column of numbers is config if each run that has any cells
      in it has the same number in all its rows, if that is so in a run of several rows, and if the number
      differs among runs.
    - All others are metrics, with the exception of those that are mostly texts: those are left out, and are
      counted in each run's `left_out`, as are points that a later row of the same step replaced. NaN is a
      point.

    Cells of a CSV file are numbers, `true` or `false`, or else texts. Nothing says how a run ended: it is
    COMPLETED. The whole table is in memory.

    Args:
        path: The file.
        run: Columns that name a run together.
        step: Column that has the step.
        config: Columns that are config, if not to be found by the rule.
        source: Name of the table in the origins of its runs; None for that of the file.
        seed: Column that has the seeds, if there is one.
        damaged: Told of a run with a cell that is not what its column needs; the run is left out.

    Raises:
        UserError: A column is missing; there are no metrics; or nothing tells rows apart.
    """
    found = table(path, tuple(run) or ("run",), (*(run or ("run",)), step, seed, *config))
    for name in (*run, *config, *([step] if step != "step" else [])):
        if name not in found.columns:
            raise UserError(on_one_line(f"{path}: no column {name}: {nearest(name, found.columns)}"))
    named = tuple(run) or (("run",) if "run" in found.columns else ())
    has_steps = step in found.columns
    rows = _rows_of_runs(found, named, has_steps)
    left = [name for name in found.columns if name not in named and not (has_steps and name == step)]
    configs, metrics, texts = _divided(found, left, (seed, *config), list(rows.values()), has_steps)
    if not (named or has_steps or configs) and len(rows) > 1:
        raise UserError(f"{path}: no column step or run: name it with --step COLUMN or --run COLUMNS")

    def built(key: tuple[str, ...], mine: Sequence[int]) -> FoundRun:
        steps = _steps(found, step, mine) if has_steps else [0] * len(mine)
        if not named and has_steps:
            _refuse_two_rows(found, step, steps)
        values = {own: _only(found, name, mine) for own, name in configs.items()}
        if not metrics and not texts:  # after the check of the config, which says more
            raise UserError(
                f"{path}: no metrics: expected numbers in a column; --config names those of config"
            )
        if len(named) > 1:
            values |= {name: parsed(part) for name, part in zip(named, key, strict=True)}
        curves = _metrics(found, metrics, mine, steps)
        left_out = Counter[str]()
        for name, reason in (texts | dict.fromkeys(curves, _REPLACED)).items():
            left_out[reason] += sum(found.columns[name][row] is not None for row in mine)
        left_out[_REPLACED] -= sum(len(curve.steps) for curve in curves.values())
        parts = [repr(part) if ", " in part else part for part in key]
        return FoundRun(
            origin=_origin(found, key, source or path.name),
            name=key[0] if len(key) == 1 else ", ".join(map("=".join, zip(named, parts, strict=True))),
            config=nested({name: value for name, value in values.items() if value is not None}),
            metrics=curves,
            state="COMPLETED",
            left_out=+left_out,
        )

    for key, mine in rows.items():
        if (one := attempted(damaged, path, partial(built, key, mine))) is not None:
            yield one


def _divided(
    found: Table, names: Sequence[str], config: Sequence[str], runs: Sequence[Sequence[int]], has_steps: bool
) -> tuple[dict[str, str], list[str], dict[str, str]]:
    """Divide columns into config (first in `config`: seeds) by key, metrics, and others with the reason."""
    configs, metrics, texts = dict[str, str](), [], {}
    for name in names:
        is_given = name in config or (name.startswith(_PREFIX) and name != _PREFIX)
        if is_given or (len(config) == 1 and _is_config(found.columns[name], runs, has_steps)):
            other = configs.setdefault(name.removeprefix(_PREFIX), name)
            if other != name:
                raise UserError(on_one_line(f"{found.path}: {other} and {name} are one key: rename a column"))
            continue
        filled = [cell for cell in found.columns[name] if cell is not None]
        texts_of = [cell for cell in filled if not isinstance(cell, int | float)]
        if len(texts_of) * 2 <= len(filled):
            metrics += [name] if filled else []
        else:
            text = texts_of[0]
            plain = "numbers with a decimal point" if "," in text else "plain numbers, such as 1234.5"
            remedy = f"write {plain}" if is_number(text) else "not numbers"
            texts[name] = on_one_line(f"cells of column {shown(name)}, such as {shown(text)}: {remedy}")
    return configs, metrics, texts


def _metrics(
    found: Table, names: Sequence[str], rows: Sequence[int], steps: Sequence[int]
) -> dict[str, Curve]:
    """Return the curves of a run whose rows are at some steps.

    Raises:
        UserError: A cell is no number.
    """
    curves = {}
    for name in sorted(names):
        cells = found.columns[name]
        filled = [(row, at) for row, at in zip(rows, steps, strict=True) if cells[row] is not None]
        for row, _ in filled:
            if not isinstance(cells[row], int | float):
                raise UserError(
                    f"{found.place(row, name)}: expected a number, as in most rows, got {shown(cells[row])}: "
                    "correct it, leave it empty, or name the columns of the config with --config"
                )
        if filled:
            curves[name] = Curve.of([at for _, at in filled], [float(cells[row]) for row, _ in filled])
    return curves


def _rows_of_runs(found: Table, named: Sequence[str], has_steps: bool) -> dict[tuple[str, ...], list[int]]:
    """Return what names each run → its rows, in the order of the file."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for row in range(len(found.lines)):
        key = (found.path.stem if has_steps else str(row + 1),)
        if named:
            key = tuple(found.columns[name][row] for name in named)
            if None in key:
                empty = found.place(row, named[key.index(None)])
                raise UserError(f"{empty}: expected the name of a run, got an empty cell")
        mine = rows.setdefault(key, [])
        if mine and not has_steps:
            raise UserError(
                f"{found.place(row, named[0])}: a second row of run {shown(key[0])}, and there is no column "
                "of steps: name that with --step, or more columns that tell runs apart with --run"
            )
        mine.append(row)
    return rows


def _steps(found: Table, step: str, rows: Sequence[int]) -> list[int]:
    steps = []
    for row in rows:
        cell = found.columns[step][row]
        try:
            # As a text, 1.000 may be a thousand.
            steps.append(whole(None if isinstance(cell, str) and "." in cell else cell))
        except ValueError as error:
            raise UserError(
                f"{found.place(row, step)}: expected a step, a whole number, got {shown(cell)}"
            ) from error
    return steps


def _refuse_two_rows(found: Table, step: str, steps: Sequence[int]) -> None:
    seen: dict[int, int] = {}
    for row, one in enumerate(steps):
        if (first := seen.setdefault(one, row)) != row:
            raise UserError(
                f"{found.place(row, step)}: step {one} again, after that of line {found.lines[first]}: "
                "if the table has several runs, name the columns that tell them apart with --run"
            )


def _is_config(cells: Sequence[Any], runs: Sequence[Sequence[int]], has_steps: bool) -> bool:
    """Return whether a column is config by the rule that `read` tells."""
    filled = [cell for cell in cells if cell is not None]
    is_text = sum(map(is_number, filled)) * 2 < len(filled)
    if not has_steps:
        return is_text
    values = [[cells[row] for row in rows] for rows in runs]
    own = [mine for mine in values if any(cell is not None for cell in mine)]
    if not all(_same(mine) for mine in own):
        return False
    differ = any(mine[0] != own[0][0] for mine in own)
    return is_text or (differ and any(len(mine) > 1 for mine in own))


def _same(cells: Sequence[Any]) -> bool:
    # True == 1 in Python, but they are not the same in a file.
    return all(cell == cells[0] and isinstance(cell, bool) == isinstance(cells[0], bool) for cell in cells)


def _only(found: Table, name: str, rows: Sequence[int]) -> Any:
    """Return the only value that a run has in a column of the config; None if it has none.

    Raises:
        UserError: It has several values.
    """
    filled = [row for row in rows if found.columns[name][row] is not None]
    cells = [found.columns[name][row] for row in filled]
    for row, cell in zip(filled, cells, strict=True):
        # NaN does not equal itself.
        if not _same([cells[0], cell]) and not (cell != cell and cells[0] != cells[0]):
            raise UserError(
                f"{found.place(row, name)}: expected {shown(cells[0])}, as before in this run, got "
                f"{shown(cell)}: name the columns that tell runs apart with --run, or other --config"
            )
    return cells[0] if cells else None


def _origin(found: Table, key: tuple[str, ...], source: str) -> str:
    # Parts are quoted where they are joined, so that "a/b", "c" and "a", "b/c" are different runs.
    run = "/".join(quote(part, safe="") for part in key) if len(key) > 1 else key[0]
    return f"{found.kind}:{source}#{run}"
