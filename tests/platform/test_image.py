"""The container's recipe agrees with the rest of the repository. Nothing here builds it."""

import json
from importlib.util import find_spec
from pathlib import Path

from executor_harnesses import IMAGE, job

from jestlab.platform.lab.settings import Kubernetes
from jestlab.platform.launch.executors.manifest import jobset
from jestlab.platform.spec.resources import parse_slice

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_it_begins_with_what_pods_are_told_to_run():
    (entry,) = map(json.loads, instructions("ENTRYPOINT"))
    manifest = jobset(job(), parse_slice("v5e-1x1"), IMAGE, Kubernetes(store_secret="s/k"), spot=False)
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == entry
    assert find_spec(entry[-1]) is not None


def test_what_it_copies_is_there_and_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources if not sources[0].startswith("--") else ():
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored


def test_it_does_not_run_as_root():
    assert LINES.index(f"USER {instructions('USER')[-1]}") > max(
        number for number, line in enumerate(LINES) if line.startswith("FROM ")
    )
    assert instructions("USER")[-1].split(":")[0] not in ("0", "root")
