"""Weights through every format and back, bit for bit, with one content hash; the towers told by shapes."""

import os

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.two_towers import initialize
from jestlab.models.weights import sources
from jestlab.models.weights.layout import flatten, parameter_shapes, unflatten
from jestlab.models.weights.sources import FORMATS, content_hash, open_weights, run_weights, write


@st.composite
def sizes(draw):
    heads = draw(st.integers(1, 3))
    return {
        "heads": heads,
        "width": heads * draw(st.integers(1, 4)),
        "depth": draw(st.integers(1, 11)),  # 10 comes before 2 where names are sorted
        "mlp_dim": draw(st.none() | st.integers(1, 9)),
    }


@st.composite
def two_towers(draw, public=False):
    """Any towers; `public`: such as Hugging Face has."""
    patch_size = draw(st.integers(1, 4))
    pooling = "map" if public else draw(st.sampled_from(["map", "mean"]))
    vision = VisionTower(
        patch_size=patch_size,
        image_size=patch_size * draw(st.integers(1, 3)),
        pooling=pooling,
        **draw(sizes()),
    )
    text = TextTower(vocabulary_size=draw(st.integers(1, 9)), length=draw(st.integers(1, 5)), **draw(sizes()))
    embedding = vision.width if public or draw(st.booleans()) else draw(st.integers(1, 9))
    return TwoTowers(vision=vision, text=text, embedding_dim=embedding)


def sizes_of(model):
    """What shapes tell, the MLP's width spelled out."""
    return parameter_shapes(model), model.vision.pooling, model.text.pooling, model.embedding_dim


def same(found, expected):
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == np.float32
        assert found[name].tobytes() == expected[name].tobytes(), name
        assert found[name].shape == expected[name].shape, name


@settings(max_examples=5)
@given(two_towers())
def test_names_and_shapes_are_those_of_the_model(model):
    abstract = jax.eval_shape(lambda: initialize(model, jax.random.key(0)))
    assert {name: leaf.shape for name, leaf in flatten(abstract)} == parameter_shapes(model)


def test_siglip_b16_has_as_many_parameters_as_published():
    shapes = parameter_shapes(TwoTowers(variant="B/16"))
    counts = {"img": 0, "txt": 0, "t": 0, "b": 0}
    for name, shape in shapes.items():
        counts[name.partition("/")[0]] += int(np.prod(shape))
    assert round(counts["img"] / 1e6, 2) == 92.93
    assert round(counts["txt"] / 1e6, 2) == 110.27


@given(model=st.one_of(two_towers(), two_towers(public=True)), form=st.sampled_from(FORMATS))
def test_out_and_in_again(tmp_path_factory, make_weights, model, form):
    public = model.vision.pooling == "map" and model.vision.width == model.embedding_dim
    weights = make_weights(model)
    place = tmp_path_factory.mktemp("weights") / ("w.npz" if form.startswith("big_vision") else "w")
    if form == "huggingface" and not public:
        with pytest.raises(ValueError, match="Hugging Face's SigLIP"):
            write(weights, place, form)
        assert not list(place.parent.iterdir())
        return
    write(weights, place, form)
    found = open_weights(place)
    assert found.format == form
    assert sizes_of(found.model) == sizes_of(model)
    same(found.tensors(), weights.tensors())
    assert found.digest() == content_hash(weights.tensors().items(), model)


def test_names_of_a_checkpoint(npz, towers, tensors):
    """As big_vision writes them: below `params/`, with the optimiser's state beside, which nobody reads."""
    weights = open_weights(npz(prefix="params/"))
    same(weights.tensors(), tensors)
    path = npz({"params/" + name: x for name, x in tensors.items()} | {"opt/0/mu/img/x": np.ones(3)}, base={})
    assert open_weights(path).model == weights.model
    assert open_weights(path).digest() == weights.digest()


def test_only_one_tower_scanned(npz, towers, tensors):
    """Stacked by hand along a new first axis, as `flax.linen.scan` does."""
    blocks = [name for name in tensors if name.startswith("txt/Encoder_0/encoderblock_0/")]
    changes = dict.fromkeys(name for name in tensors if "txt/Encoder_0/encoderblock_" in name)
    for name in blocks:
        layers = [tensors[name.replace("block_0", f"block_{i}")] for i in range(towers.text.depth)]
        changes[name.replace("block_0", "block")] = np.stack(layers, axis=0)
    weights = open_weights(npz(changes))
    assert weights.format == "big_vision-scanned"
    assert sizes_of(weights.model) == sizes_of(towers)
    same(weights.tensors(), tensors)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "void"])
def test_half_precision_is_read_exactly(npz, tensors, kind):
    """NumPy's files know no bfloat16, so big_vision's hold it as two bytes without a type."""
    import ml_dtypes

    half = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    stored = {name: x.astype(half) for name, x in tensors.items()}
    if kind == "void":
        stored = {name: x.view("V2") for name, x in stored.items()}
    found = open_weights(npz(stored)).tensors()
    same(found, {name: x.astype(half).astype(np.float32) for name, x in tensors.items()})


def test_other_byte_orders_and_memory_orders(npz, tensors):
    name = "img/embedding/kernel"
    stored = {"t": tensors["t"].astype(">f4"), name: np.asfortranarray(tensors[name])}
    same(open_weights(npz(stored)).tensors(), tensors)


def test_our_own_folder_keeps_what_shapes_do_not_tell(tmp_path, make_weights, towers):
    text = towers.text.model_copy(update={"pooling": "mean"})
    towers = towers.model_copy(update={"text": text, "compute_dtype": "bfloat16"})
    write(make_weights(towers), tmp_path / "own", "jestlab")
    assert open_weights(tmp_path / "own").model == towers
    assert open_weights(tmp_path / "own" / "weights.npz").model == towers


def test_a_runs_checkpoint_comes_out_as_it_is(tmp_path, towers, tensors, pieces):
    from jestlab.models.training.checkpoints import save_parameters

    save_parameters(tmp_path / "run" / "checkpoints", unflatten(tensors))
    (tmp_path / "run" / "tokenizer.model").write_bytes(pieces)
    weights = run_weights(tmp_path / "run", towers)
    same(weights.tensors(), tensors)
    assert weights.digest() == content_hash(tensors.items(), towers)
    assert weights.tokenizer == tmp_path / "run" / "tokenizer.model"
    with pytest.raises(ValueError, match="name a run instead of its folder"):
        open_weights(tmp_path / "run")


def test_every_number_name_and_shape_counts_in_the_hash(towers, tensors):
    hashes = {content_hash(tensors.items(), towers)}
    for name in ("t", "b", "txt/head/kernel"):
        changed = tensors[name].copy()
        changed.flat[0] = np.nextafter(changed.flat[0], np.float32(9))
        hashes.add(content_hash((tensors | {name: changed}).items(), towers))
    renamed = {("bias" if name == "b" else name): x for name, x in tensors.items()}
    hashes.add(content_hash(renamed.items(), towers))
    reshaped = tensors | {"img/pos_embedding": tensors["img/pos_embedding"][0]}
    hashes.add(content_hash(reshaped.items(), towers))
    mean = towers.model_copy(update={"text": towers.text.model_copy(update={"pooling": "mean"})})
    hashes.add(content_hash(tensors.items(), mean))
    hashes.add(content_hash(dict(reversed(tensors.items())).items(), towers))  # the order doesn't count
    assert len(hashes) == 7


def test_the_hash_is_cached_until_the_file_or_the_towers_change(
    npz, tmp_path, make_weights, towers, monkeypatch
):
    path = npz()
    first, before = open_weights(path).digest(), path.stat()
    with monkeypatch.context() as patch:
        patch.setattr(sources, "content_hash", None)  # not called
        assert open_weights(path).digest() == first
    [record] = (path.parent / ".jestlab").iterdir()
    for damage in (b"", b"{", b"\xff" * 9, record.read_bytes()[1:]):
        record.write_bytes(damage)
        assert open_weights(path).digest() == first
    npz({"t": np.full(1, 7, np.float32)})
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert open_weights(path).digest() != first

    write(make_weights(towers), tmp_path / "own", "jestlab")
    first, model = open_weights(tmp_path / "own").digest(), tmp_path / "own" / "model.json"
    model.write_text(model.read_text().replace('"last"', '"mean"'))
    assert open_weights(tmp_path / "own").digest() != first
