"""Diagnosis of selection: its numbers against NumPy in float64, from real data to metrics."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models.config import DiagnoseConfig, EmbedConfig, TrainConfig
from jestlab.models.data.datasets import ensure_web
from jestlab.models.data.images import decode
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.pipeline import examples_at
from jestlab.models.data.shards import ShardIndex, ShardSource
from jestlab.models.data.tokenizer import Tokenizer, ensure_tokenizer
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.training.diagnose import diagnose
from jestlab.models.training.embed import embed
from jestlab.models.training.reference import Reference
from jestlab.models.training.tracker import NullTracker
from jestlab.models.two_towers import TwoTowerModel, initialize
from jestlab.models.two_towers import embed as embed_pairs

B, b, CHUNK = 64, 16, 4
SMALL = {
    "learner": "learner",
    "reference": "reference",
    "batch_size": b,
    "filtering_ratio": 1 - b / B,
    "filtering_ratios": [0.5, 1 - b / B],
    "chunks": [4],
    "joint_chunks": 4,
    "gain": 1e9,  # leaves nothing to chance
    "sweeps": 20,
    "draws": 1,
    "matrix_size": 8,
    "columns": ["noise", "nothing"],
}


class Recorder(NullTracker):
    """A tracker in memory; asks to stop after some super-batches."""

    def __init__(self, stop_after=None):
        super().__init__(lambda: stop_after is not None and self.steps[-1][0] >= stop_after)
        self.metrics, self.steps = {}, []

    def log(self, step, metrics):
        for name, value in metrics.items():
            self.metrics.setdefault(name, {})[step] = value

    def evaluation(self, step, examples_seen, flops_total, scores, *, seconds=None):
        raise AssertionError("nothing is evaluated")

    def progress(self, step, total_steps):
        self.steps.append((step, total_steps))

    def value(self, name):
        """Of a metric with one step."""
        (value,) = self.metrics[name].values()
        return value


@pytest.fixture(scope="module")
def web(tiny, data_cache):
    cfg = TrainConfig.model_validate(tiny)
    return ensure_web(cfg.data.train, cfg.web_seed, data_cache)


def parameters_of(name, towers):
    """Untrained, at a temperature at which pairs differ."""
    parameters = initialize(towers, jax.random.key(["learner", "reference"].index(name)))
    return {**parameters, "t": np.log([30.0], dtype=np.float32)}


@pytest.fixture(scope="module")
def runs(tiny, web, tmp_path_factory):
    """Learner and reference as finished runs leave them: the reference is longer and knows fewer words."""
    found = {}
    for name, length, vocabulary in (("learner", 8, 100), ("reference", 10, 80)):
        tree = copy.deepcopy(tiny["model"])
        tree["text"]["length"] = length
        towers = TrainConfig.model_validate({**tiny, "model": tree}).model
        folder = tmp_path_factory.mktemp(name)
        save_parameters(folder / "checkpoints", parameters_of(name, towers))
        (folder / "tokenizer.model").write_bytes(ensure_tokenizer(web, vocabulary).model)
        found[name] = towers, folder
    return found


@pytest.fixture(scope="module")
def run(tiny, data_cache, runs):
    def run(tracker=None, reference=None, **overrides):
        config = DiagnoseConfig.model_validate({**SMALL, "data": tiny["data"], **overrides})
        tracker = tracker or Recorder()
        towers, folder = runs["reference"]
        done = diagnose(
            config,
            data_cache=data_cache,
            tracker=tracker,
            learner=runs["learner"],
            reference=reference or Reference(folder, towers),
        )
        return done, tracker

    return run


@pytest.fixture(scope="module")
def measured(run):
    done, tracker = run()
    assert done
    assert tracker.steps == [(0, 1), (1, 1)]
    return tracker


@pytest.fixture(scope="module")
def candidates(web):
    """The super-batch: an order of examples of its own, beyond those of training's seeds."""
    return examples_at(np.arange(B), 512, 2**32)


@pytest.fixture(scope="module")
def scores(web, runs, candidates):
    """S in float64 by NumPy, from images and captions as they lie on disk."""
    source = ShardSource(web, ShardIndex.load(web))
    images = np.stack([decode(file, 16) for file in source.images(candidates)])
    matrix = np.zeros((B, B))
    for sign, name in ((1, "learner"), (-1, "reference")):
        towers, folder = runs[name]
        tokenizer = Tokenizer((folder / "tokenizer.model").read_bytes())
        tokens = tokenizer(source.captions(candidates), towers.text.length)
        z = embed_pairs(
            TwoTowerModel(towers), parameters_of(name, towers), jnp.asarray(images), jnp.asarray(tokens)
        )
        image, text, t, bias = (np.asarray(part, np.float64) for part in z)
        logits = t * image @ text.T + bias
        matrix += sign * np.logaddexp(0, np.where(np.eye(B, dtype=bool), -logits, logits))
    return matrix


def mean_score(scores, chosen):
    return scores[np.ix_(chosen, chosen)].sum() / len(chosen)


def test_the_matrix_is_that_of_the_first_pairs(measured, scores):
    assert measured.metrics["learnability_matrix/size"] == {0: 8}
    found = [measured.metrics["learnability_matrix"][step] for step in range(64)]
    np.testing.assert_allclose(np.reshape(found, (8, 8)), scores[:8, :8], rtol=1e-5, atol=2e-5)


def drawn(scores, chunk):
    """Joint selection without noise in NumPy: the sub-batch in the order of its draws."""
    chosen: list[int] = []
    given = np.diag(scores).copy()
    while len(chosen) < b:
        given[chosen] = -np.inf
        best = np.argsort(-given)[:chunk].tolist()
        given += scores[best].sum(axis=0) + scores[:, best].sum(axis=1)
        chosen += best
    return chosen


def test_batches_score_as_numpy_says(measured, scores):
    greedy, joint = drawn(scores, 1), drawn(scores, CHUNK)
    values = measured.metrics
    assert values["learnability/greedy"] == {b: pytest.approx(mean_score(scores, greedy), abs=1e-3)}
    for step, value in values["learnability/joint"].items():
        assert value == pytest.approx(mean_score(scores, joint[: step * CHUNK]), abs=1e-3)
    for count, f in ((2 * b, "0.5"), (B, "0.75")):
        first = scores[:count, :count]
        for rule, step, chunk in (("independent", 1, b), ("joint", b // CHUNK, CHUNK)):
            found = values[f"learnability/filtering_ratio/{f}/{rule}"]
            assert found == {step: pytest.approx(mean_score(first, drawn(first, chunk)), abs=1e-3)}


def test_steps_are_draws(measured):
    values = measured.metrics
    assert list(values["learnability/joint"]) == list(values["effective_sample_size/joint"]) == [1, 2, 3, 4]
    assert measured.value("effective_sample_size/uniform") == pytest.approx(B)
    assert measured.value("effective_sample_size/independent") == pytest.approx(1)
    gibbs = values["learnability/gibbs"]
    assert max(gibbs) == 20 * b
    assert 100 < len(gibbs) <= 200
    # Without noise the best candidate takes a place, and what stood there is one of them.
    assert np.diff([gibbs[step] for step in sorted(gibbs)]).min() > -1e-3
    assert gibbs[20 * b] > values["learnability/joint"][4] > measured.value("learnability/uniform")


def test_shares_are_of_what_was_selected(measured, web, candidates, scores):
    noise = np.array(load_metadata(web, ["noise"])["noise"])[candidates]
    shares = {name: values[0] for name, values in measured.metrics.items() if name.startswith("selected/")}
    for kind in set(noise):
        assert shares[f"selected/candidates/noise/{kind}"] == pytest.approx(np.mean(noise == kind))
        for rule, chunk in (("independent", b), ("joint", CHUNK), ("greedy", 1)):
            of_batch = noise[drawn(scores, chunk)]
            assert shares[f"selected/{rule}/noise/{kind}"] == pytest.approx(np.mean(of_batch == kind))
    rules = ("candidates", "uniform", "independent", "joint", "greedy", "gibbs")
    assert {name.split("/")[1] for name in shares} == set(rules)
    for rule in rules:
        of_rule = [value for name, value in shares.items() if name.startswith(f"selected/{rule}/noise/")]
        assert sum(of_rule) == pytest.approx(1)
    # A column that is not there is left out.
    assert not any("/nothing/" in name for name in shares)


def test_metrics_are_means_over_super_batches(run, measured, web):
    """The first super-batch is the same whatever follows, and so is all of a restart."""
    _, two = run(draws=2)
    _, again = run(draws=2)
    assert two.metrics == again.metrics
    assert two.metrics["learnability_matrix"] == measured.metrics["learnability_matrix"]
    assert two.value("learnability/greedy") != measured.value("learnability/greedy")
    noise = np.array(load_metadata(web, ["noise"])["noise"])[examples_at(np.arange(2 * B), 512, 2**32)]
    for kind in set(noise):
        assert two.value(f"selected/candidates/noise/{kind}") == pytest.approx(np.mean(noise == kind))


def test_it_stops_between_super_batches_and_logs_nothing(run):
    done, tracker = run(Recorder(stop_after=1), draws=2)
    assert not done
    assert tracker.steps == [(0, 2), (1, 2)]
    assert tracker.metrics == {}


def test_a_cached_reference_measures_the_same(tiny, run, runs, measured, data_cache, tmp_path):
    config = EmbedConfig.model_validate({"reference": "reference", "data": tiny["data"]})
    assert embed(
        config, directory=tmp_path, data_cache=data_cache, tracker=Recorder(), reference=runs["reference"]
    )
    _, cached = run(reference=Reference(tmp_path, None))
    for name in ("learnability_matrix", "learnability/uniform", "learnability/greedy"):
        assert cached.metrics[name] == pytest.approx(measured.metrics[name], abs=1e-4)


def test_the_learner_alone_by_softmax(run, runs):
    """No reference is looked at, and a loss that is no sum over pairs has no matrix of them."""
    broken = Reference(runs["learner"][1] / "nowhere", None)
    _, tracker = run(
        reference=broken, criterion="hard_learner", loss="softmax", filtering_ratios=[], chunks=[]
    )
    assert not any(name.startswith("learnability_matrix") for name in tracker.metrics)
    assert not any(name.startswith("learnability/filtering_ratio") for name in tracker.metrics)
    assert tracker.value("learnability/uniform") < tracker.value("learnability/greedy")
