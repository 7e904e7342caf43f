"""How an experiment came about (its spec, runs, attempts and costs), and how to reproduce it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..connection import frame
from ..frames import imported_from

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

_STUDY = "SELECT * FROM v_experiments WHERE experiment = :experiment"
_RUNS = """
    SELECT run, label, seed, position, fingerprint, program, state, reason, step, total_steps, attempts,
        config, directory
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
    """What the store knows of an experiment besides results.

    Attributes:
        experiment: Name of the experiment.
        question: What it asks; empty if it does not say.
        paper: Figure or table of the paper that it reproduces; empty if it does not say.
        scale: Scale of its last launch; empty if it has none.
        spec: The resolved spec.
        imported_from: Name of the archive that it came from; None if it was launched here.
        runs: One row a run, in the order of the study: run, label, seed, position, fingerprint, program,
            state, reason, step, total_steps, attempts, config (JSON), directory (relative to the lab's root).
        attempts: One row an attempt, in the order of the runs: label, seed, fingerprint, number, state,
            reason, executor, started_at, heartbeat_at, ended_at (UTC, as text), exit_code, host, device, log,
            git_commit, versions (JSON), patched (1 where the code differed from the commit).
        costs: One row a run, all columns of `v_costs`.
    """

    experiment: str
    question: str
    paper: str
    scale: str
    spec: dict[str, Any]
    imported_from: str | None
    runs: pd.DataFrame
    attempts: pd.DataFrame
    costs: pd.DataFrame

    def states(self) -> dict[str, int]:
        """Count runs by state; a run that occurs under several labels counts once."""
        counts = self.runs.drop_duplicates("fingerprint")["state"].value_counts()
        return {str(state): int(count) for state, count in counts.items()}

    def newest(self) -> str:
        """Return when an attempt was last heard of, UTC; empty before the first."""
        heard = self.attempts["ended_at"].fillna(self.attempts["heartbeat_at"]).dropna()
        return str(heard.max())[:19] if len(heard) else ""


def load(connection: Connection, experiment: str) -> History | None:
    """Read the history of an experiment.

    Args:
        connection: To the store, from `connect`.
        experiment: Name of the experiment.

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

    def in_order(rows: pd.DataFrame, *by: str) -> pd.DataFrame:
        ordered = rows.assign(place=rows["fingerprint"].map(order))
        return ordered.sort_values(["place", "label", *by], ignore_index=True).drop(columns="place")

    attempts = in_order(frame(connection, _ATTEMPTS, experiment=experiment), "number")
    for name in ("started_at", "heartbeat_at", "ended_at"):  # text on SQLite, times on PostgreSQL
        attempts[name] = attempts[name].map(str, na_action="ignore")
    costs = in_order(frame(connection, _COSTS, experiment=experiment))
    amounts = [name for name in costs if str(name).endswith(("_flops", "_hours", "_dollars"))]
    return History(
        experiment=experiment,
        question=str(study["question"] or ""),
        paper=str(study["paper"] or ""),
        scale=str(study["scale"] or ""),
        spec=json.loads(study["spec"]),
        imported_from=imported_from(connection, experiment),
        runs=runs,
        attempts=attempts,
        costs=costs.astype(dict.fromkeys(amounts, float)),
    )


@dataclass(frozen=True)
class Recipe:
    """What somebody needs to reproduce an experiment.

    Attributes:
        spec: The resolved spec as YAML.
        commands: Commands in the order they are run.
        code: Code that ran, most attempts first: a line for each commit and its machines.
        versions: Package → versions, over all attempts.
        caveats: What differs between attempts, or is not known.
    """

    spec: str
    commands: tuple[str, ...]
    code: tuple[str, ...]
    versions: dict[str, str]
    caveats: tuple[str, ...]


def recipe(history: History, baseline: str | None, scope: str) -> Recipe:
    """Describe how to reproduce an experiment.

    Args:
        history: Of the experiment.
        baseline: Baseline that the report was requested with.
        scope: Cost scope that the report was requested with.
    """
    import yaml

    attempts = history.attempts[history.attempts["started_at"].notna()]
    name = shlex.quote(history.experiment)
    options = f" --baseline {shlex.quote(baseline)}" if baseline else ""
    options += f" --scope {scope}" if scope != "scoring" else ""
    ran = zip(attempts["git_commit"], attempts["patched"], attempts["device"], strict=True)
    counts = Counter((_known(commit), bool(patched), _known(device)) for commit, patched, device in ran)
    caveats = []
    if history.imported_from is not None:
        caveats.append(f"The experiment was imported from {history.imported_from}: others have run it.")
    if attempts["patched"].any():
        caveats.append(
            "The code had uncommitted changes, which the store keeps: "
            f"jestlab query \"SELECT git_patch FROM v_attempts WHERE experiment = '{history.experiment}'\""
        )
    if attempts["git_commit"].nunique() > 1:
        caveats.append("Not all runs were made by the same commit.")
    return Recipe(
        spec=yaml.safe_dump(history.spec, sort_keys=False, allow_unicode=True, width=100),
        commands=(
            "jestlab launch study.yaml",
            *(f"jestlab {verb} {name}{options}" for verb in ("table", "plot", "report")),
        ),
        code=tuple(_code_line(*where, attempts=count) for where, count in counts.most_common()),
        versions=_versions(list(attempts["versions"].dropna().unique())),
        caveats=tuple(caveats),
    )


def _known(text: object) -> str:
    return text if isinstance(text, str) else ""


def _code_line(commit: str, patched: bool, device: str, attempts: int) -> str:
    changes = " with uncommitted changes" if patched else ""
    code = f"commit {commit[:12]}{changes}" if commit else "code of unknown commit"
    count = f"{attempts} {'attempt' if attempts == 1 else 'attempts'}"
    return f"{code} on {device or 'an unknown device'}: {count}"


def _versions(documents: list[str]) -> dict[str, str]:
    """Package → its version, or its versions."""
    seen: dict[str, dict[str, None]] = {}
    for document in documents:
        for package, version in json.loads(document).items():
            seen.setdefault(str(package), {})[str(version)] = None
    return {package: ", ".join(found) for package, found in sorted(seen.items())}
