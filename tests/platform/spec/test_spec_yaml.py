import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.platform.errors import SpecError
from jestlab.platform.spec.yaml import Document, dump

SPECIAL = [
    "1e-3", "1e6", "no", "on", "1:30", "010", "0o7", "null", "~", "", " ", "2024-01-01", "<<", "=", "- a",
    ".5", "&a",
]  # fmt: skip
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(SPECIAL)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(TEXTS, below, max_size=3),
    max_leaves=10,
)


@given(VALUES)
def test_what_is_dumped_is_read_again(value):
    again = Document(dump(value)).value
    assert again == value
    assert repr(again) == repr(value)  # 1 is not 1.0, and True is not 1


SCALARS = [
    ("1e-3", 1e-3), ("2.5E-4", 2.5e-4), ("1e6", 1_000_000), ("-3e2", -300), ("3.", 3.0), (".5", 0.5),
    ("0x1f", 31), ("0o17", 15), ("010", 10), ("1:30", "1:30"), ("no", "no"), ("1_000", "1_000"),
    ("2024-01-01", "2024-01-01"), ("True", True), ("~", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), SCALARS)
def test_scalars_mean_what_readers_expect(text, value):
    assert repr(Document(text).value) == repr(value)


def test_anchors_and_merge_keys_work():
    text = "a: &s {x: 1, y: 2}\nuse: {<<: *s, y: 3}\nagain: *s\n"
    assert Document(text).value == {"a": {"x": 1, "y": 2}, "use": {"x": 1, "y": 3}, "again": {"x": 1, "y": 2}}


def laughs(levels):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines)


REJECTED = [
    ("a: 1\nb: {c: 2,\n  c: 3}", "line 3: duplicate key 'c'"),
    ("a: !!python/object/apply:os.system [echo]", "line 1: the tag !!python/object/apply:os.system is"),
    ("a: !!binary aGk=", "the tag !!binary is not allowed"),
    ("a: &a [1, *a]", "line 1: contains itself through an alias"),
    ("? [a, b]\n: 1", "line 1: a key must be a string"),
    ("a: [1\nb: 2", "line 2: not valid YAML"),
    ("a: 1\n---\nb: 2", "not valid YAML: "),
    ("a: \x07", "not valid YAML: "),
    (laughs(9), "has more than 1,000,000 values: too many for a spec"),
    ("[" * 5_000, "nested too deeply for a spec"),
    ("a: " + "9" * 10_000, "not valid YAML: "),
    ("a: 1e999999999", "1e999999999 is too large"),
    ("a: " + "9" * 200 + "e200", "is too large"),
]


@pytest.mark.parametrize(("text", "message"), REJECTED, ids=[message for _, message in REJECTED])
def test_rejects_malicious_and_broken_documents_in_one_line(text, message):
    with pytest.raises(SpecError) as caught:
        Document(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_name_the_line_of_a_path():
    document = Document("""\
base:
  schedule:
    examples_seen: 3
  model.vision: {width: 4}
runs:
  a: {}
axes:
  - {runs: [a], grid: {y: [1]}}
  - runs: [a]
    grid: {x: [1]}
""")
    lines = {
        "base.schedule.examples_seen": 3, "base.model.vision.width": 4, "base.model.vision.missing": 4,
        "runs.a": 6, "axes.1.grid.x": 10, "seeds": None,
    }  # fmt: skip
    assert {path: document.line(tuple(path.split("."))) for path in lines} == lines
    assert document.line(()) is None
