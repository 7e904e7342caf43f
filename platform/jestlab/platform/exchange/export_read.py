"""Read runs from the store to export them, one at a time, with everything that they measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import nan
from typing import Any

from sqlalchemy import Connection, RowMapping, select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.exchange.source_run import Curve, Score, curves
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import AttemptRow as Attempt
from jestlab.platform.store.tables import EvaluationRow as Evaluation
from jestlab.platform.store.tables import ExperimentRow as Experiment
from jestlab.platform.store.tables import MemberRow, MetricNameRow, MetricRow, NoteRow, RunRow, TagRow


@dataclass(frozen=True)
class ExportedRun:
    """A run of an experiment; times are in UTC.

    Attributes:
        run: Name of the run in the experiment.
        label: Name of the run with its values on the study's axes.
        reason: Why the run didn't complete.
        step: Number of completed steps.
        began: Start of the first attempt.
        ended: End of the last attempt.
        commit: Commit of the user's code, or else of jestlab's.
        notes: Notes, oldest first.
        scores: All scores, ordered by evaluation and step.
    """

    experiment: str
    question: str
    run: str
    label: str
    seed: int
    fingerprint: str
    program: str
    state: RunState
    reason: str | None
    step: int
    config: Mapping[str, Any]
    began: datetime | None
    ended: datetime | None
    commit: str | None
    tags: Sequence[str]
    notes: Sequence[str]
    metrics: Mapping[str, Curve]
    scores: Sequence[Score]

    @property
    def title(self) -> str:
        """The label and the seed: LABEL/SEED."""
        return f"{self.label}/{self.seed}"

    def curves(self) -> dict[str, Curve]:
        """Return metrics and scores as curves, for formats that have only metrics.

        Scores are named DATASET/METRIC. Their costs are the curves examples_seen, flops_total, and seconds,
        unless metrics have these names.
        """
        costs = curves(
            (name, score.step, value)
            for score in self.scores
            for name, value in list(score._asdict().items())[4:]
            if value is not None
        )
        return {**costs, **self.metrics, **curves((one.name, one.step, one.value) for one in self.scores)}


_RUNS = (
    select(
        MemberRow.experiment, Experiment.question, MemberRow.name.label("run"), MemberRow.label, RunRow.seed,
        RunRow.fingerprint, RunRow.program, RunRow.state, RunRow.reason, RunRow.step, RunRow.config,
    )
    .select_from(MemberRow)
    .join(Experiment, Experiment.name == MemberRow.experiment)
    .join(RunRow, RunRow.id == MemberRow.run_id)
)  # fmt: skip


Member = tuple[str, int, str]
"""Experiment, key of the run, and label."""


def members(store: Store, experiments: Sequence[str]) -> Sequence[Member]:
    """Return the runs of experiments, in the order of each study; of all experiments if none is given.

    Raises:
        UserError: An experiment doesn't exist, or none of them has runs.
    """
    with store.reading() as connection:
        known = list(connection.scalars(select(Experiment.name)))
        for name in experiments:
            if name not in known:
                raise UserError(f"no experiment {name!r} in the store: {nearest(name, known)}")
        query = (
            select(MemberRow.experiment, MemberRow.run_id, MemberRow.label)
            .where(MemberRow.experiment.in_(experiments or known))
            .order_by(MemberRow.experiment, MemberRow.position, MemberRow.label)
        )
        if not (rows := connection.execute(query).tuples().all()):
            raise UserError("there are no runs to export: launch a study first")
    return rows


def read(
    store: Store, members: Sequence[Member], advance: Callable[[int], object] = lambda count: None
) -> Iterator[ExportedRun]:
    """Yield the run of each member, with only one run in memory at a time.

    A run that was removed from its study in the meantime is left out. `advance(1)` is called after each one.
    """
    for experiment, key, label in members:
        with store.reading() as connection:
            own = (MemberRow.experiment == experiment, MemberRow.run_id == key, MemberRow.label == label)
            row = connection.execute(_RUNS.where(*own)).mappings().one_or_none()
            run = None if row is None else _read_run(connection, key, row)
        if run is not None:  # yielded outside the transaction, because writing a run can be slow
            yield run
        del run
        advance(1)


def _read_run(connection: Connection, key: int, row: RowMapping) -> ExportedRun:
    columns = (Attempt.started_at, Attempt.ended_at, Attempt.code_commit, Attempt.git_commit)
    attempts = connection.execute(
        select(*columns).where(Attempt.run_id == key).order_by(Attempt.number)
    ).all()
    last = attempts[-1] if attempts else None
    notes = select(NoteRow.text).where(NoteRow.run_id == key).order_by(NoteRow.created_at)
    points = (
        select(MetricNameRow.name, MetricRow.step, MetricRow.value)
        .join(MetricRow, MetricRow.name_id == MetricNameRow.id)
        .where(MetricRow.run_id == key)
    )
    scores = (
        select(*(getattr(Evaluation, name) for name in Score._fields))
        .where(Evaluation.run_id == key)
        .order_by(Evaluation.dataset, Evaluation.metric, Evaluation.step)
    )
    return ExportedRun(
        **{**row, "state": RunState(row["state"]), "config": json.loads(row["config"])},
        began=next((one.started_at for one in attempts if one.started_at is not None), None),
        ended=last and last.ended_at,
        commit=last and (last.code_commit or last.git_commit),
        tags=sorted(connection.scalars(select(TagRow.name).where(TagRow.run_id == key))),
        notes=list(connection.scalars(notes)),
        metrics=curves((name, step, _number(value)) for name, step, value in connection.execute(points)),
        scores=[Score(*one)._replace(value=_number(one.value)) for one in connection.execute(scores)],
    )


def _number(value: float | None) -> float:
    return nan if value is None else value
