"""Embedding a whole training set: the reference's embeddings are stored, also after interruptions."""

import shutil

import numpy as np
import pytest
from tests.models.support.recorder import Recorder

from jestlab.models.config import EmbedConfig
from jestlab.models.data.curation import recaptions, select
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.data.shards import ShardIndex
from jestlab.models.training.embed import embed


def config(tiny, data=None, **overrides):
    runtime = {"batch_size": 96, "save_every_batches": 2}
    tree = {"reference": "reference", "data": tiny["data"] | (data or {}), "runtime": runtime}
    return EmbedConfig.model_validate(tree | overrides)


@pytest.fixture(scope="module")
def reference(untrained_run):
    """Towers whose images and captions have other sizes than the learner's."""
    return untrained_run(seed=7, vocabulary=80, image_size=24, length=10)


@pytest.fixture(scope="module")
def run(data_cache, reference):
    def run(cfg, directory, **recorder):
        tracker = Recorder(**recorder)
        done = embed(cfg, directory=directory, data_cache=data_cache, tracker=tracker, reference=reference)
        return done, tracker

    return run


@pytest.fixture(scope="module")
def whole(tiny, run, tmp_path_factory):
    """All 512 examples, in six batches."""
    directory = tmp_path_factory.mktemp("whole")
    done, tracker = run(config(tiny), directory)
    assert done
    return directory, tracker


def test_cached_embeddings_are_those_of_images_and_new_captions(
    tiny, web, reference, embedded, run, tmp_path
):
    cfg = config(tiny, {"recaption": "similarity < 0.3"})
    assert run(cfg, tmp_path)[0]
    cache, examples = EmbeddingCache(tmp_path), np.arange(0, 512, 5)
    cache.check(cfg.data, web)
    captions = ShardIndex.load(web).captions(examples)
    recaptions(web, "similarity < 0.3").replace(examples, captions)
    found = cache.images(examples), cache.texts(examples), cache.about.temperature, cache.about.bias
    for ours, theirs in zip(found, embedded(reference, examples, captions), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-5, atol=1e-6)


def test_reports_progress(whole):
    _, tracker = whole
    assert tracker.unflushed == 0 and tracker.steps == [(0, 6), (2, 6), (4, 6), (6, 6)]
    assert [tracker.metrics[s]["examples_embedded"] for s in (2, 4, 6)] == [192, 384, 512]
    assert tracker.metrics[6]["examples_damaged"] == 0 < tracker.metrics[6]["examples_per_second"]


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted((directory / "embeddings").iterdir())}


@pytest.mark.parametrize("stop_after", [0, 2])
def test_a_stopped_run_resumes_bit_for_bit(tiny, run, whole, tmp_path, stop_after):
    done, first = run(config(tiny), tmp_path, stop_after=stop_after)
    assert not done and first.steps[-1] == (stop_after + 1, 6)
    done, second = run(config(tiny), tmp_path)
    assert done and second.steps[0] == (stop_after + 1, 6)
    assert contents(tmp_path) == contents(whole[0])


def test_a_run_that_fails_repeats_from_the_last_save_or_from_the_beginning(tiny, run, whole, tmp_path):
    """Later rows are written again, with the same values."""
    with pytest.raises(KeyboardInterrupt):
        run(config(tiny), tmp_path, fail_at=4)
    done, again = run(config(tiny), tmp_path)
    assert done and again.steps[0] == (2, 6)
    assert contents(tmp_path) == contents(whole[0])
    killed = tmp_path / "killed"  # while it created its files
    (killed / "embeddings").mkdir(parents=True)
    (killed / "embeddings" / "images.npy").write_bytes(b"half a file")
    assert run(config(tiny), killed)[0]
    assert contents(killed) == contents(whole[0])


def test_a_finished_run_embeds_nothing_again_and_rejects_other_embeddings(tiny, run, whole):
    before = contents(whole[0])
    done, tracker = run(config(tiny), whole[0])
    assert done and (tracker.metrics, tracker.steps) == ({}, [(6, 6)])
    assert contents(whole[0]) == before
    with pytest.raises(ValueError, match=r"has embeddings of other data, or .* delete it"):
        run(config(tiny, precision="float16"), whole[0])


def test_only_examples_that_satisfy_the_filter_are_embedded(tiny, web, run, whole, tmp_path):
    cfg = config(tiny, {"filter": "similarity > 0.25"})
    run(cfg, tmp_path)
    cache, unfiltered = EmbeddingCache(tmp_path), EmbeddingCache(whole[0])
    kept = select(web, "similarity > 0.25")
    np.testing.assert_allclose(cache.images(kept), unfiltered.images(kept), rtol=1e-5, atol=1e-6)
    dropped = next(i for i in range(512) if i not in kept)
    cache.check(cfg.data.model_copy(update={"filter": "similarity > 0.3"}), web)  # is stricter
    with pytest.raises(ValueError, match=rf"example {dropped} was not embedded.*data.filter: null"):
        cache.check(cfg.data.model_copy(update={"filter": None}), web)


def test_rejects_no_embeddings_and_those_of_other_data(tiny, web, whole, data_cache, tmp_path):
    with pytest.raises(FileNotFoundError, match="has no embeddings: name a finished run of program embed"):
        EmbeddingCache(tmp_path)
    cache, data = EmbeddingCache(whole[0]), config(tiny).data
    cache.check(data, web)
    with pytest.raises(ValueError, match=r"embed with the same data.train"):
        cache.check(data, ensure_web(config(tiny).model_copy(update={"seed": 1}), data_cache))
    with pytest.raises(ValueError, match=r"embed with the same data.recaption"):
        cache.check(data.model_copy(update={"recaption": "similarity < 0.1"}), web)


def test_a_damaged_example_is_marked_and_counted(tiny, run, whole, web, tmp_path):
    folder = shutil.copytree(web, tmp_path / "web", ignore=shutil.ignore_patterns(".jestlab"))
    index = ShardIndex.load(folder)
    offset, size = index.spans[5, 0]
    with (folder / index.tars[0]).open("r+b") as tar:
        tar.seek(offset)
        tar.write(bytes(size))
    cfg = config(tiny, {"train": {"kind": "folder", "path": str(folder)}})
    done, tracker = run(cfg, tmp_path)
    last = tracker.metrics[6]
    assert done and (last["examples_embedded"], last["examples_damaged"]) == (511, 1)
    cache, undamaged = EmbeddingCache(tmp_path), EmbeddingCache(whole[0])
    others = np.delete(np.arange(512), 5)
    np.testing.assert_array_equal(cache.images(others), undamaged.images(others))
    cache.check(cfg.data, folder)  # training reads another example in its place
    strict = cfg.model_copy(update={"runtime": cfg.runtime.model_copy(update={"damaged_share": 0.0})})
    with pytest.raises(ValueError, match="1 of 512 examples have a damaged image"):
        run(strict, tmp_path / "strict")
