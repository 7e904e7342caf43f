"""`jestlab weights`: inspect, import, and export."""

import functools
import json

import numpy as np
import plans_support as plans
import pytest
import stores_support as stores
from weights_support import TOWERS, make_tensors, save, tokenizer

from jestlab.models.config import TwoTowers
from jestlab.models.weights import open_weights
from jestlab.models.weights.layout import parameter_shapes, unflatten
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(tmp_path)
    return tmp_path


@pytest.fixture
def weights(jestlab):
    return functools.partial(jestlab, "weights")


def test_inspect_shows_towers_and_digest(place, root, weights):
    shown = weights("inspect", "siglip.npz")
    digest = open_weights(place / "siglip.npz").digest()
    about = json.loads(weights("inspect", "siglip.npz", "--json"))
    assert about["format"] == "big_vision" and about["digest"] == digest
    count = sum(int(np.prod(shape)) for shape in parameter_shapes(TOWERS).values())
    sizes = about["parameters"]
    assert sizes["all"] == count == sizes["image"] + sizes["text"] + 2
    for part in (f"{count:,} parameters, embeddings of 16", f"{sizes['image']:,}", f"content {digest}"):
        assert part in shown
    assert about["temperature"] == pytest.approx(100) and about["bias"] == -12.5
    assert about["model"]["vision"]["depth"] == 2
    assert not root.exists()


def test_conversions_keep_the_content(place, weights):
    digest = open_weights(place / "siglip.npz").digest()
    steps = [
        ("import", "siglip.npz", "own"),
        ("export", "own", "hf", "--format", "huggingface"),
        ("export", "hf", "scanned.npz", "--format", "big_vision-scanned"),
        ("import", "scanned.npz", "again"),
        ("export", "again", "plain.npz", "--format", "big_vision"),
    ]
    for step in steps:
        assert json.loads(weights(*step, "--json"))["digest"] == digest
    for copy in ("own/tokenizer.model", "hf/spiece.model", "again/tokenizer.model"):
        assert (place / copy).read_bytes() == tokenizer()


def test_takes_runs_by_name_and_fingerprint(place, root, weights):
    from jestlab.models.training.checkpoints import save_parameters

    small = {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 32}
    model = {"model": {"vision": small, "text": small, "embedding_dim": 8}}
    spec = {"name": "trained", "base": model, "runs": {"reference": {}}, "seeds": [4, 5]}
    (place / "trained.yaml").write_text(json.dumps(spec))
    planned = plan(load(str(place / "trained.yaml")))
    store = Store.open(stores.empty_lab(root).store_url)
    plans.record(store, planned)
    for run in planned.runs:
        config = TwoTowers.model_validate(run.config["model"])
        directory = root / run.directory
        save_parameters(directory / "checkpoints", unflatten(make_tensors(config, run.seed)))
        (directory / "tokenizer.model").write_bytes(tokenizer())
        plans.begun(store, run).complete()
    store.close()

    fourth, fifth = planned.runs
    digests: dict[int, set[str]] = {4: set(), 5: set()}
    for name, run in (
        ("trained/reference/5", fifth),
        (fourth.fingerprint[:6], fourth),
    ):
        about = json.loads(weights("inspect", name, "--json"))
        assert about["path"] == str(root / run.directory)
        digests[run.seed].add(about["digest"])
    assert len(digests[4]) == len(digests[5]) == 1 and digests[4] != digests[5]

    weights("export", "trained/reference/5", "reference.npz", "--format", "big_vision")
    assert open_weights(place / "reference.npz").digest() in digests[5]
    refused = weights("export", "trained/reference/5", "hf", "--format", "huggingface", code=1)
    assert "has no head after the image tower" in refused


def test_errors_are_one_line(place, weights, check_errors):
    (place / "notes.txt").write_text("notes")
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").write_text("years of work")
    cases = {
        "inspect nowhere.npz": "no file, folder, or run 'nowhere.npz': expected a path",
        "inspect notes.txt": "notes.txt: neither .npz (big_vision) nor .safetensors",
        "import siglip.npz own --tokenizer no.model": "no.model: no such tokenizer",
        "import siglip.npz own --tokenizer notes.txt": "not a sentencepiece model",
        "export siglip.npz own --format big_vision": "give a name that ends in .npz",
        "export siglip.npz own --format onnx": "2 'onnx' is not one of",
        "export siglip.npz own": "2 Missing option '--format'",
        "import siglip.npz mine --force": "mine: holds ",
    }
    check_errors(weights, cases.items())
    assert not (place / "own").exists()
