"""Record the data for the tests of the readers with the real W&B and MLflow.

    python tests/platform/exchange/make_data.py PYTHON

replaces `data/`. PYTHON is an interpreter with `wandb` and `mlflow`: the project's environment cannot have
them, since their dependencies conflict with its own. The data name no machine and no user.
"""

import os
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

DATA = Path(__file__).parent / "data"
TABLES = ("experiments", "runs", "params", "metrics", "tags", "latest_metrics")


def _make(python: str, folder: Path) -> None:
    environment = os.environ | {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "LOGNAME": "someone",
    }  # fmt: skip
    environment.pop("PYTHONPATH", None)  # our packages are for another interpreter
    command = [python, "-P", str(Path(__file__).resolve()), "--record"]
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def _record() -> None:
    """Record runs below the working directory; this is executed by the other interpreter."""
    _record_wandb()
    for store in (Path("mlruns").absolute().as_uri(), f"sqlite:///{Path('mlflow.db').absolute()}"):
        _record_mlflow(store)


def _record_wandb() -> None:
    import wandb  # type: ignore[import-not-found]

    settings = wandb.Settings(
        host="somewhere", console="off", disable_git=True, disable_code=True, x_disable_meta=True,
        x_disable_stats=True, x_save_requirements=False,
    )  # fmt: skip
    run = wandb.init(
        id="abcd1234", project="jest", entity="lab", name="first try", group="pilot", tags=["small", "old"],
        notes="Two lines:\nthis one.",
        config={"lr": 0.1, "model": {"width": 64, "layers": [1, 2]}, "warmup": None, "a.b": "text"},
        settings=settings,
    )  # fmt: skip
    for step in range(5):
        loss = float("nan") if step == 2 else 1 / (step + 1)
        run.log({"loss": loss, "eval": {"top1": step / 8, "best": float("inf")}, "note": "a text"})
    run.log({"loss": 7.0, "histogram": wandb.Histogram([1, 2, 2])}, step=20)
    run.config.update({"model": {"width": 128}, "late": True}, allow_val_change=True)
    run.summary["final"] = 0.75
    run.finish(exit_code=1)


def _record_mlflow(store: str) -> None:
    import mlflow

    mlflow.set_tracking_uri(store)
    mlflow.set_experiment("sweep")
    with mlflow.start_run(run_name="one", description="Some notes.", tags={"team": "vision"}):
        mlflow.log_params(
            {"lr": 0.1, "model.width": 64, "model.layers": [1, 2], "flip": True, "warmup": None}
        )
        mlflow.log_params({"optimizer": "adam", "optimizer.beta": "0.90"})
        for step, loss in enumerate([1.0, float("nan"), float("inf"), 0.25]):
            mlflow.log_metric("loss", loss, step=step)
            mlflow.log_metric("eval/top1", step / 8, step=10 * step)
        mlflow.log_metric("loss", 0.125, step=3)
    mlflow.start_run(run_name="two")
    mlflow.log_metric("loss", 3.0)
    mlflow.end_run("KILLED")
    with mlflow.start_run(run_name="deleted") as run:
        pass
    mlflow.delete_run(run.info.run_id)


def dump(database: Path) -> str:
    """Write the tables of a database of MLflow that a reader may need as SQL, as the library made them."""
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (name,) in connection.execute(query).fetchall():
            if name not in TABLES:
                connection.execute(f'DROP TABLE "{name}"')
        return "\n".join(connection.iterdump()) + "\n"


def main(python: str) -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    DATA.mkdir()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        _make(python, folder)
        for log in folder.glob("wandb/offline-run-*/*.wandb"):
            kept = DATA / "wandb" / log.parent.name
            kept.mkdir(parents=True)
            shutil.copy(log, kept)
        for file in folder.glob("mlruns/**/*"):
            if file.is_file() and not file.name.startswith("mlflow.source"):
                kept = DATA / file.relative_to(folder)
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_text(file.read_text().replace(made, "/made"))
        sql = dump(folder / "mlflow.db").replace(made, "/made")
        (DATA / "mlflow.sql").write_text(sql.replace(str(Path(__file__).resolve()), "make_data.py"))


def written(made: Iterable[bytes]) -> bytes:
    """Write a log of W&B, as LevelDB does."""
    block, log = 32 * 1024, bytearray(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
    for record in made:
        pieces: list[bytes] = []
        rest = record
        while rest or not pieces:
            room = block - len(log) % block
            if room < 7:
                log += bytes(room)
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if not rest else 2) if not pieces else (3 if rest else 4)
            log += struct.pack("<IHB", zlib.crc32(bytes([kind]) + piece), len(piece), kind) + piece
            pieces.append(piece)
    return bytes(log)


if __name__ == "__main__":
    _record() if sys.argv[1] == "--record" else main(sys.argv[1])
