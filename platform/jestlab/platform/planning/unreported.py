"""Find runs that completed without a score that their study requires, such as a script without a report."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from jestlab.analysis.claims import parse_claims
from jestlab.analysis.metrics import Metrics
from jestlab.analysis.provenance.code import OWN_PROGRAMS
from jestlab.analysis.results import Snapshot, opened
from jestlab.platform.planning.names import metrics_used
from jestlab.platform.store.records import ADOPTED
from jestlab.platform.words import counted, few

_SPEC = "SELECT spec FROM v_experiments WHERE experiment = :experiment"
_RUNS = """
    SELECT run, label, seed, position, run_id, program FROM v_runs
    WHERE experiment = :experiment AND state = 'COMPLETED' AND needed = 0"""
_REPORTED = "SELECT DISTINCT run_id, name FROM v_evaluations WHERE experiment = :experiment"


def unreported(store_url: str, experiment: str) -> list[str]:
    """Describe the missing scores of a study, one line for each set of scores; empty for an unknown study.

    Runs of jestlab's own programs, imported runs, and dependencies of other runs are not checked.
    """
    with opened(store_url) as store:
        specs = [json.loads(row["spec"]) for row in store.rows(_SPEC, experiment=experiment)]
        return [line for spec in specs for line in _lines(store, experiment, spec)]


def _lines(store: Snapshot, experiment: str, spec: Mapping[str, Any]) -> Iterator[str]:
    if studies := spec.get("studies"):
        for name, study in studies.items():
            yield from _lines(store, name, study)
        return
    runs = sorted(store.rows(_RUNS, experiment=experiment), key=itemgetter("position", "label", "seed"))
    runs = [run for run in runs if run["program"] not in (*OWN_PROGRAMS, ADOPTED)]
    is_judged = any(spec.get(key) for key in ("metrics", "score", "claims"))
    if not runs or not is_judged:
        return
    used = [(place[0], name) for place, name in metrics_used(spec) if "/" in name]
    sides = [
        (metric, {name for _, name in side.named()})
        for claim in parse_claims(spec.get("claims"))
        for measure, side in zip(claim.measures, claim.sides, strict=True)
        for metric in filter(None, (measure, side.by))
    ]
    named = dict.fromkeys([name for _, name in used] or Metrics.of_spec(spec, ()).names)
    reported = defaultdict[int, set[str]](set)
    for row in store.rows(_REPORTED, experiment=experiment):
        reported[row["run_id"]].add(row["name"])
    missing = defaultdict[tuple[str, ...], list[str]](list)
    for run in runs:
        found = reported[run["run_id"]]
        own = [measure for measure, names in sides if names & {run["run"], run["label"]}]
        required = dict.fromkeys([*(name for place, name in used if place != "claims"), *own])
        required = required or ({} if found else named)
        absent = tuple(name for name in required if "/" in name and name not in found)
        if absent or not found:
            missing[absent].append(f"{run['label']}/{run['seed']}")
    for names, titles in missing.items():
        score = names[0] if names else "DATASET/METRIC"
        yield (
            f"{counted(len(titles), 'run')} of {experiment} completed without reporting "
            f"{few([*map(repr, names)]) or 'a score'}: {few(titles)}; report it with "
            f"`client.run().evaluation(step, {{{score!r}: value}})`, and launch with --rerun-changed"
        )
