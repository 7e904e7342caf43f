"""What the store says of one run, as pages show it."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import text

from jestlab.analysis.claims import studies
from jestlab.platform.errors import one_line_errors
from jestlab.platform.launch.status import LOSS
from jestlab.platform.planning.compare import compare
from jestlab.platform.serve.rendering import number
from jestlab.platform.store.store import Store


def _query(store: Store, sql: str, **given: Any) -> list[dict[str, Any]]:
    with store.reading() as connection:
        return [dict(each._mapping) for each in connection.execute(text(sql), given)]


def places(store: Store, fingerprint: str) -> list[dict[str, Any]]:
    """Return the places that a run has in experiments."""
    return _query(
        store,
        "SELECT experiment, run, label, seed, question, state, reason, directory FROM v_runs "
        "WHERE fingerprint = :run ORDER BY experiment, position",
        run=fingerprint,
    )


def scores(store: Store, fingerprint: str) -> list[dict[str, str]]:
    """Return the last scores."""
    rows = _query(
        store,
        "SELECT dataset, metric, step, value FROM evaluation WHERE run_id = "
        "(SELECT id FROM run WHERE fingerprint = :run) ORDER BY step, dataset, metric",
        run=fingerprint,
    )
    last = {f"{each['dataset']}/{each['metric']}": each for each in rows}
    return [
        {"name": name, "value": number(each["value"]) or "not a number", "step": f"{each['step']:,}"}
        for name, each in sorted(last.items())
    ]


def attempts(store: Store, fingerprint: str) -> list[dict[str, Any]]:
    """Return all attempts, the last one last, with the code, versions and machine of each."""
    rows = _query(
        store,
        "SELECT DISTINCT number, state, reason, executor, host, device, claimed_at, started_at, ended_at, "
        "exit_code, git_commit, git_patch, code_commit, code_patch, versions, environment, lab "
        "FROM v_attempts WHERE fingerprint = :run ORDER BY number",
        run=fingerprint,
    )
    for each in rows:
        for name in ("versions", "environment"):
            each[name] = json.loads(each[name]) if each[name] else {}
        for name in ("claimed_at", "started_at", "ended_at"):
            each[name] = str(each[name] or "")[:19]
    return rows


def needs(store: Store, fingerprint: str) -> list[dict[str, Any]]:
    """Return the runs that a run needs, by their roles."""
    return _query(
        store,
        "SELECT need.role, needed.fingerprint, needed.state, needed.directory FROM need "
        "JOIN run AS needed ON needed.id = need.needs_id "
        "WHERE need.run_id = (SELECT id FROM run WHERE fingerprint = :run) ORDER BY need.role",
        run=fingerprint,
    )


def metrics(store: Store, fingerprint: str) -> list[str]:
    """Return the names of the metrics that a run has recorded, the loss first."""
    rows = _query(
        store,
        "SELECT name FROM metric_name WHERE EXISTS (SELECT 1 FROM metric "
        "WHERE metric.name_id = metric_name.id "
        "AND metric.run_id = (SELECT id FROM run WHERE fingerprint = :run)) ORDER BY name",
        run=fingerprint,
    )
    names = [each["name"] for each in rows]
    return sorted(names, key=lambda name: (name != LOSS, name))


def baseline(store: Store, experiment: str, fingerprint: str) -> dict[str, Any] | None:
    """Return how a run's config differs from the baseline's of the same seed; None if it is the baseline."""
    with store.reading() as connection, one_line_errors():
        study = studies(connection).get(experiment)
    if study is None or study.baseline is None:
        return None
    rows = store.runs(experiment)
    own = next(each for each in rows if each.fingerprint == fingerprint)
    alike = [each for each in rows if study.baseline in (each.label, each.name)]
    if not alike or own in alike:
        return None
    other = next((each for each in alike if each.seed == own.seed), alike[0])
    differing = compare(store, other.fingerprint, fingerprint).config
    return {
        "title": f"{other.label}/{other.seed}",
        "fingerprint": other.fingerprint,
        "differences": [(key, plain(pair.first), plain(pair.second)) for key, pair in differing.items()],
    }


def plain(value: Any) -> str:
    """Write a value of a config as a text."""
    if value is None:
        return "default"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
