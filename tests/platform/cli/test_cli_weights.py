"""`jestlab weights`: inspect, import, and export."""

import json

import labs_support as labs
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


def weights(*arguments, root):
    return labs.here("weights", *arguments, root=root)


def test_inspect_shows_towers_and_digest(place, root):
    shown = weights("inspect", "siglip.npz", root=root)
    assert shown.returncode == 0, shown.stderr
    digest = open_weights(place / "siglip.npz").digest()
    about = json.loads(weights("inspect", "siglip.npz", "--json", root=root).stdout)
    assert about["format"] == "big_vision" and about["digest"] == digest
    count = sum(int(np.prod(shape)) for shape in parameter_shapes(TOWERS).values())
    sizes = about["parameters"]
    assert sizes["all"] == count == sizes["image"] + sizes["text"] + 2
    for part in (f"{count:,} parameters, embeddings of 16", f"{sizes['image']:,}", f"content {digest}"):
        assert part in shown.stdout
    assert about["temperature"] == pytest.approx(100) and about["bias"] == -12.5
    assert about["model"]["vision"]["depth"] == 2
    assert not root.exists()


def test_conversions_keep_the_content(place, root):
    digest = open_weights(place / "siglip.npz").digest()
    steps = [
        ("import", "siglip.npz", "own"),
        ("export", "own", "hf", "--format", "huggingface"),
        ("export", "hf", "scanned.npz", "--format", "big_vision-scanned"),
        ("import", "scanned.npz", "again"),
        ("export", "again", "plain.npz", "--format", "big_vision"),
    ]
    for step in steps:
        done = weights(*step, "--json", root=root)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["digest"] == digest
    for copy in ("own/tokenizer.model", "hf/spiece.model", "again/tokenizer.model"):
        assert (place / copy).read_bytes() == tokenizer()


def test_takes_runs_by_name_and_fingerprint(place, root):
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
        about = json.loads(weights("inspect", name, "--json", root=root).stdout)
        assert about["path"] == str(root / run.directory)
        digests[run.seed].add(about["digest"])
    assert len(digests[4]) == len(digests[5]) == 1 and digests[4] != digests[5]

    words = ("export", "trained/reference/5", "reference.npz", "--format", "big_vision")
    exported = weights(*words, root=root)
    assert exported.returncode == 0, exported.stderr
    assert open_weights(place / "reference.npz").digest() in digests[5]
    refused = weights("export", "trained/reference/5", "hf", "--format", "huggingface", root=root)
    assert "has no head after the image tower" in refused.stderr


def test_errors_are_one_line(place, root):
    (place / "notes.txt").write_text("notes")
    (place / "mine").mkdir()
    (place / "mine" / "thesis.tex").write_text("years of work")
    for arguments, code, message in (
        ("inspect nowhere.npz", 1, "no file, folder, or run 'nowhere.npz': expected a path"),
        ("inspect notes.txt", 1, "notes.txt: neither .npz (big_vision) nor .safetensors"),
        ("import siglip.npz own --tokenizer no.model", 1, "no.model: no such tokenizer"),
        ("import siglip.npz own --tokenizer notes.txt", 1, "not a sentencepiece model"),
        ("export siglip.npz own --format big_vision", 1, "give a name that ends in .npz"),
        ("export siglip.npz own --format onnx", 2, "'onnx' is not one of"),
        ("export siglip.npz own", 2, "Missing option '--format'"),
        ("import siglip.npz mine --force", 1, "mine: holds "),
    ):
        failed = weights(*arguments.split(), root=root)
        assert failed.returncode == code, arguments
        assert message in failed.stderr and failed.stderr.count("\n") == 1
        assert not (place / "own").exists()
