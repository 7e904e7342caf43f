"""Export runs in formats of other tools: MLflow file stores, TensorBoard event files, and Parquet tables."""

import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from math import nan
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Connection, RowMapping, select

from jestlab.analysis.configs import flat
from jestlab.platform.errors import UserError
from jestlab.platform.exchange.source_run import Curves, Score
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store, of_experiment
from jestlab.platform.store.tables import AttemptRow as Attempt
from jestlab.platform.store.tables import EvaluationRow as Evaluation
from jestlab.platform.store.tables import ExperimentRow as Experiment
from jestlab.platform.store.tables import (
    MemberRow,
    MetricNameRow,
    MetricRow,
    NoteRow,
    RunRow,
    TagRow,
    run_key,
)


@dataclass(frozen=True)
class ExportedRun:
    """A run of an experiment; times are in UTC.

    Attributes:
        run: Name of the run in the experiment.
        label: Name of the run with its values on the study's axes.
        reason: Why the run didn't complete.
        step: Number of completed steps.
        began: Start of the first attempt.
        ended: End of the last attempt.
        commit: Commit of the user's code, or else of jestlab's.
        notes: Notes, oldest first.
        scores: All scores, ordered by evaluation and step.
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
    metrics: Curves
    scores: Sequence[Score]

    @property
    def title(self) -> str:
        """The label and the seed: LABEL/SEED."""
        return f"{self.label}/{self.seed}"

    def curves(self) -> Curves:
        """Return metrics and scores as curves, for formats that have only metrics.

        Scores are named DATASET/METRIC. Their costs are the curves examples_seen, flops_total, and seconds,
        unless metrics have these names.
        """
        costs, scores = dict[str, dict[int, float]](), dict[str, dict[int, float]]()
        for score in self.scores:
            scores.setdefault(score.name, {})[score.step] = score.value
            for name in ("examples_seen", "flops_total", "seconds"):
                if (value := getattr(score, name)) is not None:
                    costs.setdefault(name, {})[score.step] = float(value)
        return {**costs, **self.metrics, **scores}


_RUNS = (
    select(
        MemberRow.experiment, Experiment.question, MemberRow.name.label("run"), MemberRow.label, RunRow.seed,
        RunRow.fingerprint, RunRow.program, RunRow.state, RunRow.reason, RunRow.step, RunRow.config,
    )
    .select_from(MemberRow)
    .join(Experiment, Experiment.name == MemberRow.experiment)
    .join(RunRow, RunRow.id == MemberRow.run_id)
    .order_by(MemberRow.experiment, MemberRow.position, MemberRow.label, RunRow.seed)
)  # fmt: skip


def members(store: Store, experiments: Sequence[str]) -> Sequence[RowMapping]:
    """Return the runs of experiments, in the order of each study; of all experiments if none is given.

    Raises:
        UserError: An experiment doesn't exist, or none of them has runs.
    """
    with store.reading() as connection:
        for name in experiments:
            of_experiment(connection, name, Experiment.name)
        query = _RUNS.where(MemberRow.experiment.in_(experiments)) if experiments else _RUNS
        if not (rows := connection.execute(query).mappings().all()):
            raise UserError("no runs to export: launch a study first")
    return rows


def read(
    store: Store, members: Sequence[RowMapping], advance: Callable[[int], object] = lambda count: None
) -> Iterator[ExportedRun]:
    """Yield the run of each member, with the metrics and scores of only one in memory at a time.

    `advance(1)` is called after each one.
    """
    for row in members:
        with store.reading() as connection:
            run = _read_run(connection, row)
        yield run  # outside the transaction, because writing a run can be slow
        del run
        advance(1)


def _read_run(connection: Connection, row: RowMapping) -> ExportedRun:
    key = run_key(row["fingerprint"])
    columns = (Attempt.started_at, Attempt.ended_at, Attempt.code_commit, Attempt.git_commit)
    attempts = connection.execute(
        select(*columns).where(Attempt.run_id == key).order_by(Attempt.number)
    ).all()
    last = attempts[-1] if attempts else None
    notes = select(NoteRow.text).where(NoteRow.run_id == key).order_by(NoteRow.created_at)
    points = (
        select(MetricNameRow.name, MetricRow.step, MetricRow.value)
        .join(MetricRow, MetricRow.name_id == MetricNameRow.id)
        .where(MetricRow.run_id == key)
    )
    scores = (
        select(*(getattr(Evaluation, name) for name in Score._fields))
        .where(Evaluation.run_id == key)
        .order_by(Evaluation.dataset, Evaluation.metric, Evaluation.step)
    )
    metrics: Curves = {}
    for name, step, value in connection.execute(points):
        metrics.setdefault(name, {})[step] = nan if value is None else value
    return ExportedRun(
        **{**row, "state": RunState(row["state"]), "config": json.loads(row["config"])},
        began=next((one.started_at for one in attempts if one.started_at is not None), None),
        ended=last and last.ended_at,
        commit=last and (last.code_commit or last.git_commit),
        tags=sorted(connection.scalars(select(TagRow.name).where(TagRow.run_id == key))),
        notes=list(connection.scalars(notes)),
        metrics=metrics,
        scores=[
            Score(*one)._replace(value=nan if one.value is None else one.value)
            for one in connection.execute(scores)
        ],
    )


def write(kind: str, runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write runs as "mlflow", "parquet", or "tensorboard" to a new folder, which appears when it is complete.

    Raises:
        UserError: The folder isn't empty, or can't be written.
    """
    target = folder.resolve()
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise UserError(f"{folder} is a file or not empty: give the name of a new folder")
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

_KEY = {"experiment": "string", "label": "string", "seed": "int64", "fingerprint": "string"}
_TABLES: dict[str, dict[str, str]] = {
    "runs": {
        **_KEY, "run": "string", "program": "string", "state": "string", "reason": "string", "step": "int64",
        "config": "string", "began": "timestamp[us]", "ended": "timestamp[us]", "commit": "string",
        "tags": "texts", "notes": "texts",
    },
    "metrics": {**_KEY, "name": "string", "step": "int64", "value": "double"},
    "evaluations": {
        **_KEY, "dataset": "string", "metric": "string", "step": "int64", "value": "double",
        "examples_seen": "int64", "flops_total": "double", "seconds": "double",
    },
}  # fmt: skip
"""Table → column → type in Arrow; "texts" are a list of strings."""


def _write_parquet(runs: Iterable[ExportedRun], folder: Path) -> None:
    """Write the tables runs, metrics, and evaluations. Their first columns identify the run in all three.

    Configs are JSON, tags and notes are lists, and times are UTC. Unknown values are null; NaN is NaN.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    lists = {"texts": pa.list_(pa.string())}
    schemas = {
        table: pa.schema([(name, lists.get(kind, kind)) for name, kind in columns.items()])
        for table, columns in _TABLES.items()
    }
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(ParquetWriter(folder / f"{name}.parquet", schema, compression="zstd"))
            for name, schema in schemas.items()
        }
        for run in runs:
            key = {name: getattr(run, name) for name in _KEY}
            rows: dict[str, list[dict[str, Any]]] = {
                "runs": [vars(run) | {"config": json.dumps(run.config)}],
                "metrics": [
                    {**key, "name": name, "step": step, "value": value}
                    for name, step, value in _points(run.metrics)
                ],
                "evaluations": [key | score._asdict() for score in run.scores],
            }
            for name, part in rows.items():
                if part:
                    files[name].write_table(pa.Table.from_pylist(part, schemas[name]))


def _points(curves: Curves) -> Iterator[tuple[str, int, float]]:
    for name, curve in curves.items():
        for step, value in sorted(curve.items()):
            yield name, step, value


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
    gets an underscore, or an underscore and a number ("loss" next to "loss/train" becomes "loss_").
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
    for kind, texts in values.items():
        _write_values(folder / kind, texts)
    (folder / "artifacts").mkdir()


def _parameter(value: Any) -> str:
    """Write a value like MLflow: 0.1, True, None; lists are JSON."""
    text = str(value) if isinstance(value, bool | int | float | str | None) else json.dumps(value)
    return text[:_MOST_PARAMETER_LETTERS]


def _write_values(folder: Path, values: Mapping[str, str]) -> None:
    """Write each value to the file of its key."""
    folder.mkdir()
    safe = {key: _safe_key(key) for key in values}
    # The deepest first, so that folders exist before files with the same name.
    for key in sorted(values, key=lambda key: (-safe[key].count("/"), safe[key] != key, key)):
        path = _free_name(folder, safe[key])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(values[key], encoding="utf-8")


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
