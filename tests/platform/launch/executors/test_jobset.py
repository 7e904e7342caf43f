"""JobSets: held to the API's schema and to Kubernetes' own models, and read as the cluster reports them."""

import copy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from executor_harnesses import IMAGE, MARKS, KubernetesHarness, job
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import ApiClient
from kubernetes.client.models import V1JobSpec

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.lab.settings import Settings
from jestlab.platform.launch import executors
from jestlab.platform.launch.executor import ExecutorAway, ExecutorError, JobState, LaunchedJob
from jestlab.platform.launch.executors.manifest import jobset
from jestlab.platform.spec.resources import TYPES, Resources, Slice, parse_slice

SNAPSHOT = Path(__file__).parent / "jobset_v5e_16x16.yaml"
SCHEMA = Path(__file__).parents[5] / "shared" / "schemas" / "jobset.x-k8s.io_jobsets.yaml"
NAME = "jestlab-0a1b2c3d-1"
SETTINGS = KubernetesSettings(
    namespace="research", store_secret="jestlab-store/url", queue="tpus", claim="lab", root="/lab"
)


def manifest(
    slice_: str = "v5e-16x16", settings: KubernetesSettings = SETTINGS, spot: bool = False, **changes: Any
):
    return jobset(job(**changes), parse_slice(slice_), IMAGE, settings, spot=spot)


def hosts(found: dict[str, Any]) -> Any:
    return found["spec"]["replicatedJobs"][0]["template"]["spec"]


def pod(found: dict[str, Any]) -> Any:
    return hosts(found)["template"]["spec"]


def environment(found: dict[str, Any]) -> dict[str, Any]:
    return {
        each["name"]: each.get("value", each.get("valueFrom")) for each in pod(found)["containers"][0]["env"]
    }


def every_kind() -> list[dict[str, Any]]:
    plain = KubernetesSettings(store_secret="s/k")
    return [
        manifest(),
        manifest(spot=True),
        manifest("v6e-1x1", plain),
        manifest("v5p-4x4x8", plain.model_copy(update={"service_account": "trainer"})),
        manifest("v4-2x2x1", plain, labels={"odd key ü": "-- ü " * 30, "empty": ""}),
    ]


def test_256_chips_are_rendered_as_they_were_looked_at():
    assert manifest() == yaml.safe_load(SNAPSHOT.read_text())


# The API's schema is not part of this repository: it is 800 kB, and not ours.
@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema of JobSet does not lie beside the checkout")
@pytest.mark.parametrize("index", range(5))
def test_manifests_satisfy_the_schema_of_the_jobset_api(validator, index):
    validator.validate(every_kind()[index])


@pytest.mark.skipif(not SCHEMA.exists(), reason="the schema of JobSet does not lie beside the checkout")
def test_the_schema_would_see_a_slip(validator):
    for path, value in {"paralelism": 3, "completionMode": 3}.items():
        wrong = copy.deepcopy(manifest())
        hosts(wrong)[path] = value
        with pytest.raises(jsonschema.ValidationError):
            validator.validate(wrong)


@pytest.fixture(scope="module")
def validator():
    definition = yaml.load(SCHEMA.read_text(), yaml.CSafeLoader)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    _close(schema)
    return jsonschema.Draft7Validator(schema)


def _close(schema: Any) -> None:
    """Refuse fields that the schema does not know, as an API server does that validates strictly."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        if schema.get("properties", {}).keys() == {"apiVersion", "kind", "metadata", "spec", "status"}:
            schema["properties"]["metadata"] = {"type": "object"}
        for part in schema.values():
            _close(part)
    elif isinstance(schema, list):
        for part in schema:
            _close(part)


@pytest.mark.parametrize("index", range(5))
def test_kubernetes_own_models_know_every_field_of_the_job(index):
    written = hosts(every_kind()[index])
    read = V1JobSpec.from_dict(copy.deepcopy(written))
    assert ApiClient().sanitize_for_serialization(read) == written


@pytest.mark.parametrize(
    "name", [f"{type_}-{t}" for type_, found in TYPES.items() for t in found.topologies[:9]]
)
def test_every_host_of_a_slice_has_a_pod_and_all_its_chips_are_asked_for(name):
    slice_, found = parse_slice(name), manifest(name)
    limits = pod(found)["containers"][0]["resources"]["limits"]
    assert hosts(found)["parallelism"] == hosts(found)["completions"] == slice_.hosts
    assert int(limits["google.com/tpu"]) * hosts(found)["completions"] == slice_.chips


def test_hosts_find_each_other_as_our_processes_look_for_it():
    found = environment(manifest())
    assert found["JAX_COORDINATOR_ADDRESS"] == f"{NAME}-host-0-0.{NAME}:8476"
    assert found["JAX_NUM_PROCESSES"] == "64"
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert found["JAX_PROCESS_ID"] == {"fieldRef": {"fieldPath": index}}


def test_one_host_alone_looks_for_no_others_and_shares_its_node_pool():
    found = manifest("v5e-2x4")
    assert not [
        name for name in environment(found) if name.startswith(("JAX_COORDINATOR", "JAX_NUM", "JAX_PROC"))
    ]
    assert list(found["metadata"]["annotations"]) == ["jestlab/title"]
    assert "alpha.jobset.sigs.k8s.io/exclusive-topology" in manifest("v5e-4x4")["metadata"]["annotations"]


def test_the_stores_url_comes_from_the_secret():
    assert environment(manifest())["JESTLAB_STORE"] == {
        "secretKeyRef": {"name": "jestlab-store", "key": "url"}
    }


def test_workers_get_the_labs_folder_where_the_claim_is_mounted():
    (container,) = pod(manifest())["containers"]
    assert container["args"][:2] == ["--root", "/lab"]
    (where,), (what,) = container["volumeMounts"], pod(manifest())["volumes"]
    assert (where["mountPath"], where["name"]) == ("/lab", what["name"])
    assert what["persistentVolumeClaim"] == {"claimName": "lab"}
    assert "volumes" not in pod(manifest(settings=KubernetesSettings(store_secret="s/k", root="/lab")))


def test_without_kueue_nothing_waits_to_be_admitted():
    found = manifest(settings=KubernetesSettings(store_secret="s/k"))
    assert "suspend" not in found["spec"]
    assert not [name for name in found["metadata"]["labels"] if "kueue" in name]


def test_spot_nodes_are_chosen_and_tolerated_on_request_alone():
    assert pod(manifest(spot=True))["nodeSelector"]["cloud.google.com/gke-spot"] == "true"
    assert "cloud.google.com/gke-spot" not in repr(manifest())


@given(st.dictionaries(st.text(min_size=1, max_size=70), st.text(max_size=90), max_size=4))
def test_any_text_makes_a_label_that_kubernetes_takes(labels):
    import re

    found = manifest("v5e-1x1", labels=labels)["metadata"]["labels"]
    for key, value in found.items():
        assert re.fullmatch(
            r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", key
        )
        assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)


# What the cluster reports.


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    harness = KubernetesHarness(tmp_path, monkeypatch)
    yield harness
    harness.close()


def launched(cluster, **options):
    executor = cluster.executor(**options)
    started = executor.launch(job())
    return executor, started, lambda: executor.statuses([started])[started]


def test_a_handle_says_which_cluster_which_namespace_which_jobset(cluster):
    _, started, _ = launched(cluster, settings=SETTINGS)
    assert started.handle == f"lab/research/{NAME}"


def test_kueue_lets_a_job_begin(cluster):
    _, started, status = launched(cluster, settings=SETTINGS)
    assert (status().state, status().reason) == (JobState.QUEUED, "waits in the queue")
    assert not cluster.api.pods
    cluster.api.admit(NAME)
    cluster.run(started)
    assert status().state == JobState.RUNNING


@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.parametrize("seen_by", ["jobset", "pod"])
def test_a_node_that_is_taken_away_is_told_from_a_program_that_fails(cluster, seen_by, index):
    _, started, status = launched(cluster)
    cluster.run(started)
    cluster.api.preempt(NAME, index=index, seen_by=seen_by)
    assert status().state == JobState.PREEMPTED
    assert "taken away" in status().reason


@pytest.mark.parametrize("index", [0, 3])
def test_a_program_that_fails_on_any_host_fails_the_job(cluster, index):
    _, started, status = launched(cluster)
    cluster.run(started)
    cluster.api.end(NAME, 1, index=index)
    assert status().state == JobState.FAILED


def test_one_that_ran_out_of_memory_says_so(cluster):
    _, started, status = launched(cluster)
    cluster.run(started)
    cluster.api.end(NAME, 137, reason="OOMKilled")
    assert (status().exit_code, status().reason) == (-9, "killed by SIGKILL (OOMKilled)")


def test_one_whose_image_is_not_to_be_had_says_so(cluster):
    _, _, status = launched(cluster)
    cluster.api.wait_for_image(NAME)
    assert (status().state, status().reason) == (
        JobState.QUEUED,
        "ImagePullBackOff: Back-off pulling image",
    )


def test_polling_many_jobs_takes_two_requests(cluster):
    executor = cluster.executor()
    all_started = [executor.launch(job(f"jestlab-0a1b2c3d-{number}")) for number in range(60)]
    del cluster.api.requests[:]
    assert len(executor.statuses(all_started)) == 60
    assert len(cluster.api.requests) == 2


def test_more_jobs_than_a_page_holds_are_all_found(cluster, monkeypatch):
    monkeypatch.setattr("jestlab.platform.launch.executors.kubernetes._PAGE", 4)
    executor = cluster.executor(slice_=parse_slice("v5e-1x1"))
    all_started = [executor.launch(job(f"jestlab-0a1b2c3d-{number}")) for number in range(11)]
    for started in all_started:
        cluster.run(started)
    assert {status.state for status in executor.statuses(all_started).values()} == {JobState.RUNNING}


def test_a_jobset_of_somebody_else_is_left_alone(cluster):
    other = {"metadata": {"name": NAME, "namespace": "default", "labels": {}}, "spec": {"replicatedJobs": []}}
    cluster.api.jobsets["default", NAME] = other
    with pytest.raises(ExecutorError, match="or not jestlab's"):
        cluster.executor().launch(job())
    assert cluster.api.jobsets["default", NAME] is other


def test_a_name_that_is_still_being_deleted_is_waited_for(cluster):
    executor, started, _ = launched(cluster)
    executor.stop(started, now=False)
    with pytest.raises(ExecutorAway, match="is still being deleted"):
        executor.launch(job())
    cluster.finish_stop()
    assert executor.launch(job()) == started


def test_a_cluster_without_jobset_is_named_as_such(cluster):
    cluster.spoil(404)
    with pytest.raises(ExecutorError, match="is JobSet installed in the cluster"):
        cluster.executor().launch(job())


def test_a_login_that_has_ended_is_renewed(cluster):
    _, _, status = launched(cluster)
    cluster.spoil(401)
    assert status().state == JobState.QUEUED
    cluster.spoil(401, 401, 401)
    assert status().state == JobState.UNKNOWN


def test_a_broken_kubeconfig_is_an_error_of_one_line(cluster, tmp_path):
    (tmp_path / "kubeconfig").write_text("contexts: [")
    with pytest.raises(ExecutorError, match="no access to a cluster") as raised:
        cluster.executor().launch(job())
    assert "\n" not in str(raised.value)


def test_an_unknown_context_is_an_error_of_one_line(cluster):
    executor = cluster.executor(settings=KubernetesSettings(context="other", store_secret="s/k"))
    with pytest.raises(ExecutorError, match="no access to a cluster"):
        executor.launch(job())
    one = LaunchedJob("other/default/x", MARKS)
    assert executor.statuses([one])[one].state == JobState.UNKNOWN


def test_one_that_never_ran_is_shown_as_stopping_until_it_is_gone(cluster):
    executor, started, status = launched(cluster)
    executor.stop(started, now=False)
    assert (status().state, status().reason) == (JobState.RUNNING, "stopping")
    cluster.finish_stop()
    assert status().state == JobState.GONE


def test_jobs_that_stop_now_leave_no_pods(cluster):
    executor, started, status = launched(cluster)
    cluster.run(started)
    executor.stop(started, now=True)
    assert not cluster.api.pods
    assert status().state == JobState.GONE


@pytest.mark.parametrize(
    ("resources", "settings", "missing"),
    [
        (Resources(), Settings(image=IMAGE), "kubernetes needs a TPU slice"),
        (Resources(tpu="v5e-2x2"), Settings(), "kubernetes needs an image"),
        (Resources(tpu="v5e-2x2", image=IMAGE), Settings(), "kubernetes needs `kubernetes.store_secret`"),
        (
            Resources(tpu="v5e-2x2", image=IMAGE),
            Settings(kubernetes=KubernetesSettings(store_secret="s/k")),
            "kubernetes needs `kubernetes.root`",
        ),
    ],
)
def test_what_is_missing_is_named_before_anything_is_launched(resources, settings, missing):
    with pytest.raises(UserError, match=missing):
        executors.get("kubernetes", resources, settings, lab=Lab(Path("lab"), "sqlite://"))


def test_what_is_needed_to_find_a_job_is_less():
    found = executors.find("kubernetes", Settings(), lab=Lab(Path("lab"), "sqlite://"))
    assert (found.name, found.chips) == ("kubernetes", 0)
    with pytest.raises(ExecutorError, match="finds jobs and cannot launch"):
        found.launch(job())


def test_the_study_goes_before_the_users_file():
    other = IMAGE.replace("0123", "ffff")
    settings = Settings(image=IMAGE, kubernetes=SETTINGS)
    found = executors.get(
        "kubernetes", Resources(tpu="v5e-16x16", image=other), settings, lab=Lab(Path("lab"), "sqlite://")
    )
    assert found.chips == 256
    rendered = found.render(job())
    assert rendered is not None
    assert pod(rendered)["containers"][0]["image"] == other
    assert str(Slice(TYPES["v5e"], "16x16")) == "v5e-16x16"
