"""`jestlab doctor`: names each problem, with a remedy."""

import json
import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace
from unittest.mock import patch

import labs_support as labs
import plans_support as plans
import pytest
import stores_support as stores

from jestlab.platform.cli import doctor
from jestlab.platform.lab.filesystem import LINKS, LOCKS, FileSystem
from jestlab.platform.lab.lab import Lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.rows import now
from jestlab.platform.store.store import Store


@pytest.fixture(autouse=True)
def _nothing_configured(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("JESTLAB_CONFIG", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    free_disk(monkeypatch, 1e12)  # that of this machine may be full


def free_disk(monkeypatch, free):
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))


@pytest.fixture
def lab(tmp_path, database_url):
    return Lab.find(tmp_path / "lab", database_url)


def examined(lab, jax=False):
    """Return the results by check, without the check of packages."""
    with patch.dict(doctor._CHECKS, {"packages": lambda lab: iter(())}):
        return dict(doctor.run_checks(lab, jax))


def write_settings(tmp_path, text):
    (tmp_path / "config" / "jestlab").mkdir(parents=True, exist_ok=True)
    (tmp_path / "config" / "jestlab" / "config.yaml").write_text(text)


def test_a_lab_is_ok_before_and_after_its_first_launch_and_nothing_is_written(lab):
    found = examined(lab)
    assert {finding.level for finding in found.values()} == {"ok"}, found
    assert "created by the first launch" in found["store"].found
    assert not lab.root.exists()
    store = Store.open(lab.store_url)
    run = plans.run("run")
    plans.record(store, plans.plan(run))
    stores.attempt(store, run, started=now() - timedelta(hours=3))
    found = examined(lab)
    assert {finding.level for finding in found.values()} == {"ok"}, found
    assert "writable" in found["store"].found
    assert stores.rows(store, "SELECT COUNT(*) FROM launcher") == [(0,)]
    assert "sesame" not in str(found)  # of the database's password
    plans.record(store, plans.plan(ahead := plans.run("ahead", config={"steps": 3})))
    stores.attempt(store, ahead, RunState.RUNNING, started=now() + timedelta(minutes=5))
    _, clock = doctor._store(lab)
    assert clock.level == "warning" and "NTP" in clock.remedy


@pytest.mark.parametrize(("free", "level"), [(5e9, "ok"), (4.9e9, "warning"), (1e8, "broken")])
def test_free_disk(lab, monkeypatch, free, level):
    free_disk(monkeypatch, free)
    found = examined(lab)["disk"]
    assert found.level == level
    assert ("jestlab gc" in found.remedy) == (level != "ok")
    assert found.found == f"{free / 1e9:.1f} GB free at {lab.root}"


def test_prints_text_and_json_and_fails_with_a_problem(tmp_path):
    words = ["doctor", "--no-jax", "--root", str(tmp_path / "lab")]
    printed = labs.here(*words, "--json")
    assert printed.returncode == 0
    checks = {finding["check"] for finding in json.loads(printed.stdout)}
    assert checks >= {"packages", "store", "disk"}
    assert all(line.startswith("ok ") for line in labs.here(*words).stdout.splitlines())
    write_settings(tmp_path, "on: local\nkubernets: {}\n")
    printed = labs.here(*words)
    assert printed.returncode == 1
    broken = [line for line in printed.stdout.splitlines() if line.startswith("broken")]
    [line] = [line for line in broken if "config file" in line]
    assert "config.yaml:2: kubernets" in line and "did you mean 'kubernetes'" in line


@pytest.mark.parametrize(
    ("network", "missing", "url", "found", "remedy"),
    [
        (None, (), "", "a disk of this machine, fits SQLite", ""),
        (
            *("nfs4", (), "", "nfs4, fits a store in the shared folder, not SQLite"),
            "--store shared",
        ),
        (
            *("s3fs", (LINKS, LOCKS), ""),
            "s3fs without exclusive hard links and file locks, fits PostgreSQL, not SQLite",
            "--store postgresql://user@host/database",
        ),
        ("s3fs", (LINKS,), "postgresql://host/db", "s3fs without exclusive hard links, fits PostgreSQL", ""),
        ("nfs4", (), "shared", "nfs4, fits a store in the shared folder", ""),
        (None, (), "shared", "a disk of this machine, fits SQLite", ""),
    ],
    ids=["disk", "network", "without links", "PostgreSQL", "shared", "shared on a disk"],
)
def test_the_file_system_is_compared_with_the_store(
    tmp_path, monkeypatch, network, missing, url, found, remedy
):
    monkeypatch.setattr(doctor, "examine", lambda _: FileSystem(network, missing))
    lab = Lab.find(tmp_path, url or f"sqlite:///{tmp_path}/results.db")
    assert [*doctor._file_system(lab)] == [doctor.CheckResult("warning" if remedy else "ok", found, remedy)]


def test_unusable_stores_and_folders(tmp_path):
    lab = Lab.find(tmp_path / "lab")
    Store.open(lab.store_url).close()
    with closing(sqlite3.connect(lab.root / "results.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    found = examined(lab)["store"]
    assert (found.level, "upgrade jestlab" in found.remedy) == ("broken", True)
    (lab.root / "results.db").write_text("no database " * 500)
    assert examined(lab)["store"].level == "broken"
    found = examined(Lab.find(tmp_path / "lab", "postgresql://lab:secret@127.0.0.1:1/none"))["store"]
    assert found.level == "broken" and "secret" not in str(found)
    (tmp_path / "file").write_text("")
    assert examined(Lab.find(tmp_path / "file"))["folder"].level == "broken"


def test_kubernetes(tmp_path):
    (tmp_path / ".kube").mkdir()
    for config, kube, level, found in (
        ("{}", None, "ok", "not configured"),
        ("on: kubernetes", None, "broken", "No configuration"),
        ("kubernetes: {context: lab}", "other", "broken", "object with name lab"),
        ("kubernetes: {context: lab}", "lab", "ok", "context lab"),
        ("on: kubernetes", "lab", "ok", "context lab"),
    ):
        write_settings(tmp_path, config)
        if kube:
            context = {"name": kube, "context": {"cluster": "c", "user": "u"}}
            content = {"current-context": kube, "contexts": [context]}
            content["clusters"] = [{"name": "c", "cluster": {"server": "https://nowhere"}}]
            (tmp_path / ".kube" / "config").write_text(json.dumps(content))
        finding = examined(Lab.find(tmp_path / "lab"))["kubernetes"]
        assert (finding.level, found in finding.found) == (level, True), finding


def test_devices_and_a_jax_that_hangs_or_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    devices = """
from types import SimpleNamespace
__version__, default_backend = "0.7", lambda: "gpu"
devices = lambda: [SimpleNamespace(device_kind="H200")] * 2
"""
    (tmp_path / "jax.py").write_text(devices)
    assert list(doctor._jax(Lab.find("lab"))) == [doctor.CheckResult("ok", "0.7, 2 × H200 (gpu)")]
    for code, seconds, found in (
        ("import time; time.sleep(600)", 0.5, "no answer within"),
        ("raise RuntimeError('no\\nlibtpu')", 60.0, "libtpu"),
        ("import os; os._exit(3)", 60.0, "exit code 3"),
    ):
        (tmp_path / "jax.py").write_text(code)
        monkeypatch.setattr(doctor, "PROCESS_SECONDS", seconds)
        [finding] = doctor._jax(Lab.find("lab"))
        assert finding.level == "broken" and found in finding.found and finding.remedy


def test_missing_and_old_packages(monkeypatch):
    labs.hide_packages(monkeypatch, "jinja2", "pandas")  # as in the container
    [found] = doctor._packages(Lab.find("lab"))
    assert found.level == "warning"
    assert found.found == "jinja2 missing, pandas missing: only workers run without them"
    wanted = ["click>=8", "numpy<1", "no-such-package>=2", "extra-one; extra == 'dev'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: wanted)
    [found] = doctor._packages(Lab.find("lab"))
    assert found.level == "broken"
    assert found.remedy == "pip install 'numpy<1' 'no-such-package>=2'"


def test_extras_and_jax_that_are_not_installed(monkeypatch):
    lab = Lab.find("lab")
    [found] = doctor._extras(lab)
    assert found == doctor.CheckResult("ok", "adopt, gcs, icons, jax, kubernetes, notify, vertex, xmanager")
    labs.hide_modules(monkeypatch, "jax", "gcsfs", "xmanager")
    extras, record = doctor._extras(lab)
    assert extras.found == "adopt, icons, kubernetes, notify, vertex"
    assert extras.remedy == "pip install 'jestlab[gcs,jax,xmanager]' for more"
    assert record[1:] == ("no XManager record", "pip install 'jestlab[xmanager]'")
    assert list(doctor._jax(lab)) == [doctor.CheckResult("ok", "not installed")]


@pytest.mark.parametrize("executor", ["kubernetes", "vertex"])
def test_a_configured_executor_without_its_client(tmp_path, monkeypatch, executor):
    labs.hide_modules(monkeypatch, "kubernetes", "google.auth")
    lab = Lab.find(tmp_path / "lab")
    assert examined(lab)[executor].found == "not configured"
    write_settings(tmp_path, f"on: {executor}\n")
    found = examined(lab)[executor]
    module = {"vertex": "google.auth"}.get(executor, executor)
    assert (found.level, found.found) == ("broken", f"{module} isn't installed")
    assert found.remedy == f"pip install 'jestlab[{executor}]'"
