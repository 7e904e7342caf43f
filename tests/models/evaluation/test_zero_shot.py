"""Zero-shot classification against big_vision's published procedure, reimplemented in float64."""

import re
import string

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models import evaluation
from jestlab.models.data.class_names import canonical, prompts
from jestlab.models.evaluation import class_embeddings, zero_shot_accuracy


def unit(x):
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


def published_canonical(text, keep):
    """What `prompt_engineering.py` does to a text; `keep` is punctuation that stays."""
    cut = [
        "".join(c for c in part if c not in string.punctuation) for part in text.replace("_", " ").split(keep)
    ]
    return re.sub(r"\s+", " ", keep.join(cut).lower()).strip()


def published_prompts(class_names, templates):
    names = [published_canonical(name, ",").split(",")[0] for name in class_names]
    forms = [published_canonical(template, "{}") for template in templates]
    return [form.split("{}")[0] + name + form.split("{}")[1] for name in names for form in forms]


def test_texts_are_canonical():
    """The cases of big_vision's own test."""
    expected = {
        "test_test": "test test",
        "test___test": "test test",
        "test.": "test",
        " test ": "test",
        "test\ntest": "test test",
        "test {}": "test {}",
        " test  {}...": "test {}",
        "test {}  {}  {}": "test {} {} {}",
    }
    assert {raw: canonical(raw, keep="{}") for raw in expected} == expected


def test_prompts_fill_both_forms_of_template_class_by_class():
    assert prompts(["A_b", "c"], ["a photo of {c}.", "{}!", "a close-up of a {c}, a kind of thing."]) == [
        "a photo of a b",
        "a b",
        "a closeup of a a b a kind of thing",
        "a photo of c",
        "c",
        "a closeup of a c a kind of thing",
    ]


@given(
    st.lists(st.text("aBé7 _,.-'()/\n\t{}", max_size=12), min_size=1, max_size=3),
    st.lists(st.tuples(*[st.text("aB _,.-'()", max_size=8)] * 2), min_size=1, max_size=3),
)
def test_prompts_are_the_published_ones(names, templates):
    ours = prompts(names, [f"{before}{{c}}{after}" for before, after in templates])
    theirs = published_prompts(names, [f"{before}{{}}{after}" for before, after in templates])
    assert ours == theirs


def test_class_embedding_is_the_normalised_mean_over_templates():
    z = unit(np.random.default_rng(0).normal(size=(6, 5)))
    mean = np.stack([z[:2].astype(float).mean(0), z[2:4].astype(float).mean(0), z[4:].astype(float).mean(0)])
    expected = mean / (1e-8 + np.linalg.norm(mean, axis=1, keepdims=True))
    np.testing.assert_allclose(class_embeddings(z, 2), expected, rtol=1e-6)
    assert np.isfinite(class_embeddings(np.zeros((2, 4), np.float32), 2)).all()


def test_accuracy_is_the_share_of_nearest_classes(monkeypatch):
    rng = np.random.default_rng(1)
    classes, labels = unit(rng.normal(size=(7, 5))), rng.integers(0, 7, 50)
    images = unit(classes[labels] + 0.8 * rng.normal(size=(50, 5)))
    best = [max(range(7), key=lambda c: float(classes[c].astype(float) @ image)) for image in images]
    expected = np.mean(np.array(best) == labels)
    assert 0.3 < expected < 0.9
    assert zero_shot_accuracy(images, classes, labels) == expected
    monkeypatch.setattr(evaluation, "IMAGES_AT_ONCE", 8)
    assert zero_shot_accuracy(images, classes, labels) == expected
