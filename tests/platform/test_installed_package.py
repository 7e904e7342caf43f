"""The pages on extending jestlab work as they say: its code as an installed package.

hatchling builds a wheel of it without a network, and the wheel is unpacked into a folder of PYTHONPATH.
"""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[2] / "docs" / "how-to").glob("extend-*.md"))
KINDS = {"criteria", "rules", "losses", "evaluations", "readers", "towers", "figures", "tables", "executors"}
STUDY = """\
name: example
question: Do all custom parts work together?
base:
  model.vision: {architecture: "jestlab_example.towers:Layer", width: 16, options: {hidden: 8}}
  model.text: {width: 16, depth: 1, heads: 2, length: 8, pooling: mean}
  model.embedding_dim: 16
  data.train: {kind: reader, function: "jestlab_example.readers:squares", options: {count: 256}}
  data.benchmark: {classification_examples: 96, retrieval_examples: 32, image_size: 16}
  schedule: {batch_size: 16, examples_seen: 64}
  loss: "jestlab_example.losses:decoupled"
  evaluation: {points: 1, shots: 2, shot_seeds: 1, extra: {colors: "jestlab_example.evaluations:colors"}}
runs:
  reference: {initialization: 1}
  joint:
    selection:
      reference: reference
      rule: "jestlab_example.rules:halves"
      criterion: "jestlab_example.criteria:clipped"
      criterion_options: {floor: 0.1}
metrics: {colors/accuracy: {goal: max, unit: percent}}
reports:
- table: {name: "jestlab_example.tables:extremes"}
- {"jestlab_example.figures:scatter": {options: {x: examples_seen}}}
resources: {on: "jestlab_example.executors:Behind", options: {command: "nice -n 0 {worker}"}}
"""
"""A study that uses all of the package's extensions, by reference."""

_FILE = re.compile(r"^```\w+\n(# ([\w/.-]+\.\w+)\b.*?)^```$", re.DOTALL | re.MULTILINE)


def files() -> Iterator[tuple[str, str]]:
    """The files that the pages' blocks of code are."""
    for page in PAGES:
        for text, name in _FILE.findall(page.read_text(encoding="utf-8")):
            yield name, text


def run(folder: Path, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run Python with the package; what it prints."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("JESTLAB_", "PYTHON"))}
    own = {"PYTHONPATH": str(folder / "installed"), "JAX_PLATFORMS": "cpu", "JESTLAB_POLL_SECONDS": "0.2"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd or folder, capture_output=True, text=True, env=inherited | own)
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the page's files are, in `source`, and their package, in `installed`."""
    place = tmp_path_factory.mktemp("example")
    for name, text in files():
        if name != "config.yaml":
            (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "source" / name).write_text(text)
    run(place, "-m", "hatchling", "build", "-t", "wheel", "-d", place / "dist", cwd=place / "source")
    [wheel] = (place / "dist").glob("*.whl")
    zipfile.ZipFile(wheel).extractall(place / "installed")
    assert (place / "installed" / "jestlab_example" / "rules.py").exists()
    return place


def test_the_page_shows_one_of_each_kind():
    shown = dict(files())
    groups = set(re.findall(r'^"jestlab\.(\w+)" = ', shown["pyproject.toml"], re.MULTILINE))
    assert groups == KINDS == {Path(name).stem for name in shown if name.startswith("jestlab_example/")}


@pytest.mark.full
def test_a_study_by_the_entry_points_names_ends_in_its_table_and_its_figure(folder):
    """Nothing of the package lies in the working directory: it is found as an installed one."""
    spec = STUDY
    for name, reference in re.findall(
        r'\{(\w+) = "(jestlab_example\.\S+)"\}$', dict(files())["pyproject.toml"], re.MULTILINE
    ):
        assert reference in spec, f"the study does not use {reference}"
        spec = spec.replace(f'"{reference}"', name)
    assert "jestlab_example" not in spec
    at = folder / "elsewhere"
    at.mkdir()
    (at / "example.yaml").write_text(spec)

    def jestlab(*words: str) -> str:
        return run(folder, "-c", "from jestlab.platform.cli import main; main()", *words, cwd=at)

    jestlab("launch", "example.yaml")
    reports = at / "lab" / "reports" / "example"
    names = {path.name for path in reports.iterdir()}
    assert {"extremes.tex", "extremes.csv", "scatter.pdf", "scatter.png", "report.html"} <= names
    labels = [line.partition(",")[0] for line in (reports / "extremes.csv").read_text().splitlines()]
    assert labels == ["label", "reference", "joint"]
    asked = (
        "SELECT DISTINCT executor, name FROM v_attempts JOIN v_evaluations USING (fingerprint) "
        "WHERE name LIKE 'colors/%'"
    )
    found = json.loads(jestlab("query", asked, "--json"))
    assert found == [{"executor": "behind", "name": "colors/accuracy"}]
    table = jestlab("table", "extremes", "example", "--option", "of=colors/accuracy")
    assert "best" in table and "| joint" in table
    plots = jestlab("plot", "example", "--kind", "scatter", "--caption", "none", "--output", "plots").split()
    assert [Path(path).name for path in plots] == [f"scatter.{end}" for end in ("png", "svg", "pdf", "txt")]


@pytest.mark.full
def test_its_contract_tests_pass(folder):
    out = run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", folder / "source" / "tests")
    assert "3 passed" in out
