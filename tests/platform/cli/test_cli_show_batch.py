"""`jestlab show-batch` and the figure `selected`: what runs recorded, with real pictures of the data."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.shards import ShardSource
from jestlab.models.training import batches
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.pictures import RecordedRun, few, pictures
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import Study
from jestlab.platform.store.store import Store

SPEC: dict[str, Any] = {
    "name": "shown",
    "base": {
        "data.train": {"examples": 256, "image_size": 16, "shard_size": 128},
        "data.benchmark": {"classification_examples": 32, "retrieval_examples": 16, "image_size": 16},
        "model.vision.image_size": 16,
        "schedule": {"batch_size": 16, "examples_seen": 160},
        "runtime.diagnostics": {"every_steps": 5, "columns": ["noise"]},
    },
    "runs": {
        "reference": {"initialization": 1},
        "uniform": {},
        "joint": {"selection": {"rule": "joint", "reference": "reference", "chunks": 4}},
    },
    "reports": ["selected"],
}


@pytest.fixture
def lab(root: Path) -> Lab:
    """A lab with a planned study, whose run `joint` recorded two super-batches of the data."""
    lab, planned = Lab.find(root), plan(Study.parse(SPEC))
    Store.open(lab.store_url).record(planned)
    rng = np.random.default_rng(0)
    for run in planned.runs:
        if run.name != "joint":
            continue
        for step in (1, 5):
            examples = rng.permutation(256)[:80].astype(np.int64)
            scores = rng.normal(size=80).astype(np.float32)
            best = np.argsort(-scores)[:16].astype(np.int32)
            batches.record(
                lab.inside(directory(lab, "joint")), step, batches.SuperBatch(examples, scores, best)
            )
    return lab


def directory(lab: Lab, label: str) -> str:
    [row] = [row for row in Store.open(lab.store_url).runs("shown") if row.label == label]
    return row.directory


def recorded(lab: Lab, step: int) -> tuple[batches.SuperBatch, ShardSource]:
    store = Store.open(lab.store_url)
    [row] = [row for row in store.runs("shown") if row.label == "joint"]
    settings = TrainConfig.model_validate(store.run(row.fingerprint).config)
    web = ensure_web(settings.data.train, settings.web_seed, lab.data)
    return batches.load(lab.inside(row.directory), step), ShardSource(web)


def test_captions_scores_and_kinds_of_the_last_step_are_shown(lab: Lab, jestlab: Callable[..., str]) -> None:
    shown = jestlab("show-batch", "shown/joint", "--examples", 3)
    batch, web = recorded(lab, 5)
    chosen = batch.selected[[0, 7, 15]]
    for position in chosen:
        [caption] = web.captions(batch.examples[[position]])
        assert f"selected  {batch.scores[position]:>6.3f}  {caption}" in shown
    assert shown.count("\nrejected") == 3
    assert "shown/joint/0, step 5: 16 of 80 candidates" in shown
    assert "recorded steps: 1, 5" in shown


def test_json_has_the_numbers_and_the_picture_its_pixels(
    lab: Lab, jestlab: Callable[..., str], tmp_path: Path
) -> None:
    told = json.loads(
        jestlab("show-batch", "joint", "--step", 1, "--examples", 2, "-o", tmp_path / "b.png", "--json")
    )
    batch, web = recorded(lab, 1)
    assert (told["step"], told["candidates"], told["selected"]) == (1, 80, 16)
    assert told["mean_score_selected"] == pytest.approx(float(batch.scores[batch.selected].mean()))
    assert told["mean_score_rejected"] == pytest.approx(float(batch.scores[batch.rejected].mean()))
    assert [row["selected"] for row in told["examples"]] == [True, True, False, False]
    shares = told["shares"]["noise"]
    assert sum(kind["selected"] for kind in shares.values()) == pytest.approx(1)
    assert sum(kind["candidates"] for kind in shares.values()) == pytest.approx(1)
    with Image.open(tmp_path / "b.png") as image:
        pixels = np.asarray(image.convert("RGB"))
    # The first selected picture is somewhere on the figure: its most frequent colours are.
    [file] = web.images(batch.examples[batch.selected[:1]])
    with Image.open(io.BytesIO(file)) as image:
        colour = np.median(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)
    assert (np.abs(pixels.reshape(-1, 3) - colour).max(axis=1) <= 4).sum() > 500


def test_the_default_picture_is_in_the_labs_reports(lab: Lab, jestlab: Callable[..., str]) -> None:
    told = json.loads(jestlab("show-batch", "joint", "--json"))
    assert told["picture"] == str(lab.reports / "shown" / "batches" / "joint-0-step-5.png")
    assert Path(told["picture"]).stat().st_size > 1_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("joint", "--step", "4"), "joint recorded no super-batch at step 4, but at: 1, 5"),
        (("uniform",), "uniform has recorded no super-batch in "),
        (("nobody",), "nobody"),
    ],
)
def test_what_is_not_there_is_told(
    lab: Lab, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    from jestlab.platform.cli import main

    with pytest.raises(SystemExit) as stopped:
        main(["show-batch", *arguments, "--root", str(lab.root)])
    error = capsys.readouterr().err
    assert stopped.value.code == 1
    assert said in error and error.count("\n") == 1


def test_the_figure_shows_what_runs_selected_and_leaves_out_those_that_recorded_nothing(lab: Lab) -> None:
    shown = pictures(lab, "shown", ("uniform", "joint"), 4)
    assert {(one.label, one.step) for one in shown} == {("joint", 1), ("joint", 5)}
    assert len(shown) == 8 and all(one.selected for one in shown)
    with pytest.raises(ValueError, match="uniform has recorded no super-batch"):
        pictures(lab, "shown", ("uniform",), 4)


def test_a_damaged_record_is_told(lab: Lab) -> None:
    path = lab.inside(directory(lab, "joint")) / "batches" / "00000001.npz"
    path.write_bytes(b"nothing")
    store = Store.open(lab.store_url)
    [row] = [row for row in store.runs("shown") if row.label == "joint"]
    with pytest.raises(UserError, match=r"00000001\.npz: damaged"):
        RecordedRun(lab, store, row).batch(1)


def test_few_are_spread_over_all(lab: Lab) -> None:
    batch, _ = recorded(lab, 1)
    selected, rejected = few(batch, 4)
    assert selected.tolist() == batch.selected[[0, 5, 10, 15]].tolist()
    assert len(set(rejected) & set(batch.selected.tolist())) == 0
    assert [len(part) for part in few(batch, 1_000)] == [16, 64]
