"""Which results mix code, versions or data: the pure logic, and what tables, claims and explanations say."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

import pytest

from jestlab.analysis import mixing, tables
from jestlab.analysis.provenance import Origins
from jestlab.analysis.report.contents import gather
from jestlab.analysis.soundness import Soundness


def attempt(number: int = 1, state: str = "COMPLETED", first_step: int = 0, **recorded: Any) -> Any:
    about: dict[str, Any] = dict.fromkeys(("sources", "inputs", "versions", "git_commit", "changes"))
    about |= {"number": number, "state": state, "first_step": first_step, "started_at": "2026-11-24"}
    return about | {k: json.dumps(v) if isinstance(v, dict) else v for k, v in recorded.items()}


def test_what_a_run_was_made_by():
    recorded: dict[str, Any] = {
        "sources": {"ridge.py": "a"},
        "inputs": {"train.csv": "b", "gone.csv": None},
        "versions": {"numpy": "2.0", "torch": "3", "xmanager": "1", "jestlab": "0.1"},
        "git_commit": "c0",
    }
    own = {"code ridge.py": "a", "data train.csv": "b", "data gone.csv": "not there", "package numpy": "2.0"}
    assert mixing.made_by("command", [attempt(**recorded)]) == {k: frozenset([v]) for k, v in own.items()}
    assert mixing.made_by("command", [attempt(**recorded)], ["torch"])["package torch"] == {"3"}
    assert mixing.made_by("train", [attempt(**recorded, changes=7)])["jestlab"] == {
        "c0 with 7 characters of changes"
    }
    assert mixing.made_by("train", [attempt(versions={"jestlab": "0.1"})])["jestlab"] == {"0.1"}
    assert mixing.made_by("command", [attempt()]) == mixing.made_by("command", []) == {}


@pytest.mark.parametrize(
    ("attempts", "numbers"),
    [
        ([("PREEMPTED", 0), ("COMPLETED", 5)], [1, 2]),  # resumed
        ([("FAILED", 0), ("COMPLETED", 0)], [2]),  # began anew
        ([("COMPLETED", 0), ("PREEMPTED", 0), ("COMPLETED", 4)], [2, 3]),  # ran again, and was resumed
        ([("COMPLETED", 0), ("RUNNING", 0)], [1]),
        ([("FAILED", 0)], [1]),
    ],
)
def test_a_result_rests_on_the_attempts_that_it_resumed(attempts, numbers):
    rows = [attempt(n, state, step) for n, (state, step) in enumerate(attempts, start=1)]
    assert [row["number"] for row in mixing.contributing(reversed(rows))] == numbers


def made(**items: str) -> mixing.Made:
    return {name: frozenset(values) for name, values in items.items()}


def test_what_differs_and_what_was_accepted():
    runs = [made(a="1", b="x"), made(a="2", b="x"), made(b="x"), made(a="3")]
    assert mixing.differing(runs) == {"a": ["1", "2", "3"]}
    assert mixing.differing(runs, [{"a": ["1", "2"]}]) == {"a": ["1", "2", "3"]}
    assert mixing.differing(runs, [{"a": ["1", "2"]}, {"a": ["2", "3"]}]) == {}
    assert mixing.differing([made(a="12")]) == {"a": ["1", "2"]}  # one run by two
    assert mixing.differing([]) == {}


def test_the_odd_rows_are_those_unlike_most():
    rows = {"x": made(a="1"), "y": made(a="2"), "z": made(a="2"), "unknown": made()}
    assert mixing.odd_ones(rows) == {"a": ["x"]}
    assert mixing.odd_ones(rows, [{"a": ["1", "2"]}]) == {}


# ---- in tables, claims and explanations


@pytest.fixture
def recorded(study):
    """The study, whose attempts record their code: joint's seeds mix two states, independent has another."""
    digests = {("joint", 0): "b", ("joint", 1): "c", ("independent", 0): "d", ("independent", 1): "d"}
    with sqlite3.connect(study.path) as connection:
        connection.execute("UPDATE v_runs SET program = 'mine.py:run', config = '{}'")
        for run in ("reference", "uniform", "independent", "joint"):
            for seed in (0, 1):
                sources = json.dumps({"mine.py": digests.get((run, seed), "a") * 64})
                connection.execute(
                    "INSERT INTO v_attempts (experiment, label, seed, fingerprint, number, state, "
                    "started_at, first_step, sources, git_commit) "
                    "VALUES ('study', ?, ?, ?, 1, 'COMPLETED', '2026', 0, ?, 'f')",
                    [run, seed, f"{run}-{seed}", sources],
                )
        wins = [("Joint wins", "joint"), ("Independent wins", "independent")]
        spec: dict[str, Any] = {"metrics": {"*": {"goal": "max", "unit": "percent"}}}
        spec |= {"claims": [{"statement": said, "of": run, "above": "uniform"} for said, run in wins]}
        connection.execute("UPDATE v_experiments SET spec = ?", [json.dumps(spec)])
    connection.close()
    return study


def marked(table: tables.Table) -> dict[str, str]:
    return {line.key: line.cells[3].mark for line in table.lines}


def test_cells_that_mix_are_marked(recorded):
    table = tables.table(recorded.url, "summary", ["study"], baseline="uniform")
    assert marked(table) == {"reference": "", "uniform": "", "independent": "‡", "joint": "‡"}
    assert "‡ joint mixes 2 states of mine.py" in table.notes
    assert "‡ independent: made by another mine.py than other rows" in table.notes
    assert "‡" in table.render("md") and "$\\ddagger$" in table.render("latex")
    assert gather(recorded.url, "study").tables[0].table.mixed == {"independent", "joint"}


def test_what_was_accepted_is_not_marked(recorded):
    with sqlite3.connect(recorded.path) as connection:
        accepted = json.dumps({"code mine.py": [letter * 64 for letter in "abcd"]})
        said = ["study", accepted, "a comment", "Ada", "2026-11-24 10:00:00"]
        connection.execute("INSERT INTO v_acceptances VALUES (?, ?, ?, ?, ?)", said)
    connection.close()
    table = tables.table(recorded.url, "summary", ["study"], baseline="uniform")
    assert set(marked(table).values()) == {""}
    told = str(Origins.read(recorded.url, ["study"]).explain(table, "joint", "score"))
    assert "Ada accepted on 2026-11-24 that mine.py differs: a comment" in told
    assert "code mine.py bbbbbbbb" in told and "jestlab f" in told


def test_what_is_retracted_is_struck_through_and_decides_no_claim(recorded):
    with sqlite3.connect(recorded.path) as connection:
        said = ["study", "joint", "joint", 0, "joint-0", "wrong shards", "Ada", "2026", "joint-0"]
        connection.execute(f"INSERT INTO v_retractions VALUES ({', '.join('?' * 9)})", said)
    connection.close()
    table = tables.table(recorded.url, "summary", ["study"], baseline="uniform")
    lines = {line.key: line for line in table.lines}
    assert [cell.struck for cell in lines["joint"].cells[:3]] == [False, False, True]
    assert not any(cell.bold for cell in lines["joint"].cells) and not lines["uniform"].cells[3].struck
    assert "joint is retracted: wrong shards" in table.notes
    assert "~~65.0 ± 7.1~~" in table.render("md")
    assert "<s>65.0 &#177; 7.1</s>" in table.render("html")
    assert r"\sout{65.0\,$\scriptstyle{}\pm 7.1$}" in (tex := table.render("latex")) and "{ulem}" in tex
    assert json.loads(table.render("json"))["retracted"] == {"joint": "wrong shards"}
    claims = tables.table(recorded.url, "claims", ["study"]).frame.set_index("statement")
    assert claims["verdict"].to_dict() == {"Joint wins": "not run", "Independent wins": "undecided"}
    assert claims.loc["Joint wins", "reason"] == "retracted: wrong shards"
    assert "retracted: wrong shards" in str(
        Origins.read(recorded.url, ["study"]).explain(table, "joint", "score")
    )
    page = gather(recorded.url, "study")
    assert page.answer.sentence.startswith("Some results are retracted: joint (wrong shards).") or page.claims


def test_a_baseline_that_is_retracted_strikes_what_is_compared_with_it(recorded):
    with sqlite3.connect(recorded.path) as connection:
        said = ["study", "uniform", "uniform", 0, "uniform-0", "no", "Ada", "2026", "uniform-0"]
        connection.execute(f"INSERT INTO v_retractions VALUES ({', '.join('?' * 9)})", said)
    connection.close()
    table = tables.table(recorded.url, "summary", ["study"], baseline="uniform")
    independent = next(line for line in table.lines if line.key == "independent")
    struck = {c.key for c, cell in zip(table.columns, independent.cells, strict=True) if cell.struck}
    assert struck == {"delta", "fewer_examples", "fewer_flops"}


def test_an_older_store_knows_nothing_of_it(study):
    with sqlite3.connect(study.path) as connection:
        connection.execute("ALTER TABLE v_attempts DROP COLUMN sources")
        connection.execute("DROP TABLE v_retractions")
        connection.execute("DROP TABLE v_acceptances")
    connection.close()
    assert Soundness.read(study.url, ["study"]) == Soundness()
    table = tables.table(study.url, "summary", ["study"])
    assert Origins.read(study.url, ["study"]).explain(table, "joint", "score").accepted == ()
    assert gather(study.url, "study").answer
