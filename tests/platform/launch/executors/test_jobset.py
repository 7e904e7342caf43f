"""The contents of JobSets, checked by a real API server and by Kubernetes' own models."""

import copy
import re
from pathlib import Path

import pytest
import yaml
from executor_harnesses import IMAGE, KEY, job
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.kubernetes.api import ApiError

from jestlab.platform.lab.settings import Kubernetes as KubernetesSettings
from jestlab.platform.launch.executors.base import ExecutorError, JobState, LaunchedJob
from jestlab.platform.launch.executors.jobset import INDEX_LABEL, jobset, status
from jestlab.platform.launch.executors.kubernetes import KubernetesExecutor
from jestlab.platform.spec.resources import TYPES, Resources, parse_slice

SNAPSHOT = Path(__file__).parent / "jobset_v5e_16x16.yaml"
SETTINGS = KubernetesSettings(
    namespace="research", store_secret="jestlab-store/url", queue="tpus", claim="lab", root="/lab"
)


def manifest(slice_="v5e-16x16", settings=SETTINGS, spot=False, **changes):
    return jobset(job(**changes), Resources(tpu=slice_, image=IMAGE, spot=spot), settings)


def hosts(found):
    return found["spec"]["replicatedJobs"][0]["template"]["spec"]


def pod(found):
    return hosts(found)["template"]["spec"]


def every_kind():
    plain = KubernetesSettings(store_secret="s/k")
    return [
        manifest(),
        manifest(spot=True),
        manifest("v6e-1x1", plain),
        manifest("v5p-4x4x8", plain.model_copy(update={"service_account": "trainer"})),
        manifest("v4-2x2x1", plain, labels={"odd key ü": "-- ü " * 30, "empty": ""}),
    ]


def test_256_chips_are_rendered_like_the_reviewed_file():
    assert manifest() == yaml.safe_load(SNAPSHOT.read_text())


def test_a_real_api_server_takes_every_field_of_a_manifest(namespace):
    def create(found):
        found["metadata"]["namespace"] = namespace.name
        namespace.create_jobset(found, fieldValidation="Strict", dryRun="All")

    for found in every_kind():
        create(found)
    for field, value in (("paralelism", 3), ("completionMode", 3)):
        wrong = manifest()
        hosts(wrong)[field] = value
        with pytest.raises(ApiError, match=field):
            create(wrong)


def test_kubernetes_own_models_know_every_field_of_the_job():
    from kubernetes.client import ApiClient
    from kubernetes.client.models import V1JobSpec

    for found in map(hosts, every_kind()):
        assert ApiClient().sanitize_for_serialization(V1JobSpec.from_dict(copy.deepcopy(found))) == found


def test_every_host_of_a_slice_has_a_pod_and_all_its_chips_are_asked_for():
    every = ("1x1", "2x2", "2x4", "4x4", "16x16", "2x2x1", "2x2x4", "4x4x4", "4x4x8")
    for name in [f"{type_}-{t}" for type_, found in TYPES.items() for t in every if found.has(t)]:
        slice_, found = parse_slice(name), manifest(name)
        limits = pod(found)["containers"][0]["resources"]["limits"]
        assert hosts(found)["parallelism"] == hosts(found)["completions"] == slice_.hosts, name
        assert int(limits["google.com/tpu"]) * hosts(found)["completions"] == slice_.chips, name


def test_optional_parts_are_left_out():
    plain, spot = (
        manifest("v5e-2x4", KubernetesSettings(store_secret="s/k", root="/lab")),
        manifest(spot=True),
    )
    parts = ("JAX_COORDINATOR", "JAX_NUM", "JAX_PROC", "volumes", "suspend", "kueue", "gke-spot")
    assert [part for part in parts if part in repr(plain)] == []
    assert [part for part in parts if part not in repr(spot)] == []
    assert "alpha.jobset.sigs.k8s.io/exclusive-topology" in manifest("v5e-4x4")["metadata"]["annotations"]


@given(st.dictionaries(st.text(min_size=1, max_size=70), st.text(max_size=90), max_size=4))
def test_any_text_makes_a_label_that_kubernetes_takes(labels):
    found = manifest("v5e-1x1", labels=labels)["metadata"]["labels"]
    name = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
    for key, value in found.items():
        assert re.fullmatch(f"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{name} ({name})?", f"{key} {value}")


def test_one_that_ran_out_of_memory_says_so():
    ended = {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}
    first = {"metadata": {"labels": {INDEX_LABEL: "0"}}, "status": {"containerStatuses": [ended]}}
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs"}
    found = status({"metadata": {}, "status": {"conditions": [failed]}}, [first])
    assert found.exit_code == -9 and "OOMKilled" in found.reason


@pytest.mark.parametrize("kubeconfig", ["contexts: [", "contexts: []"])
def test_a_broken_kubeconfig_or_an_unknown_context_is_an_error_of_one_line(tmp_path, monkeypatch, kubeconfig):
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
    settings = KubernetesSettings(context="other", store_secret="s/k")
    executor = KubernetesExecutor(settings, Resources(tpu="v5e-2x2", image=IMAGE))
    with pytest.raises(ExecutorError, match="no access to a cluster") as raised:
        executor.launch(job())
    assert "\n" not in str(raised.value)
    one = LaunchedJob("other/default/x", KEY)
    found = executor.statuses([one])[one]
    assert found.state == JobState.UNKNOWN and "no access to a cluster" in found.reason
