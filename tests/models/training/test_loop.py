"""The training loop on real shards: it resumes exactly, selects by a reference, and stops when asked."""

import contextlib
import copy
import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.models.support import own_code
from tests.models.support.recorder import Recorder

from jestlab.models.config import EmbedConfig, TrainConfig
from jestlab.models.evaluation import Evaluator
from jestlab.models.training import loop, records
from jestlab.models.training.embed import embed
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference

REFERENCE = {"reference": "reference", "filtering_ratio": 0.5, "rule": "independent"}
DIAGNOSED = {"diagnostics": {"every_steps": 4, "columns": ["label"]}}


def config(tree, **overrides):
    """A config whose sections differ from a tree's: `section={key: value}`."""
    changed = copy.deepcopy(tree)
    for name, value in overrides.items():
        changed[name] = changed.get(name, {}) | value if isinstance(value, dict) else value
    return TrainConfig.model_validate(changed)


class Lab:
    """Runs in one folder; a run of the same name continues where it stopped."""

    def __init__(self, root, data_cache):
        self.root, self.data_cache, self.reference = root, data_cache, None

    def __call__(self, name, cfg, tracker=None, **options):
        tracker = tracker or Recorder()
        options = {"flops_per_example": 10.0, "reference": self.reference} | options
        directory = self.root / name
        done = train(cfg, directory=directory, data_cache=self.data_cache, tracker=tracker, **options)
        return done, tracker


@pytest.fixture(scope="module")
def small(tiny):
    """The tree of a run whose towers are fast to compile."""
    tree = copy.deepcopy(tiny)
    for tower in ("vision", "text"):
        tree["model"][tower] |= {"architecture": f"{own_code.MODULE}:Layer", "options": {"hidden": 24}}
    return tree


@pytest.fixture(scope="module")
def lab(tmp_path_factory, data_cache, small):
    """A lab with a trained reference."""
    lab = Lab(tmp_path_factory.mktemp("runs"), data_cache)
    reference = config(small, data={"filter": "similarity > 0.25"}, schedule={"examples_seen": 16 * 4})
    assert lab("reference", reference)[0]
    lab.reference = Reference(lab.root / "reference", reference.model)
    return lab


def joint(tree, **selection):
    selection = REFERENCE | {"rule": "joint", "chunks": 4} | selection
    return config(tree, selection=selection, runtime=DIAGNOSED)


@pytest.fixture(scope="module")
def uniform(lab, small):
    """Reports of a run without selection."""
    return lab("uniform", config(small))[1]


@pytest.fixture(scope="module")
def selecting(lab, small):
    """Reports of a run with joint selection."""
    return lab("joint", joint(small))[1]


def test_a_run_logs_evaluates_and_saves_what_its_config_says(lab, small, uniform):
    seen = uniform
    assert sorted(seen.scores) == [4, 8, 12]
    assert set(seen.scores[12]) == {
        "shapes/zero_shot",
        "shapes/2_shot",
        *(f"shapes_retrieval/{way}_r{k}" for way in ("i2t", "t2i") for k in (1, 5, 10)),
    }
    assert all(0 <= score <= 1 for score in seen.scores[12].values())
    assert seen.metrics[12]["examples_seen"] == 12 * 16
    assert seen.metrics[12]["flops_total"] == 12 * 16 * 10.0
    assert (seen.steps[0], seen.steps[-1], seen.unflushed) == ((0, 12), (12, 12), 0)
    best = max(seen.scores, key=lambda step: np.mean(list(seen.scores[step].values())))
    kept = {int(path.stem) for path in (lab.root / "uniform/checkpoints").glob("[0-9]*.json")}
    assert {8, 12} <= kept <= {8, 12, best}
    done, again = lab("uniform", config(small))
    assert done and not again.metrics  # a finished run trains no further


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("few", {"data": {"filter": "key = '000000007'"}}, "batch of 16 .* larger than the tra"),
        ("larger", {"model": {"vision": {"image_size": 32}}, "selection": REFERENCE}, "image_size"),
        ("parts", {"runtime": {"microbatches": 3}}, "microbatches 3 does not divide the 16 examples"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_step(lab, small, name, changes, message):
    seen = Recorder()
    with pytest.raises(ValueError, match=message):
        lab(name, config(small, **changes), seen)
    assert not seen.steps and not (lab.root / name / "events").exists()


def test_divergence_ends_a_run(lab, small):
    with pytest.raises(FloatingPointError, match=r"loss is (nan|inf) at step \d+: training diverged"):
        lab("diverged", config(small, optimizer={"learning_rate": 1e30}))


def test_without_keep_best_evaluations_save_nothing_and_score_the_same(lab, small, uniform):
    runtime = {"keep_best": False, "keep_checkpoints": 5, "checkpoint_every_steps": 5}
    _, seen = lab("without-the-best", config(small, runtime=runtime))
    assert (seen.scores, seen.unflushed) == (uniform.scores, 0)
    folder = lab.root / "without-the-best/checkpoints"
    assert {path.stem for path in folder.glob("[0-9]*.json")} == {"5", "10", "12"}
    assert all(json.loads(path.read_bytes())["score"] is None for path in folder.glob("*.json"))


def test_seed_and_initialization_change_the_run(lab, small, uniform):
    for change in ("seed", "initialization"):
        _, other = lab(f"{change}-1", config(small, **{change: 1}))
        assert other.metrics[2]["loss"] != pytest.approx(uniform.metrics[2]["loss"], rel=1e-4), change


def test_super_batches_of_the_first_step_and_of_evaluations_are_recorded(lab, uniform, selecting):
    folder = lab.root / "joint"
    assert records.recorded(folder) == [1, 4, 8, 12]
    last = records.load(folder, 12)
    assert (len(set(last.examples)), len(set(last.selected))) == (32, 16)
    logged = selecting.metrics[12]
    for scores, name in ((last.scores, "super_batch"), (last.scores[last.selected], "selected")):
        assert np.mean(scores) == pytest.approx(logged[f"score_{name}"], rel=1e-5, abs=1e-6)
    assert [step for step, metrics in selecting.metrics.items() if "score_sub_batch" in metrics] == [4, 8, 12]
    labels = [share for name, share in logged.items() if name.startswith("selected/joint/label/")]
    assert sum(labels) == pytest.approx(1.0)
    assert np.mean([m["score_selected"] - m["score_super_batch"] for m in selecting.metrics.values()]) > 0
    everything = records.load(lab.root / "uniform", 12)
    assert everything.selected.tolist() == list(range(16))
    assert np.isnan(everything.scores).all()


@pytest.mark.parametrize(
    ("interrupted", "first_again"),
    [({"stop_after": 2}, 4), ({"stop_after": 6}, 8), ({"fail_at": 6}, 6)],  # checkpoints are at 4 and 8
)
def test_an_interrupted_run_resumes_bit_for_bit(lab, small, selecting, interrupted, first_again):
    name, first = f"interrupted-{first_again}", Recorder(**interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        assert not lab(name, joint(small), first)[0]
    done, second = lab(name, joint(small))
    assert done
    assert min(second.metrics) == first_again
    assert second.metrics | first.metrics == first.metrics | second.metrics == selecting.metrics
    assert first.scores | second.scores == selecting.scores
    for step in (1, 4, 8, 12):
        found, expected = (records.load(lab.root / run, step) for run in (name, "joint"))
        for part in found._fields:
            assert np.array_equal(getattr(found, part), getattr(expected, part))
    events = EventAccumulator(str(lab.root / name / "events"))
    events.Reload()
    assert [e.step for e in events.Scalars("loss")] == [2, 4, 6, 8, 10, 12]
    assert [e.step for e in events.Scalars("shapes/zero_shot")] == [4, 8, 12]
    assert "_hparams_/session_start_info" in events.summary_metadata


def test_seconds_of_training_leave_out_everything_else_and_continue_after_a_stop(lab, small, monkeypatch):
    """By a clock that the test moves: by 100 s in a compilation, 10 s in an evaluation, 1 s in a step."""
    now = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    build, evaluate = vars(loop)["build_step"], Evaluator.__call__

    def timed_build(*arguments):
        step, seconds = build(*arguments), itertools.chain([100.0], itertools.repeat(1.0))

        def timed_step(*arguments):
            now[0] += next(seconds)
            return step(*arguments)

        return timed_step

    def timed_evaluation(self, parameters):
        now[0] += 10.0
        return evaluate(self, parameters)

    monkeypatch.setattr(loop, "build_step", timed_build)
    monkeypatch.setattr(Evaluator, "__call__", timed_evaluation)
    _, begun = lab("timed", config(small), Recorder(stop_after=6))
    assert begun.seconds == {4: 3.0}  # the first step was compiled
    _, rest = lab("timed", config(small))
    assert rest.seconds == {8: 6.0, 12: 10.0}  # so was the first step after the stop


def test_a_reference_scores_with_its_own_tokens(lab, small):
    """Its scores don't depend on how the learner reads: another tokenizer, another length."""
    other = copy.deepcopy(small)
    other["model"]["text"] |= {"vocabulary_size": 80, "length": 12}
    selection = REFERENCE | {"criterion": "easy_reference"}
    scores = []
    for name, tree in (("reads-the-same", small), ("reads-otherwise", other)):
        _, seen = lab(name, config(tree, selection=selection))
        scores.append([m["score_super_batch"] for m in seen.metrics.values()])
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)


def test_cached_embeddings_of_a_reference_score_like_the_reference(lab, small, selecting):
    cache = EmbedConfig.model_validate({"reference": "reference", "data": small["data"]})
    paths = {"directory": lab.root / "cache", "data_cache": lab.data_cache}
    towers = lab.reference.model, lab.reference.directory
    assert embed(cache, **paths, tracker=Recorder(), reference=towers)
    lab("cached", joint(small), reference=Reference(lab.root / "cache", None))
    found, expected = (records.load(lab.root / run, 1) for run in ("cached", "joint"))
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4, atol=1e-4)


def test_a_loss_compares_with_a_reference_of_uniform_batches(lab, small):
    done, seen = lab("distilled", config(small, loss="distilled", selection={"reference": "reference"}))
    assert done and all(np.isfinite(seen.metrics[step]["loss"]) for step in (2, 12))


def test_a_run_that_selects_in_its_first_half_reads_uniformly_afterwards(lab, small, selecting):
    early = joint(small, until=0.5)
    seen = lab("early", early, later_flops_per_example=3.0)[1]
    for step in (2, 4, 6):
        expected = selecting.metrics[step]
        assert {name: seen.metrics[step][name] for name in expected} == pytest.approx(expected)
    assert all("score_selected" not in seen.metrics[step] for step in (8, 10, 12))
    found = [records.load(lab.root / "early", step) for step in (1, 4, 8, 12)]
    assert [len(one.examples) for one in found] == [32, 32, 16, 16]
    assert [len(one.selected) for one in found] == [16] * 4
    flops = {step: metrics["flops_total"] for step, metrics in seen.metrics.items()}
    assert flops == {s: 16 * (10.0 * min(s, 6) + 3.0 * max(0, s - 6)) for s in (2, 4, 6, 8, 10, 12)}
    first, second = (lab("early-stopped", early, Recorder(stop))[1] for stop in (6, None))
    assert first.scores | second.scores == seen.scores


def by_concepts(tree, **overrides):
    """A run that selects by concepts, without a model that scores, in 7 of its 12 steps."""
    concepts = {"rule": "concept_diversity", "concepts": ["label", "background"]}
    return config(tree, selection=concepts | {"filtering_ratio": 0.5, "until": 0.6}, **overrides)


def test_a_run_by_concepts_counts_distinct_examples_through_a_stop(lab, small):
    """Super-batches are recorded at every step, so every example that was trained on is known."""
    cfg = by_concepts(small, evaluation={"points": 12}, runtime={"log_every_steps": 1})
    runs = [lab("distinct", cfg, Recorder(stop))[1] for stop in (5, None)]
    metrics = runs[0].metrics | runs[1].metrics
    assert not [name for logged in metrics.values() for name in logged if name.startswith("score_")]
    seen: set[int] = set()
    for step in range(1, 13):
        one = records.load(lab.root / "distinct", step)
        assert (len(one.examples), len(one.selected)) == (32 if step <= 7 else 16, 16)
        assert np.isnan(one.scores).all()
        seen |= set(one.examples[one.selected].tolist())
        assert metrics[step]["distinct_examples"] == pytest.approx(len(seen), abs=2)
    assert len(seen) > 100
