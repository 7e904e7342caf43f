"""The LAION study on a folder written like img2dataset's, guided by weights in SigLIP's format."""

from __future__ import annotations

import io
import json
import sqlite3
import subprocess
import sys
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jestlab.models.config import ShapesWeb, TextTower, TwoTowers, VisionTower
from jestlab.models.data import shapes
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tokenizer import train_tokenizer
from jestlab.models.weights.layout import parameter_shapes

SIGLIP = TwoTowers(
    vision=VisionTower(image_size=32, patch_size=16, width=16, depth=1, heads=2, mlp_dim=32),
    text=TextTower(vocabulary_size=64, length=8, width=16, depth=1, heads=2, mlp_dim=32),
    embedding_dim=16,
)
SAVED = ("similarity", "punsafe", "aesthetic")
UNSAFE = 0.6


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A working directory with `laion/` and `siglip.npz` in it."""
    place = tmp_path_factory.mktemp("place")
    shapes.make_web(place / "web", ShapesWeb(examples=600, shard_size=300, image_size=48), seed=4)
    captions = _as_img2dataset_writes(place / "web", place / "laion")
    rng = np.random.default_rng(0)
    tensors = {name: 0.1 * rng.normal(size=shape) for name, shape in parameter_shapes(SIGLIP).items()}
    np.savez(
        place / "siglip.npz",
        allow_pickle=False,
        **{f"params/{name}": tensor.astype(np.float32) for name, tensor in tensors.items()},
    )
    (place / "sentencepiece.model").write_bytes(train_tokenizer(captions, 64).model)
    return place


def _as_img2dataset_writes(web, laion):
    """The web's pairs in the layout of img2dataset (`--output_format webdataset`), taken from a folder of its
    own making: members in the order in which downloads ended, each failure a row of the parquet without
    members, LAION's columns before its own."""
    laion.mkdir()
    source = ShardSource(web)
    rows = [row for path in sorted(web.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]
    images = source.images(np.arange(len(rows)))
    rng = np.random.default_rng(1)
    for shard, start in enumerate(range(0, len(rows), 300)):
        written = []
        with tarfile.open(laion / f"{shard:05d}.tar", "w") as tar:
            for i in rng.permutation(np.arange(start, min(start + 300, len(rows)))).tolist():
                key, failed = f"{shard:05d}{i - start:04d}", i % 50 == 7
                row = {
                    "similarity": rows[i]["similarity"],
                    "punsafe": UNSAFE if i % 10 == 0 else 0.1,
                    "aesthetic": rows[i]["aesthetic"],
                    "caption": rows[i]["caption"],
                    "url": rows[i]["url"],
                    "key": key,
                    "status": "failed_to_download" if failed else "success",
                    "error_message": "HTTP Error 404: Not Found" if failed else None,
                    "width": None if failed else 48,
                    "height": None if failed else 48,
                    "original_width": None if failed else 48,
                    "original_height": None if failed else 48,
                    "exif": None if failed else "{}",
                    "sha256": None if failed else rows[i]["sha256"],
                }
                written.append(row)
                if failed:
                    continue
                for part, content in (
                    ("jpg", images[i]),
                    ("json", json.dumps(row, indent=4).encode()),
                    ("txt", rows[i]["caption"].encode()),
                ):
                    member = tarfile.TarInfo(f"{key}.{part}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
        pq.write_table(pa.Table.from_pylist(written), laion / f"{shard:05d}.parquet")
        stats = {"count": len(written), "successes": sum(row["status"] == "success" for row in written)}
        (laion / f"{shard:05d}_stats.json").write_text(json.dumps(stats))
    return [row["caption"] for row in rows]


def test_it_runs_unchanged_on_a_folder_with_public_weights_as_its_reference(place):
    """As the file's docstring says, only shorter."""
    changes = [
        "base.data.train={kind: folder, path: laion/}",
        "runs.reference={program: weights, path: siglip.npz, tokenizer: sentencepiece.model}",
        "seeds=1",
        "base.schedule.examples_seen=128",
        "base.evaluation={points: 1, shots: 1, shot_seeds: 1}",
        "base.model={vision: {width: 16, depth: 1, heads: 2, mlp_dim: 32, pooling: mean},"
        " text: {width: 16, heads: 2, mlp_dim: 32, pooling: mean}, embedding_dim: 16}",
        "base.data.benchmark={classification_examples: 96, retrieval_examples: 32}",
    ]
    command = [sys.executable, "-c", "from jestlab.platform.cli import main; main()", "launch"]
    command += ["laion_transfer", "--root", "lab", *(w for change in changes for w in ("--set", change))]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(place / "lab" / "results.db") as store:
        finals = store.execute(
            "SELECT label, COUNT(*) FROM v_evaluations WHERE final = 1 GROUP BY label"
        ).fetchall()
        seen = store.execute(
            "SELECT label, MAX(value) FROM v_metrics WHERE name = 'effective_sample_size' GROUP BY label"
        ).fetchall()
    assert {label for label, _ in finals} == {"SigLIP", "JEST++"}
    assert [label for label, _ in seen] == ["JEST++"]
    assert "JEST++" in (place / "lab/reports/laion_transfer/laion.md").read_text()
