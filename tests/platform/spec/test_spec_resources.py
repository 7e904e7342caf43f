"""What a launch may use: read, refused, and no part of a run's identity."""

import pytest

from jestlab.platform.spec import SpecError, Study

IMAGE = "europe-docker.pkg.dev/lab/images/jestlab@sha256:" + "0123456789abcdef" * 4


def resources(**given):
    return Study.parse({"name": "s", "runs": {"a": {}}, "resources": given}).resources


def test_a_study_that_says_nothing_has_defaults_that_its_yaml_leaves_out():
    study = Study.parse({"name": "s", "runs": {"a": {}}})
    assert (study.resources.on, study.resources.tpu, study.resources.retries) == (None, None, 2)
    assert "resources" not in study.to_dict()


def test_what_is_said_survives_being_printed_and_read():
    said = {"on": "kubernetes", "tpu": "v5e-16x16", "spot": True, "retries": 0, "image": IMAGE}
    study = Study.parse({"name": "s", "runs": {"a": {}}, "resources": said})
    assert study.to_dict()["resources"] == said
    assert Study.parse(study.to_dict()) == study


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tpu": "v5e-3x5"}, "resources.tpu: there is no TPU slice 'v5e-3x5': did you mean 'v5e-4x4'? ("),
        ({"tpu": 256}, "resources.tpu: must be a text, not 256"),
        ({"on": "vertx"}, "resources.on: 'vertx' is not valid: did you mean 'vertex'?"),
        ({"on": "kubernetes"}, "resources: kubernetes needs `tpu`, as in v5e-16x16"),
        ({"on": "vertex", "tpu": "v5p-4x4x4"}, "resources: Vertex AI trains on v5e, v6e, not on v5p: say"),
        ({"on": "vertex", "tpu": "v5e-4x4", "spot": True}, "resources: Vertex AI has no spot machines"),
        ({"on": "local", "tpu": "v5e-2x2"}, "resources: this machine has no v5e-2x2"),
        ({"image": "jestlab:latest"}, "resources.image: the image 'jestlab:latest' is not pinned: "),
        ({"image": IMAGE[:-1]}, "is not pinned"),
        ({"retries": -1}, "resources.retries: must be greater than or equal to 0, not -1"),
        ({"memory_gb": 0}, "resources.memory_gb: must be greater than 0, not 0"),
        ({"machine": "big"}, "resources.machine: unknown key"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_when_the_spec_is_read(given, error):
    with pytest.raises(SpecError) as raised:
        resources(**given)
    assert str(raised.value).startswith(error) or error in str(raised.value)
