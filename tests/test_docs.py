"""The documentation works: every command, file, snippet, and transcript in it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import psutil
import pytest
import yaml
from tests import docs_support
from tests.docs_support import SHRUNK, Reader, blocks
from tests.waiting import wait_until

from jestlab.analysis.query import frame
from jestlab.experiments import paper
from jestlab.platform.cli import cli, main

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ["../README.md", *sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))]

_INSTALLS = "installs, and changes the reader's shell"
_SLURM = "needs a cluster with Slurm"
_DATABASE = "needs a PostgreSQL server"
_DOCKER = "needs docker and a registry"
_SERVES = "goes on until it is stopped: tests of the server start and stop it"
_HOUR = "takes an hour"

NOT_RUN = {
    "../README.md": {"make demo": _INSTALLS, "jestlab plan paper --decide": _HOUR},
    "tutorial.md": {"make install": _INSTALLS},
    "case-studies/icons.md": {
        "jestlab data fetch icons": "downloads 41 MB, and trains for half an hour",
        "jestlab show-batch 'icons/joint filtering_ratio=0.9/0' --step 60": "needs the launch before",
    },
    "case-studies/methods.md": {"jestlab launch frontier": "takes 20 minutes"},
    "case-studies/open-clip.md": {"jestlab data fetch icons": "downloads 41 MB, and trains for half an hour"},
    "case-studies/paper.md": {
        "jestlab launch filtering_ratio": "takes minutes",
        "jestlab register paper --decide": _HOUR,
    },
    "case-studies/text.md": {"cd docs/case-studies/text": "downloads packages, and trains for 20 minutes"},
    "how-to/container.md": {
        "docker build --build-arg ACCELERATOR=tpu --tag europe-docker.pkg.dev/lab/jestlab .": _DOCKER,
        "docker build --secret id=machine,src=index.env \\": _DOCKER,
        "docker build --file torch.Dockerfile --tag europe-docker.pkg.dev/lab/torch .": _DOCKER,
    },
    "how-to/kubernetes.md": {
        "jestlab launch pod.yaml": "needs a Kubernetes cluster",
        "jestlab launch fit.yaml": "needs a Kubernetes cluster: see test_kubernetes_code.py",
    },
    "how-to/login-nodes.md": {
        "jestlab launch quickstart --on slurm --detach=slurm": _SLURM,
        "jestlab launch quickstart --on slurm --detach=dependencies": _SLURM,
    },
    "how-to/open-clip.md": {
        "python -m open_clip_train.main --model ViT-B-32 --siglip --dataset-type webdataset \\": "takes days"
    },
    "how-to/postgresql.md": {
        "createdb results": _DATABASE,
        "jestlab db backup before.db": _DATABASE,
        "CREATE ROLE reader LOGIN PASSWORD 'choose one';": _DATABASE,
    },
    "how-to/shared-store.md": {
        "jestlab doctor --root /group/lab": _SLURM,
        "mkdir /group/lab && chgrp vision /group/lab && chmod 2775 /group/lab": "needs a shared folder",
    },
    "how-to/slurm.md": {"jestlab doctor": _SLURM},
    "how-to/tpu.md": {"pip install 'jestlab[gcs]'": "needs a bucket"},
    "how-to/web-ui.md": {
        "jestlab serve": _SERVES,
        "jestlab serve --write": _SERVES,
        "jestlab serve --lab ~/labs/mine --lab /data/labs/theirs=postgresql://reader@server/results": _SERVES,
    },
    "how-to/workstation.md": {
        "pip install \"jax[cuda12]==$(python -c 'import jax; print(jax.__version__)')\"": "needs GPUs"
    },
}
"""Page → first line of a block of code in it → why it is not run here."""

_EXTENSIONS = tuple(f"how-to/extend-{kind}.md" for kind in ("selection", "training", "results"))
FILES_FROM = {"how-to/extend-package.md": _EXTENSIONS, "how-to/weights.md": ("how-to/data.md",)}
"""Page → pages whose files it uses."""

WITH_TORCH = ("../README.md", *(f"how-to/{job}.md" for job in ("open-clip", "pytorch", "several-nodes")))
"""Pages that run PyTorch."""

LAUNCH = "jestlab launch quickstart"

ONE_FEWER = "runs.independent.selection.rule=joint"
"""Override by which two runs of the quickstart are one run: the README needs no other."""

SLOW = (
    "tutorial.md",
    "faq.md",
    "python-api.md",
    "case-studies/methods.md",
    "case-studies/paper.md",
    "explanation/costs.md",
    "explanation/goodput.md",
    "explanation/provenance.md",
    *(f"how-to/{job}.md" for job in ("budgets", "ci", "data", "import-runs", "monitor")),
    *(f"how-to/{job}.md" for job in ("other-programs", "paper-figures", "postgresql", "pytorch", "query")),
    *(f"how-to/{job}.md" for job in ("scaling", "seeds", "several-nodes", "share", "shared-store")),
    *(f"how-to/{job}.md" for job in ("weights", "workstation")),
    "reference/troubleshooting.md",
)
"""Pages that launch studies: `make test-all` runs their examples, `make test` those of the other pages."""

BLOCKS = {page: blocks((DOCS / page).read_text(encoding="utf-8")) for page in PAGES}
"""Page → its blocks of code."""


def marks(page):
    """Return the marks of a page."""
    full = [pytest.mark.full] if page in SLOW else []
    return [*full, pytest.mark.oracle] if page in WITH_TORCH else full


def write_files(reader, page):
    """Write the files of a page, and those of other pages that it uses."""
    for one in (*FILES_FROM.get(page, ()), page):
        reader.write(BLOCKS[one])


@pytest.fixture
def reader(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper, "STUDIES", docs_support.FEW)
    return Reader(tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse_and_specs_load(page, reader, monkeypatch):
    monkeypatch.setattr(click.Path, "convert", lambda self, value, *_: value)  # files needn't exist
    write_files(reader, page)
    for block in BLOCKS[page]:
        if block.is_run:
            reader.check(block)
        else:
            assert block.language == "text" or block.first in NOT_RUN.get(page, ()), f"not listed: {block}"


@pytest.fixture(scope="session")
def finished_lab(tmp_path_factory):
    """A lab in which the quickstart is complete; launching it again there takes a second."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("finished")
        patch.chdir(folder)
        overrides = [word for change in (*SHRUNK["quickstart"], "seeds=1") for word in ("--set", change)]
        with pytest.raises(SystemExit) as stopped:
            main(["launch", "quickstart", *overrides])
        assert not stopped.value.code
    return folder / "lab"


@pytest.mark.parametrize("page", [pytest.param(page, marks=marks(page)) for page in PAGES])
def test_examples_run(page, reader, monkeypatch, request):
    if page == "../README.md":
        monkeypatch.setitem(SHRUNK, "quickstart", (*SHRUNK["quickstart"], ONE_FEWER))
    elif any(LAUNCH in block.text.splitlines() for block in BLOCKS[page] if block.is_run):
        shutil.copytree(request.getfixturevalue("finished_lab"), reader.folder / "lab")
    write_files(reader, page)
    for block in BLOCKS[page]:
        if block.is_run:
            reader.do(block)


def test_blocks_that_are_not_run_exist():
    """`NOT_RUN` lists no block that was changed or removed since."""
    for page, listed in NOT_RUN.items():
        assert listed.keys() - {block.first for block in BLOCKS[page] if not block.is_run} == set(), page


def test_slow_pages_exist():
    assert set(SLOW) <= set(PAGES)


def test_every_verb_is_shown():
    """In what is run, on some page; the references of commands and keys are generated."""
    every = [block for page in PAGES for block in BLOCKS[page]]
    shown = "\n".join(block.text for block in every if block.language in ("sh", "console"))
    verbs = set(re.findall(r"\bjestlab ([\w-]+)", shown))
    assert set(cli.verbs) - verbs == {"serve"}  # goes on until it is stopped


def test_the_readme_is_a_screen_and_a_half():
    assert len((DOCS.parent / "README.md").read_bytes()) <= 8_192


@pytest.mark.full
@pytest.mark.oracle
def test_the_pytorch_script_resumes_from_its_checkpoint_after_a_kill(tmp_path, monkeypatch, capsys):
    """Killed with its worker, it is resumed by the same launch, and ends as if nothing had happened."""
    reader = Reader(tmp_path, monkeypatch, capsys)
    reader.write(BLOCKS["how-to/pytorch.md"])
    study = yaml.safe_load((tmp_path / "cnn.yaml").read_text(encoding="utf-8"))
    study |= {"runs": {"narrow": {"width": 4, "steps": 200}}, "seeds": 1, "claims": [], "reports": []}
    (tmp_path / "cnn.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    launch = [sys.executable, "-c", "from jestlab.platform.cli import main; main()", "launch", "cnn.yaml"]
    launch.append("--no-reports")
    calm = subprocess.run([*launch, "--root", "calm"], capture_output=True, text=True)
    assert calm.returncode == 0, calm.stderr
    with subprocess.Popen([*launch, "--root", "lab"], stdout=subprocess.PIPE, text=True) as launched:
        (script,) = wait_until(
            lambda: [p for p in scripts(tmp_path) if list(tmp_path.glob("lab/runs/*/checkpoint.pt"))]
        )
        worker = script.parent()
        assert worker is not None
        worker.kill()
        script.kill()
        out, _ = launched.communicate(timeout=120)
    assert launched.returncode == 0, out
    read = "SELECT seed, step, name, value FROM v_evaluations ORDER BY 1, 2, 3"
    ends = [frame(sql=read, url=f"sqlite:///{tmp_path}/{lab}/results.db") for lab in ("calm", "lab")]
    assert len(ends[0]) == 5
    assert ends[0].equals(ends[1])
    attempts = "SELECT attempts FROM v_runs"
    assert list(frame(sql=attempts, url=f"sqlite:///{tmp_path}/lab/results.db")["attempts"]) == [2]


def scripts(folder: Path) -> list[psutil.Process]:
    """Find the processes of the script below a folder."""
    every = psutil.process_iter(["cmdline", "cwd"])
    there = [one for one in every if one.info["cwd"] == str(folder)]
    return [one for one in there if one.info["cmdline"][1:] == ["cnn.py"]]
