"""The reference's embeddings in files: looked up by key, float16 or float32, whole or not at all."""

import numpy as np
import pytest

from jestlab.models.selection.cache import ReferenceCache, write_embeddings


def written(folder, keys, name="0.safetensors", dtype=np.float32, temperature=10.0, width=6):
    rng = np.random.default_rng(len(keys))
    image, text = rng.normal(size=(2, len(keys), width)).astype(dtype)
    write_embeddings(folder / name, keys, (image, text, temperature, -10.0))
    return image, text


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_rows_come_back_by_key_from_several_files(tmp_path, dtype):
    first = written(tmp_path, ["a", "b", "ü/c 1"], dtype=dtype)
    second = written(tmp_path, ["x", "y"], "1.safetensors", dtype=dtype)
    cache = ReferenceCache(tmp_path)
    assert len(cache) == 5 and "ü/c 1" in cache and "z" not in cache
    found = cache[["y", "a", "ü/c 1", "a"]]
    for got, one, other in zip(found[:2], first, second, strict=True):
        assert got.dtype == np.float32
        np.testing.assert_array_equal(got, np.stack([other[1], one[0], one[2], one[0]]).astype(np.float32))
    assert (found.temperature, found.bias) == (10.0, -10.0)
    assert cache[[]].image.shape == (0, 6)
    with pytest.raises(KeyError, match="2 of 3 examples have no embeddings, such as 'q'"):
        cache[["a", "q", "r"]]


def test_other_programs_can_read_the_files(tmp_path):
    from safetensors.numpy import load_file

    image, _ = written(tmp_path, ["a", "b"])
    tensors = load_file(tmp_path / "0.safetensors")
    np.testing.assert_array_equal(tensors["image"], image)
    assert tensors["keys"].tobytes().decode().split("\0") == ["a", "b"]


def test_an_interrupted_call_leaves_the_earlier_file(tmp_path, monkeypatch):
    import safetensors.numpy

    written(tmp_path, ["a", "b"])

    def fails(tensors, path):
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", fails)
    with pytest.raises(OSError, match="no space"):
        written(tmp_path, ["a", "b", "c"])
    assert [path.name for path in tmp_path.iterdir()] == ["0.safetensors"]
    assert len(ReferenceCache(tmp_path)) == 2


def test_says_what_is_wrong(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no \.safetensors files"):
        ReferenceCache(tmp_path)
    with pytest.raises(ValueError, match="name the file"):
        written(tmp_path, ["a"], "0.npz")
    with pytest.raises(ValueError, match="keys must be different"):
        written(tmp_path, ["a", "a"])
    with pytest.raises(ValueError, match="2 keys, but 1 images"):
        write_embeddings(tmp_path / "0.safetensors", ["a", "b"], (np.ones((1, 2)), np.ones((2, 2)), 1.0, 0.0))
    written(tmp_path, ["a", "b"])
    written(tmp_path, ["b"], "1.safetensors")
    with pytest.raises(ValueError, match=r"1.safetensors: key 'b' is also in .*0.safetensors"):
        ReferenceCache(tmp_path)
    written(tmp_path, ["c"], "1.safetensors", temperature=20.0)
    with pytest.raises(ValueError, match="of different references"):
        ReferenceCache(tmp_path)
    whole = (tmp_path / "0.safetensors").read_bytes()
    for damaged in (b"", whole[:20], whole[:-5], b"\xff" * 40, b"\x02" + bytes(7) + b"{}"):
        (tmp_path / "0.safetensors").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"0\.safetensors: damaged"):
            ReferenceCache(tmp_path / "0.safetensors")


@pytest.mark.oracle
def test_pytorch_selects_with_what_was_cached(tmp_path):
    import torch

    from jestlab.models.selection.torch import select

    normal = torch.Generator().manual_seed(0)
    image, text = torch.nn.functional.normalize(torch.randn(2, 40, 8, generator=normal), dim=2)
    reference = (image, text, torch.tensor(10.0), torch.tensor(-10.0))
    keys = [str(i) for i in range(40)]
    write_embeddings(tmp_path / "0.safetensors", keys, (image.bfloat16(), text.bfloat16(), *reference[2:]))
    cached = ReferenceCache(tmp_path)[keys]
    np.testing.assert_allclose(cached.image, image, atol=0.01)
    write_embeddings(tmp_path / "0.safetensors", keys, reference)
    tensors = tuple(map(torch.as_tensor, ReferenceCache(tmp_path)[keys]))
    one, same = (
        select(normal.manual_seed(1), None, z, batch_size=8, chunks=4, criterion="easy_reference").indices
        for z in (reference, tensors)
    )
    assert one.equal(same)
