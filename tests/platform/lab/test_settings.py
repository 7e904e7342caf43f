"""The user's config file: where it is, what it contains, and how errors in it are shown."""

import pytest

from jestlab.platform.errors import UserError
from jestlab.platform.lab.settings import Settings, path
from jestlab.platform.launch import executors
from jestlab.platform.spec.resources import Resources

IMAGE = "europe-docker.pkg.dev/lab/images/jestlab@sha256:" + "0123456789abcdef" * 4


@pytest.fixture
def settings(tmp_path):
    def read(text: str) -> Settings:
        file = tmp_path / "config.yaml"
        file.write_text(text, encoding="utf-8")
        return Settings.find({"JESTLAB_CONFIG": str(file)})

    return read


def test_the_environment_determines_the_path_and_a_named_file_must_exist(tmp_path):
    assert str(path({"JESTLAB_CONFIG": "/a/b.yaml", "XDG_CONFIG_HOME": "/x"})) == "/a/b.yaml"
    assert str(path({"XDG_CONFIG_HOME": "/x"})) == "/x/jestlab/config.yaml"
    assert str(path({"XDG_CONFIG_HOME": "relative"})).endswith("/.config/jestlab/config.yaml")
    assert not str(path({})).startswith("~")
    with pytest.raises(UserError, match=r"JESTLAB_CONFIG: .*missing.yaml: no such file"):
        Settings.find({"JESTLAB_CONFIG": str(tmp_path / "missing.yaml")})
    assert Settings.find({"XDG_CONFIG_HOME": str(tmp_path)}) == Settings()


def test_reads_all_sections(settings):
    found = settings(
        f"on: kubernetes\nimage: {IMAGE}\n"
        "kubernetes: {context: lab, namespace: research, queue: tpus, store_secret: jestlab-store/url}\n"
        "vertex:\n  project: our-lab\n  region: us-west4\n"
        "  store_secret: projects/our-lab/secrets/jestlab-store/versions/latest\n"
        "prices: {v5e: 1.2}\nutilization: {v5e: 0.4}\n"
    )
    assert (found.on, found.image, found.prices, found.utilization) == (
        "kubernetes", IMAGE, {"v5e": 1.2}, {"v5e": 0.4},
    )  # fmt: skip
    assert (found.kubernetes.queue, found.vertex.region) == ("tpus", "us-west4")


MISTAKES = {
    "onn: local": ":1: onn: unknown key: did you mean 'on'?",
    "on: there": ":1: on: 'there' is not valid",
    "on: local\nkubernetes:\n  namespce: a": ":3: kubernetes.namespce: unknown key: did you mean 'name",
    "kubernetes: {store_secret: postgresql://u:p@h/d}": "expected NAME/KEY",
    "vertex: {store_secret: jestlab}": "expected projects/PROJECT/secrets/SECRET/versions/VERSION",
    "vertex: {region: us west}": ":1: vertex.region: 'us west' is not valid: expected a region",
    "vertex: {root: gs://b/lab}": "vertex.root: 'gs://b/lab' is not valid: expected an absolute path",
    "kubernetes: {root: lab}": "expected an absolute path",
    "kubernetes: {claim: lab}": "kubernetes: `claim` requires `root`",
    "image: jestlab:latest": ":1: image: the image 'jestlab:latest' is not pinned",
    "prices: {v5: 1}": ":1: prices.v5: no TPU type 'v5': did you mean 'v5",
    "prices: {v5e: -1}": ":1: prices.v5e: must be greater than 0",
    "utilization: {v5e: 40}": ":1: utilization.v5e: must be less than or equal to 1",
    "record: [everything]": ":1: record",
    "- on": "must be a mapping of on, image, kubernetes",
    "on: [": "not valid YAML",
}


def test_mistakes_are_errors_in_one_line_with_file_and_key(settings):
    for text, error in MISTAKES.items():
        with pytest.raises(UserError) as raised:
            settings(text)
        assert "config.yaml" in str(raised.value), text
        assert error in str(raised.value), text
        assert "\n" not in str(raised.value), text


def test_the_command_precedes_the_study_and_the_study_precedes_the_config_file():
    user, study = Settings(on="vertex"), Resources(on="kubernetes", tpu="v5e-2x2")
    assert executors.choose("local", study, user) == "local"
    assert executors.choose(None, study, user) == "kubernetes"
    assert executors.choose(None, Resources(), user) == "vertex"
    assert executors.choose(None, Resources(), Settings()) == "local"
    with pytest.raises(UserError, match=r"each run requires v5e-16x16.*--on kubernetes"):
        executors.choose(None, Resources(tpu="v5e-16x16"), Settings())
