"""How an experiment came about (its spec, runs, attempts and costs), and how to reproduce it."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..connection import frame
from ..costs.goodput import QUERY, AttemptTime
from ..names import Shown, names_in
from ..results import Snapshot, opens_store
from ..soundness import retractions
from .code import OWN_PROGRAMS, digests_of, names_of

if TYPE_CHECKING:
    import pandas as pd
    from sqlalchemy import Connection

_STUDY = "SELECT * FROM v_experiments WHERE experiment = :experiment"
_RUNS = """
    SELECT run, label, seed, position, fingerprint, program, state, reason, step, total_steps, attempts,
        point, config, directory
    FROM v_runs WHERE experiment = :experiment"""
# Without patches and environments: of thousands of attempts they would be gigabytes.
_ATTEMPTS = """
    SELECT label, seed, fingerprint, number, state, reason, executor, started_at, heartbeat_at, ended_at,
        exit_code, host, device, log, git_commit, versions, code_commit, sources, inputs,
        CASE WHEN git_patch IS NULL OR git_patch = '' THEN 0 ELSE 1 END AS patched,
        CASE WHEN code_patch IS NULL OR code_patch = '' THEN 0 ELSE 1 END AS code_patched
    FROM v_attempts WHERE experiment = :experiment"""

_ACCEPTED = """
    SELECT accepted, reason, author, created_at FROM v_acceptances WHERE experiment = :experiment"""

_TEXTS = "SELECT sha256, text FROM v_sources WHERE sha256 IN :names"

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
            state, reason, step, total_steps, attempts, point and config (JSON), directory (relative to the
            lab's root).
        attempts: One row an attempt, in the order of the runs: label, seed, fingerprint, number, state,
            reason, executor, started_at, heartbeat_at, ended_at (UTC, as text), exit_code, host, device, log,
            git_commit, versions (JSON), patched (1 where jestlab's code differed from the commit), and of the
            user's own code code_commit, code_patched, sources and inputs (file → SHA-256, JSON); program.
        retracted: Fingerprint → why the run's results are wrong.
        accepted: Differences that somebody accepted, a line each.
        costs: One row a run, all columns of `v_costs`.
        times: Where the time of each attempt went, in the order of the runs.
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
    retracted: Mapping[str, str] = field(default_factory=dict)
    accepted: tuple[str, ...] = ()
    times: tuple[AttemptTime, ...] = ()

    @cached_property
    def shown(self) -> Shown:
        """Label → the name that tables and figures show."""
        return names_in(self.spec, self.runs).shown

    def states(self) -> dict[str, int]:
        """Count runs by state; a run that occurs under several labels counts once."""
        counts = self.runs.drop_duplicates("fingerprint")["state"].value_counts()
        return {str(state): int(count) for state, count in counts.items()}

    def newest(self) -> str:
        """Return when an attempt was last heard of, UTC; empty before the first."""
        heard = self.attempts["ended_at"].fillna(self.attempts["heartbeat_at"]).dropna()
        return str(heard.max())[:19] if len(heard) else ""


@opens_store
def load(store: Snapshot, experiment: str) -> History | None:
    """Read the history of an experiment.

    Args:
        store: The store.
        experiment: Name of the experiment.

    Returns:
        What is known; None if the store does not know the experiment.
    """
    connection = store.connection
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
    programs = dict(zip(runs["fingerprint"], runs["program"], strict=True))
    attempts["program"] = attempts["fingerprint"].map(programs)
    accepted = frame(connection, _ACCEPTED, experiment=experiment).to_dict("records")
    for name in ("started_at", "heartbeat_at", "ended_at"):  # text on SQLite, times on PostgreSQL
        attempts[name] = attempts[name].map(str, na_action="ignore")
    costs = in_order(frame(connection, _COSTS, experiment=experiment))
    times = in_order(frame(connection, QUERY, experiment=experiment), "number").to_dict("records")
    amounts = [name for name in costs if str(name).endswith(("_flops", "_hours", "_dollars"))]
    return History(
        experiment=experiment,
        question=str(study["question"] or ""),
        paper=str(study["paper"] or ""),
        scale=str(study["scale"] or ""),
        spec=json.loads(study["spec"]),
        imported_from=store.imported_from(experiment),
        runs=runs,
        attempts=attempts,
        costs=costs.astype(dict.fromkeys(amounts, float)),
        retracted=retractions(connection, experiment),
        accepted=tuple(
            f"{row['author']} accepted on {str(row['created_at'])[:10]} that "
            f"{names_of(json.loads(row['accepted']))} differs: {' '.join(str(row['reason']).split())}"
            for row in accepted
        ),
        times=tuple(map(AttemptTime.of, times)),
    )


def sources_in(connection: Connection, digests: Collection[str]) -> dict[str, str]:
    """Return the text of files of users' code by their digests, as far as the store has it."""
    if not digests:
        return {}
    rows = frame(connection, _TEXTS, names=sorted(digests))
    return dict(zip(rows["sha256"].map(str), rows["text"].map(str), strict=True))


@dataclass(frozen=True)
class Recipe:
    """What somebody needs to reproduce an experiment.

    Attributes:
        spec: The resolved spec as YAML.
        commands: Commands in the order they are run.
        code: Code that ran, most attempts first: lines of the user's own code, and for each commit of jestlab
            and its machines one.
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
    own = attempts[attempts["sources"].notna()]
    ran = zip(own["sources"], own["code_commit"], own["code_patched"], strict=True)
    users = Counter((str(sources), _known(commit), bool(patched)) for sources, commit, patched in ran)
    unrecorded = int((attempts["sources"].isna() & ~attempts["program"].isin(OWN_PROGRAMS)).sum())
    caveats = []
    if len(users) > 1:
        caveats.append("Not all runs were made by the same code: jestlab diff RUN RUN shows the difference.")
    if history.imported_from is not None:
        caveats.append(f"The experiment was imported from {history.imported_from}: others have run it.")
    if attempts["patched"].any():
        caveats.append(
            "jestlab's code had uncommitted changes, which the store keeps: "
            f"jestlab query \"SELECT git_patch FROM v_attempts WHERE experiment = '{history.experiment}'\""
        )
    if attempts["git_commit"].nunique() > 1:
        caveats.append("Not all runs were made by the same commit of jestlab.")
    return Recipe(
        spec=yaml.safe_dump(history.spec, sort_keys=False, allow_unicode=True, width=100),
        commands=(
            "jestlab launch study.yaml",
            *(f"jestlab {verb} {name}{options}" for verb in ("table", "plot", "report")),
        ),
        code=(
            *(_own_line(*own, attempts=count) for own, count in users.most_common()),
            *([f"own code that was not recorded: {_attempts(unrecorded)}"] if unrecorded else []),
            *(_code_line(*where, attempts=count) for where, count in counts.most_common()),
        ),
        versions=_versions(list(attempts["versions"].dropna().unique())),
        caveats=tuple(caveats),
    )


def _known(text: object) -> str:
    return text if isinstance(text, str) else ""


def _code_line(commit: str, patched: bool, device: str, attempts: int) -> str:
    changes = " with uncommitted changes" if patched else ""
    code = f"jestlab's commit {commit[:12]}{changes}" if commit else "jestlab of an unknown commit"
    return f"{code} on {device or 'an unknown device'}: {_attempts(attempts)}"


def _own_line(sources: str, commit: str, patched: bool, attempts: int) -> str:
    """Write the user's own code: its files, and the state of their repository."""
    changes = " with uncommitted changes" if patched else ""
    where = f" of commit {commit[:12]}{changes}" if commit else ""
    return f"own code {digests_of(json.loads(sources))}{where}: {_attempts(attempts)}"


def _attempts(count: int) -> str:
    return f"{count} {'attempt' if count == 1 else 'attempts'}"


def _versions(documents: list[str]) -> dict[str, str]:
    """Package → its version, or its versions."""
    seen: dict[str, dict[str, None]] = {}
    for document in documents:
        for package, version in json.loads(document).items():
            seen.setdefault(str(package), {})[str(version)] = None
    return {package: ", ".join(found) for package, found in sorted(seen.items())}
