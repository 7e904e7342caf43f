"""The README is true: every command in it runs, its specs are the specs, its tree is the tree."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from jestlab.platform.plan import plan
from jestlab.platform.spec import Study

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

# The quickstart in seconds instead of minutes: the same runs, on less data and for fewer steps.
SHRINK = [
    "seeds=2",
    "base.data.train.examples=1024",
    "base.data.benchmark.classification_examples=96",
    "base.data.benchmark.retrieval_examples=32",
    "base.schedule.examples_seen=256",
    "base.evaluation.points=2",
    "base.evaluation.shots=2",
    "base.model={vision: {width: 16, depth: 1, heads: 2, patch_size: 8, pooling: mean},"
    " text: {width: 16, heads: 2, pooling: mean}, embedding_dim: 16}",
]

FEW = ("filtering_ratio", "optimisation")  # studies of the paper's, in place of all


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands():
    lines = [line.split("#")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line]


def test_its_claims_are_some():
    """They are of a study that compares joint and independent selection with uniform sampling."""
    (claims,) = (block for block in blocks("yaml") if not block.startswith("name:"))
    selected = {
        rule: {"selection": {"rule": rule, "reference": "reference"}} for rule in ("joint", "independent")
    }
    runs = {"reference": {"initialization": 1}, "uniform": {}, **selected}
    study = Study.parse({"name": "s", "runs": runs, **yaml.safe_load(claims)})
    assert len(study.claims) == 5
    assert len(plan(study).runs) == 4


@pytest.fixture(scope="module")
def jestlab(tmp_path_factory):
    """Run a command line of the README in a folder that holds its specs and scripts."""
    folder = tmp_path_factory.mktemp("reader")
    for spec in blocks("yaml"):
        name = re.match(r"name: (\S+)", spec)
        if name is None:  # a part of one
            continue
        (folder / f"{name[1]}.yaml").write_text(spec, encoding="utf-8")
    for script in blocks("python"):
        name = re.match(r"# (\w+\.py)\b", script)
        if name is not None:
            (folder / name[1]).write_text(script, encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JESTLAB_")}
    # As for a reader who has activated the virtual environment: `python` is the one that jestlab runs in.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])

    def run(line):
        words = shlex.split(line)
        assert words[0] == "jestlab", f"no way to run: {line}"
        code = "from jestlab.platform.cli import main; main()"
        if words[1:3] == ["launch", "quickstart"]:
            changes = [*SHRINK, "runs.reference.schedule.examples_seen=256"]
            words += [word for change in changes for word in ("--set", change)]
        if words[1:3] == ["launch", "paper"]:
            few = (
                f"from jestlab.experiments import paper as p; p.STUDIES = {{n: p.STUDIES[n] for n in {FEW}}}"
            )
            code = f"{few}; {code}"
            changes = [
                *SHRINK,
                *(f"studies.{name}.runs.reference.schedule.examples_seen=256" for name in FEW),
            ]
            words += [word for change in [*changes, "seeds=1"] for word in ("--set", change)]
        arguments = [sys.executable, "-c", code, *words[1:]]
        return subprocess.run(arguments, cwd=folder, env=environment, capture_output=True, text=True)

    return run


def test_every_command_runs(jestlab):
    """In the order of the README: later ones look at what earlier ones made."""
    lines = [line for line in commands() if not line.startswith("make ")]
    verbs = set()
    for line in lines:
        done = jestlab(line)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert done.stdout.strip(), line
        verbs.add(line.split()[1])
    from jestlab.platform.cli import VERBS

    assert verbs == set(VERBS), "a verb that the README does not show"


@pytest.mark.parametrize("line", [line for line in commands() if line.startswith("make ")])
def test_make_targets_exist(line):
    done = subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_spec_shown_is_the_spec():
    source = (ROOT / "experiments/jestlab/experiments/quickstart.py").read_text(encoding="utf-8")
    assert blocks("python")[0].strip() == source.strip()


def test_the_tree_names_every_module():
    tree = README.split("## Where things are")[1]
    for root in ("experiments", "platform", "models", "analysis"):
        for path in (ROOT / root / "jestlab").rglob("*.py"):
            if path.name == "__init__.py" or {"migrations", "cli"} & set(path.parts):
                continue
            assert re.search(rf"^\s+{re.escape(path.name)}\s", tree, flags=re.MULTILINE), path
    for name in re.findall(r"^\s+(\w+\.py)\s", tree, flags=re.MULTILINE):
        assert list(ROOT.glob(f"*/jestlab/**/{name}")), f"{name} is no more"


def test_the_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
