"""`jestlab doctor`: what is missing is named, with the one thing to do."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from datetime import timedelta
from importlib import metadata

import plans_support as plans
import pytest
import stores_support as stores
from click.testing import CliRunner

from jestlab.platform.cli import cli
from jestlab.platform.lab import doctor
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.store.tables import now


@pytest.fixture(autouse=True)
def _nothing_configured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("JESTLAB_CONFIG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def lab(tmp_path, database_url):
    return Lab.find(tmp_path / "lab", database_url)


def examined(lab, jax=False):
    return {finding.check: finding for finding in doctor.examine(lab, jax)}


def test_a_lab_that_is_not_made_yet_is_well(tmp_path, database_url):
    lab = Lab.find(tmp_path / "lab", database_url)
    found = examined(lab)
    assert {finding.level for finding in found.values()} == {"ok"}, found
    assert "not made yet" in found["store"].found
    assert not lab.root.exists()


def test_a_lab_is_well_and_nothing_is_written(lab):
    store = Store.open(lab.store_url)
    run = plans.run("run")
    store.record(plans.plan(run))
    stores.attempt(store, run, started=now() - timedelta(hours=3))
    found = examined(lab)
    assert {finding.level for finding in found.values()} == {"ok"}, found
    assert "can be written" in found["store"].found
    with store.reading() as connection:
        assert connection.exec_driver_sql("SELECT COUNT(*) FROM launcher").scalar() == 0
    assert "sesame" not in str(found)  # of the database's password


def test_as_json_and_for_people(tmp_path):
    asked = ["doctor", "--no-jax", "--root", str(tmp_path / "lab")]
    said = CliRunner().invoke(cli, [*asked, "--json"])
    assert said.exit_code == 0
    assert {finding["check"] for finding in json.loads(said.output)} >= {
        "python",
        "packages",
        "store",
        "disk",
    }
    assert all(line.startswith("ok ") for line in CliRunner().invoke(cli, asked).output.splitlines())


def test_what_is_broken_makes_the_exit_code(tmp_path, monkeypatch):
    (tmp_path / "config" / "jestlab").mkdir(parents=True)
    (tmp_path / "config" / "jestlab" / "config.yaml").write_text("on: local\nkubernets: {}\n")
    said = CliRunner().invoke(cli, ["doctor", "--no-jax", "--root", str(tmp_path / "lab")])
    assert said.exit_code == 1
    [line] = [
        line for line in said.output.splitlines() if line.startswith("broken") and "config file" in line
    ]
    assert "config.yaml:2: kubernets" in line and "did you mean 'kubernetes'" in line


def test_a_store_that_cannot_be_used(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    Store.open(lab.store_url).close()
    with sqlite3.connect(lab.root / "results.db") as database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    database.close()
    found = examined(lab)["store"]
    assert (found.level, "upgrade jestlab" in found.remedy) == ("broken", True)
    (lab.root / "results.db").write_text("no database " * 500)
    assert examined(lab)["store"].level == "broken"
    found = examined(Lab.find(tmp_path / "lab", "postgresql://lab:secret@127.0.0.1:1/none"))["store"]
    assert found.level == "broken" and "secret" not in str(found)


def test_a_clock_behind_and_attempts_without_a_word(lab):
    store = Store.open(lab.store_url)
    runs = [plans.run("ahead"), plans.run("silent", seed=1)]
    store.record(plans.plan(*runs))
    stores.attempt(store, runs[0], RunState.RUNNING, started=now() + timedelta(minutes=5))
    stores.attempt(store, runs[1], RunState.RUNNING, started=now() - timedelta(minutes=11))
    found = examined(lab)
    assert found["clock"].level == "warning" and "NTP" in found["clock"].remedy
    assert found["attempts"].found.startswith("1 said nothing for 10 minutes")


def test_a_root_that_is_a_file(tmp_path):
    (tmp_path / "lab").write_text("")
    assert examined(Lab.find(tmp_path / "lab"))["folder"].level == "broken"


def test_leftovers(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    (lab.data / ".shapes-web-1.part").mkdir(parents=True)
    (lab.data / ".shapes-web-2.lock").touch()
    assert examined(lab)["leftovers"].level == "ok"  # somebody may be at it
    long_ago = time.time() - 2 * 86_400
    for path in lab.data.iterdir():
        os.utime(path, (long_ago, long_ago))
    found = examined(lab)["leftovers"]
    assert (found.level, found.found[:1]) == ("warning", "2")


@pytest.mark.parametrize(
    "config, kube, level, said",
    [
        ("{}", None, "ok", "not configured"),
        ("on: kubernetes", None, "broken", "no context"),
        ("kubernetes: {context: lab}", "other", "broken", "no context 'lab'"),
        ("kubernetes: {context: lab}", "lab", "ok", "context lab"),
        ("on: kubernetes", "lab", "ok", "context lab"),
    ],
)
def test_kubernetes(tmp_path, config, kube, level, said):
    (tmp_path / "config" / "jestlab").mkdir(parents=True)
    (tmp_path / "config" / "jestlab" / "config.yaml").write_text(config)
    if kube:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(
            f"current-context: {kube}\ncontexts: [{{name: {kube}, context: {{}}}}]"
        )
    found = examined(Lab.find(tmp_path / "lab"))["kubernetes"]
    assert (found.level, said in found.found) == (level, True), found


@pytest.mark.parametrize(
    "code, said",
    [
        ("import time; time.sleep(600)", "no answer within"),
        ("raise RuntimeError('no\\nlibtpu')", "libtpu"),
        ("import os; os._exit(3)", "exit code 3"),
    ],
)
def test_a_jax_that_hangs_or_breaks(tmp_path, monkeypatch, code, said):
    (tmp_path / "jax.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(doctor, "PROCESS_SECONDS", 2.0)
    found = examined(Lab.find(tmp_path / "lab"), jax=True)["jax"]
    assert found.level == "broken" and said in found.found and found.remedy


def test_a_package_that_is_missing_or_old(monkeypatch):
    wanted = ["click>=8", "numpy<1", "no-such-package>=2", "extra-one; extra == 'dev'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: wanted)
    [found] = doctor._packages()
    assert found.level == "broken"
    assert found.remedy == "pip install 'numpy<1' 'no-such-package>=2'"


def test_what_only_launches_need_may_be_missing(monkeypatch):
    """As in the container: told, and not taken for a broken installation."""
    _hide(monkeypatch, "xmanager", "pandas")
    found = {finding.check: finding for finding in [*doctor._packages(), *doctor._xmanager()]}
    assert found.keys() == {"packages"}
    assert found["packages"].level == "warning"
    assert found["packages"].found == "without pandas (tables), xmanager (launches)"


@pytest.mark.parametrize("executor", ["kubernetes", "vertex"])
def test_an_executor_that_is_configured_and_has_no_client(tmp_path, monkeypatch, executor):
    _hide(monkeypatch, "kubernetes", "google-cloud-aiplatform")
    lab = Lab.find(tmp_path / "lab")
    assert examined(lab)[executor].found == "not configured"
    (tmp_path / "config" / "jestlab").mkdir(parents=True)
    (tmp_path / "config" / "jestlab" / "config.yaml").write_text(f"on: {executor}\n")
    found = examined(lab)[executor]
    assert (found.level, found.found) == ("broken", f"{executor} needs its client")
    assert found.remedy == f"pip install 'jestlab[{executor}]'"


def _hide(monkeypatch: pytest.MonkeyPatch, *packages: str) -> None:
    """Let packages seem not to be installed."""
    find = metadata.distribution

    def distribution(name: str) -> metadata.Distribution:
        if name in packages:
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(metadata, "distribution", distribution)
