"""Diagnosis of selection: its metrics against NumPy in float64, from real data."""

import shutil
from collections import Counter

import jax
import numpy as np
import pytest
from tests.models.support.recorder import Recorder
from tests.models.support.structured import sigmoid_matrix

from jestlab.models.config import DiagnoseConfig, TrainConfig
from jestlab.models.data.metadata import load_metadata
from jestlab.models.data.pipeline import examples_at
from jestlab.models.data.shards import ShardIndex
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.training.diagnose import composition_of, diagnose
from jestlab.models.training.reference import Reference

B, b, CHUNK = 64, 16, 4
ORDER = 2**32
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


def value(tracker, name):
    """The value of a metric with one step."""
    (value,) = tracker.values(name).values()
    return value


@pytest.fixture(scope="module")
def runs(untrained_run):
    """Untrained, at a temperature at which pairs differ: the reference reads longer texts of fewer words."""
    t = np.log([30.0], dtype=np.float32)
    sizes = {"learner": (0, 100, 16, 8), "reference": (1, 80, 16, 10)}
    return {name: untrained_run(*each, t=t) for name, each in sizes.items()}


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
    assert done and tracker.steps == [(0, 1), (1, 1)]
    return tracker


@pytest.fixture(scope="module")
def noise(web):
    """The kind of noise in each example of two super-batches; no seed of training has their order."""
    return np.array(load_metadata(web, ["noise"])["noise"])[examples_at(np.arange(2 * B), 512, ORDER)]


@pytest.fixture(scope="module")
def scores(embedded, runs):
    """S in float64 by NumPy, from the images and captions on disk."""
    candidates = examples_at(np.arange(B), 512, ORDER)
    return sigmoid_matrix(*(embedded(runs[name], candidates) for name in ("learner", "reference")))


def mean_score(scores, chosen):
    return scores[np.ix_(chosen, chosen)].sum() / len(chosen)


def test_the_matrix_is_that_of_the_first_pairs(measured, scores):
    assert measured.values("learnability_matrix/size") == {0: 8}
    found = measured.values("learnability_matrix")
    assert list(found) == list(range(64))
    np.testing.assert_allclose(np.reshape([*found.values()], (8, 8)), scores[:8, :8], rtol=1e-5, atol=2e-5)


def drawn(scores, chunk):
    """Joint selection without noise in NumPy: the sub-batch in the order of its draws."""
    chosen: list[int] = []
    given = np.diag(scores).copy()
    while len(chosen) < b:
        given[chosen] = -np.inf
        order = np.argsort(-given)
        assert given[order[chunk - 1]] - given[order[chunk]] > 1e-3  # rounding can't decide
        best = order[:chunk].tolist()
        given += scores[best].sum(axis=0) + scores[:, best].sum(axis=1)
        chosen += best
    return chosen


def test_scores_of_batches_are_those_of_numpy(measured, scores):
    greedy, joint = drawn(scores, 1), drawn(scores, CHUNK)
    values = measured.values
    assert values("learnability/greedy") == {b: pytest.approx(mean_score(scores, greedy), abs=1e-3)}
    for step, value in values("learnability/joint").items():
        assert value == pytest.approx(mean_score(scores, joint[: step * CHUNK]), abs=1e-3)
    for count, f in ((2 * b, "0.5"), (B, "0.75")):
        first = scores[:count, :count]
        for rule, step, chunk in (("independent", 1, b), ("joint", b // CHUNK, CHUNK)):
            found = values(f"learnability/filtering_ratio/{f}/{rule}")
            assert found == {step: pytest.approx(mean_score(first, drawn(first, chunk)), abs=1e-3)}


def test_steps_are_draws(measured):
    values = measured.values
    assert list(values("learnability/joint")) == list(values("effective_sample_size/joint")) == [1, 2, 3, 4]
    assert value(measured, "effective_sample_size/uniform") == pytest.approx(B)
    assert value(measured, "effective_sample_size/independent") == pytest.approx(1)
    gibbs = values("learnability/gibbs")
    assert max(gibbs) == 20 * b
    assert 100 < len(gibbs) <= 200
    # Without noise the best candidate takes a place, and the example that it replaces is one of them.
    assert np.diff([gibbs[step] for step in sorted(gibbs)]).min() > -1e-3
    assert gibbs[20 * b] > values("learnability/joint")[4] > value(measured, "learnability/uniform")


def test_shares_are_of_what_was_selected(measured, noise, scores):
    shares = {name: share for name, share in measured.metrics[0].items() if name.startswith("selected/")}
    chosen = {rule: drawn(scores, n) for rule, n in (("independent", b), ("joint", CHUNK), ("greedy", 1))}
    chosen["candidates"] = range(B)
    kinds = sorted(set(noise[:B]))
    for rule in ("candidates", "uniform", "independent", "joint", "greedy", "gibbs"):
        of_rule = [shares.pop(f"selected/{rule}/noise/{kind}") for kind in kinds]
        assert sum(of_rule) == pytest.approx(1)
        if rule in chosen:
            assert of_rule == pytest.approx([np.mean(noise[chosen[rule]] == kind) for kind in kinds])
    assert not shares  # a column that does not exist is left out


def test_metrics_are_means_over_super_batches(run, measured, noise):
    """The first super-batch is the same, whatever follows."""
    _, two = run(draws=2)
    assert two.values("learnability_matrix") == measured.values("learnability_matrix")
    one, mean = (value(tracker, "learnability/greedy") for tracker in (measured, two))
    assert mean != pytest.approx(one, abs=1e-3)
    for kind in set(noise):
        assert value(two, f"selected/candidates/noise/{kind}") == pytest.approx(np.mean(noise == kind))


def test_a_super_batch_larger_than_what_a_filter_leaves_is_refused(run, tiny):
    with pytest.raises(ValueError, match=f"a batch of {B} examples is larger than the training set"):
        run(data=tiny["data"] | {"filter": "noise == 'vague'"})


def test_a_super_batch_with_repeated_examples_is_reported(run, tiny, caplog):
    run(data=tiny["data"] | {"filter": "key < '000000100'"}, draws=2)  # the second spans two epochs
    assert caplog.text.count(f"a super-batch of {B} repeats") == 1


def test_a_learner_that_diverged_is_refused(run, monkeypatch):
    def broken(*given):
        return jax.tree.map(lambda x: x * np.nan, load_parameters(*given))

    monkeypatch.setattr("jestlab.models.training.diagnose.load_parameters", broken)
    with pytest.raises(ValueError, match="embeddings of the learner are not finite: train that run again"):
        run()


def test_a_run_that_is_stopped_between_super_batches_logs_nothing(run):
    done, tracker = run(Recorder(stop_after=1), draws=2)
    assert not done and tracker.steps == [(0, 2), (1, 2)] and tracker.metrics == {}


@pytest.mark.full
def test_the_learner_alone_by_softmax(run, runs):
    """No reference is read, and a loss that isn't a sum over pairs has no matrix of them."""
    broken = Reference(runs["learner"][1] / "nowhere", None)
    _, tracker = run(
        reference=broken, criterion="hard_learner", loss="softmax", filtering_ratios=[], chunks=[]
    )
    names = {name for metrics in tracker.metrics.values() for name in metrics}
    assert not [name for name in names if name.startswith(("learnability_matrix", "learnability/filtering"))]
    assert value(tracker, "learnability/uniform") < value(tracker, "learnability/greedy")


def composition(folder, columns, selected, candidates):
    selection, runtime = {"rule": "joint", "reference": "r"}, {"diagnostics": {"columns": columns}}
    config = TrainConfig.model_validate({"selection": selection, "runtime": runtime})
    return composition_of(ShardIndex.load(folder), config, 1, selected.astype(np.uint32), candidates)


def test_the_composition_of_a_training_step_is_that_of_the_metadata(web):
    selected, candidates = np.arange(3, 35), np.arange(100, 200)
    expected: dict[str, float] = {}
    for column, values in load_metadata(web, ["noise", "label"]).items():
        for group, examples in (("joint", selected), ("candidates", candidates[:32])):
            counts = Counter(np.array(values)[examples].tolist())
            expected |= {f"selected/{group}/{column}/{value}": n / 32 for value, n in counts.items()}
    found = composition(web, ["noise", "label"], selected, candidates)
    assert {name: share for name, share in found.items() if share} == expected


def test_unreadable_metadata_leave_the_composition_out_with_a_warning(web, tmp_path, caplog):
    copy = shutil.copytree(web, tmp_path / "web")
    for table in copy.glob("*.parquet"):
        table.write_bytes(b"")
    assert composition(copy, ["noise"], np.arange(8), np.arange(8)) == {}
    assert "kinds of the selected examples unknown" in caplog.text
