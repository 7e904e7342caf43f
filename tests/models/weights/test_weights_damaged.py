"""Damaged, hostile, and other files: one line names the file and the problem, and nothing is loaded."""

import io
import json
import pickle
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy
from safetensors.numpy import load_file, save_file

from jestlab.models.weights.sources import open_weights, write


def fails(path, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        open_weights(path).tensors()
    text = str(error.value)
    assert str(path) in text and "\n" not in text and len(text) < 1200 + len(str(path))


def zipped(path, content, header=None, compression=zipfile.ZIP_STORED):
    """Write an archive with one member, t: an array, or bytes after any header."""
    stream = io.BytesIO()
    if header is not None:
        npy.write_array_header_1_0(stream, {"fortran_order": False, "descr": "<f4", **header})
    if isinstance(content, bytes):
        stream.write(content)
    else:
        npy.write_array(stream, content)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("t.npy", stream.getvalue())
    return path


def zeros(*shape):
    return np.zeros(shape, np.float32)


BLOCK, ENCODER = "txt/Encoder_0/encoderblock_1", "img/Transformer/encoder_norm"
NORM = f"{BLOCK}/LayerNorm_0/scale"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"b": None, "img/MAPHead_0/probe": None}, r"missing: b, img/MAPHead_0/probe"),
        ({"img/cls": zeros(1, 1, 24)}, r"unexpected: img/cls"),
        ({f"{ENCODER}/scale": zeros(7)}, rf"wrong shape: {ENCODER}/scale \(7,\), should be \(24,\)"),
        ({NORM: None}, rf"missing: {NORM}$"),
        ({NORM.replace("_1", "_9"): zeros(16)}, r"unexpected: txt/Encoder_0/encoderblock_9"),
        ({"txt/head/kernel": None}, r"missing: txt/head/kernel; holds .* and \d+ more$"),
        ({"txt/head/kernel": zeros(3)}, r"txt/head/kernel \(3,\), should have 2 axes"),
        ({"img/pos_embedding": zeros(1, 5, 24)}, r"img/pos_embedding \(1, 5, 24\), should be \(1, 4, 24\)"),
        ({"img/pos_embedding": zeros(1, 0, 24)}, "does not describe two towers: vision.image_size"),
        ({"img/\ncls": zeros(2)}, r"'img/\\ncls', of 8 characters, is not plausible"),
        ({"x" * 60_000: zeros(2)}, "of 60,000 characters, is not plausible"),
    ],
)
def test_names_and_shapes(npz, changes, message):
    fails(npz(changes), message)


def test_many_names_are_counted(npz, tensors):
    message = rf"missing: {NORM}, .* and 6 more; unexpected: txt/Encoder_0/encoderblock_2"
    fails(npz(dict.fromkeys(name for name in tensors if BLOCK in name)), message)
    fails(npz({f"arr_{i}": np.zeros(2) for i in range(12)}, base={}), r"holds arr_0, .*arr_9 and 2 more$")
    fails(npz({}, base={}), "holds nothing$")


def test_other_towers_than_given(npz, towers):
    wider = towers.model_copy(update={"embedding_dim": 32})
    with pytest.raises(ValueError, match=r"missing: img/head/kernel, img/head/bias; wrong shape: txt/head"):
        open_weights(npz(), wider)


class TestNpz:
    def test_pickles_are_not_loaded(self, npz, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (open, (str(tmp_path / "executed"), "w"))

        fails(npz({"t": np.array([Bomb()], dtype=object)}), "t holds pickled objects, which are never loaded")
        fails(zipped(tmp_path / "a.npz", pickle.dumps(Bomb())), "t is damaged")
        assert not (tmp_path / "executed").exists()

    @given(share=st.floats(0, 1, exclude_max=True))
    def test_truncated(self, npz, tmp_path, share):
        content = npz().read_bytes()
        path = tmp_path / "cut.npz"
        path.write_bytes(content[: int(share * len(content))])
        fails(path, "not a complete .npz file .*: copy the file again")

    def test_flipped_bits(self, npz, tmp_path, tensors):
        path = npz()
        content = bytearray(path.read_bytes())
        content[content.find(tensors["img/embedding/kernel"].tobytes()) + 5] ^= 1
        path.write_bytes(content)
        open_weights(path)  # the headers are intact
        fails(path, "img/embedding/kernel is damaged .*CRC")
        path = zipped(tmp_path / "w.npz", zeros(2))
        path.write_bytes(path.read_bytes().replace(b"t.npy", b"\n\n\n\n\n", 1))
        fails(path, "t is damaged")  # on one line, although the library quotes the name

    def test_sizes(self, tmp_path):
        path = zipped(tmp_path / "w.npz", b"1234", header={"shape": (1_000_000, 1_000)})
        fails(path, "t claims 4,000,000,000 bytes, but has 4$")
        path = zipped(tmp_path / "bomb.npz", zeros(3_000_000), compression=zipfile.ZIP_DEFLATED)
        fails(path, r"would grow from 11,\d+ to 12,000,128 bytes: not plausible for weights")

    def test_inexact_types_and_numbers_that_are_not_finite(self, npz):
        for dtype in ("float64", "int32", "complex64", "U3"):
            fails(
                npz({"t": np.ones(1).astype(dtype)}), "t is .*: only float32, float16 and bfloat16 are read"
            )
        fails(npz({"t": np.array([np.nan], np.float32)}), "not finite: t$")


class TestSafetensors:
    @pytest.fixture
    def folder(self, tmp_path, make_weights):
        write(make_weights(), tmp_path / "hf", "huggingface")
        return tmp_path / "hf"

    @pytest.fixture
    def file(self, folder):
        return folder / "model.safetensors"

    def test_truncated(self, folder, file):
        content = file.read_bytes()
        for share in (0.0, 0.01, 0.5, 0.99):
            file.write_bytes(content[: int(share * len(content))])
            fails(folder, r"not a complete safetensors file .*: copy the file again")

    def test_a_false_header(self, folder, file):
        header = {"logit_scale": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}}
        content = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(content)) + content + b"1234")
        fails(folder, "not a complete safetensors file")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            (
                {"vision_model.cls": zeros(3), "logit_bias": None},
                "missing: logit_bias; unexpected: vision_mo",
            ),
            ({"logit_bias": np.ones(1)}, "logit_bias is F64: only"),
            ({"logit_bias": np.ones(1, np.int64)}, "logit_bias is I64: only"),
            ({"\n": zeros(3)}, "is not plausible"),
        ],
    )
    def test_names_and_types(self, folder, file, changes, message):
        tensors = load_file(file) | changes
        save_file({name: x for name, x in tensors.items() if x is not None}, file)
        fails(folder, message)

    def test_position_ids_are_ignored(self, folder, file):
        before = open_weights(folder).digest()
        save_file(load_file(file) | {"text_model.embeddings.position_ids": np.arange(6)}, file)
        assert open_weights(folder).digest() == before

    @pytest.mark.parametrize("name", ["config.json", "model.safetensors.index.json"])
    @pytest.mark.parametrize(
        ("content", "message"),
        [("{", "not a JSON file"), ("[]", "must be a mapping"), ("[" * 100_000, "not a JSON file")],
    )
    def test_json(self, folder, name, content, message):
        (folder / name).write_text(content)
        fails(folder, f"{name}: {message}")

    @pytest.mark.parametrize(
        ("weight_map", "message"),
        [
            (3, "must list the file of each tensor"),
            ({"x": "../x.safetensors"}, "in the same folder"),
            ({"x": ["y"]}, "no such file"),
            ({"x": "x" * 5_000}, "of 5,000 characters, is not plausible"),
            (
                {"x": "model.safetensors", "y": "twin.safetensors"},
                "twin.safetensors: .* is in another file too",
            ),
        ],
    )
    def test_an_index(self, folder, file, weight_map, message):
        (folder / "twin.safetensors").write_bytes(file.read_bytes())
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
        fails(folder, message)


class TestPlaces:
    def test_no_weights(self, tmp_path):
        fails(tmp_path / "nowhere.npz", "no such file or folder of weights")
        fails(tmp_path, "holds neither model.safetensors nor weights.npz with model.json")
        (tmp_path / "model.pkl").write_bytes(pickle.dumps({}))
        for path in (tmp_path / "model.pkl", tmp_path):
            fails(path, "neither .* pickled weights are never loaded")

    def test_invalid_towers(self, tmp_path, make_weights):
        write(make_weights(), tmp_path / "own", "jestlab")
        sizes = [{"vision": {"depth": 10**9}}, {"embedding_dim": 10**400}, {"vision": {"x" * 10_000: 1}}]
        variants = [{"variant": {}}, {"variant": "B/16", "vision": 5}, {"variant": "B/16", "text": [[]]}]
        for model in (*sizes, *variants, {"embedding_dim": "wide"}, {}):
            (tmp_path / "own" / "model.json").write_text(json.dumps(model))
            fails(tmp_path / "own", "model.json: .{,400}$|wrong shape|missing")
