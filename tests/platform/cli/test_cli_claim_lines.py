"""Claims as a launch tells them."""

from __future__ import annotations

import json
import sys

import plans_support as plans
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.cli import main
from jestlab.platform.cli.outcome import claims_table
from jestlab.platform.lab.lab import Lab
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec import load
from jestlab.platform.store.store import Store

STATEMENT = "Joint selection learns more than independent selection at f = 0.8 and 0.9"
SCORED = {"measure": "score", "unit": "percent", "digits": None, "within": None}


def claim(study="filtering_ratio", statement=STATEMENT, verdict="holds", **changes):
    known = {"difference": 0.0836, "low": 0.0294, "high": 0.1377}
    return {"study": study, "statement": statement, "verdict": verdict, **SCORED, **known, **changes}


ROWS = [
    claim(),
    claim("criteria", "It\nhelps", "does not hold", difference=-0.5, low=-1.0, high=0.0, unit="raw"),
    claim("criteria", "It spikes", "undecided", measure="loss_spikes", low=None, high=None, unit="raw"),
    claim("criteria", "It is so", "not run", difference=None, low=None, high=None),
]


def claim_lines(rows, by_study, width):
    return list(map(str, claims_table(rows, by_study).lines(width)[0]))


def test_each_claim_is_a_line():
    assert claim_lines(ROWS, by_study=True, width=None) == [
        f"✓  filtering_ratio  {STATEMENT}   +8.4 [+2.9, +13.8]",
        f"✗  criteria         It helps{' ' * 73}−0.5 [−1, +0]",
        f"?  criteria         It spikes{' ' * 66}+0.0836 loss_spikes",
        f"○  criteria         It is so{' ' * 85}—",
    ]
    assert claim_lines(ROWS[3:], by_study=False, width=None) == ["○  It is so  —"]


def test_statements_are_broken_between_words_to_fit_the_terminal():
    assert claim_lines(ROWS, by_study=True, width=72)[:4] == [
        "✓  filtering_ratio  Joint selection learns more       +8.4 [+2.9, +13.8]",
        "                    than independent selection at f",
        "                    = 0.8 and 0.9",
        f"✗  criteria         It helps{' ' * 31}−0.5 [−1, +0]",
    ]


@given(
    st.lists(st.text(st.characters(codec="ascii", exclude_categories=["C"])), min_size=1),
    st.integers(60, 200),
)
def test_lines_are_as_wide_as_the_terminal_at_most_and_nothing_is_lost(statements, width):
    rows = [claim(statement=statement) for statement in statements]
    lines = claim_lines(rows, by_study=True, width=width)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("✓  filtering_ratio") for line in lines) == len(statements)
    said = "".join("".join(lines).split())
    assert sorted(said) == sorted(
        "".join(f"✓filtering_ratio{statement}+8.4[+2.9,+13.8]" for statement in statements).replace(" ", "")
    )


def test_a_launch_ends_in_them_and_leads_to_the_whole_table(root, tmp_path, capsys, monkeypatch):
    study = {
        "program": "toy_programs:loop",
        "runs": {"joint": {"steps": 4}, "uniform": {"steps": 6}},
        "claims": [{"statement": STATEMENT, "of": "joint", "above": "uniform"}],
        "reports": ["table"],
        "metrics": {"toy/score": {"goal": "max", "unit": "percent"}},
    }
    spec = tmp_path / "toy.yaml"
    spec.write_text(yaml.safe_dump(study))
    store, planned = Store.open(Lab.find(root).store_url), plan(load(str(spec)))
    store.record(planned)
    for run in planned.runs:
        attempt = plans.begun(store, run, root / run.directory)
        attempt.evaluation(1, 64, 1e6, {"toy/score": 0.5})
        attempt.complete()
    store.close()

    def launched():
        with pytest.raises(SystemExit):
            main(["launch", str(spec), "--root", str(root)])
        return capsys.readouterr().out

    first = launched()
    assert f"\n?  {STATEMENT}  +0.0\n1 claim: undecided.\n" in first
    assert f"\nclaims:  jestlab table claims toy --root {root}\n" in first
    assert "| source" not in first
    assert "| joint" in first
    assert json.loads((root / "reports" / "toy" / "claims.json").read_text())["rows"][0]["source"] == ""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = launched().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("\x1b") or "?  Joint" in line)
    assert "\n".join(lines[at : at + 2]).count("0.9") == 1
    assert all(len(line) <= 60 for line in lines[at : at + 2])
