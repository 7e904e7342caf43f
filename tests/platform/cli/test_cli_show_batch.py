"""`jestlab show-batch` and the images of the figure `selected`."""

import functools
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import plans_support as plans
import pytest
import stores_support as stores
from PIL import Image

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.shards import ShardIndex
from jestlab.models.training import records
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning import recording
from jestlab.platform.planning.plan import plan
from jestlab.platform.reports.selected import sample, selected_images
from jestlab.platform.spec import StudySpec
from jestlab.platform.store.store import Store

SPEC: dict[str, Any] = {
    "name": "shown",
    "base": {**plans.TINY, "runtime.diagnostics": {"every_steps": 2, "columns": ["noise"]}},
    "runs": {
        "reference": {"initialization": 1},
        "uniform": {},
        "joint": {"selection": {"rule": "joint", "reference": "reference", "chunks": 4}},
    },
}


def super_batch(seed: int) -> records.RecordedBatch:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=80).astype(np.float32)
    best = np.argsort(-scores)[:16].astype(np.int32)
    return records.RecordedBatch(rng.permutation(256)[:80].astype(np.int64), scores, best)


BATCHES = {step: super_batch(step) for step in (1, 5)}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ShardIndex]:
    """A lab with a planned study, whose run `joint` recorded two super-batches, and the data of these."""
    lab, planned = stores.empty_lab(tmp_path_factory.mktemp("template") / "lab"), plan(StudySpec.parse(SPEC))
    store = Store.open(lab.store_url)
    recording.record(store, planned)
    store.close_whole()
    [run] = [run for run in planned.runs if run.name == "joint"]
    settings = TrainConfig.model_validate(run.config)
    web = ShardIndex.load(ensure_web(settings, lab.data))
    for step, batch in BATCHES.items():
        records.record(lab.root / run.directory, step, batch)
    return lab.root, web


@pytest.fixture
def web(template: tuple[Path, ShardIndex], root: Path) -> ShardIndex:
    """The data of a lab at `root`."""
    shutil.copytree(template[0], root)
    return template[1]


def test_prints_captions_and_scores_of_the_last_step(web, jestlab, tmp_path):
    shown = jestlab("show-batch", "shown/joint", "--examples", 3, "-o", tmp_path / "b.png")
    assert (tmp_path / "b.png").is_file()
    batch = BATCHES[5]
    for position in batch.selected[[0, 7, 15]]:
        [caption] = web.captions(batch.examples[[position]])
        assert f"selected  {batch.scores[position]:>6.3f}  {caption}" in shown
    assert shown.count("\nrejected") == 3
    assert "shown/joint/0, step 5: 16 of 80 candidates" in shown
    assert "recorded steps: 1, 5" in shown


def test_json_and_image_have_the_examples(web, root, jestlab):
    summary = json.loads(jestlab("show-batch", "joint", "--step", 1, "--examples", 2, "--json"))
    assert summary["picture"] == str(root / "reports" / "shown" / "batches" / "joint-0-step-1.png")
    batch = BATCHES[1]
    assert (summary["step"], summary["candidates"], summary["selected"]) == (1, 80, 16)
    assert summary["mean_score_selected"] == pytest.approx(float(batch.scores[batch.selected].mean()))
    assert summary["mean_score_rejected"] == pytest.approx(float(batch.scores[batch.rejected].mean()))
    assert [row["selected"] for row in summary["examples"]] == [True, True, False, False]
    shares = summary["shares"]["noise"].values()
    assert sum(kind["selected"] for kind in shares) == pytest.approx(1)
    # The figure contains the first selected picture: it has its most frequent color.
    with Image.open(summary["picture"]) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    [file] = web.images(batch.examples[batch.selected[:1]])
    with Image.open(io.BytesIO(file)) as image:
        color = np.median(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)
    assert (np.abs(pixels - color).max(axis=1) <= 4).sum() > 500


def test_errors_are_one_line(web, root, jestlab, check_errors):
    [damaged] = root.rglob("00000001.npz")
    damaged.write_bytes(b"nothing")
    cases = {
        "joint --step 1": "00000001.npz: damaged",
        "joint --step 4": "joint recorded no super-batch at step 4, but at: 1, 5",
        "uniform": "uniform has recorded no super-batch in ",
        "nobody": "nobody",
    }
    check_errors(functools.partial(jestlab, "show-batch"), cases.items())


def test_images_for_the_figure(web, root):
    lab = Lab.find(root)
    shown = selected_images(lab, "shown", ("uniform", "joint"), 4)
    assert {(one.label, one.step) for one in shown} == {("joint", 1), ("joint", 5)}
    assert len(shown) == 8 and all(one.selected for one in shown)
    with pytest.raises(ValueError, match="uniform has recorded no super-batch"):
        selected_images(lab, "shown", ("uniform",), 4)


def test_a_sample_is_evenly_spaced():
    batch = BATCHES[1]
    selected, rejected = sample(batch, 4)
    assert selected.tolist() == batch.selected[[0, 5, 10, 15]].tolist()
    assert set(rejected).isdisjoint(batch.selected.tolist())
    assert [len(part) for part in sample(batch, 1_000)] == [16, 64]
