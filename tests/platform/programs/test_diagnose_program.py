"""The program `diagnose`: planned, priced, run in a real lab, and drawn from its store."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import labs_support as labs
import pytest
import yaml
from tiny_support import BENCHMARK, TOWERS

from jestlab.analysis import frames, tables
from jestlab.analysis.costs import Cost
from jestlab.models.config import DiagnoseConfig, TwoTowers
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.programs import Price
from jestlab.platform.programs.pricing import forward
from jestlab.platform.spec import Study

DIAGNOSIS = {
    "program": "diagnose",
    "learner": "uniform",
    "reference": "reference",
    "batch_size": 16,
    "filtering_ratios": [0.8],
    "chunks": [4],
    "joint_chunks": 4,
    "sweeps": 1,
    "draws": 2,
    "matrix_size": 8,
}
STUDY: dict[str, Any] = {
    "name": "looked-into",
    "question": "Is it learnable?",
    "base": {
        "model": TOWERS,
        "data": {
            "train": {"examples": 512, "image_size": 16, "shard_size": 256},
            "benchmark": BENCHMARK,
        },
        "schedule": {"batch_size": 16, "examples_seen": 64},
        "evaluation": {"points": 1, "shots": 2, "shot_seeds": 1},
    },
    "runs": {"reference": {"initialization": 1}, "uniform": {}, "diagnosis": DIAGNOSIS},
    "reports": ["table", {"learnability": {"run": "diagnosis"}}],
}


def study(**diagnosis):
    runs = {**STUDY["runs"], "diagnosis": {**DIAGNOSIS, **diagnosis}}
    return Study.parse({**STUDY, "runs": runs})


def test_a_study_ends_in_its_figure(root, tmp_path):
    path = tmp_path / "looked-into.yaml"
    path.write_text(yaml.safe_dump(STUDY))
    launched = labs.here("launch", path, root=root)
    assert launched.returncode == 0, launched.stderr
    names = {file.name for file in (root / "reports" / "looked-into").iterdir()}
    assert {"learnability.png", "learnability.svg", "table.md"} <= names
    assert not list((root / "reports" / "looked-into").glob("curves*"))

    page = (root / "reports" / "looked-into" / "report.html").read_text()
    assert 'src="data:image/png;base64,' in page
    assert 'data-save-plot=".pdf" aria-label="PDF: save the figure Learnability"' in page

    connection = sqlite3.connect(root / "results.db")
    [(state, step, needed)] = connection.execute(
        "SELECT state, step, needed FROM v_runs WHERE run = 'diagnosis'"
    )
    assert (state, step, needed) == ("COMPLETED", 2, 0)
    count = "SELECT COUNT(*) FROM v_metrics WHERE name = 'learnability_matrix'"
    assert connection.execute(count).fetchone() == (64,)
    of = "SELECT SUM(value) FROM v_metrics WHERE name LIKE 'selected/joint/noise/%'"
    assert connection.execute(of).fetchone()[0] == pytest.approx(1)
    connection.close()

    url = Lab.find(root).store_url
    frame = tables.summary(tables.finals(frames.read(url, "looked-into"))).frame.set_index("label")
    assert frame["apart"].to_dict() == {
        "reference": True,
        "uniform": False,
    }  # it is looked into, no reference
    plotted = labs.here(
        "plot", "looked-into", "--run", "diagnosis", "--json", "--output", tmp_path / "figures", root=root
    )
    assert [path.rpartition("/")[2] for path in json.loads(plotted.stdout)][-3:] == [
        "learnability.png",
        "learnability.svg",
        "learnability.pdf",
    ]


def test_what_it_looks_into_goes_on_competing():
    planned = plan(study())
    assert planned.needed == {"reference"}
    assert plan(study(learner="reference")).needed == {"reference"}


def test_the_price_is_the_scoring_of_all_candidates_and_what_is_chosen_from_them():
    runs = {run.name: run for run in plan(study()).runs}
    scored = 2 * 80 * forward(TwoTowers.model_validate(TOWERS)).total
    # Of b = 16, once by chunks and once by each of five rules, all followed to the end.
    meetings = 16 + 16 + 4 * 16 + 16 * 16
    selections = 2 + 5
    chosen = 2 * 80 * 16 * (2 * selections + 4 * meetings)  # for each model
    assert runs["diagnosis"].price == Price(Cost(0, 0, 0, scored, 2 * chosen, scored), examples=0)
    alone = {run.name: run for run in plan(study(criterion="hard_learner")).runs}["diagnosis"]
    assert alone.price == Price(Cost(0, 0, 0, scored, chosen, 0), examples=0)
    assert runs["diagnosis"].config["data"]["train"]["examples"] == 512  # the study's
    assert alone.fingerprint != runs["diagnosis"].fingerprint


def test_it_inherits_data_and_loss_alone():
    base = {**STUDY["base"], "loss": "softmax"}
    runs = {run.name: run for run in plan(Study.parse({**STUDY, "base": base})).runs}
    assert runs["diagnosis"].config["loss"] == "softmax"
    assert "model" not in runs["diagnosis"].config


def test_identity_is_what_decides_the_result():
    config = DiagnoseConfig(learner="a", reference="b", chunks=[4, 2, 2])
    assert config.chunks == (2, 4)
    assert config.identity() == DiagnoseConfig(
        learner="a", reference="b", chunks=[2, 4], runtime={"loader_threads": 3},
        data={"benchmark": {"retrieval_examples": 9}},
    ).identity()  # fmt: skip
    assert config.super_batch_size(0.9) == config.super_batch_size() == 1280


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reference": None}, "criterion 'learnability' needs a reference: set reference"),
        ({"chunks": [4, 17]}, "chunks 17 is above batch_size 16"),
        ({"joint_chunks": 17}, "joint_chunks 17 is above batch_size 16"),
        ({"matrix_size": 81}, "matrix_size 81 is above the largest super-batch, 80"),
        ({"filtering_ratios": [0.97]}, "the largest super-batch of 533 is above data.train.examples 512"),
        ({"filtering_ratios": [1.0]}, "less than 1"),
        ({"learner": "lerner"}, "no run 'lerner'"),
    ],
)
def test_mistakes_are_one_line(changes, message):
    with pytest.raises(UserError) as error:
        plan(study(**changes))
    assert message in str(error.value)
    assert "diagnosis" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_report_names_a_run_that_there_is():
    with pytest.raises(UserError, match=r"reports\.0\.run: no run 'diagnoses': did you mean 'diagnosis'"):
        plan(Study.parse({**STUDY, "reports": [{"learnability": {"run": "diagnoses"}}]}))
