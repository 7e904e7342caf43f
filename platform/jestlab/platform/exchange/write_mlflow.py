"""Writes runs as a file store of MLflow, without the library.

The layout is MLflow's own: EXPERIMENT/meta.yaml, and in EXPERIMENT/RUN/ meta.yaml with a file for each
parameter, metric and tag. MLflow 3 reads it where MLFLOW_ALLOW_FILE_STORE is true.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from jestlab.analysis.configs import flat
from jestlab.platform.exchange.export import Result
from jestlab.platform.exchange.file_names import free, short
from jestlab.platform.store.records import RunState

_STATUS = {
    RunState.COMPLETED: 3,
    RunState.FAILED: 4,
    RunState.RUNNING: 1,
    RunState.PENDING: 2,
    RunState.BLOCKED: 2,
}
"""MLflow's numbers; what is not here was stopped: 5."""

_UNSAFE = re.compile(r"[^\w./ :-]+")
_LONGEST_PARAM = 6_000
_LONGEST_KEY_BYTES = 240
"""MLflow takes 250, and a file's name 255; a number may be added."""


def write(results: Iterable[Result], folder: Path) -> None:
    """Write runs below an existing folder, which becomes the file store.

    Parameters are the config, with dots in their keys; lists are JSON, and what is longer than MLflow allows
    is cut. Scores are metrics named dataset/metric. MLflow knows nothing of what training had taken at a
    score: that is in further metrics, examples_seen, flops_total and seconds. The run's own tags have the
    value true; tags named jestlab.… say label, seed, state, reason, fingerprint and program. No artifacts are
    written.

    Keys are names of files: characters that MLflow refuses become underscores, and long keys are cut. If the
    file of a key is there already, or is a folder because the key is the beginning of another ("loss" beside
    "loss/train"), its own gets an underscore, and a number if need be ("loss_"). The tag jestlab.keys then
    tells which keys of params, metrics and tags were changed, as JSON: new key → key.
    """
    (folder / ".trash").mkdir()
    made: set[str] = set()
    for result in results:
        experiment = _experiment_id(result.experiment)
        if experiment not in made:
            made.add(experiment)
            _write_experiment(folder / experiment, experiment, result)
        _write_run(folder / experiment, experiment, result)


def _experiment_id(name: str) -> str:
    """Number an experiment as MLflow does, by 18 digits; the same at every export."""
    return str(10**17 + int(hashlib.sha256(name.encode()).hexdigest(), 16) % (9 * 10**17))


def _write_experiment(folder: Path, experiment: str, result: Result) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    _write_meta(
        folder,
        {
            "artifact_location": f"mlflow-artifacts:/{experiment}", "creation_time": now,
            "last_update_time": now,
            "experiment_id": experiment, "lifecycle_stage": "active", "name": result.experiment,
        },
    )  # fmt: skip
    if result.question:
        _write_values(folder / "tags", {"mlflow.note.content": result.question})


def _write_run(folder: Path, experiment: str, result: Result) -> None:
    place = f"{result.experiment}\0{result.label}\0{result.fingerprint}"
    run_id = hashlib.sha256(place.encode()).hexdigest()[:32]
    folder /= run_id
    began, ended = _milliseconds(result.began), _milliseconds(result.ended)
    _write_meta(
        folder,
        {
            "artifact_uri": f"mlflow-artifacts:/{experiment}/{run_id}/artifacts", "end_time": ended,
            "entry_point_name": "", "experiment_id": experiment, "lifecycle_stage": "active",
            "run_id": run_id, "run_name": result.title, "source_name": "", "source_type": 4,
            "source_version": "", "start_time": began or 0, "status": _STATUS.get(result.state, 5),
            "tags": [], "user_id": "jestlab",
        },
    )  # fmt: skip
    for name in ("params", "metrics", "tags", "artifacts"):
        (folder / name).mkdir()
    values = {"params": _params(result), "metrics": _metrics(result, began or 0), "tags": _tags(result)}
    changed = {kind: _write_values(folder / kind, values[kind]) for kind in values}
    if any(changed.values()):
        _write_values(folder / "tags", {"jestlab.keys": json.dumps(changed)})


def _params(result: Result) -> dict[str, str]:
    params = {}
    for key, value in flat(dict(result.config)).items():
        text = value if isinstance(value, str) else json.dumps(value) if not _is_plain(value) else str(value)
        params[key] = text[:_LONGEST_PARAM]
    return params


def _metrics(result: Result, time: int) -> dict[str, str]:
    lines = {}
    for name, (steps, values) in result.curves().items():
        points = zip(steps.tolist(), values.tolist(), strict=True)
        lines[name] = "".join(f"{time} {value!r} {step}\n" for step, value in points)
    return lines


def _tags(result: Result) -> dict[str, str]:
    told = {
        "mlflow.runName": result.title, "mlflow.user": "jestlab", "jestlab.label": result.label,
        "jestlab.seed": str(result.seed), "jestlab.fingerprint": result.fingerprint,
        "jestlab.program": result.program, "jestlab.state": str(result.state),
        "jestlab.reason": result.reason, "mlflow.note.content": "\n\n".join(result.notes),
        "mlflow.source.git.commit": result.commit,
    }  # fmt: skip
    return dict.fromkeys(result.tags, "true") | {key: text for key, text in told.items() if text}


def _is_plain(value: Any) -> bool:
    """Whether MLflow would write a value as Python does: 0.1, True, None."""
    return isinstance(value, bool | int | float | None)


def _milliseconds(time: datetime | None) -> int | None:
    return None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)


def _write_meta(folder: Path, meta: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / "meta.yaml").write_text(yaml.safe_dump(meta), encoding="utf-8")


def _write_values(folder: Path, values: Mapping[str, str]) -> dict[str, str]:
    """Write each value to the file of its key, in folders where a key has slashes.

    Returns:
        New key → key, where they are not the same.
    """
    changed = {}
    safe = {key: _safe(key) for key in values}
    # The deepest first, so that a folder is there before a file that would be in its place.
    for key in sorted(values, key=lambda key: (-safe[key].count("/"), safe[key] != key, key)):
        path = free(folder, safe[key])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(values[key], encoding="utf-8")
        if path != key:
            changed[path] = key
    return changed


def _safe(key: str) -> str:
    """Return a key that MLflow takes, and that leads out of no folder."""
    parts = short(_UNSAFE.sub("_", key), _LONGEST_KEY_BYTES).split("/")
    path = "/".join(part for part in parts if part not in ("", ".", ".."))
    # MLflow refuses whatever begins with two dots.
    return f"_{path}" if path.startswith("..") else path or "_"
