"""The case study on text: its script selects learnable text, and RHO-1's mask is exact."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import yaml

from jestlab.analysis.query import frame

pytestmark = pytest.mark.oracle

STUDY = Path(__file__).parents[1] / "docs" / "case-studies" / "text"
TOY = {"width": 32, "depth": 1, "length": 32, "steps": 40, "evaluate_every": 40, "gain": 100.0}
WORDS = ["the", "name", "of", "a", "file", "is", "written", "by", "this", "command"]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("text_train", STUDY / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("share", [0.6, 0.25])
def test_rho_1_keeps_exactly_the_tokens_with_the_highest_excess_loss(script, share):
    torch = pytest.importorskip("torch")
    # Multiples of 2^-6: differences are exact in float32, and some are equal.
    learner, reference = np.random.default_rng(0).integers(0, 512, (2, 4, 50)) / 64
    mask = script.hardest_tokens(torch.tensor(learner).float(), torch.tensor(reference).float(), share)
    excess = (learner - reference).ravel()
    expected = np.zeros(excess.size, bool)
    expected[np.argsort(-excess, kind="stable")[: round(share * excess.size)]] = True
    np.testing.assert_array_equal(mask.numpy(), expected.reshape(4, 50))


@pytest.fixture(scope="module")
def shares(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Launch the study on planted text: run → the share of learnable text in the last report.

    The pages are words in random order, and the changelogs random bytes, which nothing can learn.
    """
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("text")
    random = np.random.default_rng(0)
    learnable, noise = {}, {}
    for name in ("train", "test"):
        learnable[name] = " ".join(random.choice(WORDS, 1_000)).encode()
        noise[name] = random.bytes(len(learnable[name]))
    for file, text in {
        "pages.train": learnable["train"],
        "pages.test": learnable["test"],
        "web-pages.train": learnable["train"],
        "web-changelogs.train": noise["train"],
        "changelogs.test": noise["test"],
    }.items():
        (folder / f"{file}.bin").write_bytes(text)

    study = yaml.safe_load((STUDY / "text.yaml").read_text())
    study["base"] |= {"command": [sys.executable, str(STUDY / "train.py")], "data": str(folder), **TOY}
    study["runs"]["reference"].pop("steps")
    del study["runs"]["hard-learner"]
    study = {key: value for key, value in study.items() if key not in ("record", "claims", "reports")}
    study["seeds"] = 1
    (folder / "text.yaml").write_text(yaml.safe_dump(study))
    jestlab = Path(sys.executable).with_name("jestlab")
    subprocess.run(
        [jestlab, "launch", "text.yaml", "--root", "lab", "--no-reports"],
        cwd=folder,
        env=os.environ | {"JESTLAB_POLL_SECONDS": "0.2"},
        check=True,
        timeout=300,
    )
    reported = frame(
        f"sqlite:///{folder}/lab/results.db",
        view="latest",
        where="name = 'pages_share'",
        columns=["run", "value"],
    )
    return dict(zip(reported["run"], reported["value"], strict=True))


def test_the_reference_sees_pages_alone_and_uniform_runs_see_half(shares):
    assert shares["reference"] == 1.0
    assert shares["uniform"] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("run", "more"), [("sequences", 0.2), ("tokens", 0.1)])
def test_learnability_selects_sequences_and_tokens_that_can_be_learned(shares, run, more):
    assert shares[run] > shares["uniform"] + more
