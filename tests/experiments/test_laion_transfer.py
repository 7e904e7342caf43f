"""The LAION study on a folder of shards, guided by weights in SigLIP's format, as its docstring says."""

import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest

from jestlab.models.config import ShapesWeb, TextTower, TwoTowers, VisionTower
from jestlab.models.data import shapes
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.tokenizer import train_tokenizer
from jestlab.models.weights.parameters import parameter_shapes

pytestmark = pytest.mark.full

SIGLIP = TwoTowers(
    vision=VisionTower(image_size=32, patch_size=16, width=16, depth=1, heads=2, mlp_dim=32),
    text=TextTower(vocabulary_size=64, length=8, width=16, depth=1, heads=2, mlp_dim=32),
    embedding_dim=16,
)
CHANGES = (
    "base.data.train={kind: folder, path: laion/}",
    "runs.reference={program: weights, path: siglip.npz, tokenizer: sentencepiece.model}",
    "seeds=1",
    "base.schedule.examples_seen=128",
    "base.evaluation={points: 1, shots: 1, shot_seeds: 1}",
    "base.model={vision: {width: 16, depth: 1, heads: 2, mlp_dim: 32, pooling: mean},"
    " text: {width: 16, heads: 2, mlp_dim: 32, pooling: mean}, embedding_dim: 16}",
    "base.data.benchmark={classification_examples: 96, retrieval_examples: 32}",
)


@pytest.fixture
def folder(tmp_path):
    """A working directory with `laion/`, `siglip.npz`, and a tokenizer."""
    shapes.make_web(tmp_path / "laion", ShapesWeb(examples=600, shard_size=300, image_size=48), seed=4)
    captions = load_metadata(tmp_path / "laion", ["caption"])["caption"]
    (tmp_path / "sentencepiece.model").write_bytes(train_tokenizer(captions, 64).model)
    rng = np.random.default_rng(0)
    tensors = {
        f"params/{name}": (0.1 * rng.normal(size=shape)).astype(np.float32)
        for name, shape in parameter_shapes(SIGLIP).items()
    }
    np.savez(tmp_path / "siglip.npz", allow_pickle=False, **tensors)
    return tmp_path


def test_runs_on_a_folder_with_public_weights_as_the_reference(folder):
    command = [sys.executable, "-c", "from jestlab.platform.cli import main; main()", "launch"]
    command += ["laion_transfer", "--root", "lab", *(w for change in CHANGES for w in ("--set", change))]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with closing(sqlite3.connect(folder / "lab" / "results.db")) as store:
        evaluated = store.execute("SELECT DISTINCT label FROM v_evaluations WHERE final = 1").fetchall()
        selecting = store.execute(
            "SELECT DISTINCT label FROM v_metrics WHERE name = 'effective_sample_size'"
        ).fetchall()
    assert sorted(evaluated) == [("JEST++",), ("SigLIP",)]
    assert selecting == [("JEST++",)]
    assert "JEST++" in (folder / "lab/reports/laion_transfer/laion.md").read_text()
