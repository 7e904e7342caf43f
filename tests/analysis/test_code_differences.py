"""Results of different code, versions, or data: the comparison, and marks in tables, claims, explanations."""

import json
from typing import Any

import pytest

from jestlab.analysis import tables
from jestlab.analysis.provenance import code, history
from jestlab.analysis.report import gather
from jestlab.analysis.tables.explain import explain


def attempt(number: int = 1, state: str = "COMPLETED", first_step: int = 0, **recorded: Any) -> Any:
    about: dict[str, Any] = dict.fromkeys(("sources", "inputs", "versions", "git_commit", "changes"))
    about |= {"number": number, "state": state, "first_step": first_step, "started_at": "2026-11-24"}
    return about | {k: json.dumps(v) if isinstance(v, dict) else v for k, v in recorded.items()}


def test_lists_what_a_run_was_made_with():
    recorded: dict[str, Any] = {
        "sources": {"ridge.py": "a"},
        "inputs": {"train.csv": "b", "gone.csv": None},
        "versions": {"numpy": "2.0", "torch": "3", "xmanager": "1", "jestlab": "0.1"},
        "git_commit": "c0",
    }
    own = {"code ridge.py": "a", "data train.csv": "b", "data gone.csv": "not there", "package numpy": "2.0"}
    assert code.made_by("command", [attempt(**recorded)]) == {k: frozenset([v]) for k, v in own.items()}
    assert code.made_by("command", [attempt(**recorded)], ["torch"])["package torch"] == {"3"}
    assert code.made_by("train", [attempt(**recorded, changes=7)])["jestlab"] == {
        "c0 with 7 characters of changes"
    }
    installed = attempt(versions={"jestlab": "0.1+code.ab"}, changes=0)
    assert code.made_by("train", [installed])["jestlab"] == {"0.1+code.ab"}
    assert "jestlab" not in code.made_by("command", [installed])
    assert code.made_by("command", [attempt()]) == code.made_by("command", []) == {}


def test_a_result_depends_on_the_attempts_that_it_resumed():
    for attempts, numbers in (
        ([("PREEMPTED", 0), ("COMPLETED", 5)], [1, 2]),  # resumed
        ([("FAILED", 0), ("COMPLETED", 0)], [2]),  # started over
        ([("COMPLETED", 0), ("PREEMPTED", 0), ("COMPLETED", 4)], [2, 3]),  # ran again, and was resumed
        ([("COMPLETED", 0), ("RUNNING", 0)], [1]),
        ([("FAILED", 0)], [1]),
    ):
        rows = [attempt(n, state, step) for n, (state, step) in enumerate(attempts, start=1)]
        assert [row["number"] for row in code.contributing(reversed(rows))] == numbers


def test_one_phrase_for_all_differences():
    items = ["code ridge.py", "data x.csv", "code noise.py", "package numpy", "jestlab"]
    assert code.made_with_different(items) == (
        "made with different code (ridge.py, noise.py), data (x.csv), package versions (numpy) "
        "and versions of jestlab"
    )


def made(**items: str) -> code.Made:
    return {name: frozenset(values) for name, values in items.items()}


def test_differences_and_odd_rows_are_reported_unless_they_were_accepted():
    runs = [made(a="1", b="x"), made(a="2", b="x"), made(b="x"), made(a="3")]
    assert code.differing(runs) == {"a": ["1", "2", "3"]}
    assert code.differing(runs, [{"a": ["1", "2"]}]) == {"a": ["1", "2", "3"]}
    assert code.differing(runs, [{"a": ["1", "2"]}, {"a": ["2", "3"]}]) == {}
    assert code.differing([made(a="12")]) == {"a": ["1", "2"]}  # one run by two
    assert code.differing([]) == {}
    rows = {"x": made(a="1"), "y": made(a="2"), "z": made(a="2"), "unknown": made()}
    assert code.odd_ones(rows) == {"a": ["x"]}
    assert code.odd_ones(rows, [{"a": ["1", "2"]}]) == {}


# ---- in tables, claims, and explanations


@pytest.fixture
def recorded(study):
    """The study with recorded code: joint's seeds mix two versions, independent has another one."""
    study.execute("UPDATE v_runs SET program = 'mine.py:run', config = '{}'")
    digests = {"reference": "aa", "uniform": "aa", "independent": "dd", "joint": "bc"}
    for run, letters in digests.items():
        for seed, letter in enumerate(letters):
            sources = json.dumps({"mine.py": letter * 64})
            study.attempt(run, seed, started_at="2026", first_step=0, git_commit="f", sources=sources)
    claims = [{"statement": f"{run} wins", "of": run, "above": "uniform"} for run in ("joint", "independent")]
    spec = {"metrics": {"*": {"goal": "max", "unit": "percent"}}, "claims": claims}
    study.execute("UPDATE v_experiments SET spec = ?", [json.dumps(spec)])
    return study


def summary(store: Any) -> tables.Table:
    return tables.table(store.url, "summary", ["study"], baseline="uniform")


def marked(table: tables.Table) -> dict[str, str]:
    return {line.key: line.cells[3].mark for line in table.lines}


def test_cells_that_mix_are_marked(recorded):
    table = summary(recorded)
    assert marked(table) == {"reference": "", "uniform": "", "independent": "‡", "joint": "‡"}
    assert "‡ joint: seeds were made with different code (mine.py)" in table.notes
    assert "‡ independent: made with different code (mine.py) than the other rows" in table.notes
    assert "‡" in table.render("md") and "‡" in table.render("latex")
    parts = {part.name: part for part in gather(recorded.url, "study").tables}
    assert parts["summary"].table.mixed == {"independent", "joint"}


def test_cells_that_mix_code_of_an_installed_jestlab_are_marked(study):
    """Rows may differ, as for commits; a number's explanation and the page of a report name the code."""
    study.execute("UPDATE v_runs SET program = 'train', config = '{}'")
    for run, digits in {"reference": "11", "uniform": "11", "independent": "22", "joint": "12"}.items():
        for seed, digit in enumerate(digits):
            versions = json.dumps({"jestlab": f"0.1.0+code.{digit * 12}"})
            study.attempt(run, seed, started_at="2026", first_step=0, device="TPU", versions=versions)
    table = summary(study)
    assert marked(table) == {"reference": "", "uniform": "", "independent": "", "joint": "‡"}
    assert "‡ joint: seeds were made with different versions of jestlab" in table.notes
    told = str(explain(study.url, table, "joint", "score"))
    assert "jestlab 0.1.0 (installed, code 111111111111)" in told
    whole = history.load(study.url, "study")
    assert whole is not None
    code_that_ran = history.recipe(whole, None, "scoring").code
    assert {line.partition(": ")[0] for line in code_that_ran if line.startswith("jestlab")} == {
        f"jestlab 0.1.0 (installed, code {digit * 12}) on TPU" for digit in "12"
    }


def test_accepted_differences_are_not_marked(recorded):
    accepted = json.dumps({"code mine.py": [letter * 64 for letter in "abcd"]})
    about = {"reason": "a comment", "author": "Ada", "created_at": "2026-11-24 10:00:00"}
    recorded.insert("v_acceptances", experiment="study", accepted=accepted, **about)
    table = summary(recorded)
    assert set(marked(table).values()) == {""}
    told = str(explain(recorded.url, table, "joint", "score"))
    assert "Ada accepted on 2026-11-24 that mine.py differs: a comment" in told
    assert "code mine.py bbbbbbbb" in told and "jestlab commit f" in told


def test_retracted_results_are_struck_through_and_decide_no_claim(recorded):
    recorded.retract("joint", "wrong shards")
    table = summary(recorded)
    lines = {line.key: line for line in table.lines}
    assert [cell.struck for cell in lines["joint"].cells[:3]] == [False, False, True]
    assert not any(cell.bold for cell in lines["joint"].cells) and not lines["uniform"].cells[3].struck
    assert "joint is retracted: wrong shards" in table.notes
    assert "~~65.0 [1.5, 128.5]~~" in table.render("md")
    assert "<s>65.0 [1.5, 128.5]</s>" in table.render("html")
    assert r"\sout{65.0 [1.5, 128.5]}" in (tex := table.render("latex")) and "{ulem}" in tex
    assert json.loads(table.render("json"))["retracted"] == {"joint": "wrong shards"}
    claims = tables.table(recorded.url, "claims", ["study"]).frame.set_index("statement")
    assert claims["verdict"].to_dict() == {"joint wins": "not run", "independent wins": "undecided"}
    assert claims.loc["joint wins", "reason"] == "retracted: wrong shards"
    assert "retracted: wrong shards" in str(explain(recorded.url, table, "joint", "score"))
    # A retracted baseline strikes the comparisons with it.
    recorded.retract("uniform", "no")
    table = summary(recorded)
    struck = {column.key for column in table.columns if table.cell("independent", column).struck}
    assert struck == {"delta", "fewer_examples", "fewer_flops"}
