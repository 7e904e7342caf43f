"""What is fuzzed: everything that reads what others have written, each as a function of bytes.

A target may refuse its input by a `UserError`, or by a `ValueError` or `OSError` of one line, as users meet
them. Anything else is a crash: another exception, a message of several lines, a hang, too much memory.
"""

import contextlib
import io
import json
import os
import shutil
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jestlab.analysis.results import read as read_frames
from jestlab.models.training.tracker import Tracker
from jestlab.platform.errors import UserError, UserErrors


class Crash(Exception):
    """A target did what it may not do."""


Make = Callable[[Path], tuple[list[bytes], Callable[[bytes], None]]]
"""Makes a target's seeds in a folder, and returns them with the function that takes an input."""


@contextlib.contextmanager
def refusing(*kinds: type[Exception]) -> Any:
    """Context in which input may be refused: by a line, or one for each mistake."""
    refusals: tuple[type[Exception], ...] = (UserError, *kinds)
    try:
        yield
    except refusals as error:
        said = str(error)
        lines = error.lines if isinstance(error, UserErrors) else (said,)  # several mistakes are a line each
        if any("\n" in line or len(line) > 5_000 for line in lines):
            raise Crash(f"a message of {len(said)} letters: {said[:300]!r}") from error


# ---- specs


def _specs(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    from jestlab.platform.planning.plan import plan
    from jestlab.platform.spec.expand import expand
    from jestlab.platform.spec.load import load

    os.chdir(folder)
    path = folder / "spec.yaml"

    def run(content: bytes) -> None:
        path.write_bytes(content)
        with refusing(ValueError):
            study = load(str(path))
            if len(expand(study)) <= 1_000:
                plan(study, note_absent=True)

    seeds = [load(name, "smoke").to_yaml().encode() for name in ("quickstart", "criteria", "comparison")]
    return [*seeds, _COMMAND.encode(), _CLAIMS.encode()], run


_COMMAND = """\
name: sweep
question: Which rate?
program: command
base: {command: [python, train.py, --lr, "{lr}"], lr: 0.1, cwd: .}
runs:
  a: {}
  b: {lr: 0.2, needs: {start: a}}
axes:
  - {runs: [b], grid: {lr: [0.3, 1e-4], steps: [1, 2]}, when: "lr > 0.2"}
seeds: [0, 3]
metrics: {loss: {goal: min, unit: "", name: Loss}}
resources: {executor: local, parallel: 2}
reports:
  - {kind: table, baseline: a}
  - {kind: curves, runs: [a]}
"""
_CLAIMS = """\
name: claims
base: &base {data: {train: {examples: 1024}}, selection: {rule: uniform}}
runs:
  one: *base
  two: {<<: *base, selection.rule: joint}
match: {flops: one}
claims:
  - {statement: better, run: two, than: one}
"""


# ---- weights


def _weights(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    import numpy as np

    from jestlab.models.config import TextTower, TwoTowers, VisionTower
    from jestlab.models.weights.parameters import parameter_shapes
    from jestlab.models.weights.sources import open_weights, write

    towers = TwoTowers(
        vision=VisionTower(image_size=8, patch_size=4, width=4, depth=1, heads=1),
        text=TextTower(vocabulary_size=8, length=2, width=4, depth=1, heads=1),
        embedding_dim=4,
    )
    rng = np.random.default_rng(0)
    tensors: dict[str, Any] = {
        name: rng.normal(size=s).astype(np.float32) for name, s in parameter_shapes(towers).items()
    }
    tensors |= {"t": np.log(np.array([100.0], np.float32)), "b": np.array([-12.5], np.float32)}
    np.savez(folder / "seed.npz", allow_pickle=False, **tensors)
    np.savez_compressed(folder / "packed.npz", allow_pickle=False, **tensors)
    whole = open_weights(folder / "seed.npz")
    write(whole, folder / "huggingface", "huggingface")
    write(whole, folder / "own", "jestlab")
    index = json.dumps({"weight_map": {"x": "model.safetensors"}}).encode()
    files = {
        b"H": ("huggingface", "model.safetensors"),
        b"C": ("huggingface", "config.json"),
        b"M": ("own", "model.json"),
        b"O": ("own", "weights.npz"),
        b"I": ("huggingface", "model.safetensors.index.json"),
    }

    def run(content: bytes) -> None:
        """The first byte says which file of which format the others are."""
        place = folder / "case"
        shutil.rmtree(place, ignore_errors=True)
        kind, content = content[:1], content[1:]
        if kind in files:
            source, name = files[kind]
            shutil.copytree(folder / source, place)
            if kind == b"I":
                (place / "model.safetensors").rename(place / "other.safetensors")
            (place / name).write_bytes(content)
        else:
            place = folder / "case.npz"
            place.write_bytes(content)
        with refusing(ValueError, OSError):
            open_weights(place).digest()

    whole_files = [b"Z" + (folder / name).read_bytes() for name in ("seed.npz", "packed.npz")]
    parts = [kind + folder.joinpath(*path).read_bytes() for kind, path in files.items() if kind != b"I"]
    return [*whole_files, *parts, b"I" + index], run


# ---- the protocol of commands


class _Recorder(Tracker):
    """Takes all that a command reports, as strictly as the store."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._check(step, *metrics.values())

    def evaluation(
        self,
        step: int,
        examples_seen: int | None,
        flops_total: float | None,
        scores: Mapping[str, float],
        *,
        seconds: float | None = None,
    ) -> None:
        self._check(step, examples_seen or 0, flops_total or 0.0, seconds or 0.0, *scores.values())

    def artifact(self, name: str, path: Path) -> None:
        from jestlab.platform.store.batches import artifact_record

        artifact_record(name, path, path.parents[len(path.parents) - 2])

    def progress(self, step: int, total_steps: int) -> None:
        self._check(step, total_steps)

    def _check(self, *values: float) -> None:
        for value in values:
            if isinstance(value, bool) or (isinstance(value, int) and not 0 <= value < 1 << 63):
                raise Crash(f"{value!r} was taken")


def _protocol(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    from jestlab.platform.programs.command_run import Channel
    from jestlab.platform.programs.context import RunContext

    (folder / "file").write_text("x")
    context = RunContext(
        directory=folder,
        cache=folder,
        seed=0,
        needs={},
        recorder=_Recorder(),
        should_stop=lambda: False,
    )

    def run(content: bytes) -> None:
        with Channel(context) as channel, refusing():
            os.write(channel._reports_end, content[: 1 << 15])
            channel.drain(whole=True)

    costs = {"examples_seen": 64, "flops_total": 1e9}
    messages: list[dict[str, Any]] = [
        {"type": "log", "step": 3, "metrics": {"loss": 0.5, "rate": None}},
        {"type": "evaluation", "step": 4, **costs, "scores": {"toy/score": 0.5}},
        {"type": "artifact", "name": "weights", "path": "file"},
        {"type": "progress", "step": 3, "total_steps": 10},
        {"type": "flush", "id": 7},
    ]
    lines = [json.dumps(message).encode() for message in messages]
    return [*lines, b"\n".join(lines) + b"\n"], run


# ---- archives


def _archives(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    import plans_support as plans
    import stores_support as stores

    from jestlab.analysis import query, tables
    from jestlab.platform.cli import cli
    from jestlab.platform.exchange.archive_read import read_archive
    from jestlab.platform.exchange.archive_write import STORE, TABLES, write_archive
    from jestlab.platform.lab.lab import Lab
    from jestlab.platform.store.annotations import Subject, add_note, add_tags
    from jestlab.platform.store.store import Store
    from jestlab.platform.store.views import VIEWS

    theirs, ours, path = Lab.find(folder / "theirs"), Lab.find(folder / "ours"), folder / "case.zip"
    store = Store.open(theirs.store_url)
    reference, joint, uniform = plans.reference_and_two().runs
    plans.record(store, plans.plan(reference, joint, uniform))
    stores.attempt(store, reference, scores={"toy/score": 0.5}, loss=(2.0, 1.0), environment="{}")
    stores.attempt(store, joint, scores={"toy/score": 0.75}, loss=(2.0, 0.5))
    add_note(store, Subject(experiment="toy"), "done", "Ada")
    add_tags(store, Subject(fingerprint=joint.fingerprint), ["keep"])
    stores.folder(theirs, reference)
    write_archive(theirs, store, path)
    Store.open(ours.store_url).close_whole()
    empty = (ours.root / "results.db").read_bytes()
    raw = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}

    def edited(content: bytes) -> bytes:
        """Return the store after edits: table, row, and column by number, and a value as JSON or bytes."""
        case = folder / STORE
        case.write_bytes(contents[STORE])
        with contextlib.closing(sqlite3.connect(case)) as connection, connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            for edit in content.split(b"\n")[:8]:
                if len(edit) < 4:
                    continue
                table = TABLES[edit[0] % len(TABLES)]
                column = list(table.columns.keys())[edit[2] % len(table.columns)]
                key = next(iter(table.primary_key.columns)).name
                try:
                    value = json.loads(edit[3:])
                except (ValueError, RecursionError):
                    value = edit[3:]
                row = f"{key} = (SELECT {key} FROM {table.name} LIMIT 1 OFFSET {edit[1] % 4})"
                with contextlib.suppress(sqlite3.Error, OverflowError):
                    connection.execute(f"UPDATE {table.name} SET {column} = ? WHERE {row}", [value])
        return case.read_bytes()

    def written(content: bytes) -> bytes:
        """The first byte selects whether the others are a zip file, or edits of a good archive's rows."""
        if content[:1] != b"E":
            return content[1:]
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, data in (contents | {STORE: edited(content[1:])}).items():
                archive.writestr(name, data)
        return made.getvalue()

    def run(content: bytes) -> None:
        path.write_bytes(written(content))
        store = Store.open(ours.store_url)
        try:
            with refusing():
                read_archive(ours, store, path)
                for row in store.experiments():
                    with refusing(ValueError):
                        tables.summary(tables.finals(read_frames(ours.store_url, row.name))).render("md")
                    store.spec(row.name)
                    for words in (["status", row.name], ["trust", row.name, "--dry-run"]):
                        with refusing(ValueError), contextlib.redirect_stdout(io.StringIO()):
                            cli.main([*words, "--root", str(ours.root)], standalone_mode=False)
                for view in VIEWS:
                    query.select(ours.store_url, view)
        finally:
            store.close_whole()
            if sorted(p.name for p in ours.root.iterdir() if p.name.startswith(".")):
                raise Crash("something was left behind")
            shutil.rmtree(ours.root)
            ours.root.mkdir()
            (ours.root / "results.db").write_bytes(empty)

    edits = [bytes([table, row, column]) + value for table, row, column, value in _EDITS]
    return [b"T" + raw, *(b"E" + edit for edit in edits), b"E" + b"\n".join(edits[:6])], run


_VALUES = ["null", "7", '"x"', "[]", '"2026-01-01T00:00:00"', '"{}"', "0.5", "{}", '"[1]"', "-1", "1e999"]
_EDITS = [(place, place % 3, 2 * place % 7, value.encode()) for place, value in enumerate(_VALUES)]


# ---- runs of other tools

_NEXT = b"\0next\0"
"""Stands between records, so that a mutation changes what is in them rather than their checksums."""


def _adoptions(folder: Path) -> tuple[list[bytes], Callable[[bytes], None]]:
    import sqlite3

    import pyarrow as pa
    import pyarrow.parquet as pq
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboardX import SummaryWriter
    from tensorboardX.record_writer import RecordWriter
    from tests.platform.exchange.make_data import DATA, written

    from jestlab.platform.cli import cli
    from jestlab.platform.exchange.read_wandb import records

    lab = folder / "lab"
    (log,), (layers,) = DATA.glob("wandb/*/*.wandb"), DATA.glob("mlruns/*/*/params/model.layers")
    of_log = [*records(log)]

    def wandb_folder(name: str) -> Path:
        made = folder / "wandb" / f"run-20200101_000000-{name}" / f"run-{name}.wandb"
        made.parent.mkdir(parents=True)
        return made

    wandb_folder("soundrun").write_bytes(
        written(record.replace(b"abcd1234", b"soundrun") for record in of_log)
    )
    shutil.copytree(DATA / "mlruns", folder / "mlruns")
    mlflow_run = folder / layers.parents[1].relative_to(DATA)
    database = sqlite3.connect(folder / "mlflow.db")
    database.executescript((DATA / "mlflow.sql").read_text())
    database.close()
    for name in ("sound", "case"):
        with SummaryWriter(str(folder / "logs" / name)) as writer:
            for step in range(4):
                writer.add_scalar("val/loss", 1 / (step + 1), 10 * step)
            writer.add_hparams({"lr": 0.5, "seed": 3, "name": "x"}, {"final": 0.75})
    (events,) = (folder / "logs" / "case").glob("events*")
    table = "run,step,val/acc,lr,note,seed\na,1,0.5,0.1,x,0\na,2,0.75,0.1,x,0\nb,1,0.25,0.2,y,1\n"
    pq.write_table(
        pa.table(
            {
                "run": ["a", "a", "b"],
                "step": [1.0, 2.0, 1.0],
                "val/acc": [0.5, 0.75, 0.25],
                "l": [[1], [], None],
            }
        ),
        folder / "table.parquet",
    )
    metas = mlflow_run.parent.glob("*/meta.yaml")
    (other,) = (meta.parent.name for meta in metas if "run_name: two" in meta.read_text())
    # How each kind is adopted, where the input goes, and a run there that has to stay as it is.
    kinds: dict[bytes, tuple[str, Path, Path, str]] = {
        b"w": ("wandb", folder / "wandb", wandb_folder("case"), "soundrun"),
        b"W": (
            "wandb",
            folder / "wandb",
            folder / "wandb/run-20200101_000000-case/run-case.wandb",
            "soundrun",
        ),
        b"y": ("mlflow", folder / "mlruns", mlflow_run / "meta.yaml", other),
        b"m": ("mlflow", folder / "mlruns", mlflow_run / "metrics/loss", other),
        b"l": ("mlflow", folder / "mlruns", mlflow_run / "params/model.layers", other),
        b"d": ("mlflow", folder / "case.db", folder / "case.db", ""),
        b"t": ("tensorboard", folder / "logs", events, "logs/sound"),
        b"T": ("tensorboard", folder / "logs", events, "logs/sound"),
        b"c": ("csv", folder / "case.csv", folder / "case.csv", ""),
        b"p": ("parquet", folder / "case.parquet", folder / "case.parquet", ""),
    }
    by_kind = {
        b"w": log, b"y": mlflow_run / "meta.yaml", b"m": mlflow_run / "metrics/loss", b"l": layers,
        b"d": folder / "mlflow.db", b"t": events, b"p": folder / "table.parquet",
    }  # fmt: skip
    seeds = [
        *(kind + file.read_bytes() for kind, file in by_kind.items()), b"c" + table.encode(),
        b"c" + table.replace(",", ";").encode(), b"W" + _NEXT.join(of_log),
        b"T" + _NEXT.join(RawEventFileLoader(str(events)).Load()),
    ]  # fmt: skip

    def adopt(*arguments: object) -> dict[str, Any]:
        out, err = io.StringIO(), io.StringIO()
        found: dict[str, Any] = {"runs": []}
        words = [*map(str, arguments), "--into", "old", "--score", "val/*", "--json", "--root", str(lab)]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), refusing():
            with contextlib.suppress(SystemExit):
                cli.main(["adopt", *words], standalone_mode=False)
            found = json.loads(out.getvalue())
        if len(err.getvalue().splitlines()) > 1:
            raise Crash(f"several lines: {err.getvalue()[:300]!r}")
        return found

    (folder / "kept.csv").write_text(table)
    adopt("csv", folder / "kept.csv")

    def run(content: bytes) -> None:
        """The first byte says which file of which tool the others are."""
        kind, path, file, sound = kinds.get(content[:1], kinds[b"c"])
        content, whole = content[1:], file.read_bytes() if file.exists() else b""
        if kind == "wandb" and _NEXT in content:
            content = written(content.split(_NEXT))
        elif kind == "tensorboard" and _NEXT in content:
            file.unlink()
            with contextlib.closing(RecordWriter(str(file))) as written_events:
                for record in content.split(_NEXT):
                    written_events.write(record)
            content = file.read_bytes()
        file.write_bytes(content)
        try:
            found = adopt(kind, path)
            runs = [one for one in found["runs"] if sound and one["origin"].endswith(sound)]
            if sound and [one["change"] in ("new", "same") for one in runs] != [True]:
                raise Crash("another run was lost")
            if {one["change"] for one in adopt("csv", folder / "kept.csv")["runs"]} != {"same"}:
                raise Crash("a run that was adopted before has changed")
        finally:
            file.write_bytes(whole)

    return seeds, run


TARGETS: dict[str, Make] = {
    "adoptions": _adoptions,
    "archives": _archives,
    "specs": _specs,
    "weights": _weights,
    "protocol": _protocol,
}
