"""Cached embeddings on disk: counted rows survive a crash, and every example gets its own row."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jestlab.models.data.embeddings import About, EmbeddingCache, EmbeddingWriter

N, WIDTH = 40, 3


def about(**changes):
    known = About("d", None, None, N, N, WIDTH, "float32", temperature=10.0, bias=-10.0)
    return dataclasses.replace(known, **changes)


def rows(index, shift=0.0):
    """Rows that identify their examples."""
    return (np.repeat(index[:, None], WIDTH, axis=1) + shift).astype(np.float32)


def write(writer, index, damaged=()):
    index = np.asarray(index, np.int64)
    writer.write(index, rows(index), rows(index, 0.5), np.isin(index, damaged))


def test_data_are_on_disk_before_they_are_counted(tmp_path, monkeypatch):
    """The order in which files are flushed decides what is left after a power failure."""
    flushed = []
    real = os.fsync

    def fsync(descriptor):
        flushed.append(Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".")[0])
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    writer = EmbeddingWriter(tmp_path, about())
    write(writer, range(10))
    assert json.loads((tmp_path / "embeddings/about.json").read_text())["done"] == 0
    flushed.clear()
    writer.save()
    assert flushed == ["images", "texts", "status", "about"]
    assert json.loads((tmp_path / "embeddings/about.json").read_text())["done"] == 10
    with pytest.raises(ValueError, match="only 10 of 40 examples are embedded: finish the run"):
        EmbeddingCache(tmp_path)


@given(
    data=st.data(),
    marks=st.dictionaries(st.integers(0, N - 1), st.booleans(), min_size=1),
    batches=st.lists(st.tuples(st.integers(1, N), st.booleans()), max_size=5),
    precision=st.sampled_from(["float32", "float16"]),
)
def test_written_rows_are_read(tmp_path_factory, data, marks, batches, precision):
    """Any selection, in batches of any size, with any damage, saved and resumed anywhere."""
    directory = tmp_path_factory.mktemp("cache")
    selected = np.array(sorted(marks), np.int64)
    damaged = [example for example, mark in marks.items() if mark]
    for size, saved in [*batches, (N, True)]:
        writer = EmbeddingWriter(directory, about(selected=len(selected), precision=precision))
        done = writer.about.done
        write(writer, selected[done : done + size], damaged)
        if saved:
            writer.save()
        writer.close()
    assert (writer.about.done, writer.about.damaged) == (len(selected), len(damaged))
    cache = EmbeddingCache(directory)
    assert cache.about == writer.about
    assert np.load(directory / "embeddings/images.npy", mmap_mode="r").dtype == precision
    whole = np.array([i for i in selected if i not in damaged], np.int64)
    assert cache.embedded().tolist() == whole.tolist()
    asked = np.array(data.draw(st.lists(st.sampled_from(whole.tolist()))) if len(whole) else [], np.int64)
    np.testing.assert_array_equal(cache.images(asked), rows(asked))
    np.testing.assert_array_equal(cache.texts(asked), rows(asked, 0.5))
    for example in {*range(N)} - {*whole.tolist()}:
        word = "was damaged" if example in damaged else "was not embedded"
        with pytest.raises(ValueError, match=f"example {example} {word}"):
            cache.images(np.array([*whole[:1], example]))
