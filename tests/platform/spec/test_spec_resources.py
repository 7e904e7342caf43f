"""Resources of a launch: durations, and slices of TPUs as Google's documents print them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.spec import StudySpec
from jestlab.platform.spec.resources import parse_duration, parse_slice
from jestlab.platform.spec.yaml import Document

IMAGE = "europe-docker.pkg.dev/lab/images/jestlab@sha256:" + "0123456789abcdef" * 4


def study(**given):
    return StudySpec.parse({"name": "s", "runs": {"a": {}}, "resources": given})


def test_resources_survive_being_printed_and_read_without_their_defaults():
    said = {"on": "kubernetes", "tpu": "v5e-16x16", "spot": True, "retries": 0, "image": IMAGE}
    assert study(**said).to_dict()["resources"] == said
    assert StudySpec.parse(study(**said).to_dict()) == study(**said)
    assert "resources" not in study().to_dict()
    assert str(study(on="slurm", gpus=2).resources.machines) == "2 GPUs"


ERRORS = f"""
{{tpu: v5e-16x12}} => .tpu: unknown TPU slice 'v5e-16x12': v5e has 1x1,
{{tpu: v5p-16x16x28}} => .tpu: unknown TPU slice 'v5p-16x16x28': v5p has 2x2x1, 2x2x2, 2x2x4, 2x4x4,
{{tpu: tensor}} => .tpu: unknown TPU slice 'tensor': the types are v4, v5e, v5p, v6e, as in v5e-16x16
{{tpu: 256}} => .tpu: must be a valid string, not 256
{{on: vertx}} => .on: 'vertx' is not valid: did you mean 'vertex'?
{{on: vertex}} => : vertex requires `tpu`, as in v5e-16x16
{{on: vertex, tpu: v5p-4x4x4}} => : Vertex AI trains on v5e, v6e, not on v5p: set
{{on: vertex, tpu: v5e-4x4, memory_gb: 64}} => : vertex doesn't support memory limits: leave out `memory_gb`
{{on: vertex, tpu: v5e-4x4, spot: true}} => : Vertex AI has no spot machines
{{on: local, tpu: v5e-2x2}} => : local has no v5e-2x2
{{image: jestlab:latest}} => .image: the image 'jestlab:latest' is not pinned:
{{image: {IMAGE[:-1]}}} => .image: the image '{IMAGE[:-1]}' is not pinned
{{retries: -1}} => .retries: must be greater than or equal to 0, not -1
{{memory_gb: 0}} => .memory_gb: must be greater than 0, not 0
{{machine: big}} => .machine: unknown key
"""


def test_rejects_impossible_resources(check_errors):
    check_errors(ERRORS, lambda text: study(**Document(text).value), "resources")


@pytest.mark.parametrize(
    ("on", "tpu", "option", "setting", "executor"),
    [
        (None, None, None, None, "local"),
        (None, None, None, "kubernetes", "kubernetes"),
        ("local", None, None, "kubernetes", "local"),
        ("vertex", "v5e-4x4", "kubernetes", None, "kubernetes"),
        (None, "v5e-4x4", None, "vertex", "vertex"),
        (None, "v5e-4x4", None, "local", None),
        (None, "v5e-4x4", "local", None, "local"),
    ],
)
def test_the_executor_is_that_of_the_option_the_study_or_the_settings(on, tpu, option, setting, executor):
    assert study(on=on, tpu=tpu).resources.executor(option, setting) == executor


def test_parses_durations():
    seconds = {
        "90m": 5_400, "4h": 14_400, "1h30m": 5_400, "2d": 172_800, "1d2h3m4s": 93_784,
        "00:10:00": 600, "2-12:00:00": 216_000, " 4H ": 14_400,
    }  # fmt: skip
    assert {text: parse_duration(text) for text in seconds} == seconds


@pytest.mark.parametrize("text", ["", "60", "4 hours", "1m2h", "-1h", "1.5h", "0h", "0-00:00:00", "12:00"])
def test_rejects_other_texts_with_an_example(text):
    with pytest.raises(ValueError, match=r"^[^\n]*write[^\n]*$"):
        parse_duration(text)


# Rows of the tables in "Plan TPUs in GKE", "TPU v5p" and Vertex AI's "Configure compute resources": slice,
# chips, machines, machine type.
DOCUMENTED = [
    ("v5e-1x1", 1, 1, "ct5lp-hightpu-1t"),
    ("v5e-2x4", 8, 1, "ct5lp-hightpu-8t"),
    ("v5e-16x16", 256, 64, "ct5lp-hightpu-4t"),
    ("v6e-16x16", 256, 64, "ct6e-standard-4t"),
    ("v5p-2x2x1", 4, 1, "ct5p-hightpu-4t"),
    ("v5p-16x16x24", 6144, 1536, "ct5p-hightpu-4t"),
    ("v4-2x2x4", 16, 4, "ct4p-hightpu-4t"),
    ("v4-12x16x16", 3072, 768, "ct4p-hightpu-4t"),
]


def test_chips_hosts_and_machines_agree_with_googles_documents():
    found = [(name, parse_slice(name)) for name, *_ in DOCUMENTED]
    assert [(name, each.chips, each.hosts, each.machine_type) for name, each in found] == DOCUMENTED
    assert [str(each) for _, each in found] == [name for name, _ in found]


@given(st.text(max_size=30) | st.from_regex(r"v(4|5e|5p|6e)-[0-9]{1,3}(x[0-9]{1,3}){0,3}", fullmatch=True))
def test_any_string_is_a_slice_or_a_one_line_error(text):
    try:
        found = parse_slice(text)
    except ValueError as error:
        assert "unknown TPU slice" in str(error)
        assert "\n" not in str(error)
        return
    assert str(found) == text
    assert found.hosts * found.chips_per_host == found.chips
    assert found.chips == math.prod(map(int, found.topology.split("x")))
