"""Read runs from the store to export them, one at a time, with everything that they measured."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from sqlalchemy import Connection, select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.exchange.source_run import Curve, Score, curve
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    AttemptRow,
    EvaluationRow,
    ExperimentRow,
    MemberRow,
    MetricNameRow,
    MetricRow,
    NoteRow,
    RunRow,
    TagRow,
)


@dataclass(frozen=True)
class ExportedRun:
    """A run of an experiment; times are in UTC.

    Attributes:
        run: Name of the run in the experiment.
        label: Name with its values on the axes.
        reason: Why it didn't complete.
        step: Completed steps.
        began: Start of its first attempt.
        ended: End of its last attempt.
        commit: Commit of the user's code, or else of jestlab's.
        notes: Notes, oldest first.
        scores: All scores, by evaluation and step.
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
        """Label and seed."""
        return f"{self.label}/{self.seed}"

    def curves(self) -> dict[str, Curve]:
        """Return metrics and scores as curves, for formats that have only metrics.

        Scores are named DATASET/METRIC. Their costs are the curves examples_seen, flops_total, and seconds,
        unless metrics have these names.
        """
        points: defaultdict[str, dict[int, float]] = defaultdict(dict)
        costs: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for score in self.scores:
            points[score.name][score.step] = score.value
            for name in ("examples_seen", "flops_total", "seconds"):
                if (value := getattr(score, name)) is not None:
                    costs[name][score.step] = value
        scores, spent = (
            {name: curve([*values], [*values.values()]) for name, values in each.items()}
            for each in (points, costs)
        )
        return {**spent, **self.metrics, **scores}


def count(store: Store, experiments: Sequence[str]) -> int:
    """Count the runs of experiments; of all experiments if no name is given.

    Raises:
        UserError: An experiment doesn't exist, or has no runs.
    """
    with store.reading() as connection:
        return len(_members(connection, experiments))


def read(
    store: Store, experiments: Sequence[str], advance: Callable[[int], object] = lambda count: None
) -> Iterator[ExportedRun]:
    """Yield the runs of experiments in the order of the studies, one in memory at a time.

    A run with several labels in a study is yielded under each. A run that is removed from the study before it
    is read is left out.

    Without names of experiments, all are read. `advance` is called with 1 after each run.
    """
    with store.reading() as connection:
        members = _members(connection, experiments)
    for member in members:
        with store.reading() as connection:
            run = _read_run(connection, member)
        if run is not None:  # yielded outside the transaction, because writing a run can be slow
            yield run
        del run
        advance(1)


def _members(connection: Connection, experiments: Sequence[str]) -> Sequence[Any]:
    known = list(connection.scalars(select(ExperimentRow.name).order_by(ExperimentRow.name)))
    for name in experiments:
        if name not in known:
            raise UserError(f"no experiment {name!r} in the store: {nearest(name, known)}")
    query = select(MemberRow.experiment, MemberRow.run_id, MemberRow.label)
    query = query.order_by(MemberRow.experiment, MemberRow.position, MemberRow.label)
    if experiments:
        query = query.where(MemberRow.experiment.in_(experiments))
    if not (members := connection.execute(query).all()):
        raise UserError("there are no runs to export: launch a study first")
    return members


def _read_run(connection: Connection, member: Any) -> ExportedRun | None:
    key = member.run_id
    query = (
        select(
            MemberRow.experiment, ExperimentRow.question, MemberRow.name.label("run"), MemberRow.label,
            RunRow.seed, RunRow.fingerprint, RunRow.program, RunRow.state, RunRow.reason, RunRow.step,
            RunRow.config,
        )
        .join(ExperimentRow, ExperimentRow.name == MemberRow.experiment)
        .join(RunRow, RunRow.id == MemberRow.run_id)
        .where(MemberRow.experiment == member.experiment, MemberRow.run_id == key)
        .where(MemberRow.label == member.label)
    )  # fmt: skip
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    columns = (AttemptRow.started_at, AttemptRow.ended_at, AttemptRow.code_commit, AttemptRow.git_commit)
    attempts = connection.execute(
        select(*columns).where(AttemptRow.run_id == key).order_by(AttemptRow.number)
    ).all()
    notes = select(NoteRow.text).where(NoteRow.run_id == key).order_by(NoteRow.created_at)
    order = (EvaluationRow.dataset, EvaluationRow.metric, EvaluationRow.step)
    costs = (EvaluationRow.examples_seen, EvaluationRow.flops_total, EvaluationRow.seconds)
    scores = connection.execute(
        select(*order, EvaluationRow.value, *costs).where(EvaluationRow.run_id == key).order_by(*order)
    )
    return ExportedRun(
        **{**row._mapping, "state": RunState(row.state), "config": json.loads(row.config)},
        began=next((one.started_at for one in attempts if one.started_at is not None), None),
        ended=attempts[-1].ended_at if attempts else None,
        commit=attempts[-1].code_commit or attempts[-1].git_commit if attempts else None,
        tags=sorted(connection.scalars(select(TagRow.name).where(TagRow.run_id == key))),
        notes=list(connection.scalars(notes)),
        metrics=dict(_curves(connection, key)),
        scores=[Score(*one[:3], _number(one.value), *one[4:]) for one in scores],
    )


def _curves(connection: Connection, key: int) -> Iterator[tuple[str, Curve]]:
    names = dict(connection.execute(select(MetricNameRow.id, MetricNameRow.name)).tuples().all())
    query = select(MetricRow.name_id, MetricRow.step, MetricRow.value).where(MetricRow.run_id == key)
    rows = connection.execute(query.order_by(MetricRow.name_id, MetricRow.step))
    for name, points in groupby(rows, attrgetter("name_id")):
        _, steps, values = zip(*points, strict=True)
        yield names[name], curve(steps, [*map(_number, values)])


def _number(value: float | None) -> float:
    return np.nan if value is None else value
