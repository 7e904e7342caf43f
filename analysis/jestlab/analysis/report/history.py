"""How an experiment came about: its spec, its runs, every go at each of them, and what they cost."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..connection import frame

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

_STUDY = "SELECT * FROM v_experiments WHERE experiment = :experiment"
_RUNS = """
    SELECT run, label, seed, position, fingerprint, program, state, reason, step, total_steps, attempts
    FROM v_runs WHERE experiment = :experiment"""
# Without patches and environments: of thousands of attempts they would be gigabytes.
_ATTEMPTS = """
    SELECT label, seed, fingerprint, number, state, reason, executor, started_at, heartbeat_at, ended_at,
        exit_code, host, device, log, git_commit, versions,
        CASE WHEN git_patch IS NULL OR git_patch = '' THEN 0 ELSE 1 END AS patched
    FROM v_attempts WHERE experiment = :experiment"""
_COSTS = "SELECT * FROM v_costs WHERE experiment = :experiment"


@dataclass(frozen=True)
class History:
    """What the store knows besides results.

    Attributes:
        experiment: Its name.
        question: What it asks; empty if it does not say.
        paper: The figure or table of the paper that it reproduces; empty if it does not say.
        scale: The scale it was last launched at; empty if it has none.
        spec: The resolved spec.
        runs: One row a run, in the order of the study: run, label, seed, position, fingerprint, program,
            state, reason, step, total_steps, attempts.
        attempts: One row a go at a run, in the order of the runs: label, seed, fingerprint, number, state,
            reason, executor, started_at, heartbeat_at, ended_at (UTC, as text), exit_code, host, device, log,
            git_commit, versions (JSON), patched (1 where the code differed from the commit).
        costs: One row a run, all columns of `v_costs`.
    """

    experiment: str
    question: str
    paper: str
    scale: str
    spec: dict[str, Any]
    runs: pd.DataFrame
    attempts: pd.DataFrame
    costs: pd.DataFrame

    def states(self) -> dict[str, int]:
        """How many runs are in which state; a run that stands under several labels counts once."""
        counts = self.runs.drop_duplicates("fingerprint")["state"].value_counts()
        return {str(state): int(count) for state, count in counts.items()}

    def newest(self) -> str:
        """When an attempt was last heard of, UTC; empty before the first."""
        heard = self.attempts["ended_at"].fillna(self.attempts["heartbeat_at"]).dropna()
        return str(heard.max())[:19] if len(heard) else ""


def load(connection: Connection, experiment: str) -> History | None:
    """Read it.

    Args:
        connection: To the store, from `connect`.
        experiment: Its name.

    Returns:
        What is known; None if the store does not know the experiment.
    """
    studies = frame(connection, _STUDY, experiment=experiment)
    if studies.empty:
        return None
    study = studies.iloc[0]
    runs = frame(connection, _RUNS, experiment=experiment)
    runs = runs.sort_values(["position", "label", "seed"], ignore_index=True)
    order = {fingerprint: place for place, fingerprint in enumerate(runs["fingerprint"])}
    attempts = frame(connection, _ATTEMPTS, experiment=experiment)
    attempts = attempts.assign(place=attempts["fingerprint"].map(order)).sort_values(
        ["place", "label", "number"], ignore_index=True
    )
    for name in ("started_at", "heartbeat_at", "ended_at"):  # text on SQLite, times on PostgreSQL
        attempts[name] = attempts[name].map(str, na_action="ignore")
    costs = frame(connection, _COSTS, experiment=experiment)
    costs = costs.assign(place=costs["fingerprint"].map(order)).sort_values(
        ["place", "label"], ignore_index=True
    )
    amounts = [name for name in costs if str(name).endswith(("_flops", "_hours", "_dollars"))]
    return History(
        experiment,
        str(study["question"] or ""),
        str(study["paper"] or ""),
        str(study["scale"] or ""),
        json.loads(study["spec"]),
        runs,
        attempts.drop(columns="place"),
        costs.astype(dict.fromkeys(amounts, float)).drop(columns="place"),
    )
