"""Pods run the code that a launch has shipped: the user's folder is gone before they start.

The study is that of docs/how-to/kubernetes.md, and the image in one test that of docs/how-to/container.md.
Another study trains with PyTorch's DistributedDataParallel in two pods.
"""

import gzip
import hashlib
import json
import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
from executor_harnesses import IMAGE
from tests.cluster.image import TORCH, NoImage, image_for_commands
from tests.cluster.kubernetes.shared import ROOT, Namespace, container_environment
from tests.docs_support import blocks
from tests.waiting import wait_until

from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Kubernetes as Settings
from jestlab.platform.launch.controller import launch
from jestlab.platform.launch.executors.kubernetes import KubernetesExecutor
from jestlab.platform.launch.options import ControllerOptions
from jestlab.platform.launch.shipping import Shipping
from jestlab.platform.planning import recording
from jestlab.platform.planning.plan import plan
from jestlab.platform.spec.load import load
from jestlab.platform.store.store import Store

PAGE = {
    block.file: block.text
    for block in blocks((ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8"))
    if block.file
}
SCORES = "SELECT run, dataset, metric, value FROM v_evaluations ORDER BY run"


class Launched:
    """A launch whose pods start when the user's folder has moved away."""

    def __init__(
        self, root: Path, folder: Path, namespace: Namespace, nodes: int, files: Mapping[str, str]
    ) -> None:
        spec = folder / "project" / "exp" / "fit.yaml"
        spec.parent.mkdir(parents=True)
        for name, text in files.items():
            (spec.parent / name).write_text(text)
        self.lab = Lab.find(root)
        self.folder = folder
        self._store = Store.open(self.lab.store_url)
        self._plan = plan(load(str(spec), overrides=[f"resources.nodes={nodes}"]), placement="remote")
        recording.record(self._store, self._plan)
        self._code = Shipping(self.lab, self._plan.study.resources.code, print).arguments(self._plan.runs)
        self._namespace = namespace
        namespace.set_store(self.lab.store_url)

    def run(self, python: str) -> list[Any]:
        """Launch in an image with this script as its `python`; return the scores of all runs."""
        images = self._namespace.cluster.images
        images.push(IMAGE, None)  # pulling it takes until the project is gone
        with ThreadPoolExecutor(1) as pool:
            launching = pool.submit(self._launch)
            wait_until(lambda: launching.done() or self._namespace.pods())
            (self.folder / "project").rename(self.folder / "away")
            (path := self.folder / "bin" / "python").parent.mkdir()
            path.write_text(python)
            path.chmod(0o755)
            own = {"PATH": f"{path.parent}:/usr/bin:/bin:/usr/sbin"}
            images.push(IMAGE, {**container_environment(), **labs.variables(self.lab.root), **own})
            outcome = launching.result(timeout=240)
        said = [log.read_text()[-3000:] for log in self.lab.root.rglob("log.txt")]
        assert outcome.exit_code == 0, (outcome, said)
        return self.rows(SCORES)

    def rows(self, sql: str) -> list[Any]:
        return sqlite3.connect(self.lab.root / "results.db").execute(sql).fetchall()

    def _launch(self) -> Any:
        root, secret = str(self.lab.root), "jestlab-store/url"
        settings = Settings(namespace=self._namespace.name, store_secret=secret, root=root)
        resources = self._plan.study.resources.model_copy(update={"image": IMAGE})
        executor = KubernetesExecutor(settings, resources)
        options = ControllerOptions(
            on="kubernetes", retries=0, code=self._code, tasks_per_node=resources.tasks_per_node
        )
        return launch(self.lab, self._store, "fit", self._plan.runs, lambda _: executor, options=options)


@pytest.fixture
def launched(
    root: Path, tmp_path: Path, namespace: Namespace, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Launched]:
    pytest.importorskip("torch", reason="no PyTorch (make oracles)")
    kubeconfig = namespace.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    fit = {name: PAGE[name] for name in ("fit.py", "fit.yaml")}
    return lambda nodes, files=fit, name="": Launched(root / name, tmp_path / name, namespace, nodes, files)


@pytest.mark.parametrize("nodes", [1, 2])
def test_every_pod_gets_the_code_and_attempts_record_it(launched, tmp_path, nodes):
    study = launched(nodes)
    # Each pod has a scratch folder of its own, as on a machine of its own.
    scratch = f"{tmp_path}/scratch-${{JESTLAB_TEST_POD}}"
    scores = study.run(f'#!/bin/sh\nJESTLAB_SCRATCH={scratch} exec {sys.executable} "$@"\n')
    assert [score[:3] for score in scores] == [("narrow", "sum", "loss"), ("wide", "sum", "loss")]
    [archive] = (study.lab.root / "code").iterdir()
    digest = hashlib.sha256(gzip.decompress(archive.read_bytes())).hexdigest()
    assert archive.name == f"{digest}.tar.gz"
    for patch, sources in study.rows("SELECT code_patch, sources FROM attempt"):
        assert archive.name in patch
        assert json.loads(sources) == {"fit.py": hashlib.sha256(PAGE["fit.py"].encode()).hexdigest()}
    folders = list(tmp_path.glob("scratch-*/code/[!.]*"))
    assert [folder.name for folder in folders] == [digest] * nodes * 2
    assert all((folder / "fit.py").read_text() == PAGE["fit.py"] for folder in folders)


DDP = """
name: fit
program: command
base: {command: %(command)s, steps: 20}
metrics: {}
resources: {on: kubernetes, code: copy, tasks_per_node: %(tasks)d}
runs: {ddp: {}}
"""
SCRIPT = Path(labs.__file__).with_name("ddp.py").read_text()
TORCHRUN = "[python, -m, torch.distributed.run, --nproc-per-node, '%d', ddp.py]"


def test_two_pods_of_two_processes_train_like_one_process(launched, tmp_path):
    weights = []
    cases = [(1, 1, TORCHRUN % 1), (2, 2, "[python, ddp.py]"), (2, 1, TORCHRUN % 2)]
    for name, (nodes, tasks, command) in zip("123", cases, strict=True):
        spec = DDP % {"command": command, "tasks": tasks}
        study = launched(nodes, {"ddp.py": SCRIPT, "fit.yaml": spec}, name)
        (study.lab.root / "hurry").touch()
        scratch = f"{tmp_path}/{name}/scratch-${{JESTLAB_TEST_POD}}"
        scores = study.run(f'#!/bin/sh\nJESTLAB_SCRATCH={scratch} exec {sys.executable} "$@"\n')
        assert [score[2] for score in scores] == ["0", "1", "2", "3"]
        weights.append([score[3] for score in scores])
        assert study.rows("SELECT state FROM attempt") == [("COMPLETED",)]
        assert len(list(study.lab.root.glob("runs/*/rank-*"))) == (1 if nodes == 1 else 4)
    assert weights[1] == pytest.approx(weights[0], abs=1e-6)
    assert weights[2] == pytest.approx(weights[0], abs=1e-6)


IN_THE_IMAGE = """#!{python}
import os, sys
sys.path.insert(0, {source!r})
from pathlib import Path, PosixPath
from tests.cluster.image import Built
given = {{name: value for name, value in os.environ.items() if name.startswith(("JESTLAB_", "JAX_"))}}
words = {built!r}.command(["python", *sys.argv[1:]], given, {mounts!r})
os.execvp(words[0], words)
"""


def test_the_documented_image_runs_the_study_of_the_docs(launched):
    """PyTorch is this machine's: see `image_for_commands`."""
    try:
        built = image_for_commands()
    except NoImage as error:
        pytest.skip(str(error))
    study = launched(1)
    [here] = (Path(sys.prefix) / "lib").glob("python3.*/site-packages")
    [there] = built.tree.glob("opt/run/lib/python3.*/site-packages")
    inside = Path("/") / there.relative_to(built.tree)
    mounts = {here / name: str(inside / name) for name in TORCH if (here / name).exists()}
    mounts[study.lab.root] = str(study.lab.root)
    for path in (study.lab.root, *study.lab.root.rglob("*")):
        os.chown(path, 1000, 1000)
    before = os.umask(0)  # the launcher and the pods are different users
    try:
        script = IN_THE_IMAGE.format(python=sys.executable, source=str(ROOT), built=built, mounts=mounts)
        scores = study.run(script)
    finally:
        os.umask(before)
    assert [score[:3] for score in scores] == [("narrow", "sum", "loss"), ("wide", "sum", "loss")]
    [versions] = {versions for (versions,) in study.rows("SELECT versions FROM attempt")}
    assert "jax" not in json.loads(versions)
