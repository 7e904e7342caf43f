"""What a launch may use: parsed, validated, and not part of a run's identity."""

import pytest

from jestlab.platform.spec import SpecError, Study

IMAGE = "europe-docker.pkg.dev/lab/images/jestlab@sha256:" + "0123456789abcdef" * 4


def resources(**given):
    return Study.parse({"name": "s", "runs": {"a": {}}, "resources": given}).resources


def test_a_study_without_resources_has_defaults_that_its_yaml_leaves_out():
    study = Study.parse({"name": "s", "runs": {"a": {}}})
    assert (study.resources.on, study.resources.tpu, study.resources.retries) == (None, None, 2)
    assert "resources" not in study.to_dict()


def test_resources_survive_being_printed_and_read():
    said = {"on": "kubernetes", "tpu": "v5e-16x16", "spot": True, "retries": 0, "image": IMAGE}
    study = Study.parse({"name": "s", "runs": {"a": {}}, "resources": said})
    assert study.to_dict()["resources"] == said
    assert Study.parse(study.to_dict()) == study


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tpu": "v5e-3x5"}, "resources.tpu: there is no TPU slice 'v5e-3x5': did you mean 'v5e-4x4'? ("),
        ({"tpu": 256}, "resources.tpu: must be a string, not 256"),
        ({"on": "vertx"}, "resources.on: 'vertx' is not valid: did you mean 'vertex'?"),
        ({"on": "vertex"}, "resources: vertex requires `tpu`, as in v5e-16x16"),
        ({"on": "vertex", "tpu": "v5p-4x4x4"}, "resources: Vertex AI trains on v5e, v6e, not on v5p: set"),
        ({"on": "vertex", "tpu": "v5e-4x4", "spot": True}, "resources: Vertex AI has no spot machines"),
        ({"on": "local", "tpu": "v5e-2x2"}, "resources: this machine has no v5e-2x2"),
        ({"image": "jestlab:latest"}, "resources.image: the image 'jestlab:latest' is not pinned: "),
        ({"image": IMAGE[:-1]}, "is not pinned"),
        ({"retries": -1}, "resources.retries: must be greater than or equal to 0, not -1"),
        ({"memory_gb": 0}, "resources.memory_gb: must be greater than 0, not 0"),
        ({"machine": "big"}, "resources.machine: unknown key"),
    ],
)  # fmt: skip
def test_impossible_resources_are_refused_when_the_spec_is_read(given, error):
    with pytest.raises(SpecError) as raised:
        resources(**given)
    assert str(raised.value).startswith(error) or error in str(raised.value)


@pytest.mark.parametrize(
    ("given", "asked", "default", "executor"),
    [
        ({}, None, None, "local"),
        ({}, None, "kubernetes", "kubernetes"),
        ({"on": "local"}, None, "kubernetes", "local"),
        ({"on": "vertex", "tpu": "v5e-4x4"}, None, "kubernetes", "vertex"),
        ({"on": "vertex", "tpu": "v5e-4x4"}, "kubernetes", None, "kubernetes"),
        ({"tpu": "v5e-4x4"}, None, "vertex", "vertex"),
        ({"tpu": "v5e-4x4"}, None, None, None),
        ({"tpu": "v5e-4x4"}, None, "local", None),
        ({"tpu": "v5e-4x4"}, "local", None, "local"),
    ],
)
def test_the_command_decides_where_runs_go_then_the_study_then_the_settings(given, asked, default, executor):
    assert resources(**given).executor(asked, default) == executor
