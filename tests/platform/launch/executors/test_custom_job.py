"""CustomJobs: checked with Vertex AI's own types, and read back as Vertex AI reports them."""

import itertools
import json
import re
from pathlib import Path

import google.auth
import pytest
from executor_harnesses import IMAGE, VertexHarness, job, ready
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch.executors import vertex
from jestlab.platform.launch.executors.base import ExecutorError, JobState
from jestlab.platform.launch.executors.vertex import custom_job
from jestlab.platform.spec.resources import Resources

SNAPSHOT = Path(__file__).parent / "custom_job_v5e_16x16.json"
SECRET = "projects/our-lab/secrets/jestlab-store/versions/latest"
LAB = Lab(Path("lab"), "sqlite://")
SETTINGS = VertexSettings(
    project="our-lab",
    region="us-west4",
    store_secret=SECRET,
    service_account="trainer@our-lab.iam.gserviceaccount.com",
    network="projects/12345/global/networks/default",
    root="/gcs/our-bucket/lab",
)


def manifest(slice_="v5e-16x16", settings=SETTINGS, spot=False, **changes):
    return custom_job(job(**changes), Resources(tpu=slice_, image=IMAGE, spot=spot), settings)


def test_256_chips_are_rendered_like_the_reviewed_file():
    assert manifest() == json.loads(SNAPSHOT.read_text())


def test_vertex_own_types_know_every_field():
    # Imported here: it takes two seconds.
    from google.cloud.aiplatform_v1.types import CustomJob
    from google.protobuf.json_format import MessageToDict, ParseDict

    slices = ("v5e-1x1", "v5e-2x4", "v5e-16x16", "v6e-8x16")
    for slice_, settings in itertools.product(slices, (SETTINGS, VertexSettings(store_secret=SECRET))):
        for spot in (False, True):
            written = manifest(slice_, settings, spot)
            assert MessageToDict(ParseDict(written, CustomJob.pb(CustomJob()))) == written


@pytest.mark.parametrize(("slice_", "waits"), [("v5e-16x16", True), ("v5e-2x4", False)])
def test_optional_parts_are_left_out(slice_, waits):
    """A lab in a bucket needs no mount, and a single host waits for no others."""
    bucket = VertexSettings(store_secret=SECRET, root="/gcs/our-bucket/lab")
    [pool] = manifest(slice_, bucket)["jobSpec"]["workerPoolSpecs"]
    assert "/gcs/our-bucket/lab" in pool["containerSpec"]["args"]
    assert ("JESTLAB_PROCESSES" in repr(pool["containerSpec"]["env"])) == waits


@given(st.dictionaries(st.text(min_size=1, max_size=70), st.text(max_size=90), max_size=4))
def test_any_text_makes_a_label_that_google_takes(labels):
    found = manifest(labels=labels)["labels"]
    assert found["jestlab-job"] == "jestlab-0a1b2c3d-1"
    for key, value in found.items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62} [a-z0-9_-]{0,63}", f"{key} {value}")


# ---- what Vertex AI reports


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with ready(VertexHarness(tmp_path, monkeypatch), monkeypatch) as harness:
        yield harness


@pytest.fixture
def started(cloud):
    return cloud.executor().launch(job())


STATES = {
    JobState.UNKNOWN: "UNSPECIFIED DREAMING",  # of a later release
    JobState.QUEUED: "QUEUED PENDING PAUSED",
    JobState.RUNNING: "RUNNING CANCELLING UPDATING",
    JobState.SUCCEEDED: "SUCCEEDED",
    JobState.FAILED: "FAILED CANCELLED EXPIRED PARTIALLY_SUCCEEDED",
}


def test_every_state_of_vertex_has_a_meaning():
    from google.cloud.aiplatform_v1.types import JobState as VertexState

    expected = {f"JOB_STATE_{name}": state for state, names in STATES.items() for name in names.split()}
    assert {name: vertex.status({"state": name}).state for name in expected} == expected
    assert set(VertexState.__members__) <= set(expected)


def test_a_job_that_was_launched_twice_at_once_is_one_job_in_the_end(cloud):
    executor, body, create = cloud.executor(), cloud.executor().render(job()), cloud.api._create

    def create_another_too(region, given):
        cloud.api._create = create
        create(region, body)  # the other launcher's, which also found none
        return create(region, given)

    cloud.api._create = create_another_too
    started = executor.launch(job())
    assert started.handle.endswith("/0001")  # the oldest, which the other launcher chooses too
    states = [found["state"] for found in cloud.api.jobs.values()]
    assert states == ["JOB_STATE_PENDING", "JOB_STATE_CANCELLING"]
    assert executor.launch(job()) == started


@pytest.mark.parametrize(
    ("state", "counts"),
    [("QUEUED", True), ("SUCCEEDED", True), ("FAILED", True), ("CANCELLING", False), ("CANCELLED", False)],
)
def test_a_job_of_the_same_name_counts_unless_it_was_cancelled(cloud, started, state, counts):
    cloud.api.set_state(started.handle, f"JOB_STATE_{state}")
    assert (cloud.executor().launch(job()) == started) == counts


def test_polling_many_jobs_asks_for_lists(cloud):
    cloud.api.page_size = 100
    executor = cloud.executor()
    _, *ours = [executor.launch(job(f"jestlab-0a1b2c3d-{number}")) for number in range(13)]
    del cloud.api.requests[:]
    assert executor.statuses(ours).keys() == set(ours)
    assert len(cloud.api.requests) == 1


def test_one_that_is_over_is_not_cancelled_but_a_refusal_is_not_hidden(cloud, started):
    cloud.spoil(400)
    with pytest.raises(ExecutorError, match="may still be running: 400"):
        cloud.executor().stop(started, now=False)
    cloud.end(started, 0)
    cloud.executor().stop(started, now=False)


def test_a_log_that_cannot_be_read_is_pointed_to_in_the_browser(cloud, started):
    cloud.spoil(403)
    page = "https://console.cloud.google.com/ai/platform/locations/us-west4/training/0001?project=123456789"
    with pytest.raises(ExecutorError, match=re.escape(page)):
        cloud.executor().logs(started)


def test_without_credentials_the_remedy_is_named(cloud, monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    monkeypatch.setattr("google.auth.default", google.auth._default.default)
    with pytest.raises(ExecutorError, match="gcloud auth"):
        cloud.executor().launch(job())
