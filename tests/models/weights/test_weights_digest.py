"""The content hash: of tensors and architecture, stored next to the weights, recomputed when they change."""

import os

import numpy as np
import pytest

from jestlab.models.weights import content_hash, open_weights, sources, write
from jestlab.models.weights.layout import usual_heads


def test_every_number_name_and_shape_counts(towers, tensors):
    hashes = {content_hash(tensors.items(), towers)}
    for name in ("t", "b", "txt/head/kernel"):
        changed = tensors[name].copy()
        changed.flat[0] = np.nextafter(changed.flat[0], np.float32(9))
        hashes.add(content_hash((tensors | {name: changed}).items(), towers))
    renamed = {("bias" if name == "b" else name): x for name, x in tensors.items()}
    hashes.add(content_hash(renamed.items(), towers))
    folded = tensors | {"img/pos_embedding": tensors["img/pos_embedding"][0]}
    hashes.add(content_hash(folded.items(), towers))
    mean = towers.model_copy(update={"text": towers.text.model_copy(update={"pooling": "mean"})})
    hashes.add(content_hash(tensors.items(), mean))
    hashes.add(content_hash(dict(reversed(tensors.items())).items(), towers))  # order does not count
    assert len(hashes) == 7


def test_kept_until_the_file_changes(npz, monkeypatch):
    path = npz()
    first, before = open_weights(path).digest(), path.stat()
    with monkeypatch.context() as patch:
        patch.setattr(sources, "content_hash", None)  # not called: nothing is read again
        assert open_weights(path).digest() == first
    [record] = (path.parent / ".jestlab").iterdir()
    record.write_text("{")  # damaged
    assert open_weights(path).digest() == first
    npz({"t": np.full(1, 7, np.float32)})
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert open_weights(path).digest() != first


def test_model_json_is_part_of_the_content(tmp_path, make_weights, towers):
    write(make_weights(towers), tmp_path / "own", "jestlab")
    first = open_weights(tmp_path / "own").digest()
    model = tmp_path / "own" / "model.json"
    model.write_text(model.read_text().replace('"last"', '"mean"'))
    assert open_weights(tmp_path / "own").digest() != first


def test_usual_heads():
    """Of the sizes in big_vision's table, where one head is not always 64 wide."""
    assert [usual_heads(width) for width in (192, 768, 1152, 1280, 640)] == [3, 12, 16, 16, 10]
    with pytest.raises(ValueError, match="number of heads unknown for width 100"):
        usual_heads(100)
