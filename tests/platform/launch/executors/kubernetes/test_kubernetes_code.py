"""Pods run the code that a launch has shipped: the user's folder is gone before they start."""

import gzip
import hashlib
import json
import sqlite3
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import labs_support as labs
import pytest
import yaml
from executor_harnesses import IMAGE
from tests.cluster.kubernetes.shared import Namespace, container_environment
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

TRAIN = """
from pathlib import Path
import torch
from jestlab.platform import client
from model import make

run = client.run()
torch.manual_seed(run.seed)
torch.set_num_threads(1)
model = make(run.config["width"])
x = torch.randn(64, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
run.evaluation(20, examples_seen=20 * 64, scores={"toy/loss": loss.item()})
(run.directory / "where").write_text(str(Path.cwd()))
"""
MODEL = """
import torch

def make(width):
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
"""
STUDY: dict[str, Any] = {
    "name": "shipped",
    "program": "command",
    "base": {"command": ["python", "train.py"], "width": 8},
    "runs": {"a": {}},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("torch", reason="no PyTorch (make oracles)")
    monkeypatch.setenv("JESTLAB_SCRATCH", str(tmp_path / "scratch"))
    project = tmp_path / "project"
    (project / "exp").mkdir(parents=True)
    (project / "exp" / "train.py").write_text(TRAIN)
    (project / "exp" / "model.py").write_text(MODEL)
    return project


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_torch_command_finds_its_code_in_every_pod(
    root: Path,
    project: Path,
    tmp_path: Path,
    namespace: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    nodes: int,
) -> None:
    spec = project / "exp" / "study.yaml"
    spec.write_text(yaml.safe_dump(STUDY | {"resources": {"code": "copy", "nodes": nodes, "retries": 0}}))
    kubeconfig = namespace.kubeconfig(tmp_path / "kubeconfig")
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(kubeconfig))
    lab = Lab.find(root)
    store = Store.open(lab.store_url)
    study = plan(load(str(spec)), placement="remote")
    recording.record(store, study)
    code = Shipping(lab, "copy", print).arguments(study.runs)
    namespace.set_store(lab.store_url)
    namespace.cluster.images.push(IMAGE, None)  # it is pulled until the project is gone
    settings = Settings(namespace=namespace.name, store_secret="jestlab-store/url", root=str(root))
    resources = study.study.resources.model_copy(update={"image": IMAGE})
    options = ControllerOptions(on="kubernetes", retries=0, code=code)

    # Each pod has a scratch folder of its own, as on a machine of its own.
    environment = {**container_environment(), **labs.variables(root)}
    (python := tmp_path / "bin" / "python").parent.mkdir()
    own = f"export JESTLAB_SCRATCH={tmp_path}/scratch-$JAX_PROCESS_ID"
    python.write_text(f'#!/bin/sh\n{own}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment["PATH"] = f"{python.parent}:{environment['PATH']}"

    def launched() -> Any:
        executor = KubernetesExecutor(settings, resources)
        return launch(lab, store, "shipped", study.runs, lambda _: executor, options=options)

    with ThreadPoolExecutor(1) as pool:
        launching = pool.submit(launched)
        wait_until(lambda: launching.done() or len(namespace.pods()) == nodes)
        project.rename(tmp_path / "away")
        namespace.cluster.images.push(IMAGE, environment)
        outcome = launching.result(timeout=120)
    said = [log.read_text()[-3000:] for log in root.rglob("log.txt")]
    assert outcome.exit_code == 0, (outcome, said)
    [archive] = (root / "code").iterdir()
    digest = hashlib.sha256(gzip.decompress(archive.read_bytes())).hexdigest()
    assert archive.name == f"{digest}.tar.gz"
    database = sqlite3.connect(root / "results.db")
    [(patch, sources)] = database.execute("SELECT code_patch, sources FROM attempt").fetchall()
    assert digest in patch
    assert json.loads(sources)["model.py"] == hashlib.sha256(MODEL.encode()).hexdigest()
    folders = sorted(tmp_path.glob("scratch*/code/[!.]*"))
    assert [folder.name for folder in folders] == [digest] * nodes
    [where] = root.glob("runs/*/where")
    assert Path(where.read_text()) in folders
