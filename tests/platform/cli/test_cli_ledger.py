"""`jestlab costs`: what an example costs by both conventions, and what falls to a run of its reference."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jestlab.platform.cli import main

PAPER = """
base:
  model: {variant: B/16}
  schedule: {super_batch_size: 163840, examples_seen: 3000000000}
  data.train.examples: 1000000000
runs:
  reference: {schedule: {batch_size: 32768, super_batch_size: null}}
  uniform: {schedule: {batch_size: 32768, super_batch_size: null}, initialization: 1}
  jest: {selection: {rule: joint, reference: reference}}
  cached: {selection: {rule: joint, reference: cache}}
  flexi: {selection: {rule: joint, reference: cache}, approximation: {score: true, share: 0.5}}
  cache: {program: embed, reference: reference, data.train.examples: 1000000}
  own: {program: "json:dumps"}
seeds: 2
"""

Call = Callable[..., tuple[Any, str, str]]


@pytest.fixture
def jestlab(capsys: Any, monkeypatch: Any, tmp_path: Path) -> Call:
    """Run a command in a folder with a study of the paper's scale: (exit code, standard output, errors)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "paper.yaml").write_text(PAPER)

    def call(*arguments: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(list(arguments))
        captured = capsys.readouterr()
        return stopped.value.code, captured.out, captured.err

    return call


def ledger(jestlab: Call, *options: str) -> dict[str, Any]:
    code, out, err = jestlab("costs", "paper.yaml", "--json", *options)
    assert (code, err) == (0, "")
    data = json.loads(out)
    return {**data, "runs": {run["label"]: run for run in data["runs"]}}


def test_the_paper_s_factors_beside_the_counted_ones(jestlab):
    runs = ledger(jestlab)["runs"]
    relative = {label: run["per_example"]["paper"]["relative"] for label, run in runs.items()}
    A = 0.38877  # of these towers
    assert relative == pytest.approx(
        {"reference": 1, "uniform": 1, "jest": 4, "cached": 7 / 3, "flexi": (1.5 * (1 + A) + 5 * A) / 3},
        rel=1e-3,
    )
    counted = runs["jest"]["per_example"]["counted"]
    assert counted["relative"] == pytest.approx(13 / 3, rel=0.01)
    parts = ("image_tower", "text_tower", "loss", "scoring", "selection", "reference_scoring")
    assert counted["total_flops"] == pytest.approx(sum(counted[f"{part}_flops"] for part in parts))
    assert runs["jest"]["executed_flops"] == pytest.approx(counted["total_flops"] * runs["jest"]["examples"])
    assert (runs["jest"]["seeds"], runs["jest"]["step"]["super_batch_size"]) == (2, 163_840)


def test_equal_budgets_in_both_conventions(jestlab):
    data = ledger(jestlab)
    assert (data["baseline"], data["left_out"]) == ("uniform", ["cache", "own"])
    matched = {
        label: run["per_example"]["paper"]["equal_budget_examples"] for label, run in data["runs"].items()
    }
    seen = data["runs"]["uniform"]["examples"]
    assert matched["uniform"] == pytest.approx(seen)
    assert matched["jest"] == matched["cached"] == pytest.approx(seen * 3 / 7)
    learner = ledger(jestlab, "--scope", "learner")["runs"]
    assert learner["jest"]["per_example"]["counted"]["equal_budget_examples"] == pytest.approx(seen)
    by_cached = ledger(jestlab, "--baseline", "cached")
    assert by_cached["runs"]["uniform"]["per_example"]["paper"]["equal_budget_examples"] == pytest.approx(
        7 / 3 * by_cached["runs"]["cached"]["examples"]
    )


def test_what_falls_to_each_of_a_reference(jestlab):
    """Each seed has its own; three runs learn by a reference, and two of them by its cache."""
    runs = ledger(jestlab)["runs"]
    reference = runs["reference"]["executed_flops"]
    cache = 1e6 * 57.84e9
    assert runs["jest"]["reference_shared_by"] == 3
    assert runs["jest"]["reference_training_share_flops"] == pytest.approx(reference / 3)
    assert runs["cached"]["reference_shared_by"] == 2
    assert runs["cached"]["reference_training_flops"] == pytest.approx(reference + cache, rel=1e-6)
    assert runs["cached"]["reference_training_share_flops"] == pytest.approx(
        reference / 3 + cache / 2, rel=1e-6
    )
    assert runs["uniform"]["reference_shared_by"] is None
    whole = ledger(jestlab, "--scope", "reference_training")["runs"]
    paper = whole["jest"]["per_example"]["paper"]["equal_budget_examples"]
    assert paper == pytest.approx(whole["uniform"]["examples"] * (1 - 1 / 3) / 4)  # by the paper's F alone


def test_for_people(jestlab):
    code, out, err = jestlab("costs", "paper.yaml")
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert lines[2][:4] == ["RUN", "BY", "IMAGE", "TEXT"]
    at = next(i for i, line in enumerate(lines) if line[:1] == ["jest"])
    assert lines[at][1:9] == ["counted", "0.809", "0.190", "0.001", "1.665", "0.005", "1.665", "4.34"]
    assert lines[at + 1][:8] == ["paper", "0.809", "0.191", "–", "1.333", "–", "1.667", "4.00"]
    assert "as all of uniform's, in scope scoring." in out
    assert "Not priced by the example: cache, own." in out
    assert "a single run would pay all of it" in out


def test_what_a_step_of_each_method_costs_is_drawn(jestlab, tmp_path):
    """After the sizes of the run with an approximate pass, though another that chooses comes first."""
    data = ledger(jestlab, "--plot", "figures")
    names = [f"method_costs_{way}.{kind}" for way in ("counted", "paper") for kind in ("png", "svg", "pdf")]
    assert data["plots"] == [str(Path("figures") / name) for name in names]
    assert "<!-- Flexi-JEST, cached reference -->" in (tmp_path / "figures" / names[4]).read_text()
    code, out, err = jestlab("costs", "paper.yaml", "--plot", "figures")
    assert (code, err, out.split()[-6:]) == (0, "", data["plots"])
    assert ledger(jestlab)["plots"] == []


def test_drawing_needs_a_run_that_chooses(jestlab, tmp_path):
    (tmp_path / "iid.yaml").write_text("base: {schedule: {batch_size: 8}}\nruns: {a: {}}\n")
    code, out, err = jestlab("costs", "iid.yaml", "--plot", "figures")
    assert (code, out) == (1, "")
    assert err == (
        "jestlab: study iid: no run selects its batches, so there is nothing to draw: leave out --plot\n"
    )
    (tmp_path / "file").write_text("")
    code, out, err = jestlab("costs", "paper.yaml", "--plot", "file/below")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "cannot write to file/below" in err


def test_errors_are_one_line(jestlab, tmp_path):
    code, out, err = jestlab("costs", "paper.yaml", "--baseline", "unifrm")
    assert (code, out) == (1, "")
    assert err == "jestlab: no run 'unifrm' that trains: did you mean 'uniform'?\n"
    (tmp_path / "own.yaml").write_text("program: json:dumps\nruns: {a: {x: 1}}\n")
    code, out, err = jestlab("costs", "own.yaml")
    assert (code, err) == (1, "jestlab: study own: no run trains anything that can be priced\n")
    assert jestlab("costs", "paper.yaml", "--scope", "all")[0] == 2


def test_a_share_beyond_the_budget_leaves_no_examples(jestlab, tmp_path):
    text = PAPER.replace("reference: {schedule: {", "reference: {schedule: {examples_seen: 40000000000, ")
    (tmp_path / "paper.yaml").write_text(text)
    runs = ledger(jestlab, "--scope", "reference_training")["runs"]
    assert runs["jest"]["per_example"]["counted"]["equal_budget_examples"] is None
    assert " none" in jestlab("costs", "paper.yaml", "--scope", "reference_training")[1]


def test_a_plan_says_why_it_has_no_hours(jestlab, monkeypatch, tmp_path):
    (tmp_path / "config.yaml").write_text("on: kubernetes\n")
    monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "config.yaml"))
    _, out, _ = jestlab("plan", "paper.yaml")
    assert "HOURS are unknown until runs of train, embed have completed on kubernetes" in out
    _, out, _ = jestlab("plan", "paper.yaml", "--set", "resources.on=slurm", "--set", "resources.gpus=4")
    assert "have completed on slurm with 4 GPUs." in out
    _, out, _ = jestlab("plan", "paper.yaml", "--set", "resources.tpu=v5e-16x16")
    assert "HOURS are unknown" not in out
