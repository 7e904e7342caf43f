"""The program `score` in a real lab: between what is embedded and runs that filter by its columns."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import labs_support as labs
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_support import BENCHMARK, TOWERS

from jestlab.models.config import EmbedConfig, ScoreConfig, TrainConfig
from jestlab.models.data.shards import ShardIndex
from jestlab.models.scoring.columns import load as load_columns
from jestlab.platform.errors import UserError
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import memory, pricing
from jestlab.platform.spec import Study

CLEAN = dict.fromkeys(("mismatched", "alt_text", "noise_image", "blank", "vague", "near_duplicate"), 0.0)
STUDY: dict[str, Any] = {
    "name": "scored",
    "base": {
        "model": TOWERS,
        "data": {
            "train": {
                "examples": 1_024,
                "image_size": 16,
                "shard_size": 256,
                "noise": {"near_duplicate": 0.3},
            },
            "benchmark": BENCHMARK,
        },
        "schedule": {"batch_size": 16, "examples_seen": 320},
        "evaluation": {"points": 1, "shots": 2, "shot_seeds": 1},
    },
    "runs": {
        "reference": {"data.filter": "similarity > 0.25", "initialization": 1},
        "cache": {"program": "embed", "reference": "reference"},
        "targets": {
            "program": "embed",
            "reference": "reference",
            "data.train": {"examples": 64, "seed": 9, "noise": CLEAN},
        },
        "scores": {
            "program": "score",
            "embeddings": "cache",
            "target": "targets",
            "negcliploss": {"batch_size": 128, "repeats": 2},
            "soft_cap": {"of": "negcliploss", "size": 500},
        },
        "uniform": {},
        "filtered": {"data": {"scores": "scores", "filter": "negcliploss_rank > 0.7 and similarity > 0.1"}},
        "repeated": {"data": {"scores": "scores", "repeat": "soft_cap"}},
        "joint": {
            "data": {"scores": "scores", "filter": "semdedup < 0.9"},
            "selection": {"rule": "joint", "reference": "cache", "chunks": 4},
        },
    },
    "reports": [{"table": {"baseline": "uniform"}}],
}


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """A lab in which the study has run, and the spec."""
    root = tmp_path_factory.mktemp("scored")
    spec = root / "scored.yaml"
    spec.write_text(yaml.safe_dump(STUDY))
    done = labs.here("launch", spec, root=root / "lab")
    assert done.returncode == 0, done.stderr
    return root / "lab", spec


def studied(changes):
    tree = json.loads(json.dumps(STUDY))
    for name, run in changes.items():
        tree["runs"][name] = run
    return Study.model_validate(tree)


def test_runs_train_on_what_their_filter_over_scores_keeps(launched):
    root, _ = launched
    with sqlite3.connect(root / "results.db") as store:
        states = dict(store.execute("SELECT run, state FROM v_runs"))
    assert states == dict.fromkeys(STUDY["runs"], "COMPLETED")
    [directory] = (root / "runs").glob("scores-*")
    columns, _ = load_columns(directory)
    n = 1_024
    assert {name: len(values) for name, values in columns.items()} == dict.fromkeys(columns, n)
    ranks = columns["negcliploss_rank"]
    assert sorted(ranks * n) == pytest.approx(range(n), abs=0.01)
    order = np.argsort(columns["negcliploss"])
    assert np.array_equal(np.argsort(ranks), order)
    assert columns["soft_cap"].sum() == 500
    # The clean are above the mismatched, as a score of quality has to have them.
    [filtered] = (root / "runs").glob("filtered-*")
    read = np.load(next((filtered / "batches").glob("*.npz")))["examples"]
    assert np.all(ranks[read] > 0.7)
    [repeated] = (root / "runs").glob("repeated-*")
    read = np.load(next((repeated / "batches").glob("*.npz")))["examples"]
    assert np.all(columns["soft_cap"][read] > 0)


def test_scores_are_looked_at_and_written_for_other_tools(launched):
    root, _ = launched
    file = root.parent / "scores.parquet"
    shown = labs.here("data", "score", "scored/scores/0", file, "--json", root=root)
    assert shown.returncode == 0, shown.stderr
    summary = json.loads(shown.stdout)
    assert summary["scored"] == summary["examples"] == 1_024
    assert set(summary["quantiles"]) == {"clip_score", "negcliploss", "semdedup", "normsim", "soft_cap"}
    table = pq.read_table(file).to_pydict()
    assert table["key"][0] == "000000000" and table["tar"][0].endswith(".tar")
    [directory] = (root / "runs").glob("scores-*")
    columns, _ = load_columns(directory)
    np.testing.assert_array_equal(table["semdedup"], columns["semdedup"])

    options = ("--target", "scored/targets/0", "--batch-size", "128", "--repeats", "2")
    again = labs.here("data", "score", "scored/cache/0", *options, root=root)
    assert again.returncode == 0, again.stderr
    assert "1,024 of 1,024 examples are scored" in again.stdout
    for column in ("clip_score", "semdedup", "normsim"):
        assert f"{column} " in again.stdout
    wrong = labs.here("data", "score", "scored/uniform/0", root=root)
    assert wrong.returncode != 0
    assert "uniform is a run of train: name a run of embed, or of score" in wrong.stderr


def test_a_plan_prices_scores_and_orders_the_runs():
    planned = plan(studied({}))
    places = {run.name: place for place, run in enumerate(planned.runs)}
    assert places["cache"] < places["scores"] < places["filtered"]
    [scores] = [run for run in planned.runs if run.name == "scores"]
    E, n, k = 16, 1_024, 32
    found = 4 * 2 * n * 128 * E + 2 * E * (n * k * 21 + n * n // k) + 2 * n * 64 * E
    assert scores.price is not None
    assert scores.price.cost.reference_scoring == pytest.approx(found)


def test_scoring_a_folder_takes_as_much_as_scoring_the_same_shapes(launched):
    """The folder's index says how many examples there are, for the price as for the memory."""
    root, _ = launched
    by_size = {len(ShardIndex.load(folder)): folder for folder in (root / "data").glob("shapes-web-*")}
    config = ScoreConfig.model_validate({"embeddings": "cache"})
    trains = STUDY["base"]["data"]["train"], {"kind": "folder", "path": str(by_size[1_024])}
    towers = TrainConfig.model_validate({"model": TOWERS})
    taken = []
    for train in trains:
        embed = EmbedConfig.model_validate({"reference": "r", "data": {"train": train}})
        needs = {"embeddings": embed, "embeddings.reference": towers}
        taken.append((memory.of_scoring(config, needs), pricing.price_score(config, needs)))
    assert taken[0] == taken[1]
    assert None not in taken[0]


@pytest.mark.parametrize(
    "run, said",
    [
        (
            {"data": {"scores": "scores", "filter": "negclip > 0.5"}},
            "column 'negclip': did you mean 'negcliploss'",
        ),
        ({"data": {"filter": "negcliploss > 0.5"}}, "no column 'negcliploss'"),
        ({"data": {"scores": "scores", "repeat": "soft_cup"}}, "'soft_cup': did you mean 'soft_cap'"),
        (
            {"program": "score", "embeddings": "cache", "soft_cap": {"of": "normsim"}},
            "soft_cap.of: no column 'normsim'",
        ),
        ({"program": "score"}, "runs.bad.embeddings: is missing"),
    ],
)
def test_bad_scores_are_one_clear_line(run, said):
    with pytest.raises(UserError, match=said.replace("(", r"\(")):
        plan(studied({"bad": run}))


def test_scores_that_nothing_reads_change_no_run():
    """Neither its identity nor what it waits for."""
    plain = plan(studied({"again": {"data": {"scores": "scores"}}}))
    assert len(plain.runs) == len(STUDY["runs"])


def test_what_a_target_would_decide_does_not_count_without_one():
    one, other = (ScoreConfig.model_validate({"embeddings": "a", "normsim": {"norm": n}}) for n in (2, "inf"))
    assert one.identity() == other.identity()
    named = {"embeddings": "a", "target": "b"}
    one, other = (ScoreConfig.model_validate({**named, "normsim": {"norm": n}}) for n in (2, "inf"))
    assert one.identity() != other.identity()
