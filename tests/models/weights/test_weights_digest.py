"""The content hash: of what the weights are, kept beside them, taken anew when they change."""

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
    assert len(hashes) == 7


def test_order_does_not_count(towers, tensors):
    backwards = dict(reversed(tensors.items()))
    assert content_hash(tensors.items(), towers) == content_hash(backwards.items(), towers)


def test_it_is_kept_until_the_file_changes(npz, monkeypatch):
    path = npz()
    first = open_weights(path).digest()
    with monkeypatch.context() as patch:
        patch.setattr(sources, "content_hash", None)  # not called: nothing is read again
        assert open_weights(path).digest() == first
    npz({"t": np.ones(1, np.float32)})
    assert open_weights(path).digest() != first


def test_the_same_size_at_another_time_is_read_again(npz):
    path = npz()
    first = open_weights(path).digest()
    before = path.stat()
    npz({"t": np.full(1, 7, np.float32)})
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert open_weights(path).digest() != first


def test_a_damaged_record_is_taken_anew(npz):
    path = npz()
    first = open_weights(path).digest()
    [record] = (path.parent / ".jestlab").iterdir()
    record.write_text("{")
    assert open_weights(path).digest() == first


def test_model_json_is_part_of_what_lies_there(tmp_path, make_weights, towers):
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
