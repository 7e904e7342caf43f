"""One launch of each program in a real lab: weights, embed, score, train, diagnose, and a command.

A selection rule, a criterion, and an evaluation are code of the user's own.
"""

import itertools
import json
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import jax
import labs_support as labs
import numpy as np
import plans_support as plans
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_support import TOWERS
from weights_support import save
from workers_support import ForkingLocal, replace_local_executor

from jestlab.analysis.figures.learnability import learnability
from jestlab.models.config import TwoTowers
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.scoring.columns import load as load_columns
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.weights.parameters import flatten
from jestlab.models.weights.sources import open_weights
from jestlab.platform.lab.lab import Lab

OWN = Path(__file__).parents[2] / "models" / "support" / "own_code.py"
EXAMPLES = 256
IMPORTED = TwoTowers.model_validate(TOWERS | {"text": TOWERS["text"] | {"vocabulary_size": 64}})
SCRIPT = """
from jestlab.platform import client
client.run().evaluation(1, 64, 1e6, {{"toy/top1": 0.5}})
"""
STUDY: dict[str, Any] = {
    "name": "every",
    "base": plans.TINY,
    "runs": {
        "imported": {"program": "weights", "path": "siglip.npz"},
        "cache": {"program": "embed", "reference": "imported"},
        "scores": {
            "program": "score",
            "embeddings": "cache",
            "negcliploss": {"batch_size": 64, "repeats": 2},
            "soft_cap": {"of": "negcliploss", "size": 200},
        },
        "joint": {
            "data.scores": "scores",
            "data.filter": "negcliploss_rank > 0.3 and similarity > 0.05",
            "data.repeat": "soft_cap",
            "selection": {"rule": "own.py:halves", "criterion": "own.py:clipped", "reference": "cache"},
            "evaluation.extra": {"squares": "own.py:colours"},
        },
        "diagnosis": plans.TINY_DIAGNOSIS | {"learner": "joint", "reference": "cache"},
        "command": {"program": "command", "command": [sys.executable, "-c", SCRIPT]},
    },
    "metrics": {"toy/top1": {"goal": "max"}},
    "score": ["shapes/zero_shot"],
}


class Launched(NamedTuple):
    """A lab in which the study has been launched."""

    root: Path
    spec: Path

    def folder(self, run: str) -> Path:
        [found] = (self.root / "runs").glob(f"{run}-*")
        return found

    def query(self, sql: str) -> list[Any]:
        with closing(sqlite3.connect(self.root / "results.db")) as connection:
            return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launched]:
    folder = tmp_path_factory.mktemp("every")
    save(folder, IMPORTED)
    shutil.copy(OWN, folder / "own.py")
    spec, root = folder / "every.yaml", folder / "lab"
    spec.write_text(yaml.safe_dump(STUDY))
    with pytest.MonkeyPatch.context() as patch:
        replace_local_executor(patch, ForkingLocal)
        for name, value in labs.variables(root).items():
            patch.setenv(name, value)
        done = labs.here("launch", spec, "--no-reports", root=root)
        assert done.returncode == 0, done.stdout + done.stderr
        yield Launched(root, spec)
        labs.wait_until_ended(root)


def test_dependencies_run_first_and_nothing_runs_twice(launched):
    assert dict(launched.query("SELECT run, state FROM v_runs")) == dict.fromkeys(STUDY["runs"], "COMPLETED")
    times = {run: span for run, *span in launched.query("SELECT run, started_at, ended_at FROM v_attempts")}
    for before, after in itertools.pairwise(["imported", "cache", "scores", "joint", "diagnosis"]):
        assert times[before][1] <= times[after][0]
    again = labs.here("launch", launched.spec, "--no-reports", root=launched.root)
    assert "nothing to run: all 6 runs are COMPLETED" in again.stdout


def test_imported_weights_are_like_a_trained_run(launched):
    folder = launched.folder("imported")
    loaded = dict(flatten(load_parameters(folder / "checkpoints", IMPORTED)))
    weights = open_weights(launched.spec.parent / "siglip.npz")
    jax.tree.map(np.testing.assert_array_equal, weights.tensors(), loaded)
    tokenizer = (launched.spec.parent / "spiece.model").read_bytes()
    assert (folder / "tokenizer.model").read_bytes() == tokenizer
    shown = labs.here("weights", "inspect", "every/imported", "--json", root=launched.root)
    assert json.loads(shown.stdout)["digest"] == weights.digest()


def test_a_run_trains_on_what_its_filter_over_scores_keeps(launched):
    norms = np.linalg.norm(EmbeddingCache(launched.folder("cache")).images(np.arange(EXAMPLES)), axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    columns, _ = load_columns(launched.folder("scores"))
    values, ranks = columns["negcliploss"], columns["negcliploss_rank"]
    lower = np.searchsorted(np.sort(values), values, side="left")  # equal scores share a rank
    np.testing.assert_allclose(ranks, lower / EXAMPLES, rtol=1e-6)
    assert columns["soft_cap"].sum() == 200
    batches = (launched.folder("joint") / "batches").glob("*.npz")
    read = np.concatenate([np.load(file)["examples"].ravel() for file in batches])
    assert len(read) and np.all((ranks[read] > 0.3) & (columns["soft_cap"][read] > 0))
    own_evaluation = "SELECT run FROM v_evaluations WHERE name = 'squares/accuracy'"
    assert launched.query(own_evaluation) == [("joint",)]


def test_scores_are_shown_and_written_for_other_tools(launched, tmp_path):
    file = tmp_path / "scores.parquet"
    shown = labs.here("data", "score", "every/scores/0", file, "--json", root=launched.root)
    summary = json.loads(shown.stdout)
    assert summary["scored"] == summary["examples"] == EXAMPLES
    assert set(summary["quantiles"]) == {"clip_score", "negcliploss", "semdedup", "soft_cap"}
    table = pq.read_table(file).to_pydict()
    assert table["key"][0] == "000000000" and table["tar"][0].endswith(".tar")
    columns, _ = load_columns(launched.folder("scores"))
    np.testing.assert_array_equal(table["semdedup"], columns["semdedup"])
    wrong = labs.here("data", "score", "every/joint/0", root=launched.root)
    assert wrong.returncode == 1 and "name a finished run of program score" in wrong.stderr


def test_a_training_run_reports_its_phases(launched):
    phases = "startup_seconds, compilation_seconds, training_seconds, evaluation_seconds, checkpoint_seconds"
    [(resumed, reached, saved, *seconds)] = launched.query(
        f"SELECT resumed_step, reached_step, saved_step, {phases} FROM attempt JOIN run ON run.id = run_id "
        "WHERE program = 'train'"
    )
    assert (resumed, reached, saved) == (0, 4, 4) and min(seconds) > 0, seconds


def test_a_diagnosis_has_its_figure(launched):
    count = "SELECT COUNT(*) FROM v_metrics WHERE name = 'learnability_matrix'"
    assert launched.query(count) == [(64,)]
    shares = "SELECT SUM(value) FROM v_metrics WHERE name LIKE 'selected/joint/noise/%'"
    assert launched.query(shares)[0][0] == pytest.approx(1)
    plot = learnability(Lab.find(launched.root).store_url, "every", "diagnosis")
    assert len(plot.data) > 64
