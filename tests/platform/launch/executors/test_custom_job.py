"""CustomJobs: checked by Vertex AI's own types, and read back as Vertex AI reports them."""

import itertools
import json
import re
from pathlib import Path

import pytest
from executor_harnesses import IMAGE, VertexHarness, job
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.lab.settings import Settings
from jestlab.platform.lab.settings import Vertex as VertexSettings
from jestlab.platform.launch import executors
from jestlab.platform.launch.executors import vertex
from jestlab.platform.launch.executors.base import ExecutorError, JobState
from jestlab.platform.launch.executors.vertex import custom_job
from jestlab.platform.spec.resources import Resources, parse_slice

SNAPSHOT = Path(__file__).parent / "custom_job_v5e_16x16.json"
SECRET = "projects/our-lab/secrets/jestlab-store/versions/latest"
LAB = Lab(Path("lab"), "sqlite://")
SETTINGS = VertexSettings(
    project="our-lab",
    region="us-west4",
    store_secret=SECRET,
    staging="gs://our-lab-staging/jobs/",
    service_account="trainer@our-lab.iam.gserviceaccount.com",
    network="projects/12345/global/networks/default",
    nfs="10.0.0.2:/exports/lab",
    root="/mnt/nfs/lab",
)


def manifest(slice_="v5e-16x16", settings=SETTINGS, spot=False, **changes):
    return custom_job(job(**changes), parse_slice(slice_), IMAGE, settings, spot=spot)


def pool(found):
    return found["jobSpec"]["workerPoolSpecs"][0]


def test_256_chips_are_rendered_like_the_reviewed_file():
    assert manifest() == json.loads(SNAPSHOT.read_text())


# Vertex AI's types are imported by the tests that need them: it takes two seconds.


def test_vertex_own_types_know_every_field():
    from google.cloud.aiplatform_v1.types import CustomJob
    from google.protobuf.json_format import MessageToDict, ParseDict

    slices = ("v5e-1x1", "v5e-2x4", "v5e-16x16", "v6e-8x16")
    for slice_, settings in itertools.product(slices, (SETTINGS, VertexSettings(store_secret=SECRET))):
        for spot in (False, True):
            written = manifest(slice_, settings, spot)
            assert MessageToDict(ParseDict(written, CustomJob.pb(CustomJob()))) == written


def test_a_lab_in_a_bucket_needs_no_mount():
    bucket = VertexSettings(store_secret=SECRET, root="/gcs/our-bucket/lab")
    assert "/gcs/our-bucket/lab" in pool(manifest(settings=bucket))["containerSpec"]["args"]
    assert "nfsMounts" not in pool(manifest(settings=bucket))


def test_one_host_alone_waits_for_no_others():
    for slice_, hosts in (("v5e-16x16", 64), ("v5e-2x4", 1)):
        names = [each["name"] for each in pool(manifest(slice_))["containerSpec"]["env"]]
        assert ("JESTLAB_PROCESSES" in names) == (hosts > 1)


@given(st.dictionaries(st.text(min_size=1, max_size=70), st.text(max_size=90), max_size=4))
def test_any_text_makes_a_label_that_google_takes(labels):
    found = manifest(labels=labels)["labels"]
    assert found["jestlab-job"] == "jestlab-0a1b2c3d-1"
    for key, value in found.items():
        assert re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", key)
        assert re.fullmatch(r"[a-z0-9_-]{0,63}", value)


# What Vertex AI reports.

STATES = {
    "JOB_STATE_UNSPECIFIED": JobState.UNKNOWN,
    "JOB_STATE_QUEUED": JobState.QUEUED,
    "JOB_STATE_PENDING": JobState.QUEUED,
    "JOB_STATE_RUNNING": JobState.RUNNING,
    "JOB_STATE_SUCCEEDED": JobState.SUCCEEDED,
    "JOB_STATE_FAILED": JobState.FAILED,
    "JOB_STATE_CANCELLING": JobState.RUNNING,
    "JOB_STATE_CANCELLED": JobState.FAILED,
    "JOB_STATE_PAUSED": JobState.QUEUED,
    "JOB_STATE_EXPIRED": JobState.FAILED,
    "JOB_STATE_UPDATING": JobState.RUNNING,
    "JOB_STATE_PARTIALLY_SUCCEEDED": JobState.FAILED,
}


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    monkeypatch.setenv("JESTLAB_API_PAUSE_SECONDS", "0")
    harness = VertexHarness(tmp_path, monkeypatch)
    yield harness
    harness.close()


def test_every_state_of_vertex_has_a_meaning(cloud):
    from google.cloud.aiplatform_v1.types import JobState as VertexState

    executor = cloud.executor()
    started = executor.launch(job())
    found = {}
    for state in VertexState.__members__:
        cloud.api.set_state(started.handle, state)
        found[state] = executor.statuses([started])[started].state
    assert found == {state: STATES[state] for state in VertexState.__members__}
    assert vertex.status("JOB_STATE_DREAMING", 0, "").state == JobState.UNKNOWN  # of a later release


def test_a_job_that_was_launched_twice_at_once_is_one_job_in_the_end(cloud):
    executor, body = cloud.executor(), cloud.executor().render(job())
    create = cloud.api._create

    def create_another_too(region, given):
        cloud.api._create = create
        create(region, body)  # the other launcher's, which also found none
        return create(region, given)

    cloud.api._create = create_another_too
    started = executor.launch(job())
    assert started.handle.endswith("/0001")  # the oldest, which the other launcher chooses too
    assert [found["state"] for found in cloud.api.jobs.values()] == [
        "JOB_STATE_PENDING",
        "JOB_STATE_CANCELLING",
    ]
    assert executor.launch(job()) == started


def test_a_job_of_the_same_name_counts_unless_it_was_cancelled(cloud):
    executor = cloud.executor()
    started = executor.launch(job())
    for state in ("QUEUED", "SUCCEEDED", "FAILED"):
        cloud.api.set_state(started.handle, f"JOB_STATE_{state}")
        assert executor.launch(job()) == started
    for state in ("CANCELLING", "CANCELLED"):
        cloud.api.set_state(started.handle, f"JOB_STATE_{state}")
        assert executor.launch(job()) != started
        assert cloud.api.jobs[started.handle]["state"] == f"JOB_STATE_{state}"
        started = executor.launch(job())


def test_polling_many_jobs_asks_for_lists(cloud):
    cloud.api.page_size = 100
    executor = cloud.executor()
    all_started = [executor.launch(job(f"jestlab-0a1b2c3d-{number}")) for number in range(12)]
    del cloud.api.requests[:]
    assert len(executor.statuses(all_started)) == 12
    assert len(cloud.api.requests) == 1


def test_one_that_is_over_is_not_cancelled_but_a_refusal_is_not_hidden(cloud):
    executor = cloud.executor()
    started = executor.launch(job())
    cloud.spoil(400)
    with pytest.raises(ExecutorError, match="may still be running: 400"):
        executor.stop(started, now=False)
    cloud.end(started, 0)
    executor.stop(started, now=False)


def test_a_log_that_cannot_be_read_is_pointed_to_in_the_browser(cloud):
    executor = cloud.executor()
    started = executor.launch(job())
    cloud.spoil(403)
    page = "https://console.cloud.google.com/ai/platform/locations/us-west4/training/0001?project=123456789"
    with pytest.raises(ExecutorError, match=re.escape(page)):
        executor.logs(started)


def test_without_credentials_the_remedy_is_named(cloud, monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    executor = vertex.VertexExecutor(SETTINGS, parse_slice("v5e-2x2"), IMAGE)
    executor.endpoint = cloud.api.url
    with pytest.raises(ExecutorError, match="no credentials of Google Cloud"):
        executor.launch(job())


@pytest.mark.parametrize(
    ("resources", "settings", "missing"),
    [
        (Resources(), {}, "vertex needs a TPU slice"),
        (Resources(tpu="v5p-2x2x1"), {}, "Vertex AI does not train on v5p-2x2x1"),
        (Resources(tpu="v5e-4x4", spot=True), {}, "no spot machines for slices of several hosts"),
        (Resources(tpu="v5e-2x2"), {}, "vertex needs an image"),
        (Resources(tpu="v5e-2x2"), {"image": IMAGE}, r"vertex needs `vertex\.project`"),
        (
            Resources(tpu="v5e-2x2"),
            {"image": IMAGE, "vertex": {"project": "our-lab", "region": "us-west4"}},
            r"vertex needs `vertex\.store_secret`",
        ),
    ],
)
def test_names_what_is_missing_before_anything_is_launched(resources, settings, missing):
    with pytest.raises(UserError, match=missing):
        executors.get("vertex", resources, Settings(**settings), LAB)


def test_an_executor_is_made_from_a_study_and_the_users_settings():
    settings = Settings(image=IMAGE, vertex=SETTINGS)
    made = executors.get("vertex", Resources(tpu="v5e-16x16"), settings, LAB)
    assert (made.chips, made.render(job())) == (256, manifest())
    found = executors.find("vertex", Settings(), LAB)  # finding jobs needs no settings
    assert (found.name, found.chips) == ("vertex", 0)
