"""Write runs in formats of other tools: MLflow file stores, TensorBoard event files, and Parquet tables."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from jestlab.analysis.configs import flat
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.export_read import ExportedRun
from jestlab.platform.store.records import RunState

if TYPE_CHECKING:
    import pyarrow as pa


def write(kind: str, runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs as "mlflow", "parquet", or "tensorboard" to a new folder, which appears when it is complete.

    Raises:
        UserError: The folder isn't empty, or can't be written.
    """
    target = folder.resolve()
    if target.exists() and not target.is_dir():
        raise UserError(f"{folder} is a file: give the name of a new folder")
    if target.is_dir() and any(target.iterdir()):
        raise UserError(f"{folder} is not empty: give the name of a new folder")
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        partial.mkdir(parents=True)
        _WRITERS[kind](runs, partial)
        if target.exists():
            target.rmdir()
        partial.rename(target)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


# ---- Parquet


def _write_parquet(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write the tables runs, metrics, and evaluations. Their first columns identify the run in all three.

    Configs are JSON, tags and notes are lists, and times are UTC. Unknown values are null; NaN is NaN.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    schemas = _schemas()
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd"))
            for name, schema in schemas.items()
        }
        for run in runs:
            key = (run.experiment, run.label, run.seed, run.fingerprint)
            about = (run.run, run.program, str(run.state), run.reason, run.step, json.dumps(run.config))
            rows: dict[str, list[tuple[Any, ...]]] = {
                "runs": [(*key, *about, run.began, run.ended, run.commit, run.tags, run.notes)],
                "metrics": [(*key, *point) for point in _points(run.metrics)],
                "evaluations": [(*key, *score) for score in run.scores],
            }
            for name, part in rows.items():
                if part:
                    files[name].write_table(
                        pa.table([[*column] for column in zip(*part, strict=True)], schemas[name])
                    )


def _points(curves: Mapping[str, Any]) -> Iterator[tuple[str, int, float]]:
    for name, (steps, values) in curves.items():
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            yield name, step, value


def _schemas() -> dict[str, pa.Schema]:
    import pyarrow as pa

    text, whole, number, time = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us")
    key = [("experiment", text), ("label", text), ("seed", whole), ("fingerprint", text)]
    own = {
        "runs": [
            ("run", text), ("program", text), ("state", text), ("reason", text), ("step", whole),
            ("config", text), ("began", time), ("ended", time), ("commit", text),
            ("tags", pa.list_(text)), ("notes", pa.list_(text)),
        ],
        "metrics": [("name", text), ("step", whole), ("value", number)],
        "evaluations": [
            ("dataset", text), ("metric", text), ("step", whole), ("value", number),
            ("examples_seen", whole), ("flops_total", number), ("seconds", number),
        ],
    }  # fmt: skip
    return {name: pa.schema([*key, *columns]) for name, columns in own.items()}


# ---- MLflow


_MLFLOW_STATUS = {"COMPLETED": 3, "FAILED": 4, "RUNNING": 1, "PENDING": 2, "BLOCKED": 2}
"""MLflow's status numbers; all other states are 5, killed."""

_UNSAFE_IN_KEYS = re.compile(r"[^\w./ :-]+")
_MOST_PARAMETER_LETTERS = 6_000
_MOST_KEY_BYTES = 240  # MLflow allows 250, and a suffix may be added


def _write_mlflow(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs to an existing folder, which becomes the file store. Artifacts aren't written.

    Parameters are the config, with dots in their keys; lists are JSON, and text is cut to MLflow's limit.
    Scores are metrics named DATASET/METRIC, and their costs are the metrics examples_seen, flops_total, and
    seconds. The run's tags get the value true. Label, seed, state, reason, fingerprint, and program become
    tags such as jestlab.label.

    Keys are file names: unsafe characters become underscores, and long keys are cut. A key whose file exists
    gets an underscore, or an underscore and a number ("loss" next to "loss/train" becomes "loss_"). The tag
    jestlab.keys contains the changed keys as JSON: metrics, params, or tags → new key → original key.
    """
    (folder / ".trash").mkdir()
    for run in runs:
        # An id of 18 digits, like MLflow's, which is the same in every export.
        experiment = str(10**17 + int(hashlib.sha256(run.experiment.encode()).hexdigest(), 16) % (9 * 10**17))
        place = f"{run.experiment}\0{run.label}\0{run.fingerprint}"
        run_id = hashlib.sha256(place.encode()).hexdigest()[:32]
        artifacts, about = f"mlflow-artifacts:/{experiment}", dict[str, Any](experiment_id=experiment)
        began, ended, now = (
            int(_unix_time(time) * 1000) for time in (run.began, run.ended, datetime.now(UTC))
        )
        if not (folder / experiment).exists():
            times = {"creation_time": now, "last_update_time": now}
            _write_meta(folder / experiment, about | times, name=run.experiment, artifact_location=artifacts)
            if run.question:
                _write_values(folder / experiment / "tags", {"mlflow.note.content": run.question})
        _write_meta(
            folder / experiment / run_id,
            about, artifact_uri=f"{artifacts}/{run_id}/artifacts", end_time=ended or None,
            entry_point_name="", run_id=run_id, run_name=run.title, source_name="", source_type=4,
            source_version="", start_time=began, status=_MLFLOW_STATUS.get(run.state, 5), tags=[],
            user_id="jestlab",
        )  # fmt: skip
        _write_mlflow_values(folder / experiment / run_id, run, began)


def _write_meta(folder: Path, about: Mapping[str, Any], **more: Any) -> None:
    folder.mkdir(parents=True)
    text = yaml.safe_dump({**about, **more, "lifecycle_stage": "active"})
    (folder / "meta.yaml").write_text(text, encoding="utf-8")


def _write_mlflow_values(folder: Path, run: ExportedRun, began: int) -> None:
    lines: dict[str, list[str]] = {}
    for name, step, value in _points(run.curves()):
        lines.setdefault(name, []).append(f"{began} {value!r} {step}\n")
    about = {
        "mlflow.runName": run.title, "mlflow.user": "jestlab", "jestlab.label": run.label,
        "jestlab.seed": str(run.seed), "jestlab.fingerprint": run.fingerprint,
        "jestlab.program": run.program, "jestlab.state": str(run.state), "jestlab.reason": run.reason,
        "mlflow.note.content": "\n\n".join(run.notes), "mlflow.source.git.commit": run.commit,
    }  # fmt: skip
    values = {
        "metrics": {name: "".join(written) for name, written in lines.items()},
        "params": {key: _parameter(value) for key, value in flat(dict(run.config)).items()},
        "tags": dict.fromkeys(run.tags, "true") | {key: text for key, text in about.items() if text},
    }
    changed = {kind: _write_values(folder / kind, texts) for kind, texts in values.items()}
    (folder / "artifacts").mkdir()
    if any(changed.values()):
        _write_values(folder / "tags", {"jestlab.keys": json.dumps(changed)})


def _parameter(value: Any) -> str:
    """Write a value like MLflow: 0.1, True, None; lists are JSON."""
    text = str(value) if isinstance(value, bool | int | float | str | None) else json.dumps(value)
    return text[:_MOST_PARAMETER_LETTERS]


def _write_values(folder: Path, values: Mapping[str, str]) -> dict[str, str]:
    """Write each value to the file of its key, and return the changed keys: new → original."""
    folder.mkdir(exist_ok=True)
    changed = {}
    safe = {key: _safe_key(key) for key in values}
    # The deepest first, so that folders exist before files with the same name.
    for key in sorted(values, key=lambda key: (-safe[key].count("/"), safe[key] != key, key)):
        path = _free_name(folder, safe[key])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(values[key], encoding="utf-8")
        if path != key:
            changed[path] = key
    return changed


def _safe_key(key: str) -> str:
    """Return a key that MLflow accepts, and that doesn't lead out of the folder."""
    parts = _shorten(_UNSAFE_IN_KEYS.sub("_", key), _MOST_KEY_BYTES).split("/")
    path = "/".join(part for part in parts if part not in ("", ".", ".."))
    return f"_{path}" if path.startswith("..") else path or "_"


# ---- TensorBoard


_UNSAFE_IN_FOLDERS = re.compile(r"[^\w.=,+ ()-]+")
_MOST_NAME_BYTES = 200


def _write_tensorboard(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs to an existing folder.

    Curves are scalars in float32, and configs are hyperparameters with dots in their keys. State, reason,
    label, fingerprint, tags, and notes are texts named jestlab/…. Unsafe characters in folder names are
    replaced, and long names are cut; a second folder with the same name gets an underscore. All events
    have the start time of the run, except the last, which has the end time and the state.
    """
    # NOTE: this imports tensorboardX without PyTorch, so it must come before other imports of tensorboardX.
    import jestlab.models.training.events  # noqa: F401, I001

    # NOTE: `SummaryWriter` has a thread that ends without an error when the disk is full.
    from tensorboardX.record_writer import RecordWriter

    folders: dict[tuple[str, ...], Path] = {(): folder}
    for run in runs:
        for names in ((run.experiment,), (run.experiment, run.label)):
            if names not in folders:
                folders[names] = _new_folder(folders[names[:-1]], names[-1])
        place = _new_folder(folders[run.experiment, run.label], str(run.seed))
        with closing(RecordWriter(str(place / f"events.out.tfevents.{_unix_time(run.began):.0f}"))) as file:
            for event in _events(run):
                file.write(event.SerializeToString())


def _events(run: ExportedRun) -> Iterator[Any]:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData, SessionEndInfo
    from tensorboardX.proto.summary_pb2 import Summary
    from tensorboardX.summary import hparams, text

    began = _unix_time(run.began)
    config = {
        key: value if isinstance(value, bool | int | float | str) else str(value)
        for key, value in flat(dict(run.config)).items()
    }
    experiment, start, end = hparams(config, dict.fromkeys(score.name for score in run.scores))
    ended = "STATUS_SUCCESS" if run.state is RunState.COMPLETED else "STATUS_FAILURE"
    status = SessionEndInfo(status=ended if run.state.is_terminal else "STATUS_RUNNING")
    end.value[0].metadata.plugin_data.content = HParamsPluginData(session_end_info=status).SerializeToString()
    about = {
        "state": str(run.state), "reason": run.reason, "label": run.label, "fingerprint": run.fingerprint,
        "tags": ", ".join(run.tags), "notes": "\n\n".join(run.notes),
    }  # fmt: skip
    texts = (text(f"jestlab/{name}", value) for name, value in about.items() if value)
    yield Event(wall_time=began, file_version="brain.Event:2")
    for summary in (experiment, start, *texts):
        yield Event(wall_time=began, summary=summary)
    for name, step, value in _points(run.curves()):
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
        yield Event(wall_time=began, step=step, summary=summary)
    yield Event(wall_time=_unix_time(run.ended) or began, summary=end)


def _new_folder(above: Path, name: str) -> Path:
    part = _shorten(_UNSAFE_IN_FOLDERS.sub("-", name).strip(". "), _MOST_NAME_BYTES) or "-"
    folder = above / _free_name(above, part)
    folder.mkdir()
    return folder


# ---- times and file names


def _unix_time(time: datetime | None) -> float:
    return 0.0 if time is None else time.replace(tzinfo=UTC).timestamp()


def _shorten(text: str, most_bytes: int) -> str:
    """Cut a text to a number of bytes in UTF-8."""
    return text.encode()[:most_bytes].decode(errors="ignore")


def _free_name(folder: Path, name: str) -> str:
    """Return a name that is free in a folder: `name`, `name_`, `name_2`, `name_3`, ..."""
    names = chain([name, f"{name}_"], (f"{name}_{number}" for number in count(2)))
    return next(each for each in names if not (folder / each).exists())


_WRITERS = {"mlflow": _write_mlflow, "parquet": _write_parquet, "tensorboard": _write_tensorboard}
