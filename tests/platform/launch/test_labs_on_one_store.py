"""Two labs with different roots on one store: neither adopts the other's runs."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import labs_support as labs
import plans_support as plans
import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab, identify, known_id
from jestlab.platform.store import claims, leases
from jestlab.platform.store.identity import enter_lab
from jestlab.platform.store.records import RunState
from jestlab.platform.store.store import Store
from jestlab.platform.whoami import host_name

RUNS = {"reference": {}, "uniform": {"steps": 12}}
WITH_JOINT = {**RUNS, "joint": {"needs": ["reference"], "steps": 11}}


def jestlab(store_url: str, root: Path, *words: object):
    return labs.here(*words, "--store", store_url, root=root)


def test_a_lab_has_one_id_whoever_makes_it_and_wherever_it_moves(root):
    root.mkdir()
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: identify(Lab.find(root)), range(16)))
    assert len(made) == 1
    assert [path.name for path in root.iterdir()] == ["lab.id"]
    moved = root.rename(root.with_name("moved"))
    [before], after = made, identify(Lab.find(moved))
    assert after.uid == before.uid
    assert [(each.host, each.address) for each in (before, after)] == [
        (host_name(), str(root)),
        (host_name(), str(moved)),
    ]
    (moved / "lab.id").write_text("me")
    with pytest.raises(UserError, match=r"lab\.id contains no lab id: delete it"):
        identify(Lab.find(moved))


def test_a_lab_in_a_bucket_is_known_by_its_address():
    one, two = (Lab.find(f"gs://bucket/{name}", "postgresql://host/db") for name in ("one", "two"))
    made = identify(one)
    assert made == known_id(one)
    assert (made.host, made.address) == (None, "gs://bucket/one")
    assert identify(two).uid != made.uid


def test_a_run_that_needs_files_of_another_lab_is_skipped(sqlite_url, root, tmp_path, machine):
    other = tmp_path / "other"
    spec = labs.write_study(tmp_path, runs=RUNS)
    assert jestlab(sqlite_url, root, "launch", spec, "--no-reports").returncode == 0
    place = f"{host_name()}:{root}"
    spec = labs.write_study(tmp_path, runs=WITH_JOINT)
    skipped = jestlab(sqlite_url, other, "launch", spec, "--no-reports")
    [folder] = (root / "runs").glob("reference-*")
    [line] = [line for line in skipped.stdout.splitlines() if "SKIPPED" in line and "joint" in line]
    assert f"completed in the lab at {place}: " in line and f"copy its runs/{folder.name}" in line
    assert not list(other.glob("runs/joint-*"))
    shutil.copytree(folder, other / "runs" / folder.name)
    assert jestlab(sqlite_url, other, "launch", spec, "--no-reports").returncode == 0
    shown = json.loads(jestlab(sqlite_url, other, "status", "toy", "--json").stdout)
    places = {"reference": place, "uniform": place, "joint": f"{host_name()}:{other}"}
    assert {run["run"]: run["lab"] for run in shown} == places


def claimed_elsewhere(store: Store, fingerprint: str, lease_seconds: float) -> tuple[int, str]:
    """Claim a run for a launcher of another lab, which then leaves; return the ids of attempt and lab."""
    lab_id = "f" * 32
    enter_lab(store.engine, lab_id, "/data/lab", "atlas")
    launcher = leases.enter_launcher(store, "atlas.x.1:7:0", lab_id)
    terms = claims.ClaimTerms(launcher, "local", 0, lease_seconds, lab_id)
    [claim] = claims.claim_all(store, {fingerprint: "log.txt"}, terms).claims.values()
    claims.store_handles(store, {claim.attempt_id: "atlas.x.1:8:0:log.txt"})
    leases.remove_launcher(store, launcher)
    return claim.attempt_id, lab_id


def test_a_run_is_skipped_when_another_lab_completes_a_run_that_it_needs(root, tmp_path, machine):
    planned = labs.planned(labs.write_study(tmp_path, runs=WITH_JOINT))
    reference, uniform, joint = (next(run for run in planned.runs if run.name == name) for name in WITH_JOINT)
    with closing(Store.open(Lab.find(root).store_url)) as store:
        plans.record(store, planned)
        attempt_id, _ = claimed_elsewhere(store, reference.fingerprint, 90.0)

        def complete() -> None:
            labs.wait_until(lambda: RunState.COMPLETED in store.states([uniform.fingerprint]).values())
            plans.end(store, reference.fingerprint, attempt_id, RunState.COMPLETED, "", 0)

        with labs.meanwhile(complete):
            outcome = labs.launch_here(root, planned)
    assert outcome.states[joint.fingerprint] == RunState.SKIPPED
    reason = "depends on reference/0, completed in the lab at atlas:/data/lab: "
    assert outcome.reasons[joint.fingerprint].startswith(reason)


def test_a_run_that_another_lab_holds_is_neither_adopted_nor_ended(sqlite_url, root, tmp_path, machine):
    """Its launcher is gone; the next launcher of that lab adopts the run."""
    spec = labs.write_study(tmp_path, runs={"uniform": {}})
    store = Store.open(sqlite_url)
    plans.record(store, labs.planned(spec))
    [fingerprint] = store.members("toy")
    _, lab_id = claimed_elsewhere(store, fingerprint, 0.1)
    said = jestlab(sqlite_url, root, "launch", spec, "--no-reports")
    assert said.returncode == 1
    assert "in the lab at atlas:/data/lab, no heartbeat for" in said.stdout
    lease = leases.standings(store, [fingerprint])[fingerprint].lease
    assert lease is not None
    assert (lease.is_live, lease.launcher, lease.lab) == (True, None, lab_id)
    assert machine.jobs == []
    store.close()
