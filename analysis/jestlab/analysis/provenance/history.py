"""The history of an experiment: spec, runs, attempts, and costs; and how to reproduce the experiment."""

import json
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pandas as pd
import yaml

from ..goodput import QUERY, AttemptTime
from ..names import Shown, names_in
from ..results import Snapshot, attempts_of, costs_of, opens_store, runs_of
from .code import code_of, jestlab_of, names_of, parsed
from .warnings import retractions

_STUDY = "SELECT * FROM v_experiments WHERE experiment = :experiment"
_ACCEPTED = "SELECT accepted, reason, author, created_at FROM v_acceptances WHERE experiment = :experiment"


@dataclass(frozen=True)
class History:
    """The stored data of an experiment except its results.

    Attributes:
        experiment: Name of the experiment.
        question: The question that it asks; empty if it asks none.
        paper: Figure or table of the paper that it reproduces; empty if it reproduces none.
        spec: The resolved spec.
        imported_from: Name of the archive that it was imported from; None if it was launched in this lab.
        runs: From `results.runs_of`.
        attempts: The attempts in the order of the runs, with the columns of `attempts_of` and program, and
            None for missing values. Times are UTC, to the second. git_commit and changes are about jestlab's
            code; code_commit, code_changes, and sources and inputs (file → SHA-256) about custom code.
        costs: One row per run, in the order of the runs, with all columns of `v_costs`.
        retracted: Fingerprint → why the run's results are wrong.
        accepted: One line for each acceptance of differences between runs.
        times: How each attempt spent its time.
    """

    experiment: str
    question: str
    paper: str
    spec: dict[str, Any]
    imported_from: str | None
    runs: pd.DataFrame
    attempts: list[dict[str, Any]]
    costs: pd.DataFrame
    retracted: Mapping[str, str]
    accepted: tuple[str, ...]
    times: tuple[AttemptTime, ...]

    @cached_property
    def shown(self) -> Shown:
        """Label → the name that tables and figures show."""
        return names_in(self.spec, self.runs).shown

    def states(self) -> dict[str, int]:
        """Count runs by state; a run with several labels counts once."""
        counts = self.runs.drop_duplicates("fingerprint")["state"].value_counts()
        return {str(state): int(count) for state, count in counts.items()}

    def newest(self) -> str | None:
        """Return the last end or heartbeat of any attempt, UTC; None before the first."""
        times = (attempt["ended_at"] or attempt["heartbeat_at"] for attempt in self.attempts)
        return max(filter(None, times), default=None)


@opens_store
def load(store: Snapshot, experiment: str) -> History | None:
    """Read the history of an experiment; None if the store doesn't have it."""
    if not (studies := store.rows(_STUDY, experiment=experiment)):
        return None
    [study] = studies
    runs = store.once(runs_of, experiment)
    costs = runs[["label", "seed"]].merge(store.once(costs_of, experiment), on=["label", "seed"])
    positions = {run: position for position, run in enumerate(runs["fingerprint"])}
    programs = runs["program"].tolist()
    attempts = [{**attempt} for attempt in store.once(attempts_of, experiment)]
    attempts.sort(key=lambda row: (positions[row["fingerprint"]], row["label"], row["number"]))
    for attempt in attempts:
        attempt["program"] = programs[positions[attempt["fingerprint"]]]
        attempt |= {name: parsed(attempt[name]) for name in ("versions", "sources", "inputs")}
        for name in ("started_at", "heartbeat_at", "ended_at"):  # text on SQLite, times on PostgreSQL
            attempt[name] = str(attempt[name])[:19] if attempt[name] else None
    return History(
        experiment=experiment,
        question=str(study["question"] or ""),
        paper=str(study["paper"] or ""),
        spec=json.loads(study["spec"]),
        imported_from=store.imported_from(experiment),
        runs=runs,
        attempts=attempts,
        costs=costs,
        retracted=retractions(store, experiment),
        accepted=tuple(
            f"{row['author']} accepted on {str(row['created_at'])[:10]} that "
            f"{names_of(json.loads(row['accepted']))} differs: {' '.join(str(row['reason']).split())}"
            for row in store.rows(_ACCEPTED, experiment=experiment)
        ),
        times=tuple(AttemptTime(**row) for row in store.rows(QUERY, experiment=experiment)),
    )


@dataclass(frozen=True)
class Recipe:
    """How to reproduce an experiment.

    Attributes:
        spec: The resolved spec as YAML.
        commands: Commands in the order in which to run them.
        code: One line for each version of custom code, and of jestlab's code on each device.
        versions: Package → versions in all attempts.
        caveats: Sentences about what may prevent an exact reproduction.
    """

    spec: str
    commands: tuple[str, ...]
    code: tuple[str, ...]
    versions: dict[str, str]
    caveats: tuple[str, ...]


def recipe(history: History, baseline: str | None, scope: str) -> Recipe:
    """Describe how to reproduce an experiment, and its reports with a baseline and a scope of FLOPs."""
    attempts = [attempt for attempt in history.attempts if attempt["started_at"]]
    options = f" --baseline {shlex.quote(baseline)}" if baseline else ""
    options += f" --scope {scope}" if scope != "scoring" else ""
    custom = Counter(code for attempt in attempts if (code := code_of(attempt)))
    jestlab = Counter(
        f"{jestlab_of(attempt)} on {attempt['device'] or 'an unknown device'}" for attempt in attempts
    )
    caveats = []
    if history.imported_from is not None:
        caveats.append(f"The experiment was imported from {history.imported_from}: another lab ran it.")
    if any(attempt["changes"] for attempt in attempts):
        caveats.append(
            "jestlab's code had uncommitted changes. The store has them: "
            f"jestlab query \"SELECT git_patch FROM v_attempts WHERE experiment = '{history.experiment}'\""
        )
    versions: dict[str, dict[str, None]] = {}
    for attempt in attempts:
        for package, version in (attempt["versions"] or {}).items():
            versions.setdefault(package, {})[str(version)] = None
    name = shlex.quote(history.experiment)
    return Recipe(
        spec=yaml.safe_dump(history.spec, sort_keys=False, allow_unicode=True, width=100),
        commands=(
            "jestlab launch study.yaml",
            *(f"jestlab {verb} {name}{options}" for verb in ("table", "plot", "report")),
        ),
        code=tuple(
            f"{line}: {count} {'attempt' if count == 1 else 'attempts'}"
            for line, count in (*custom.most_common(), *jestlab.most_common())
        ),
        versions={package: ", ".join(numbers) for package, numbers in sorted(versions.items())},
        caveats=tuple(caveats),
    )
