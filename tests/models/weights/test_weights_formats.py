"""Weights through every format and back, bit for bit, with one content hash; writing is atomic."""

import os
from typing import Any, cast

import jax
import ml_dtypes
import numpy as np
import pytest
import sentencepiece
import tokenizers
import tokenizers.models
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from jestlab.models.config import TextTower, TwoTowers, VisionTower
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.two_towers import initialize
from jestlab.models.weights import sources
from jestlab.models.weights.formats import LAYOUTS
from jestlab.models.weights.parameters import flatten, parameter_counts, parameter_shapes, unflatten
from jestlab.models.weights.sources import content_hash, open_weights, read_tokenizer, run_weights, write


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
def two_towers(draw):
    patch_size, pooling = draw(st.integers(1, 4)), draw(st.sampled_from(["map", "mean"]))
    image_size = patch_size * draw(st.integers(1, 3))
    vision = VisionTower(patch_size=patch_size, image_size=image_size, pooling=pooling, **draw(sizes()))
    text = TextTower(vocabulary_size=draw(st.integers(1, 9)), length=draw(st.integers(1, 5)), **draw(sizes()))
    embedding = draw(st.just(vision.width) | st.integers(1, 9))
    return TwoTowers(vision=vision, text=text, embedding_dim=embedding)


def sizes_of(model):
    return parameter_shapes(model), model.vision.pooling, model.text.pooling, model.embedding_dim


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, x in expected.items():
        assert (found[name].dtype, found[name].shape) == (np.float32, x.shape), name
        assert found[name].tobytes() == x.tobytes(), name


@settings(max_examples=5)
@given(two_towers())
def test_names_and_shapes_are_those_of_the_model(model):
    abstract = jax.eval_shape(lambda: initialize(model, jax.random.key(0)))
    assert {name: leaf.shape for name, leaf in flatten(abstract)} == parameter_shapes(model)


def test_siglip_b16_has_as_many_parameters_as_published():
    counts = parameter_counts(TwoTowers(variant="B/16"))
    assert [round(counts[tower] / 1e6, 2) for tower in ("image", "text")] == [92.93, 110.27]


def name_of(form):
    """A name of a file or folder that the format accepts."""
    return "w.npz" if LAYOUTS[form].container == "npz file" else "w"


@given(model=two_towers(), form=st.sampled_from([*LAYOUTS]))
def test_out_and_in_again(tmp_path_factory, make_weights, model, form):
    public = model.vision.pooling == "map" and model.vision.width == model.embedding_dim
    weights = make_weights(model)
    place = tmp_path_factory.mktemp("weights") / name_of(form)
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


def test_a_checkpoint_with_the_state_of_the_optimizer_in_other_orders(npz, towers, tensors):
    """Of bytes, and of axes in memory."""
    name = "img/embedding/kernel"
    stored = tensors | {"t": tensors["t"].astype(">f4"), name: np.asfortranarray(tensors[name])}
    stored = {f"params/{name}": x for name, x in stored.items()}
    weights = open_weights(npz({"opt/0/mu/img/x": np.ones(3)}, base=stored))
    assert sizes_of(weights.model) == sizes_of(towers)
    same(weights.tensors(), tensors)


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


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_read_exactly(npz, huggingface, tensors, half):
    """NumPy's files store two bytes without a type for bfloat16, as in big_vision's."""
    expected = {name: x.astype(half).astype(np.float32) for name, x in tensors.items()}
    same(open_weights(npz({name: x.astype(half) for name, x in tensors.items()})).tensors(), expected)
    file = huggingface / "model.safetensors"
    save_file({name: x.astype(half) for name, x in load_file(file).items()}, file)
    same(open_weights(huggingface).tensors(), expected)


def test_a_safetensors_file_alone_needs_the_towers(huggingface, towers):
    """Shapes don't show the number of heads. Positions that old versions stored are ignored."""
    file, before = huggingface / "model.safetensors", open_weights(huggingface).digest()
    save_file(load_file(file) | {"text_model.embeddings.position_ids": np.arange(6)}, file)
    assert open_weights(huggingface).digest() == before
    vision = towers.vision.model_copy(update={"heads": 2})
    with pytest.raises(ValueError, match=r"config.json: num_attention_heads is .*, not as in `model`"):
        open_weights(huggingface, towers.model_copy(update={"vision": vision}))
    (huggingface / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"config.json: no such file: copy it .* attention heads"):
        open_weights(file)
    assert open_weights(file, towers).digest() == before


def test_jestlabs_folder_stores_and_hashes_what_no_shape_shows(tmp_path, make_weights, towers):
    write(make_weights(), tmp_path / "own", "jestlab")
    before, model = open_weights(tmp_path / "own").digest(), tmp_path / "own" / "model.json"
    model.write_text(model.read_text().replace('"last"', '"mean"').replace('"float32"', '"bfloat16"'))
    text = towers.text.model_copy(update={"pooling": "mean"})
    for path in (tmp_path / "own", tmp_path / "own" / "weights.npz"):
        found = open_weights(path)
        assert found.model == towers.model_copy(update={"text": text, "compute_dtype": "bfloat16"})
        assert found.digest() != before


def test_the_checkpoint_of_a_run(tmp_path, towers, tensors, pieces):
    save_parameters(tmp_path / "run" / "checkpoints", unflatten(tensors))
    (tmp_path / "run" / "tokenizer.model").write_bytes(pieces)
    weights = run_weights(tmp_path / "run", towers)
    same(weights.tensors(), tensors)
    assert weights.digest() == content_hash(tensors.items(), towers)
    assert weights.tokenizer == tmp_path / "run" / "tokenizer.model"
    with pytest.raises(ValueError, match="give the run's name instead"):
        open_weights(tmp_path / "run")


def test_every_number_name_and_shape_counts_in_the_hash(towers, tensors):
    head = tensors["txt/head/kernel"].copy()
    head.flat[0] = np.nextafter(head.flat[0], np.float32(9))
    folded = {"img/pos_embedding": tensors["img/pos_embedding"][0]}
    renamed = {("bias" if name == "b" else name): x for name, x in tensors.items()}
    reordered = dict(reversed(tensors.items()))  # isn't counted
    variants = (tensors, tensors | {"txt/head/kernel": head}, tensors | folded, renamed, reordered)
    hashes = [content_hash(variant.items(), towers) for variant in variants]
    assert hashes[0] == hashes[-1] and len({*hashes}) == 4


def test_the_hash_is_cached_until_the_file_changes(npz, monkeypatch):
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


# ---- writing


@pytest.mark.parametrize("form", LAYOUTS)
def test_existing_weights_are_replaced_only_by_force(tmp_path, make_weights, form):
    """The same weights give the same bytes, and no other file is left."""
    name = name_of(form)
    weights, other, place = make_weights(), make_weights(seed=1), tmp_path / name

    def content():
        return {path: path.read_bytes() if path.is_file() else None for path in tmp_path.rglob("*")}

    write(weights, place, form)
    before = content()
    with pytest.raises(ValueError, match=f"{name}: already exists: .* --force"):
        write(other, place, form)
    assert content() == before
    write(other, place, form, force=True)
    same(open_weights(place).tensors(), other.tensors())
    write(weights, place, form, force=True)
    assert content() == before


def test_other_content_is_never_replaced(tmp_path, make_weights):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "file").write_text("a file")
    for name, form, message in (
        ("thesis", "jestlab", "thesis: already exists, with other content"),
        ("thesis", "big_vision", "give a name that ends in .npz"),
        ("folder.npz", "big_vision", "folder.npz: already exists, with other content"),
        ("file", "huggingface", "file: already exists, with other content"),
        ("new", "onnx", "unknown format 'onnx'"),
    ):
        with pytest.raises(ValueError, match=message):
            write(make_weights(), tmp_path / name, form, force=True)
    assert (tmp_path / "thesis" / "chapter1.tex").read_text() == "years of work"


def test_a_failed_write_changes_nothing(tmp_path, make_weights, pieces):
    place, bad = tmp_path / "own", cast("bytes", "not bytes")  # fails after the tensors are written
    write(make_weights(), place, "jestlab", tokenizer=pieces)
    assert open_weights(place).tokenizer == place / "tokenizer.model"
    before = open_weights(place).digest()
    for force, name in ((True, "own"), (False, "new")):
        with pytest.raises(TypeError):
            write(make_weights(seed=1), tmp_path / name, "jestlab", tokenizer=bad, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert open_weights(place).digest() == before
    write(make_weights(), place, "jestlab", force=True)
    assert open_weights(place).tokenizer is None  # the old one is replaced, too


# ---- tokenizers


def test_a_tokenizer_has_an_embedding_for_every_piece(tmp_path, towers, pieces):
    file = tmp_path / "spiece.model"
    file.write_bytes(pieces)
    assert read_tokenizer(file, towers) == pieces
    few = towers.model_copy(update={"text": towers.text.model_copy(update={"vocabulary_size": 5})})
    with pytest.raises(ValueError, match=r"has \d+ pieces, but the text tower has 5 embeddings"):
        read_tokenizer(file, few)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", '{"version": "1.0"}', r"tokenizer\.json: not a tokenizer\.json of Hugging Face's"),
        ("tokenizer.json", {"<eos>": 0, "<pad>": 1, "<bos>": 2, "a": 3}, "its end piece is 0, should be 1"),
        ("other.model", {"pad_id": 3, "eos_id": 1, "bos_id": 2, "unk_id": 0}, "pads with 3, should be 0"),
    ],
)
def test_other_tokenizers_are_rejected(tmp_path, towers, name, content, message):
    """Not a tokenizer, or the special pieces of neither SigLIP nor Gemma."""
    if name == "other.model":
        options: dict[str, Any] = {"vocab_size": 18, "hard_vocab_limit": False, "minloglevel": 2, **content}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["a red circle"]), model_prefix=str(tmp_path / "other"), **options
        )
    elif isinstance(content, dict):
        model = tokenizers.models.WordLevel(content, unk_token="a")
        tokenizers.Tokenizer(model).save(str(tmp_path / name))
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_tokenizer(tmp_path / name, towers)
