"""`jestlab query` by view and condition: formats, files, errors."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
from typing import Any

import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner
from labs_support import JESTLAB
from pyarrow import parquet

from jestlab.platform.cli import cli, main
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.store import Store

CONFIGS: dict[str, dict[str, Any]] = {
    "uniform": {"selection": {"rule": "uniform"}, "steps": 10},
    "joint": {"selection": {"rule": "joint", "chunks": 16}, "note": "a | b, c"},
}
RUNS = [plans.run(name, config=config, seed=seed) for name, config in CONFIGS.items() for seed in (0, 1)]


@pytest.fixture
def lab(tmp_path, store_url):
    lab = Lab.find(tmp_path / "lab", store_url)
    store = Store.open(lab.store_url)
    store.record(plans.plan(*RUNS))
    for run in RUNS:
        stores.attempt(store, run, scores={"toy/score": 0.5 + run.seed / 4}, loss=(2.0, 1.0))
    return lab


def query(lab, *arguments):
    result = CliRunner().invoke(
        cli, ["query", *arguments, "--root", str(lab.root), "--store", lab.store_url], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    return result


JOINT = (
    "--where",
    "selection.rule = 'joint' and seed < 1",
    "--columns",
    "label,seed,selection.chunks,config.note",
)


def test_a_condition_in_every_format(lab, tmp_path):
    names = ["label", "seed", "selection.chunks", "config.note"]
    values = ["joint", 0, 16, "a | b, c"]
    assert "| joint   | 0      | 16                 | a \\| b, c     |" in query(lab, *JOINT).output
    rows = list(csv.reader(io.StringIO(query(lab, *JOINT, "--format", "csv").output)))
    assert rows == [names, ["joint", "0", "16", "a | b, c"]]
    assert json.loads(query(lab, *JOINT, "--json").output) == [dict(zip(names, values, strict=True))]
    table = parquet.read_table(io.BytesIO(query(lab, *JOINT, "--format", "parquet").stdout_bytes))
    assert table.to_pylist() == [dict(zip(names, values, strict=True))]


def test_views_experiment_order_and_limit(lab):
    found = json.loads(
        query(lab, "--view", "v_metrics", "--where", 'name = "loss" and step = 2', "--json").output
    )
    assert [row["value"] for row in found] == [1.0] * 4
    asked = ("--view", "evaluations", "--order-by", "-value,label", "--limit", "2", "--experiment", "toy")
    found = json.loads(query(lab, *asked, "--json", "--columns", "label,seed,value").output)
    assert [tuple(row.values()) for row in found] == [("joint", 1, 0.75), ("uniform", 1, 0.75)]
    [first, *_] = json.loads(
        query(
            lab,
            "--view",
            "attempts",
            "--json",
            "--order-by",
            "-label,seed",
            "--columns",
            "label,versions.python,started_at",
        ).output
    )
    assert first == {"label": "uniform", "versions.python": "3.11.7", "started_at": "2026-11-20 12:00:00"}


def test_a_file_is_written_whole_and_its_ending_says_the_format(lab, tmp_path):
    counts = {
        "csv": lambda path: len(path.read_text().splitlines()) - 1,
        "json": lambda path: len(json.loads(path.read_text())),
        "parquet": lambda path: parquet.read_table(path).num_rows,
    }
    for ending, count in counts.items():
        path = tmp_path / "out" / f"runs.{ending}"
        assert query(lab, "--view", "runs", "--output", str(path)).output == f"{path}\n"
        assert count(path) == 4
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["runs.csv", "runs.json", "runs.parquet"]
    assert oct(path.stat().st_mode & 0o777) == oct(0o666 & ~_umask())


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_columns_of_several_types_and_of_none_go_into_parquet(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    configs: list[dict[str, Any]] = [
        {"x": 1, "none": None},
        {"x": "text", "none": None},
        {"x": 2.5, "none": None, "huge": 10**30},
    ]
    runs = [plans.run("run", config=config, seed=seed) for seed, config in enumerate(configs)]
    Store.open(lab.store_url).record(plans.plan(*runs))
    asked = ("--columns", "x,none,huge", "--order-by", "seed", "--format", "parquet")
    table = parquet.read_table(io.BytesIO(query(lab, *asked).stdout_bytes))
    assert table.to_pydict() == {
        "x": ["1", '"text"', "2.5"],
        "none": [None] * 3,
        "huge": [None, None, str(10**30)],
    }
    empty = parquet.read_table(
        io.BytesIO(query(lab, "--where", "seed = 9", "--format", "parquet").stdout_bytes)
    )
    assert (empty.num_rows, "label" in empty.column_names) == (0, True)


def test_parquet_is_not_for_a_terminal(lab):
    screen, terminal = os.openpty()
    command = [
        *JESTLAB,
        "query",
        "--view",
        "runs",
        "--format",
        "parquet",
        "--root",
        str(lab.root),
        "--store",
        lab.store_url,
    ]
    done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, text=True)
    os.close(terminal)
    os.close(screen)
    assert done.returncode == 2
    assert "cannot print parquet to a terminal: give --output FILE" in done.stderr


@pytest.mark.parametrize(
    "arguments, code, message",
    [
        (["--where", "sed = 1"], 1, "jestlab: where: character 1: no column or config key 'sed'"),
        (["--where", "seed ="], 1, "jestlab: where: character 7, at the end: expected"),
        (["--view", "rnus"], 1, "jestlab: no view 'rnus': did you mean 'runs'?"),
        (["--experiment", "toi"], 1, "did you mean 'toy'?"),
        (["SELECT 1", "--where", "seed = 1"], 2, "expected either SQL, or --view"),
        (["--limit", "x"], 2, "'x' is not a valid integer"),
        (["--view", "runs", "--output", "/proc/no/file.csv"], 1, "cannot write /proc/no/file.csv"),
    ],
)
def test_a_wrong_question_is_one_line(lab, arguments, code, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["query", *arguments, "--root", str(lab.root), "--store", lab.store_url])
    said = capsys.readouterr().err
    assert stopped.value.code == code
    assert message in said and said.count("\n") == 1


def test_a_percent_sign_is_a_sign(lab):
    assert json.loads(
        query(lab, "SELECT COUNT(*) AS n FROM v_runs WHERE label LIKE 'jo%'", "--json").output
    ) == [{"n": 2}]
