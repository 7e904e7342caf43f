"""The program `weights`: planned by content, and checked again before it runs."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from weights_support import TOWERS, save

from jestlab.models.config import WeightsConfig
from jestlab.models.data.tokenizer import Tokenizer, train_tokenizer
from jestlab.models.weights.sources import open_weights, write
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import Plan, plan
from jestlab.platform.spec.load import load


@pytest.fixture
def place(tmp_path):
    """A folder with a checkpoint, its tokenizer, and a study that names it."""
    save(tmp_path)
    return tmp_path


def study(place: Path, **siglip: Any) -> Path:
    run = {"program": "weights", "path": "siglip.npz", **siglip}
    path = place / "study.yaml"
    path.write_text(yaml.safe_dump({"name": "imported", "runs": {"siglip": run}}))
    return path


def planned(place: Path, **siglip: Any) -> Plan:
    return plan(load(str(study(place, **siglip))))


def test_a_plan_records_towers_and_digests(place, monkeypatch, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))  # paths count from the spec
    path = study(place)
    path.write_text(path.read_text() + "seeds: 3\n")
    [run] = plan(load(str(path))).runs  # one for all replicates
    config = WeightsConfig.model_validate(run.config)
    assert config.path == str(place / "siglip.npz")
    assert config.model == TOWERS
    assert config.digest == open_weights(place / "siglip.npz").digest()
    assert config.tokenizer_digest == Tokenizer((place / "spiece.model").read_bytes()).digest
    assert run.price is not None and run.price.total == 0


def test_content_identifies_and_place_and_format_do_not(place):
    def fingerprint(**siglip):
        [run] = planned(place, **siglip).runs
        return run.fingerprint

    first = fingerprint()
    weights = open_weights(place / "siglip.npz")
    tokenizer = (place / "spiece.model").read_bytes()
    write(weights, place / "own", "jestlab", tokenizer=tokenizer)
    write(weights, place / "hf", "huggingface", tokenizer=tokenizer)
    (place / "elsewhere.model").write_bytes(tokenizer)
    assert fingerprint(path="own") == fingerprint(path="hf") == first
    assert fingerprint(tokenizer="elsewhere.model") == first
    assert fingerprint(seed=3) == first
    (place / "elsewhere.model").write_bytes(train_tokenizer(["a red circle", "two cats"], 64).model)
    others = {fingerprint(tokenizer="elsewhere.model"), fingerprint(compute_dtype="bfloat16")}
    save(place, seed=1)
    others.add(fingerprint())
    assert len(others - {first}) == 3


@pytest.mark.parametrize(
    ("siglip", "message"),
    [
        ({"path": "nowhere.npz"}, r"runs.siglip: .*nowhere.npz: no such file or folder of weights"),
        ({"tokenizer": "no.model"}, r"runs.siglip: .*no.model: no such tokenizer"),
        ({"digest": "0" * 64}, r"path: .*siglip.npz has changed \(digest \w{12}, recorded 0{12}\)"),
        ({"tokenizer_digest": "0" * 64}, r"tokenizer: .*spiece.model has changed"),
        ({"model": {"variant": "B/16"}}, r"siglip.npz: does not hold .*: missing: img/Transformer"),
        ({"compute_dtype": "float16"}, r"runs.siglip.compute_dtype"),
        ({"pth": "x"}, r"runs.siglip.pth: unknown key: did you mean 'path'"),
    ],
)
def test_errors_name_the_place(place, siglip, message):
    with pytest.raises(UserError, match=message) as error:
        planned(place, **siglip)
    assert "\n" not in str(error.value)
    (place / "spiece.model").unlink()
    with pytest.raises(UserError, match=r"tokenizer: no spiece.model or tokenizer.model .*give its path"):
        planned(place)


def test_weights_that_changed_after_the_plan_are_refused(place):
    from jestlab.platform.programs.execution import run_weights

    [run] = planned(place).runs
    before = (place / "siglip.npz").stat()
    save(place, b=np.full(1, 5, np.float32))
    os.utime(place / "siglip.npz", ns=(before.st_atime_ns, before.st_mtime_ns))  # as a kept hash would miss
    context: Any = SimpleNamespace(directory=place / "run", progress=lambda step, total: None)
    with pytest.raises(UserError, match=r"siglip\.npz has changed"):
        run_weights(WeightsConfig.model_validate(run.config), context)
    assert not (place / "run").exists()
