"""LaTeX tables in a two-column article: none is too wide, and every character is printed."""

import re
import shutil
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from jestlab.analysis import published, tables
from jestlab.analysis.tables import Shape
from jestlab.analysis.tables.latex import escape

METRICS = ("shapes/10_shot", "shapes/zero_shot", "shapes_retrieval/i2t_r1", "shapes_retrieval/t2i_r1")
LONG = "With the softmax loss, joint selection learns more than uniform training, averaged over all f"
PACKAGES = "array", "booktabs", "graphicx", "[table]{xcolor}"

needs_latex = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here: make tools")


@pytest.fixture
def quickstart(new_store, stored_run, stored_runs):
    """Runs, metrics, and costs like those of the quickstart, with claims and a failed run."""
    scoring: dict[str, Any] = {"flops_per_step": (3e9, 5e9, 5e9), "reference_training_share": 8e9}
    shared: dict[str, Any] = {"metrics": METRICS, "seconds_per_step": 2.1}
    claims = [
        {"statement": LONG, "of": "joint", "above": "uniform", "source": "App., Fig. 8, left"},
        {"statement": "It needs more.", "of": "joint", "above": "independent", "within": 0.02,
         "measure": "shapes_retrieval/i2t_r1", "unless": "the reference has seen less than its learners"},
    ]  # fmt: skip
    scores = {
        "reference": (0.618, 0.661), "uniform": (0.131, 0.155), "independent": (0.275, 0.306),
        "joint": (0.384, 0.416),
    }  # fmt: skip
    options = {"reference": {"needed": 1}, "uniform": {}, "independent": scoring, "joint": scoring}
    runs = [
        run
        for name, ends in scores.items()
        for run in stored_runs(name, *([0.1, 0.6 * end, end] for end in ends), **shared, **options[name])
    ]
    failed = stored_run("late", [0.1], state="FAILED", reason="out of memory on device 2", metrics=METRICS)
    question = "Does choosing batches jointly, by learnability, make learning faster?"
    return new_store().add(*runs, failed, question=question, spec={"claims": claims})


@pytest.fixture
def summary(quickstart):
    return tables.table(quickstart.url, "summary", ["study"])


def log_of(body, folder, options="twocolumn,10pt"):
    """Return the log of LaTeX for a document."""
    packages = "".join(f"\\usepackage{name if '{' in name else '{' + name + '}'}" for name in PACKAGES)
    text = f"\\documentclass[{options}]{{article}}{packages}\\begin{{document}}{body}\\end{{document}}\n"
    (folder / "paper.tex").write_text(text)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    log = (folder / "paper.log").read_text(errors="replace").replace("\n", " ")
    assert "Missing character" not in log
    return log


@pytest.mark.full
@needs_latex
@pytest.mark.parametrize("paper", ["", ",a4paper"])
def test_no_table_is_too_wide_for_an_article(quickstart, tmp_path, paper):
    cells = published.frame(published.paper())
    names = ("summary", "speedups", "claims", "comparison", "specialists")
    shown = [tables.table(quickstart.url, name, ["study"], with_published=False) for name in names]
    shown += [tables.paper_table(name, cells) for name in tables.LAYOUTS]
    shown += [replace(table, width=width) for table in shown for width in ("column", "text")]
    body = "\n".join(f"{table.latex()}\nText.\n\\clearpage" for table in shown)
    assert re.findall(r"Overfull \\hbox.{80}", log_of(body, tmp_path, f"twocolumn,10pt{paper}")) == []


@needs_latex
def test_latex_prints_every_character(tmp_path):
    texts = (
        "#1 & 50% of $x_2^{n}$ ~ <a|b> \\", "β₂ = 0.95, 10⁻³ ± 1 × 2 → ∞ ≥ √2, Δ λ µ ο ω",
        "Łukasz Müller Ş “x” …", "漢字 🙂 ğ ế",
    )  # fmt: skip
    log_of("\n\n".join(escape(text, breaks=True) for text in texts), tmp_path)
    assert escape("漢 é β₂ 5⁻¹") == "[U+6F22] é $\\beta$$_{2}$ 5$^{-}$¹"


def test_a_narrow_table_is_in_a_column_and_a_wide_one_spans_the_page(quickstart, summary):
    """Notes are below the table, and can be left out. Columns that do not fit are left out, and named."""
    wide, narrow = summary.latex(), replace(summary, columns=summary.columns[:3])
    assert "\\begin{table*}[t]" in wide
    assert "\\begin{table*}[t]" in replace(narrow, width="text").latex()
    assert wide.index("\\end{tabular}") < wide.index("FLOPs: training")
    assert "\\parbox" not in Shape(notes=False).applied(summary).latex()
    text = replace(summary, width="column").latex()
    header = next(line for line in text.splitlines() if line.strip().startswith("run &"))
    assert "score" in header
    assert "% Left out, since not all columns fit: seeds, " in text
    complete = Shape(columns=("scores,score,delta,costs,factors",), width="column").applied(summary).latex()
    assert "Left out" not in complete + narrow.latex()
    assert all("\\begin{table}[t]" in each for each in (text, complete, narrow.latex()))
    claims = tables.table(quickstart.url, "claims", ["study"]).latex()
    assert "\\begin{tabular}{@{}>{\\raggedright\\arraybackslash}p{" in claims  # its texts break into lines
