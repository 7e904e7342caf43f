"""The table of TPU slices, against what Google's documents print."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.spec.resources import TYPES, parse_slice

# Rows of the tables in "Plan TPUs in GKE", "TPU v5p" and Vertex AI's "Configure compute resources": slice,
# chips, machines, machine type.
DOCUMENTED = [
    ("v5e-1x1", 1, 1, "ct5lp-hightpu-1t"),
    ("v5e-2x2", 4, 1, "ct5lp-hightpu-4t"),
    ("v5e-2x4", 8, 1, "ct5lp-hightpu-8t"),
    ("v5e-4x4", 16, 4, "ct5lp-hightpu-4t"),
    ("v5e-16x16", 256, 64, "ct5lp-hightpu-4t"),
    ("v6e-1x1", 1, 1, "ct6e-standard-1t"),
    ("v6e-2x4", 8, 1, "ct6e-standard-8t"),
    ("v6e-16x16", 256, 64, "ct6e-standard-4t"),
    ("v5p-2x2x1", 4, 1, "ct5p-hightpu-4t"),
    ("v5p-4x4x8", 128, 32, "ct5p-hightpu-4t"),
    ("v5p-16x16x24", 6144, 1536, "ct5p-hightpu-4t"),
    ("v4-2x2x4", 16, 4, "ct4p-hightpu-4t"),
    ("v4-12x16x16", 3072, 768, "ct4p-hightpu-4t"),
]


def test_chips_hosts_and_machines_agree_with_googles_documents():
    found = [(name, parse_slice(name)) for name, *_ in DOCUMENTED]
    assert [(name, each.chips, each.hosts, each.machine_type) for name, each in found] == DOCUMENTED
    assert [str(each) for _, each in found] == [name for name, _ in found]


def test_a_v5e_pod_has_the_peak_flops_that_its_page_prints():
    pod = parse_slice("v5e-16x16")
    assert pod.chips * pod.type.peak_flops == pytest.approx(50.63e15, rel=0.01)
    assert 256 * TYPES["v6e"].peak_flops == pytest.approx(234.9e15, rel=0.01)


def test_the_error_lists_what_exists():
    for name, listed in (
        ("v5e-512", "v5e has 1x1, 2x2, 2x4, 4x4, 4x8, 8x8, 8x16, 16x16"),
        ("v5p-16x16x28", "A ≤ B ≤ C, all multiples of 4, up to 6,144 chips"),
        ("tensor", "the types are v4, v5e, v5p, v6e, as in v5e-16x16"),
    ):
        with pytest.raises(ValueError, match=f"unknown TPU slice.*{listed}"):
            parse_slice(name)


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
