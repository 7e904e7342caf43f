"""Write runs as a file store of MLflow, without the library.

The layout is MLflow's: EXPERIMENT/meta.yaml, and in EXPERIMENT/RUN/ meta.yaml with a file for each parameter,
metric, and tag. MLflow 3 reads it if MLFLOW_ALLOW_FILE_STORE is true.
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
from jestlab.platform.exchange.export_read import ExportedRun, free_name, shorten
from jestlab.platform.store.records import RunState

_STATUS = {
    RunState.COMPLETED: 3,
    RunState.FAILED: 4,
    RunState.RUNNING: 1,
    RunState.PENDING: 2,
    RunState.BLOCKED: 2,
}
"""MLflow's status numbers; all other states are 5, killed."""

_UNSAFE = re.compile(r"[^\w./ :-]+")
_MOST_PARAMETER_LETTERS = 6_000
_MOST_KEY_BYTES = 240  # MLflow allows 250, and a suffix may be added


def write(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs to an existing folder, which becomes the file store. Artifacts aren't written.

    Parameters are the config, with dots in their keys; lists are JSON, and text is cut to MLflow's limit.
    Scores are metrics named DATASET/METRIC, and their costs are the metrics examples_seen, flops_total, and
    seconds. Tags of the run have the value true. Tags named jestlab.… are label, seed, state, reason,
    fingerprint, and program.

    Keys are file names: unsafe characters become underscores, and long keys are cut. A key whose file exists
    gets an underscore and a number ("loss" next to "loss/train" becomes "loss_"). The tag jestlab.keys lists
    the changed keys as JSON: new key → key.
    """
    (folder / ".trash").mkdir()
    for run in runs:
        # 18 digits, like MLflow's; the same in every export.
        experiment = str(10**17 + int(hashlib.sha256(run.experiment.encode()).hexdigest(), 16) % (9 * 10**17))
        if not (folder / experiment).exists():
            _write_experiment(folder / experiment, run)
        _write_run(folder / experiment, run)


def _write_experiment(folder: Path, run: ExportedRun) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    _write_meta(
        folder,
        {
            "artifact_location": f"mlflow-artifacts:/{folder.name}", "creation_time": now,
            "last_update_time": now, "experiment_id": folder.name, "lifecycle_stage": "active",
            "name": run.experiment,
        },
    )  # fmt: skip
    if run.question:
        _write_values(folder / "tags", {"mlflow.note.content": run.question})


def _write_run(experiment: Path, run: ExportedRun) -> None:
    place = f"{run.experiment}\0{run.label}\0{run.fingerprint}"
    folder = experiment / hashlib.sha256(place.encode()).hexdigest()[:32]
    began, ended = (
        None if time is None else int(time.replace(tzinfo=UTC).timestamp() * 1000)
        for time in (run.began, run.ended)
    )
    _write_meta(
        folder,
        {
            "artifact_uri": f"mlflow-artifacts:/{experiment.name}/{folder.name}/artifacts", "end_time": ended,
            "entry_point_name": "", "experiment_id": experiment.name, "lifecycle_stage": "active",
            "run_id": folder.name, "run_name": run.title, "source_name": "", "source_type": 4,
            "source_version": "", "start_time": began or 0, "status": _STATUS.get(run.state, 5),
            "tags": [], "user_id": "jestlab",
        },
    )  # fmt: skip
    metrics = {}
    for name, (steps, values) in run.curves().items():
        points = zip(steps.tolist(), values.tolist(), strict=True)
        metrics[name] = "".join(f"{began or 0} {value!r} {step}\n" for step, value in points)
    params = {key: _parameter(value) for key, value in flat(dict(run.config)).items()}
    changed = {
        kind: _write_values(folder / kind, values)
        for kind, values in {"params": params, "metrics": metrics, "tags": _tags(run)}.items()
    }
    (folder / "artifacts").mkdir()
    if any(changed.values()):
        _write_values(folder / "tags", {"jestlab.keys": json.dumps(changed)})


def _parameter(value: Any) -> str:
    """Write a value like MLflow: 0.1, True, None; lists are JSON."""
    text = str(value) if isinstance(value, bool | int | float | str | None) else json.dumps(value)
    return text[:_MOST_PARAMETER_LETTERS]


def _tags(run: ExportedRun) -> dict[str, str]:
    about = {
        "mlflow.runName": run.title, "mlflow.user": "jestlab", "jestlab.label": run.label,
        "jestlab.seed": str(run.seed), "jestlab.fingerprint": run.fingerprint,
        "jestlab.program": run.program, "jestlab.state": str(run.state), "jestlab.reason": run.reason,
        "mlflow.note.content": "\n\n".join(run.notes), "mlflow.source.git.commit": run.commit,
    }  # fmt: skip
    return dict.fromkeys(run.tags, "true") | {key: text for key, text in about.items() if text}


def _write_meta(folder: Path, meta: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    (folder / "meta.yaml").write_text(yaml.safe_dump(meta), encoding="utf-8")


def _write_values(folder: Path, values: Mapping[str, str]) -> dict[str, str]:
    """Write each value to the file of its key, and return the changed keys: new key → key."""
    folder.mkdir(exist_ok=True)
    changed = {}
    safe = {key: _safe(key) for key in values}
    # The deepest first, so that folders exist before files with the same name.
    for key in sorted(values, key=lambda key: (-safe[key].count("/"), safe[key] != key, key)):
        path = free_name(folder, safe[key])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(values[key], encoding="utf-8")
        if path != key:
            changed[path] = key
    return changed


def _safe(key: str) -> str:
    """Return a key that MLflow accepts, and that doesn't lead out of the folder."""
    parts = shorten(_UNSAFE.sub("_", key), _MOST_KEY_BYTES).split("/")
    path = "/".join(part for part in parts if part not in ("", ".", ".."))
    return f"_{path}" if path.startswith("..") else path or "_"
