"""What all readers of other tools' runs have in common."""

import shutil
from pathlib import Path

import pytest
from tensorboardX import SummaryWriter
from tests.platform.exchange.make_data import DATA
from tests.platform.exchange.recorded import raise_error

from jestlab.platform.errors import UserError
from jestlab.platform.exchange import adopt
from jestlab.platform.exchange.source_run import AdoptOptions


def read(kind: str, path: Path) -> str:
    """Return the runs, or the error, as text."""
    try:
        return repr([*adopt.read(kind, path, raise_error, AdoptOptions())])
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("kind", adopt.KINDS)
def test_rejects_other_places_and_files(kind, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_bytes(b"a,b\n\xff,1\n")
    (tmp_path / "parquet").write_bytes(b"PAR1 and more")
    for name in ("missing", "empty", "text", "parquet"):
        error = read(kind, tmp_path / name)
        assert error.startswith(f"{tmp_path / name}: ") and "\n" not in error
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "text", "parquet"}


@pytest.mark.parametrize("kind", ["wandb", "mlflow", "tensorboard"])
def test_links_are_not_followed(kind, tmp_path):
    source, secret = tmp_path / "source", tmp_path / "secret"
    if kind == "tensorboard":
        for name in ("a", "b"):
            with SummaryWriter(str(source / name)) as writer:
                writer.add_hparams({"lr": 0.5}, {"final": 0.75})
    else:
        shutil.copytree(DATA / {"wandb": "wandb", "mlflow": "mlruns"}[kind], source)
    whole = read(kind, source)
    for place in [*source.rglob("*")]:
        place.rename(secret)
        without = read(kind, source)
        place.symlink_to(secret)
        assert read(kind, source) == without, place
        place.unlink()
        secret.rename(place)
    assert read(kind, source) == whole
