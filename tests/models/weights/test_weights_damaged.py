"""Damaged, hostile, and other files: one line names the file and the problem, and nothing is loaded."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy
from safetensors.numpy import load_file, save_file

from jestlab.models.weights.sources import open_weights, write


def fails(path, message, model=None):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        open_weights(path, model).tensors()
    text = str(error.value)
    assert str(path) in text and "\n" not in text and len(text) < 1200 + len(str(path))


def zeros(*shape):
    return np.zeros(shape, np.float32)


BLOCK, ENCODER = "txt/Encoder_0/encoderblock_1", "img/Transformer/encoder_norm"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": None, "img/MAPHead_0/probe": None}, r"missing: b, img/MAPHead_0/probe$"),
        ({"img/cls": zeros(1, 1, 24)}, r"unexpected: img/cls"),
        ({f"{ENCODER}/scale": zeros(7)}, rf"wrong shape: {ENCODER}/scale \(7,\), should be \(24,\)"),
        ({BLOCK.replace("_1", "_9"): zeros(16)}, r"unexpected: txt/Encoder_0/encoderblock_9"),
        ({"txt/head/kernel": None}, r"missing: txt/head/kernel; holds .* and \d+ more$"),
        ({"txt/head/kernel": zeros(3)}, r"txt/head/kernel \(3,\), should have 2 axes"),
        ({"img/pos_embedding": zeros(1, 5, 24)}, r"img/pos_embedding \(1, 5, 24\), should be \(1, 4, 24\)"),
        ({"img/pos_embedding": zeros(1, 0, 24)}, "does not describe two towers: vision.image_size"),
        ({"img/\ncls": zeros(2)}, r"'img/\\ncls', of 8 characters, is not plausible"),
        ({"x" * 60_000: zeros(2)}, "of 60,000 characters, is not plausible"),
        ({"t": np.ones(1)}, "t is float64: only float32, float16 and bfloat16 are read"),
        ({"t": np.array([np.nan], np.float32)}, "not finite: t$"),
    ],
)
def test_names_shapes_and_types_in_npz(npz, changes, message):
    fails(npz(changes), message)


def test_many_names_are_counted(npz, tensors, towers):
    block = dict.fromkeys(name for name in tensors if BLOCK in name)
    fails(npz(block), rf"missing: {BLOCK}/.* and 6 more$")
    fails(npz({f"{BLOCK}/MlpBlock_0/Dense_0/kernel": None}), rf"missing: {BLOCK}/MlpBlock_0/Dense_0/kernel$")
    fails(npz({f"arr_{i}": np.zeros(2) for i in range(12)}, base={}), r"holds arr_0, .*arr_9 and 2 more$")
    fails(npz({}, base={}), "holds nothing$")
    wider = towers.model_copy(update={"embedding_dim": 32})
    fails(npz(), "missing: img/head/kernel, img/head/bias; wrong shape: txt/head", wider)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vision_model.cls": zeros(3), "logit_bias": None}, "missing: logit_bias; unexpected: vision_mo"),
        ({"logit_bias": np.ones(1)}, "logit_bias is F64: only"),
        ({"\n": zeros(3)}, "is not plausible"),
    ],
)
def test_names_and_types_in_safetensors(huggingface, changes, message):
    file = huggingface / "model.safetensors"
    save_file({name: x for name, x in (load_file(file) | changes).items() if x is not None}, file)
    fails(huggingface, message)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated(npz, huggingface, share):
    for path in (npz(), huggingface / "model.safetensors"):
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        fails(path, "not a complete .* file .*: copy the file again")


def zipped(path, content, compression=zipfile.ZIP_STORED):
    """Write an archive with one member, t."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("t.npy", content)
    return path


def header(*shape):
    stream = io.BytesIO()
    npy.write_array_header_1_0(stream, {"fortran_order": False, "descr": "<f4", "shape": shape})
    return stream.getvalue()


def test_pickles_are_not_loaded(npz, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    fails(npz({"t": np.array([Bomb()], dtype=object)}), "t holds pickled objects, which are never loaded")
    fails(zipped(tmp_path / "a.npz", pickle.dumps(Bomb())), "t is damaged")
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Bomb()))
    for path in (tmp_path / "model.pkl", tmp_path):
        fails(path, "neither .* pickled weights are never loaded")
    assert not (tmp_path / "executed").exists()


def test_damaged_members_and_false_sizes(npz, tmp_path, tensors):
    path = npz()
    content = bytearray(path.read_bytes())
    content[content.find(tensors["img/embedding/kernel"].tobytes()) + 5] ^= 1
    path.write_bytes(content)
    open_weights(path)  # the headers are intact
    fails(path, "img/embedding/kernel is damaged .*CRC")
    path = zipped(tmp_path / "w.npz", header(2) + bytes(8))
    path.write_bytes(path.read_bytes().replace(b"t.npy", b"\n\n\n\n\n", 1))
    fails(path, "t is damaged")  # on one line, although the library quotes the name
    path = zipped(tmp_path / "w.npz", header(1_000_000, 1_000) + b"1234")
    fails(path, "t claims 4,000,000,000 bytes, but has 4$")
    path = zipped(tmp_path / "bomb.npz", header(3_000_000) + bytes(12_000_000), zipfile.ZIP_DEFLATED)
    fails(path, r"would grow from 11,\d+ to 12,000,128 bytes: not plausible for weights")


INDEX = "model.safetensors.index.json"


def index(**weight_map):
    return json.dumps({"weight_map": weight_map})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", "{", "not a JSON file"),
        ("config.json", "[" * 100_000, "not a JSON file"),
        (INDEX, "[]", "must be a mapping"),
        (INDEX, '{"weight_map": 3}', "must list the file of each tensor"),
        (INDEX, index(x="../x.safetensors"), "in the same folder"),
        (INDEX, index(x="x" * 5_000), "of 5,000 characters, is not plausible"),
        (INDEX, index(x="model.safetensors", y="twin.safetensors"), "twin.*: .* is in another file too"),
    ],
)
def test_json(huggingface, name, content, message):
    (huggingface / "twin.safetensors").write_bytes((huggingface / "model.safetensors").read_bytes())
    (huggingface / name).write_text(content)
    fails(huggingface, message)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("model_type",), "clip", r"model_type 'clip' is not supported"),
        (("text_config", "hidden_act"), "gelu", r"text_config.hidden_act is 'gelu', supported is only"),
        (("vision_config", "vision_use_head"), False, r"vision_config.vision_use_head is False"),
        (("vision_config", "hidden_size"), 0, r"vision_config.hidden_size is 0, expected a positive integer"),
        (("vision_config", "patch_size"), "8", r"vision_config.patch_size is '8', expected a positive"),
        (("vision_config", "image_size"), 32, r"position_embedding.weight \(4, 24\), should be \(16, 24\)"),
        (("text_config", "num_hidden_layers"), 10**9, r"does not describe two towers: text.depth"),
        (("text_config", "num_attention_heads"), 5, r"heads 5 does not divide width 16"),
        (("text_config", "projection_size"), 12, r"embedding_dim 12 must equal vision.width 24"),
        (("text_config",), 3, r"text_config must be a mapping"),
    ],
)
def test_unsupported_configs(huggingface, place, value, message):
    file = huggingface / "config.json"
    config = json.loads(file.read_text())
    section = config if len(place) == 1 else config[place[0]]
    section[place[-1]] = value
    file.write_text(json.dumps(config))
    fails(huggingface, message)


def test_invalid_towers(tmp_path, make_weights):
    write(make_weights(), tmp_path / "own", "jestlab")
    sizes = [{"vision": {"depth": 10**9}}, {"embedding_dim": 10**400}, {"vision": {"x" * 10_000: 1}}]
    variants = [{"variant": {}}, {"variant": "B/16", "vision": 5}, {"variant": "B/16", "text": [[]]}]
    for model in (*sizes, *variants, {"embedding_dim": "wide"}, {}):
        (tmp_path / "own" / "model.json").write_text(json.dumps(model))
        fails(tmp_path / "own", "model.json: .{,400}$|wrong shape|missing")
    (tmp_path / "own" / "model.json").write_text("[]")
    fails(tmp_path / "own", "model.json: does not describe two towers: the file: Input should be an object")


def test_no_weights(tmp_path):
    fails(tmp_path / "nowhere.npz", "no such file or folder of weights")
    fails(tmp_path, "holds neither model.safetensors nor weights.npz with model.json")
