"""Embedding a whole training set: what is kept is what the reference says online, whatever interrupts it."""

import copy
import pickle
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.models.support.algorithm1 import assert_drawn
from tests.models.support.processes import with_devices

from jestlab.models.config import EmbedConfig, TrainConfig
from jestlab.models.data.curation import select
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.embeddings import EmbeddingCache
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tokenizer import Tokenizer, ensure_tokenizer
from jestlab.models.selection import select as choose
from jestlab.models.training.checkpoints import load_parameters, save_parameters
from jestlab.models.training.embed import embed
from jestlab.models.training.tracker import NullTracker
from jestlab.models.two_towers import Embeddings, TwoTowerModel, initialize
from jestlab.models.two_towers import embed as embed_pairs


class Recorder(NullTracker):
    """A tracker in memory; asks to stop after a given step, or dies when it is told of one."""

    def __init__(self, stop_after=None, die_at=None):
        super().__init__(lambda: stop_after is not None and self.steps[-1][0] >= stop_after)
        self.metrics, self.steps, self.die_at, self.flushed = {}, [], die_at, 0

    def log(self, step, metrics):
        self.metrics[step] = dict(metrics)

    def progress(self, step, total_steps):
        self.steps.append((step, total_steps))
        if step == self.die_at:
            raise KeyboardInterrupt

    def flush(self):
        self.flushed = self.steps[-1][0]


def config(tiny, **overrides):
    tree = {
        "reference": "reference",
        "data": copy.deepcopy(tiny["data"]),
        "runtime": {"batch_size": 96, "save_every_batches": 2},
    }
    for path, value in overrides.items():
        section, _, key = path.partition("__")
        if key:
            tree[section][key] = value
        else:
            tree[section] = value
    return EmbedConfig.model_validate(tree)


@pytest.fixture(scope="module")
def web(tiny, data_cache):
    cfg = TrainConfig.model_validate(tiny)
    return ensure_web(cfg.data.train, cfg.web_seed, data_cache)


@pytest.fixture(scope="module")
def reference(tiny, web, tmp_path_factory):
    """Towers as a finished run leaves them; images and captions are of another size than the learner's."""
    tree = copy.deepcopy(tiny["model"])
    tree["vision"]["image_size"] = 24
    tree["text"]["length"] = 10
    towers = TrainConfig.model_validate({**tiny, "model": tree}).model
    folder = tmp_path_factory.mktemp("reference")
    save_parameters(folder / "checkpoints", initialize(towers, jax.random.key(7)))
    (folder / "tokenizer.model").write_bytes(ensure_tokenizer(web, 80).model)
    return towers, folder


@pytest.fixture(scope="module")
def run(data_cache, reference):
    def run(cfg, directory, tracker=None):
        tracker = tracker or Recorder()
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


@pytest.fixture(scope="module")
def captioned_web(web, tmp_path_factory):
    """The same pairs as a user's folder, every other one with a synthetic caption."""
    folder = tmp_path_factory.mktemp("captioned") / "web"
    shutil.copytree(web, folder, ignore=shutil.ignore_patterns(".jestlab"))
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        texts = ["a small red square" if row % 2 else None for row in range(len(table))]
        table = table.drop_columns("synthetic_caption")
        pq.write_table(table.append_column("synthetic_caption", pa.array(texts, pa.string())), path)
    return folder


@pytest.mark.parametrize("recaption", [None, "similarity < 0.3"])
def test_cached_scores_select_what_online_scores_select(
    tiny, captioned_web, reference, run, tmp_path, recaption
):
    """Paper, appendix, "Caching reference model scores": the super-batch's matrix, recomputed."""
    web = captioned_web
    cfg = config(tiny, data__train={"kind": "folder", "path": str(web)}, data__recaption=recaption)
    assert run(cfg, tmp_path)[0]
    towers, folder = reference
    tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
    parameters = load_parameters(folder / "checkpoints", towers)
    batches = training_batches(
        web,
        filter=None,
        recaption=recaption,
        tokenizer=tokenizer,
        image_size=towers.vision.image_size,
        text_length=towers.text.length,
        batch_size=64,
        seed=3,
        reference_tokenizer=(tokenizer, towers.text.length),
    )
    cache = EmbeddingCache(tmp_path)
    cache.check(cfg.data, web)
    for step in range(3):
        batch = next(batches)
        now = embed_pairs(TwoTowerModel(towers), parameters, batch["image"], batch["reference_text"])
        about, index = cache.about, batch["index"]
        kept = (cache.images(index), cache.texts(index), about.temperature, about.bias)
        then = Embeddings(*map(jnp.float32, kept))
        for a, b in zip(now, then, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.linalg.norm(then.image, axis=1), 1.0, rtol=1e-5)
        learner = Embeddings(now.text, now.image, now.temperature, now.bias)  # another model's view
        key = jax.random.key(step)
        online, cached = (
            choose(key, learner, z, batch_size=16, chunks=4, gain=1.0).indices for z in (now, then)
        )
        assert assert_drawn(key, learner, then, cached, sizes=[4] * 4, gain=1.0)  # nothing hangs on rounding
        np.testing.assert_array_equal(online, cached)


def test_it_says_how_far_it_is(whole):
    _, tracker = whole
    assert tracker.steps == [(0, 6), (2, 6), (4, 6), (6, 6)]
    assert [tracker.metrics[s]["examples_embedded"] for s in (2, 4, 6)] == [192, 384, 512]
    assert tracker.metrics[6]["examples_damaged"] == 0
    assert tracker.metrics[6]["examples_per_second"] > 0
    assert tracker.flushed == 6


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted((directory / "embeddings").iterdir())}


@pytest.mark.parametrize("stop_after", [0, 2])
def test_a_stopped_run_goes_on_bit_for_bit(tiny, run, whole, tmp_path, stop_after):
    done, first = run(config(tiny), tmp_path, Recorder(stop_after))
    assert not done
    assert first.steps[-1] == (stop_after + 1, 6)
    with pytest.raises(ValueError, match=rf"only {96 * (stop_after + 1)} of 512 examples are embedded"):
        EmbeddingCache(tmp_path)
    done, second = run(config(tiny), tmp_path)
    assert done
    assert second.steps[0] == (stop_after + 1, 6)
    assert contents(tmp_path) == contents(whole[0])


def test_a_run_that_dies_before_it_saves_repeats_from_the_last_save(tiny, run, whole, tmp_path):
    """What it wrote and did not count is written again, the same."""
    with pytest.raises(KeyboardInterrupt):
        run(config(tiny), tmp_path, Recorder(die_at=4))
    done, again = run(config(tiny), tmp_path)
    assert done
    assert again.steps[0] == (2, 6)
    assert contents(tmp_path) == contents(whole[0])


def test_a_run_killed_while_it_makes_its_files_begins_anew(tiny, run, whole, tmp_path):
    (tmp_path / "embeddings").mkdir()
    (tmp_path / "embeddings" / "images.npy").write_bytes(b"half a file")
    assert run(config(tiny), tmp_path)[0]
    assert contents(tmp_path) == contents(whole[0])


def test_a_finished_run_embeds_nothing_again(tiny, run, whole):
    before = contents(whole[0])
    done, tracker = run(config(tiny), whole[0])
    assert done
    assert tracker.metrics == {}
    assert tracker.steps == [(6, 6)]
    assert contents(whole[0]) == before


def test_a_folder_of_other_embeddings_is_refused(tiny, run, whole):
    with pytest.raises(ValueError, match=r"holds other embeddings \(precision 'float32', now 'float16'\)"):
        run(config(tiny, precision="float16"), whole[0])


def test_half_precision_halves_the_files(tiny, run, whole, tmp_path):
    run(config(tiny, precision="float16"), tmp_path)
    index = np.arange(512)
    full, half = EmbeddingCache(whole[0]), EmbeddingCache(tmp_path)
    assert half.images(index).dtype == np.float32
    np.testing.assert_allclose(half.images(index), full.images(index), atol=2**-11)
    np.testing.assert_allclose(half.texts(index), full.texts(index), atol=2**-11)
    sizes = [(d / "embeddings" / "images.npy").stat().st_size for d in (tmp_path, whole[0])]
    assert sizes[0] - 128 == (sizes[1] - 128) / 2


def test_only_examples_that_satisfy_the_filter_are_embedded(tiny, web, run, whole, tmp_path):
    cfg = config(tiny, data__filter="similarity > 0.25")
    run(cfg, tmp_path)
    cache, unfiltered = EmbeddingCache(tmp_path), EmbeddingCache(whole[0])
    kept = select(web, "similarity > 0.25")
    np.testing.assert_allclose(cache.images(kept), unfiltered.images(kept), rtol=1e-5, atol=1e-6)
    dropped = next(i for i in range(512) if i not in kept)
    with pytest.raises(ValueError, match=rf"example {dropped} was not embedded.*data.filter: null"):
        cache.texts(np.array([kept[0], dropped]))
    stricter = cfg.data.model_copy(update={"filter": "similarity > 0.3"})
    cache.check(stricter, web)
    with pytest.raises(ValueError, match=rf"example {dropped} was not embedded"):
        cache.check(cfg.data.model_copy(update={"filter": None}), web)


def test_other_data_are_refused(tiny, web, whole, data_cache):
    cache = EmbeddingCache(whole[0])
    data = config(tiny).data
    cache.check(data, web)
    other = ensure_web(data.train, 1, data_cache)
    with pytest.raises(ValueError, match=r"embeddings of other data .* embed with the same data.train"):
        cache.check(data, other)
    with pytest.raises(ValueError, match=r"set data.recaption alike"):
        cache.check(data.model_copy(update={"recaption": "similarity < 0.1"}), web)
    with pytest.raises(ValueError, match="no example 512"):
        cache.images(np.array([512]))


def test_a_damaged_example_is_marked_and_counted(tiny, run, whole, web, tmp_path):
    folder = tmp_path / "web"
    shutil.copytree(web, folder, ignore=shutil.ignore_patterns(".jestlab"))
    index = ShardSource(folder).index
    offset, size = index.image[5]
    with (folder / index.tars[0]).open("r+b") as tar:
        tar.seek(offset)
        tar.write(bytes(size))
    cfg = config(tiny, data__train={"kind": "folder", "path": str(folder)})
    tracker = Recorder()
    assert run(cfg, tmp_path, tracker)[0]
    assert tracker.metrics[6] | {"examples_per_second": 0} == {
        "examples_embedded": 511,
        "examples_damaged": 1,
        "examples_per_second": 0,
    }
    cache, undamaged = EmbeddingCache(tmp_path), EmbeddingCache(whole[0])
    others = np.array([i for i in range(512) if i != 5])
    np.testing.assert_array_equal(cache.images(others), undamaged.images(others))
    with pytest.raises(ValueError, match="example 5 was damaged"):
        cache.images(np.array([4, 5]))
    cache.check(cfg.data, folder)  # training reads another example in its place


def test_a_run_without_embeddings_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no embeddings: name a finished run of program embed"):
        EmbeddingCache(tmp_path)


def test_any_order_and_repetition(whole):
    cache = EmbeddingCache(whole[0])
    index = np.array([500, 3, 3, 0, 499])
    everything = np.load(whole[0] / "embeddings" / "texts.npy")
    np.testing.assert_array_equal(cache.texts(index), everything[index])
    assert cache.about.width == 16


DEVICES = """
import sys, pickle, jax
from pathlib import Path
from jestlab.models.training.embed import embed
assert jax.device_count() == 3
config, directory, cache, towers, reference = pickle.loads(bytes.fromhex(sys.stdin.read()))
from jestlab.models.training.tracker import NullTracker
tracker = NullTracker()
assert embed(config, directory=directory, data_cache=cache, tracker=tracker, reference=(towers, reference))
"""


def test_several_devices_share_the_work(tiny, reference, data_cache, whole, tmp_path):
    """Three, which do not divide the batch."""
    cfg = config(tiny, runtime={"batch_size": 100})
    given = pickle.dumps((cfg, tmp_path, data_cache, *reference)).hex()
    result = subprocess.run(
        [sys.executable, "-c", DEVICES], input=given, text=True, capture_output=True, env=with_devices(3)
    )
    assert result.returncode == 0, result.stderr
    index = np.arange(512)
    ours, theirs = EmbeddingCache(whole[0]), EmbeddingCache(tmp_path)
    np.testing.assert_allclose(ours.images(index), theirs.images(index), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.texts(index), theirs.texts(index), rtol=1e-5, atol=1e-6)
    about = [(d / "embeddings" / "about.json").read_text() for d in (whole[0], tmp_path)]
    assert about[0] == about[1]
