"""The program `embed` in real labs: planned, run in processes, interrupted, and no part of the comparison."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import tarfile

import labs_support as labs
import numpy as np
import pytest
import yaml
from click.testing import CliRunner
from tiny_support import BENCHMARK, TOWERS

from jestlab.analysis import figures, frames, tables
from jestlab.models.config import EmbedConfig
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.platform.cli.studies import show_command as show
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs.pricing import price_embed as price
from jestlab.platform.spec import Study, load
from jestlab.platform.store.store import Store

EXAMPLES = 4_096
STUDY = {
    "name": "cached",
    "base": {
        "model": TOWERS,
        "data": {
            "train": {"examples": EXAMPLES, "image_size": 16, "shard_size": 1_024},
            "benchmark": BENCHMARK,
        },
        "schedule": {"batch_size": 16, "examples_seen": 64},
        "evaluation": {"points": 1, "shots": 2, "shot_seeds": 1},
        "runtime.checkpoint_every_steps": 4,
    },
    "runs": {
        "reference": {"data.filter": "similarity > 0.25", "initialization": 1},
        "cache": {
            "program": "embed",
            "reference": "reference",
            "runtime": {"batch_size": 16, "save_every_batches": 1},
        },
        "uniform": {"selection.rule": "uniform"},
        "joint": {"selection": {"rule": "joint", "reference": "cache", "chunks": 4}},
    },
    "reports": [{"table": {"baseline": "uniform"}}, "curves", "pareto"],
}


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "cached.yaml"
    path.write_text(yaml.safe_dump(STUDY))
    return path


def rows(root, sql):
    return sqlite3.connect(root / "results.db").execute(sql).fetchall()


def saved(root):
    """How many examples a lab's run of `cache` has embedded."""
    found = list((root / "runs").glob("cache-*/embeddings/about.json"))
    return json.loads(found[0].read_text())["done"] if found else 0


def test_a_study_embeds_between_its_reference_and_its_learners(root, spec):
    """Stopped in the midst of it, it goes on; and the reports have no row and no curve for it."""

    def stop_in_mid_run() -> None:
        labs.wait_until(lambda: saved(root) >= 64, seconds=120)
        [(handle,)] = rows(
            root, "SELECT handle FROM attempt JOIN run ON run.id = run_id WHERE program = 'embed'"
        )
        os.kill(int(handle.split(":")[1]), signal.SIGTERM)

    with labs.meanwhile(stop_in_mid_run):
        launched = labs.here("launch", spec, root=root)
    assert launched.returncode == 0, launched.stderr
    [directory] = (root / "runs").glob("cache-*")
    log = (directory / "log.txt").read_text()
    starts = [int(start) for start in re.findall(rf"embedding from example (\d+) to {EXAMPLES}", log)]
    assert starts[0] == 0
    assert [64 <= start < EXAMPLES for start in starts[1:]] == [True]
    assert rows(root, "SELECT state, attempts FROM v_runs WHERE run = 'cache'") == [("COMPLETED", 2)]
    [began], [ended] = (
        rows(root, f"SELECT {column} FROM attempt JOIN run ON run.id = run_id WHERE {which} AND number = 1")
        for column, which in (
            ("started_at", "program = 'embed'"),
            ("ended_at", "directory LIKE '%/reference-%'"),
        )
    )
    assert began > ended

    norms = np.linalg.norm(EmbeddingCache(directory).images(np.arange(EXAMPLES)), axis=1)
    np.testing.assert_allclose(norms, 1.0, rtol=1e-5)
    last = "SELECT step, value FROM v_metrics WHERE name = 'examples_embedded' ORDER BY step DESC LIMIT 1"
    assert rows(root, last) == [(EXAMPLES // 16, EXAMPLES)]
    artifacts = "SELECT name FROM artifact JOIN run ON run.id = run_id WHERE program = 'embed'"
    assert rows(root, artifacts) == [("embeddings",)]

    url = Lab.find(root).store_url
    table = tables.summary(tables.finals(frames.read(url, "cached"), "uniform"))
    assert set(table.frame["label"]) == {"reference", "uniform", "joint"}
    assert not any(note.startswith("cache") for note in table.notes)
    for figure in (
        figures.learning_curves(frames.read(url, "cached")),
        figures.pareto(frames.read(url, "cached")),
    ):
        assert "cache" not in set(figure.data["label"])
    again = labs.here("launch", spec, root=root)
    assert "nothing to run: all 4 runs are COMPLETED" in again.stdout
    assert "| uniform" in again.stdout
    assert "| cache" not in again.stdout


def test_a_plan_shows_it_before_its_learners(root, spec):
    planned = json.loads(labs.here("plan", spec, "--json", root=root).stdout)
    runs = {run["run"]: run for run in planned["runs"]}
    assert list(runs).index("reference") < list(runs).index("cache") < list(runs).index("joint")
    assert runs["joint"]["needs"] == {"selection.reference": runs["cache"]["fingerprint"]}
    assert runs["joint"]["price"]["reference_scoring_flops"] == 0
    assert runs["cache"]["price"]["total_flops"] == 0
    assert runs["cache"]["price"]["reference_scoring_flops"] > 0
    shown = CliRunner().invoke(show, [str(spec)]).stdout
    assert re.search(r'^  cache +program=embed  reference="reference"', shown, re.MULTILINE)


@pytest.fixture
def folder(tmp_path):
    """A shard of three pairs."""
    (tmp_path / "web").mkdir()
    with tarfile.open(tmp_path / "web" / "00000.tar", "w") as tar:
        for number in range(3):
            for extension in ("jpg", "txt"):
                member = tarfile.TarInfo(f"{number:03}.{extension}")
                member.size = 4
                tar.addfile(member, io.BytesIO(b"text"))
    return tmp_path / "web"


def test_a_folder_is_counted_and_identified_by_what_it_holds(folder, tmp_path):
    nowhere = {"kind": "folder", "path": str(tmp_path / "nowhere")}
    data = {"train": {"kind": "folder", "path": str(folder)}, "benchmark": nowhere}
    runs = {"one": {}, "cache": {"program": "embed", "reference": "one", "data": data}}
    one, cache = plan(Study.parse({"name": "s", "runs": runs})).runs
    assert len(cache.config["data"]["train"]["digest"]) == 64
    assert cache.config["data"]["benchmark"]["digest"] is None  # it has no use for it
    assert cache.price is not None
    assert one.price is not None
    towers = one.price.cost.image_tower + one.price.cost.text_tower
    assert cache.price.cost.reference_scoring == 3 * towers / (3 * one.price.examples)
    runs["cache"]["data"] = {"train": nowhere}
    with pytest.raises(UserError, match=r"^runs.cache: data.train.path: no folder .*nowhere"):
        plan(Study.parse({"name": "s", "runs": runs}))


def test_no_price_where_nobody_knows(tmp_path):
    config = EmbedConfig(reference="r")
    assert price(config, {"reference": {"a": "user's"}}) is None
    elsewhere = {"train": {"kind": "folder", "path": str(tmp_path / "pod"), "digest": "0" * 64}}
    towers = plan(load("quickstart")).study.members[0].config
    assert price(config, {"reference": towers}) is not None
    assert (
        price(EmbedConfig.model_validate({"reference": "r", "data": elsewhere}), {"reference": towers})
        is None
    )


def test_the_store_has_it_as_a_run_that_others_need(root, spec):
    planned = plan(load(str(spec)))
    assert planned.needed == {"reference", "cache"}
    store = Store.open(Lab.find(root).store_url)
    store.record(planned)
    store.close()
    assert rows(root, "SELECT run FROM v_runs WHERE needed ORDER BY run") == [("cache",), ("reference",)]


def test_metadata_that_are_asked_for_and_missing_are_one_line(folder):
    def planned(**data):
        cache = {
            "program": "embed",
            "reference": "one",
            "data": {"train": {"kind": "folder", "path": str(folder)}, **data},
        }
        return plan(Study.parse({"name": "s", "runs": {"one": {}, "cache": cache}}))

    with pytest.raises(
        UserError, match=r"^runs.cache: data.filter: .*web has no metadata column 'similarity'"
    ):
        planned(filter="similarity > 0.3")
    with pytest.raises(UserError, match=r"^runs.cache: data.recaption: .*web has no metadata column"):
        planned(recaption="key == 'a'")
