"""`jestlab weights`: inspect, import, and export."""

import functools
import json
import math

import plans_support as plans
import pytest
import stores_support as stores
from weights_support import TOWERS, make_tensors, save, tokenizer

from jestlab.models.config import TwoTowers
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.weights.parameters import parameter_shapes, unflatten
from jestlab.models.weights.sources import open_weights
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.schema import StudySpec
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
    sizes, count = about["parameters"], sum(map(math.prod, parameter_shapes(TOWERS).values()))
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
    small = {"width": 16, "depth": 1, "heads": 2, "mlp_dim": 32}
    model = {"model": {"vision": small, "text": small, "embedding_dim": 8}}
    planned = plan(StudySpec.parse({"name": "mine", "base": model, "runs": {"trained": {}}, "seeds": [4, 5]}))
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
    by_name = json.loads(weights("inspect", "mine/trained/5", "--json"))
    by_fingerprint = json.loads(weights("inspect", fourth.fingerprint[:6], "--json"))
    assert by_name["path"] == str(root / fifth.directory)
    assert by_fingerprint["path"] == str(root / fourth.directory)
    assert by_name["digest"] != by_fingerprint["digest"]
    weights("export", "mine/trained/5", "mine.npz", "--format", "big_vision")
    assert open_weights(place / "mine.npz").digest() == by_name["digest"]
    refused = weights("export", "mine/trained/5", "hf", "--format", "huggingface", code=1)
    assert "has no head after the image tower" in refused


def test_errors_are_one_line(place, weights, check_errors):
    (place / "notes.txt").write_text("notes")
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").write_text("years of work")
    cases = {
        "inspect nowhere.npz": "no file, folder, or run 'nowhere.npz': expected a path",
        "inspect notes.txt": "notes.txt: neither .npz nor .safetensors",
        "import siglip.npz own --tokenizer no.model": "no.model: no such tokenizer",
        "import siglip.npz own --tokenizer notes.txt": "not a sentencepiece model",
        "export siglip.npz own --format big_vision": "give a name that ends in .npz",
        "export siglip.npz own --format onnx": "2 'onnx' is not one of",
        "export siglip.npz own": "2 Missing option '--format'",
        "import siglip.npz mine --force": "mine: already exists, with other content",
    }
    check_errors(weights, cases.items())
    assert not (place / "own").exists()
