"""A missing extra is an error of one line that names it, before anything starts."""

import re
import sqlite3
import sys
import tomllib
from contextlib import closing
from pathlib import Path

import labs_support as labs
import pytest

from jestlab.platform import cli, dependencies, programs
from jestlab.platform.errors import UserError
from jestlab.platform.lab.sync import Bucket
from jestlab.platform.launch import executors
from jestlab.platform.store.store import Store

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DEVELOPERS = {"dev", "oracles"}
NAMES = {"orbax": "orbax-checkpoint"}
"""Module → its package, if that has another name."""

SETTINGS = """
image: example.org/jestlab@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
kubernetes: {namespace: research, store_secret: jestlab-store/url, claim: lab, root: /lab}
vertex: {project: our-lab, region: us-west4, store_secret: projects/a/secrets/b/versions/1, root: /gcs/lab}
"""


def packages(lines: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", line)[0] for line in lines}


def test_built_in_executors_have_the_same_names_everywhere():
    assert executors._BUILT_IN.keys() == set(dependencies.EXECUTORS)


def test_the_table_of_extras_is_that_of_the_project():
    """Each extra adds its packages to those of the core."""
    extras = PROJECT["optional-dependencies"]
    assert dependencies.EXTRAS.keys() == extras.keys() - DEVELOPERS
    for extra, modules in dependencies.EXTRAS.items():
        added = {NAMES.get(module, re.sub(r"[._]", "-", module)) for module in modules}
        assert added == packages(extras[extra]) - {"jestlab"}, extra
        assert not added & packages(PROJECT["dependencies"])
    [everything] = [line for line in extras["dev"] if line.startswith("jestlab[")]
    assert set(re.findall(r"\w+", everything)[1:]) == dependencies.EXTRAS.keys()


@pytest.mark.parametrize(("executor", "module"), [("kubernetes", "kubernetes"), ("vertex", "google.auth")])
def test_a_launch_without_a_client_is_an_error(tmp_path, root, monkeypatch, executor, module):
    (tmp_path / "config.yaml").write_text(SETTINGS)
    monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "config.yaml"))
    labs.hide_modules(monkeypatch, module)
    spec = labs.write_study(tmp_path)
    asked = ["--on", executor, "--set", "resources.tpu=v5e-2x2"]
    said = labs.here("launch", spec, *asked, root=root)
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == (
        f"jestlab: {module} isn't installed: pip install 'jestlab[{executor}]'"
    )
    assert not list(root.glob("runs/*"))
    # Manifests can be written without it.
    said = labs.here("launch", spec, *asked, "--render", tmp_path / "manifests", root=root)
    assert said.returncode == 0, said.stderr
    assert len(list((tmp_path / "manifests").iterdir())) == 3


NO_JAX = "jestlab: jax isn't installed: pip install 'jestlab[jax]'\n"


@pytest.mark.parametrize("verb", ["plan", "launch"])
def test_our_programs_without_jax_are_an_error_before_anything_starts(root, tmp_path, monkeypatch, verb):
    labs.hide_modules(monkeypatch, "jax")
    said = labs.here(verb, "quickstart", root=root)
    assert (said.returncode, said.stdout, said.stderr) == (1, "", NO_JAX)
    assert not root.exists()
    # Other machines may have it.
    (tmp_path / "config.yaml").write_text(SETTINGS)
    monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "config.yaml"))
    cluster = ["--on", "kubernetes", "--set", "resources.tpu=v5e-2x2", "--render", str(tmp_path / "out")]
    said = labs.here("launch", "quickstart", *cluster, root=root)
    assert said.returncode == 0, said.stderr


def test_init_writes_a_study_that_can_be_launched_without_jax(tmp_path, monkeypatch):
    for has_jax in (True, False):
        spec = tmp_path / f"{has_jax}.yaml"
        assert labs.here("init", spec).returncode == 0
        assert ("\nprogram: command\n" in spec.read_text()) is not has_jax
        labs.hide_modules(monkeypatch, "jax")


def test_workers_name_the_extra_of_a_program(monkeypatch):
    labs.hide_modules(monkeypatch, "optax")
    with pytest.raises(UserError, match=r"^optax isn't installed: pip install 'jestlab\[jax\]'$"):
        programs.execute("train", {}, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("pyarrow", "adopt", ["query", "SELECT 1 AS one", "--output", "one.parquet"]),
        ("tensorboard", "adopt", ["adopt", "tensorboard", ".", "--into", "other"]),
        ("jax", "jax", ["data", "make", "shapes", "web", "--examples", "8"]),
        ("jax", "jax", ["data", "fetch", "icons", "icons"]),
        ("ml_dtypes", "jax", ["weights", "inspect", "."]),
        ("resvg_py", "icons", ["data", "fetch", "icons", "icons"]),
    ],
)
def test_verbs_name_the_extra_they_need(tmp_path, root, monkeypatch, module, extra, arguments):
    monkeypatch.chdir(tmp_path)
    labs.hide_modules(monkeypatch, module)
    Store.open(f"sqlite:///{root / 'results.db'}").close()
    if arguments[0] == "weights":  # an earlier test may have imported it
        for name in ("files", "sources"):
            monkeypatch.delitem(sys.modules, f"jestlab.models.weights.{name}", raising=False)
    said = labs.here(*arguments, root=None if arguments[0] == "data" else root)
    assert said.stderr == f"jestlab: {module} isn't installed: pip install 'jestlab[{extra}]'\n"
    assert said.returncode == 1 and not (tmp_path / "web").exists() and not (tmp_path / "icons").exists()


def test_buckets_name_their_extra(monkeypatch):
    labs.hide_modules(monkeypatch, "gcsfs")
    with pytest.raises(UserError, match=r"gcsfs isn't installed: pip install 'jestlab\[gcs\]'"):
        Bucket("gs://bucket/lab")


def test_a_missing_package_of_a_verb_is_one_line(monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit, match="1"):
        cli.main(["table", "quickstart"])
    said = capsys.readouterr().err
    assert said.startswith("jestlab: pandas, which tables need, isn't installed") and said.count("\n") == 1


def test_each_module_of_an_extra_is_named_and_others_are_not():
    for modules in dependencies.EXTRAS.values():
        for module in modules:
            assert f"{module} isn't installed: pip install" in str(dependencies.of_module(f"{module}.more"))
    for other in (None, "google", "google.protobuf", "jaxtyping", "no_such_module"):
        assert dependencies.of_module(other) is None


def test_launches_without_xmanager_are_complete_and_report_it_once(tmp_path, root, monkeypatch):
    labs.hide_modules(monkeypatch, "xmanager")
    done = labs.here("launch", labs.write_study(tmp_path), "--no-reports", root=root)
    assert done.returncode == 0
    assert (done.stdout + done.stderr).count("no XManager record: pip install 'jestlab[xmanager]'") == 1
    with closing(sqlite3.connect(root / "results.db")) as store:
        assert store.execute("SELECT DISTINCT state FROM run").fetchall() == [("COMPLETED",)]
    assert not (root / "xmanager").exists()
