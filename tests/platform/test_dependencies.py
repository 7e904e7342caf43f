"""A missing optional package is an error of one line before anything is launched."""

import re
import tomllib
from pathlib import Path

import labs_support as labs
import pytest

from jestlab.platform import cli, dependencies
from jestlab.platform.launch import executors
from jestlab.platform.spec.resources import EXECUTORS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETTINGS = """
image: example.org/jestlab@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
kubernetes: {namespace: research, store_secret: jestlab-store/url, claim: lab, root: /lab}
vertex: {project: our-lab, region: us-west4, store_secret: projects/a/secrets/b/versions/1, root: /gcs/lab}
"""


def packages(lines: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", line)[0] for line in lines}


def test_built_in_executors_have_the_same_names_everywhere():
    assert executors._BUILT_IN.keys() == dependencies.CLIENTS.keys() == set(EXECUTORS)


def test_each_client_is_an_extra():
    for executor, clients in dependencies.CLIENTS.items():
        extra = packages(PROJECT["optional-dependencies"].get(executor, []))
        assert set(clients) == extra
        assert not extra & packages(PROJECT["dependencies"])


@pytest.mark.parametrize("executor", ["kubernetes", "vertex"])
def test_a_launch_without_a_client_is_an_error(tmp_path, root, monkeypatch, executor):
    (tmp_path / "config.yaml").write_text(SETTINGS)
    monkeypatch.setenv("JESTLAB_CONFIG", str(tmp_path / "config.yaml"))
    labs.hide_packages(monkeypatch, dependencies.CLIENTS[executor][-1])
    spec = labs.write_study(tmp_path)
    asked = ["--on", executor, "--set", "resources.tpu=v5e-2x2"]
    said = labs.here("launch", spec, *asked, root=root)
    assert said.returncode == 1
    assert said.stderr.splitlines()[-1] == (
        f"jestlab: {executor} needs its client: pip install 'jestlab[{executor}]'"
    )
    assert not list(root.glob("runs/*"))
    # Manifests can be written without it.
    said = labs.here("launch", spec, *asked, "--render", tmp_path / "manifests", root=root)
    assert said.returncode == 0, said.stderr
    assert len(list((tmp_path / "manifests").iterdir())) == 3


def test_a_missing_package_of_a_verb_is_one_line(monkeypatch, capsys):
    def fail(*_: object, **__: object) -> None:
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")

    monkeypatch.setattr(cli.cli, "main", fail)
    with pytest.raises(SystemExit, match="1"):
        cli.main(["table", "quickstart"])
    said = capsys.readouterr().err
    assert said.startswith("jestlab: pandas, which tables need, is not installed") and said.count("\n") == 1
    assert dependencies.of_module("no_such_module") is None
