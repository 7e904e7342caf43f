"""Writing a batch of an attempt's points, scores and artifacts: what is written again stays as it is.

A point belongs to its run, its name and its step. The last write of one attempt counts, and a later
attempt's counts more than an earlier one's, whenever it arrives: so batches may be replayed at any time.
"""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from jestlab.platform.store.spool import Batch
from jestlab.platform.store.sql import insert, upsert
from jestlab.platform.store.tables import Artifact, Evaluation, Metric, MetricName, Run

_OF_POINT = ("run_id", "name_id", "step")
_OF_SCORE = ("run_id", "dataset", "metric", "step")


class Points:
    """Where the points of one run go; remembers the ids of metrics' names."""

    def __init__(self, run_id: int) -> None:
        """For the run with this id."""
        self._run_id = run_id
        self._names: dict[str, int] = {}

    def write(self, connection: Connection, batch: Batch, attempt_id: int) -> None:
        """Write a batch inside a write transaction.

        Args:
            connection: In a transaction.
            batch: What to write; its end is not looked at.
            attempt_id: Whose it is.
        """
        whose = {"run_id": self._run_id, "attempt_id": attempt_id}
        if batch.points:
            names = self._ids(connection, {name for _, name, _ in batch.points})
            points = [whose | {"name_id": names[n], "step": step, "value": v} for step, n, v in batch.points]
            upsert(connection, Metric, points, _OF_POINT, ("value", "attempt_id"), newest="attempt_id")
        scores = [whose | score for score in batch.scores]
        changed = ("value", "examples_seen", "flops_total", "attempt_id")
        upsert(connection, Evaluation, scores, _OF_SCORE, changed, newest="attempt_id")
        for artifact in batch.artifacts:
            values = {name: value for name, value in artifact.items() if name != "name"}
            connection.execute(
                insert(connection, Artifact)
                .values(run_id=self._run_id, **artifact)
                .on_conflict_do_update(index_elements=["run_id", "name"], set_=values)
            )
        if batch.progress:
            step, total_steps = batch.progress
            connection.execute(
                update(Run).where(Run.id == self._run_id).values(step=step, total_steps=total_steps)
            )

    def _ids(self, connection: Connection, wanted: set[str]) -> dict[str, int]:
        new = wanted - self._names.keys()
        if not new:
            return self._names
        found = _found(connection, new)
        self._names |= found  # not those made below: this transaction may yet fail
        if missing := new - found.keys():
            connection.execute(
                insert(connection, MetricName).on_conflict_do_nothing(),
                [{"name": name} for name in sorted(missing)],
            )
            found |= _found(connection, missing)
        return self._names | found


def _found(connection: Connection, names: set[str]) -> dict[str, int]:
    rows = connection.execute(select(MetricName.name, MetricName.id).where(MetricName.name.in_(names)))
    return dict(rows.tuples().all())
