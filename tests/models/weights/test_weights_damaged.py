"""Files that are damaged, dangerous, or something else: an error names file and tensor, nothing is loaded."""

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

from jestlab.models.weights import open_weights, write


def fails(path, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message) as error:
        open_weights(path).tensors()
    assert str(path) in str(error.value)


def member(array=None, header=None, content=b""):
    """The bytes of one .npy: of an array, or with any header."""
    stream = io.BytesIO()
    if array is not None:
        npy.write_array(stream, array, allow_pickle=True)
    else:
        npy.write_array_header_1_0(stream, header)
        stream.write(content)
    return stream.getvalue()


def zipped(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def zeros(*shape):
    return np.zeros(shape, np.float32)


class TestNames:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"b": None, "img/MAPHead_0/probe": None}, r"missing: b, img/MAPHead_0/probe"),
            ({"img/cls": zeros(1, 1, 24)}, r"unexpected: img/cls"),
            (
                {"img/Transformer/encoder_norm/scale": zeros(7)},
                r"wrong shape: img/Transformer/encoder_norm/scale \(7,\), should be \(24,\)",
            ),
            ({"img/\ncls": zeros(2)}, r"'img/\\ncls' is no name of a tensor"),
            ({"txt/head/kernel": None}, r"missing: txt/head/kernel$"),
            ({"txt/head/kernel": zeros(3)}, r"txt/head/kernel \(3,\), should have 2 axes"),
            ({"img/pos_embedding": zeros(1, 5, 24)}, "5 image positions, which do not form a square grid"),
            (
                {"img/embedding/kernel": zeros(8, 8, 3, 0)},
                "does not describe two towers: width: Input should be greater",
            ),
        ],
    )
    def test_names_and_shapes(self, npz, changes, message):
        fails(npz(changes), message)

    def test_a_missing_block_and_one_with_a_number_that_no_tower_reaches(self, npz, tensors):
        block = [name for name in tensors if "Encoder_0/encoderblock_1/" in name]
        message = r"missing: txt/Encoder_0/encoderblock_1/LayerNorm_0/scale, .* and 6 more$"
        fails(npz(dict.fromkeys(block)), message)
        name = block[0].replace("encoderblock_1", f"encoderblock_{10**9}")
        fails(npz({name: tensors[block[0]]}), "depth")

    def test_messages_stay_short(self, tmp_path):
        """Even if a library quotes the file."""
        array = np.zeros(2, np.float32)
        path = zipped(tmp_path / "long.npz", {"x" * 60_000: member(array)})
        fails(path, "a tensor's or file's name has 60,000 letters")
        path = zipped(tmp_path / "x.npz", {"x" * 200: member(array)})
        path.write_bytes(path.read_bytes().replace(b"x" * 200, b"\n" * 200, 1))
        with pytest.raises(ValueError, match="is damaged") as error:
            open_weights(path)
        assert "\n" not in str(error.value) and len(str(error.value)) < 800 + len(str(path))

    def test_something_else_altogether(self, npz):
        fails(npz({f"arr_{i}": np.zeros(2) for i in range(12)}, base={}), r"arr_0, .*arr_9 and 2 more")
        fails(npz({}, base={}), "but nothing")

    def test_other_towers_than_given(self, npz, towers):
        wider = towers.model_copy(update={"embedding_dim": 32})
        message = r"missing: img/head/kernel, img/head/bias; wrong shape: txt/head"
        with pytest.raises(ValueError, match=message):
            open_weights(npz(), wider)


class TestNpz:
    def test_pickles_are_not_loaded(self, npz, tmp_path):
        class Bomb:
            def __reduce__(self):
                return (open, (str(tmp_path / "executed"), "w"))

        bomb = np.array([Bomb()], dtype=object)
        path = npz({"t": bomb})
        fails(path, "t holds pickled objects, which are never loaded")
        fails(zipped(tmp_path / "a.npz", {"t": pickle.dumps(Bomb())}), "t is damaged")
        assert not (tmp_path / "executed").exists()

    @given(share=st.floats(0, 1, exclude_max=True))
    def test_cut_off(self, npz, tmp_path, share):
        content = npz().read_bytes()
        path = tmp_path / "cut.npz"
        path.write_bytes(content[: int(share * len(content))])
        fails(path, "not a complete .npz file .*: copy it again")

    def test_a_flipped_bit(self, npz, tmp_path, tensors):
        content = bytearray(npz().read_bytes())
        content[content.find(tensors["img/embedding/kernel"].tobytes()) + 5] ^= 1
        path = tmp_path / "flipped.npz"
        path.write_bytes(content)
        open_weights(path)  # headers are whole
        fails(path, "img/embedding/kernel is damaged .*CRC")

    def test_less_than_the_header_says(self, tmp_path):
        header = {"shape": (1_000_000, 1_000), "fortran_order": False, "descr": "<f4"}
        path = zipped(tmp_path / "w.npz", {"t": member(header=header, content=b"1234")})
        fails(path, "t claims 4,000,000,000 bytes, but has 4")

    def test_a_zip_bomb(self, tmp_path):
        content = {"t": member(np.zeros(3_000_000, np.float32))}
        path = zipped(tmp_path / "w.npz", content, zipfile.ZIP_DEFLATED)
        fails(path, r"would grow from 11,\d+ to 12,000,128 bytes: not plausible for weights")

    def test_types_that_would_be_rounded_and_numbers_that_are_not_finite(self, npz):
        message = r"t is .*: only float32, float16 and bfloat16 are read"
        for dtype in ("float64", "int32", "complex64", "U3"):
            fails(npz({"t": np.ones(1).astype(dtype)}), message)
        fails(npz({"t": np.array([np.nan], np.float32)}), "not finite: t$")


class TestSafetensors:
    @pytest.fixture
    def folder(self, tmp_path, make_weights, towers):
        write(make_weights(towers), tmp_path / "hf", "huggingface")
        return tmp_path / "hf"

    def test_cut_off(self, folder):
        path = folder / "model.safetensors"
        content = path.read_bytes()
        for share in (0.0, 0.01, 0.5, 0.99):
            path.write_bytes(content[: int(share * len(content))])
            with pytest.raises(ValueError, match=r"not a complete safetensors file .*: copy it again"):
                open_weights(folder)

    def test_a_lying_header(self, folder):
        header = {"logit_scale": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4]}}
        content = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content + b"1234")
        fails(folder, "not a complete safetensors file")

    def test_names(self, folder):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        tensors["vision_model.cls"] = np.zeros(3, np.float32)
        del tensors["logit_bias"]
        save_file(tensors, path)
        fails(folder, "missing: logit_bias; unexpected: vision_model.cls")

    def test_numbers_of_positions_are_no_parameters(self, folder):
        before, path = open_weights(folder).digest(), folder / "model.safetensors"
        ids = {"text_model.embeddings.position_ids": np.arange(6)}
        save_file(load_file(path) | ids, path)
        assert open_weights(folder).digest() == before

    @pytest.mark.parametrize(("dtype", "word"), [("float64", "float64"), ("int64", "I64")])
    def test_types_that_would_be_rounded(self, folder, dtype, word):
        path = folder / "model.safetensors"
        tensors = load_file(path)
        save_file(tensors | {"logit_bias": tensors["logit_bias"].astype(dtype)}, path)
        fails(folder, f"logit_bias is {word}: only")

    def test_an_invalid_config_or_index(self, folder):
        config = (folder / "config.json").read_text()
        for content, message in (
            ("{", "Expecting"), ("[]", "must be a mapping"), ("[" * 100_000, "nested too deeply")
        ):  # fmt: skip
            (folder / "config.json").write_text(content)
            fails(folder, f"config.json: {message}")
        (folder / "config.json").write_text(config)
        outside, long = (
            json.dumps({"weight_map": {"x": name}}) for name in ("../x.safetensors", "x" * 5_000)
        )
        for index in ('{"weight_map": 3}', "[]", "{", "[" * 100_000):
            (folder / "model.safetensors.index.json").write_text(index)
            fails(folder, "not an index of safetensors files")
        for index, message in (
            (outside, "names files outside its folder"), (long, "a tensor's or file's name has 5,000 letters")
        ):  # fmt: skip
            (folder / "model.safetensors.index.json").write_text(index)
            fails(folder, message)


class TestPlaces:
    def test_nothing_that_holds_weights(self, tmp_path):
        fails(tmp_path / "nowhere.npz", "no such file or folder of weights")
        fails(tmp_path, "holds neither model.safetensors nor weights.npz with model.json")
        (tmp_path / "weights.h5").write_bytes(b"")
        fails(tmp_path / "weights.h5", r"neither .npz \(big_vision\) nor .safetensors")

    @pytest.mark.parametrize("name", ["pytorch_model.bin", "open_clip.pt", "model.pkl"])
    def test_pickled_formats(self, tmp_path, name):
        (tmp_path / name).write_bytes(pickle.dumps({}))
        fails(tmp_path / name, "pickled weights are never loaded: save them as .safetensors")
        fails(tmp_path, "holds pickled weights, which are never loaded")

    @pytest.mark.parametrize(
        "model",
        [
            {"variant": {}},
            {"variant": ["B/16"]},
            {"variant": "B/16", "vision": 5},
            {"variant": "B/16", "text": [[]]},
            {"vision": {"depth": 10**9}},
            {"text": {"depth": 10**18}},
            {"embedding_dim": 10**400},
            {"vision": {"x" * 10_000: 1}},
            {"embedding_dim": "wide"},
            {},
        ],
    )
    def test_invalid_towers(self, tmp_path, make_weights, towers, model):
        write(make_weights(towers), tmp_path / "own", "jestlab")
        (tmp_path / "own" / "model.json").write_text(json.dumps(model))
        fails(tmp_path / "own", "model.json: .{,400}$|wrong shape|missing")
