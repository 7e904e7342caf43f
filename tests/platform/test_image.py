"""The container that cluster jobs run: its recipe, its size, what is not in it, and runs that it trains."""

import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import plans_support as plans
import pytest
from executor_harnesses import IMAGE, job
from tests.cluster.image import Built, NoImage, image

from jestlab.platform.dependencies import LAUNCHING
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Kubernetes
from jestlab.platform.launch.executors.jobset import jobset
from jestlab.platform.planning.plan import PlannedRun, plan
from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.resources import Resources
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
MOST_BYTES = 1_500_000_000  # without an accelerator's runtime
CACHING = {
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
HOME = "/home/jestlab"
STUDY: dict[str, Any] = {
    "name": "contained",
    "base": plans.TINY,
    "runs": {
        "reference": {"initialization": 1},
        "cache": {"program": "embed", "reference": "reference", "runtime": {"batch_size": 16}},
        "joint": {"selection": {"rule": "joint", "reference": "cache", "chunks": 4}},
        "diagnosis": plans.TINY_DIAGNOSIS | {"learner": "joint", "reference": "reference"},
        "said": {"program": "command", "command": ["python", "-c", "print('said')"]},
    },
    "reports": ["table"],
}
"""One run of each program that computes something."""


def instructions(name: str) -> list[str]:
    return [line.removeprefix(f"{name} ") for line in LINES if line.startswith(f"{name} ")]


def test_it_begins_with_what_pods_are_told_to_run_and_not_as_root():
    (entry,) = map(json.loads, instructions("ENTRYPOINT"))
    manifest = jobset(job(), Resources(tpu="v5e-1x1", image=IMAGE), Kubernetes(store_secret="s/k"))
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == entry
    assert find_spec(entry[-1]) is not None
    last = max(number for number, line in enumerate(LINES) if line.startswith("FROM scratch"))
    [user] = [line for line in LINES[last:] if line.startswith("USER ")]
    assert user.removeprefix("USER ").split(":")[0] not in ("0", "root")


def test_what_it_copies_is_there_and_not_ignored_and_what_it_leaves_out_is_named():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in instructions("COPY"):
        *sources, _ = line.split()
        for source in sources if not sources[0].startswith("--") else ():
            assert (ROOT / source).exists()
            assert f"!{source}" in ignored
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    required = {re.split(r"[\[<>=]", line)[0] for line in project["project"]["dependencies"]}
    contained = {re.split(r"[\[<>=]", line)[0] for line in project["dependency-groups"]["worker"]}
    assert required - contained == set(LAUNCHING)  # what it leaves out is told by name


# ---- the image, built


@pytest.fixture(scope="module")
def built() -> Built:
    try:
        return image()
    except NoImage as error:
        pytest.skip(str(error))


def inside(
    built: Built, *words: str, mounts: Mapping[Path, str] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in the container."""
    return subprocess.run(
        built.command(words, environment, mounts), capture_output=True, text=True, timeout=120
    )


@pytest.mark.cluster
def test_it_is_small_and_named_by_its_digest(built):
    assert Resources(image=built.digest).image == built.digest
    assert built.entrypoint == json.loads(instructions("ENTRYPOINT")[0])
    used = subprocess.run(["du", "-sb", built.tree], capture_output=True, text=True, check=True).stdout
    assert int(used.split()[0]) < MOST_BYTES
    packages = next(built.tree.glob("opt/jestlab/lib/python3.*/site-packages"))
    present = {path.name for path in packages.iterdir()}
    assert not present & {"pip", "uv", "torch", "libtpu", "kubernetes", "pytest", *LAUNCHING}
    assert not list(built.tree.glob("usr/lib/python3*/**/pip/__init__.py"))
    assert not list(packages.glob("*/tests"))


@pytest.mark.cluster
def test_nothing_of_the_machine_that_built_it_is_in_it(built):
    """No index, certificate, folder, variable or repository of it: in the files that a build writes."""
    assert not list(built.tree.glob("run/secrets/*"))
    assert {path.name for path in built.tree.iterdir()}.isdisjoint({"source", "work"})
    words = [str(ROOT).encode()]
    words += [line.encode() for line in Path("/etc/resolv.conf").read_text().splitlines() if "server" in line]
    indexes = (value for name, value in os.environ.items() if re.fullmatch("(PIP|UV)_.*INDEX.*", name))
    words += [value.encode() for value in indexes if len(value) > 8]
    assert not (hostname := built.tree / "etc" / "hostname").exists() or not hostname.read_bytes()
    for place in ("etc", "home", "root", "opt"):
        for path in (built.tree / place).rglob("*"):
            assert path.name not in {".git", "pip.conf", "uv.toml", ".netrc", ".env"}, path
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and status.st_size < 1_000_000:
                content = path.read_bytes()
                assert not [word for word in words if word in content], path
    assert set(built.environment) == {"PATH", "LANG", "PYTHONUNBUFFERED", "JAX_PLATFORMS"}
    # This machine may trust an authority of its own network's; the image trusts those that Debian does.
    bundle = built.tree / "etc" / "ssl" / "certs" / "ca-certificates.crt"
    packaged = {path.read_text().strip() for path in built.tree.glob("usr/share/ca-certificates/**/*.crt")}
    trusted = re.findall("-----BEGIN.*?-----END CERTIFICATE-----", bundle.read_text(), flags=re.DOTALL)
    assert trusted and set(trusted) <= packaged


@pytest.mark.cluster
def test_no_pod_trains_on_its_cpu_where_a_tpu_was_to_be(built):
    said = inside(built, "python", "-c", "import jax; print(jax.devices())", JAX_PLATFORMS="tpu,cpu")
    assert said.returncode == 1 and "Unable to initialize backend 'tpu'" in said.stderr


def compiled() -> Path:
    """Return a folder of user 1000's for compiled functions, which later runs of these tests find."""
    folder = Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).with_name("jax-contained")
    folder.mkdir(parents=True, exist_ok=True)
    os.chown(folder, 1000, 1000)
    return folder


class Contained:
    """A lab whose attempts run in the container, with its folder and runs, and one on this machine."""

    def __init__(self, built: Built, folder: Path) -> None:
        self._built = built
        self._labs = {True: Lab.find(folder / "contained"), False: Lab.find(folder / "here")}
        for lab in self._labs.values():
            store = Store.open(lab.store_url)
            plans.record(store, plan(StudySpec.parse(STUDY)))
            store.close()
        self.root = self._labs[True].root
        self.runs: dict[str, PlannedRun] = {run.name: run for run in plan(StudySpec.parse(STUDY)).runs}

    def work(self, name: str, contained: bool = True) -> tuple[int, str]:
        """Run an attempt to its end; its exit code and what it has printed."""
        lab, run = self._labs[contained], self.runs[name]
        number = plans.claimed(Store.open(lab.store_url), run)
        words = ["--run", run.fingerprint, "--attempt", str(number)]
        # Nobody but user 1000 works in the container.
        for path in [lab.root, *lab.root.rglob("*")]:
            os.chown(path, 1000, 1000)
        variables = {"XLA_FLAGS": os.environ["XLA_FLAGS"], "JAX_PLATFORMS": "cpu"}
        if contained:
            started = [*self._built.entrypoint, "--root", "/lab", *words]
            variables |= {"JAX_COMPILATION_CACHE_DIR": "/cache", **CACHING}
            done = inside(self._built, *started, mounts={lab.root: "/lab", compiled(): "/cache"}, **variables)
        else:
            started = [sys.executable, "-m", "jestlab.platform.worker", "--root", str(lab.root), *words]
            inherited = {k: v for k, v in os.environ.items() if not k.startswith("JESTLAB_")}
            done = subprocess.run(
                started, env=inherited | variables, capture_output=True, text=True, timeout=120
            )
        return done.returncode, done.stdout + done.stderr

    def rows(self, sql: str, contained: bool = True) -> list[Any]:
        """Query the store."""
        file = self._labs[contained].root / "results.db"
        return sqlite3.connect(file).execute(sql).fetchall()


@pytest.fixture(scope="module")
def contained(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Contained:
    # pytest's own folders are closed to others, as user 1000 is.
    return Contained(built, tmp_path_factory.mktemp("labs"))


RESULTS = """
    SELECT name, step, value FROM v_metrics WHERE run = 'reference' AND name NOT LIKE '%second%'
    ORDER BY name, step
"""


@pytest.mark.cluster
def test_each_program_runs_in_it_and_trains_what_this_machine_trains(contained):
    for name in contained.runs:
        code, said = contained.work(name)
        assert code == 0, f"{name}: {said[-3000:]}"
    states = contained.rows("SELECT DISTINCT state FROM v_runs")
    assert states == [(RunState.COMPLETED.value,)]
    code, said = contained.work("reference", contained=False)
    assert code == 0, said[-3000:]
    assert contained.rows(RESULTS)
    assert contained.rows(RESULTS) == contained.rows(RESULTS, contained=False)


@pytest.mark.cluster
def test_a_verb_that_needs_what_it_lacks_says_so_in_a_line(contained, built):
    said = inside(built, "jestlab", "table", "contained", "--root", "/lab", mounts={contained.root: "/lab"})
    assert said.returncode == 1
    assert said.stderr.startswith("jestlab: pandas, which tables need, is not installed: ")
    assert said.stderr.count("\n") == 1
