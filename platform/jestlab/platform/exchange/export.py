"""Runs with all that they have measured, read from the store one by one."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from jestlab.platform.errors import UserError, nearest
from jestlab.platform.exchange.source_run import Score
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import (
    Attempt,
    Evaluation,
    Experiment,
    Member,
    Metric,
    MetricName,
    Note,
    Run,
    Tag,
)

Points = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
"""Steps, ascending, and the values at them."""

_POINT = np.dtype([("step", np.int64), ("value", np.float64)])


@dataclass(frozen=True)
class Result:
    """A run of an experiment.

    Attributes:
        experiment: Name of the experiment.
        question: What the experiment asks.
        run: Name of the run in it.
        label: Its name with its values on the axes.
        seed: Replicate.
        fingerprint: Its identity.
        program: What it executes.
        state: Where it stands.
        reason: Why it did not complete.
        step: Steps done.
        config: As planned, nested.
        began: When its first attempt began, UTC; None if it has not.
        ended: When its last attempt ended, UTC; None if it has not.
        commit: Of the user's code, or else of jestlab's.
        tags: Its tags.
        notes: What was written about it, oldest first.
        metrics: Name → curve.
        scores: All of them, by evaluation and step.
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
    metrics: Mapping[str, Points]
    scores: Sequence[Score]

    @property
    def title(self) -> str:
        """Its label and seed."""
        return f"{self.label}/{self.seed}"

    def curves(self) -> dict[str, Points]:
        """Return all that it has measured as curves, for formats that have nothing else.

        Scores are named dataset/metric. What training had taken at them is in examples_seen, flops_total and
        seconds. A score replaces a metric of its name, and a metric what would be in those three.
        """
        scores: defaultdict[str, dict[int, float]] = defaultdict(dict)
        efforts: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for score in self.scores:
            scores[score.name][score.step] = score.value
            for name in ("examples_seen", "flops_total", "seconds"):
                if (taken := getattr(score, name)) is not None:
                    efforts[name][score.step] = taken
        return {**_as_curves(efforts), **self.metrics, **_as_curves(scores)}


def count(store: Store, experiments: Sequence[str]) -> int:
    """Count the runs of experiments, of all if none is named.

    Raises:
        UserError: There is no such experiment, or nothing at all.
    """
    with store.reading() as connection:
        return len(_places(connection, experiments))


def read(store: Store, experiments: Sequence[str]) -> Iterator[Result]:
    """Yield the runs of experiments, of all if none is named, in the order of the studies.

    A run is read when its turn comes; memory holds one at a time. A run that stands in a study under several
    labels is yielded under each. One that was taken out of the study meanwhile is left out.
    """
    with store.reading() as connection:
        places = _places(connection, experiments)
    for place in places:
        with store.reading() as connection:
            result = _result(connection, place)
        # The transaction is over by now: writing the run may take long.
        if result is not None:
            yield result


def _places(connection: Connection, experiments: Sequence[str]) -> list[Any]:
    known = list(connection.scalars(select(Experiment.name).order_by(Experiment.name)))
    for name in experiments:
        if name not in known:
            raise UserError(f"no experiment {name!r} in the store: {nearest(name, known)}")
    query = (
        select(Member.experiment, Member.run_id, Member.label)
        .join(Experiment, Experiment.name == Member.experiment)
        .order_by(Experiment.name, Member.position, Member.label)
    )
    if experiments:
        query = query.where(Experiment.name.in_(experiments))
    if not (places := list(connection.execute(query))):
        raise UserError("there are no runs to export: launch a study first")
    return places


def _result(connection: Connection, place: Any) -> Result | None:
    query = (
        select(
            Experiment.name, Experiment.question, Member.name.label("run"), Member.label, Run.seed,
            Run.fingerprint, Run.program, Run.state, Run.reason, Run.step, Run.config,
        )
        .join(Experiment, Experiment.name == Member.experiment)
        .join(Run, Run.id == Member.run_id)
        .where(Member.experiment == place.experiment, Member.run_id == place.run_id)
        .where(Member.label == place.label)
    )  # fmt: skip
    found = connection.execute(query).one_or_none()
    if found is None:
        return None
    run_id = place.run_id
    of_run = select(Attempt.started_at, Attempt.ended_at, Attempt.code_commit, Attempt.git_commit)
    attempts = connection.execute(of_run.where(Attempt.run_id == run_id).order_by(Attempt.number)).all()
    began = [one.started_at for one in attempts if one.started_at is not None]
    commits = [one.code_commit or one.git_commit for one in attempts]
    notes = select(Note.text).where(Note.run_id == run_id).order_by(Note.created_at, Note.id)
    return Result(
        experiment=found.name,
        question=found.question,
        run=found.run,
        label=found.label,
        seed=found.seed,
        fingerprint=found.fingerprint,
        program=found.program,
        state=RunState(found.state),
        reason=found.reason,
        step=found.step,
        config=json.loads(found.config),
        began=began[0] if began else None,
        ended=attempts[-1].ended_at if attempts else None,
        commit=commits[-1] if commits else None,
        tags=sorted(connection.scalars(select(Tag.name).where(Tag.run_id == run_id))),
        notes=list(connection.scalars(notes)),
        metrics=dict(_curves(connection, run_id)),
        scores=list(_scores(connection, run_id)),
    )


def _curves(connection: Connection, run_id: int) -> Iterator[tuple[str, Points]]:
    names = dict(connection.execute(select(MetricName.id, MetricName.name)).tuples().all())
    query = (
        select(Metric.name_id, Metric.step, Metric.value)
        .where(Metric.run_id == run_id)
        .order_by(Metric.name_id, Metric.step)
    )
    for name_id, rows in groupby(connection.execute(query), attrgetter("name_id")):
        points = np.fromiter(((row.step, _number(row.value)) for row in rows), _POINT)
        yield names[name_id], (points["step"], points["value"])


def _scores(connection: Connection, run_id: int) -> Iterator[Score]:
    order = (Evaluation.dataset, Evaluation.metric, Evaluation.step)
    efforts = (Evaluation.examples_seen, Evaluation.flops_total, Evaluation.seconds)
    query = select(*order, Evaluation.value, *efforts).where(Evaluation.run_id == run_id).order_by(*order)
    for row in connection.execute(query):
        yield Score(*row[:3], _number(row.value), *row[4:])


def _as_curves(points: Mapping[str, Mapping[int, float]]) -> dict[str, Points]:
    curves = {}
    for name, curve in points.items():
        found = np.fromiter(sorted(curve.items()), _POINT)
        curves[name] = (found["step"], found["value"])
    return curves


def _number(value: float | None) -> float:
    return np.nan if value is None else value
