"""Writes points of curves: by far the most rows of a store, so that here every microsecond counts."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from sqlalchemy import Connection, text

Point = tuple[int, int, float | None]
"""Id of the metric's name, step, value: None for NaN."""

_ON_CONFLICT = {
    False: "ON CONFLICT (run_id, name_id, step) DO UPDATE SET value = excluded.value",
    True: "ON CONFLICT (run_id, name_id, step) DO NOTHING",
}
_SQLITE = {
    keep: f"INSERT INTO metric (run_id, name_id, step, value) VALUES (?, ?, ?, ?) {what}"
    for keep, what in _ON_CONFLICT.items()
}
# One array a column: one statement for all rows, where `executemany` sends one a row.
_POSTGRESQL = {
    keep: text(
        "INSERT INTO metric (run_id, name_id, step, value) SELECT :run, given.name, given.step, given.value "
        "FROM unnest(CAST(:names AS integer[]), CAST(:steps AS bigint[]), "
        f"CAST(:values AS double precision[])) AS given (name, step, value) {what}"
    )
    for keep, what in _ON_CONFLICT.items()
}


def write_points(connection: Connection, run_id: int, points: Sequence[Point], *, keep: bool = False) -> None:
    """Write points of a run, inside a write transaction; of several at a step the last counts.

    They go to the driver as plain columns and in the order of the table: rows as mappings take several times
    as long, and pages that are filled from end to end hold a sixth more.

    Args:
        connection: In a write transaction.
        run_id: The run.
        points: In the order in which they were recorded.
        keep: Whether a point that is there stays as it is.
    """
    if not points:
        return
    last = {(name, step): value for name, step, value in points}
    ordered = sorted(last.items(), key=itemgetter(0))
    if connection.dialect.name == "sqlite":
        rows = [(run_id, name, step, value) for (name, step), value in ordered]
        connection.exec_driver_sql(_SQLITE[keep], rows)
        return
    places, values = zip(*ordered, strict=True)
    names, steps = zip(*places, strict=True)
    columns = {"run": run_id, "names": list(names), "steps": list(steps), "values": list(values)}
    connection.execute(_POSTGRESQL[keep], columns)
