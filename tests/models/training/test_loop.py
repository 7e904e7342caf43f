"""The training loop on real shards: it resumes exactly, selects by a reference, and stops when asked."""

import copy
import time
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from tests.models.support import own_code

from jestlab.models.config import TrainConfig
from jestlab.models.evaluation import Evaluator
from jestlab.models.training import batches, loop
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference
from jestlab.models.training.tracker import NullTracker


class Recorder(NullTracker):
    """A tracker in memory; asks to stop after a given step."""

    def __init__(self, stop_after=None):
        super().__init__(lambda: stop_after is not None and self.step >= stop_after)
        self.metrics, self.scores, self.seconds, self.step, self.unflushed = {}, {}, {}, 0, 0

    def log(self, step, metrics):
        self.metrics[step] = dict(metrics)
        self.unflushed += 1

    def evaluation(self, step, examples_seen, flops_total, scores, *, seconds=None):
        self.scores[step], self.seconds[step] = dict(scores), seconds
        self.metrics.setdefault(step, {}).update(seen=examples_seen, flops=flops_total)
        self.unflushed += 1

    def progress(self, step, total_steps):
        self.step, self.total = step, total_steps

    def flush(self):
        self.unflushed = 0


def config(tiny, **overrides):
    tree = copy.deepcopy(tiny)
    for path, value in overrides.items():
        *sections, key = path.split("__")
        section = tree.setdefault(sections[0], {}) if sections else tree
        section[key] = value
    return TrainConfig.model_validate(tree)


class Lab:
    """Runs in one folder; a run of the same name goes on where it stopped."""

    def __init__(self, root, data_cache):
        self.root, self.data_cache, self.reference = root, data_cache, None

    def __call__(self, name, cfg, *, tracker=None, reference=None):
        tracker = tracker or Recorder()
        done = train(
            cfg,
            directory=self.root / name,
            data_cache=self.data_cache,
            flops_per_example=10.0,
            tracker=tracker,
            reference=reference,
        )
        return done, tracker


@pytest.fixture(scope="module")
def lab(tmp_path_factory, data_cache, tiny):
    """A lab with a trained reference."""
    lab = Lab(tmp_path_factory.mktemp("runs"), data_cache)
    reference = config(tiny, data__filter="similarity > 0.25", schedule__examples_seen=16 * 4)
    assert lab("reference", reference)[0]
    lab.reference = Reference(lab.root / "reference", reference.model)
    return lab


def joint(tiny, **overrides):
    return config(
        tiny,
        selection__rule="joint",
        selection__reference="reference",
        selection__filtering_ratio=0.5,
        selection__chunks=4,
        **overrides,
    )


@pytest.fixture(scope="module")
def uniform(lab, tiny):
    """What a run without selection reports."""
    done, seen = lab("uniform", config(tiny))
    assert done
    return seen


@pytest.fixture(scope="module")
def selecting(lab, tiny):
    """What a run with joint selection reports."""
    return lab("joint", joint(tiny), reference=lab.reference)[1]


def test_a_run_logs_evaluates_and_costs_what_it_says(lab, uniform):
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
    assert (seen.step, seen.total, seen.unflushed) == (12, 12, 0)
    best = max(seen.scores, key=lambda step: np.mean(list(seen.scores[step].values())))
    kept = {int(path.name) for path in (lab.root / "uniform/checkpoints").glob("[0-9]*")}
    assert {8, 12} <= kept <= {8, 12, best}
    assert list((lab.root / "uniform/events").glob("events.out.tfevents.*"))


def test_without_the_best_evaluations_save_nothing_and_give_the_same(lab, tiny, uniform):
    runtime = {"keep_best": False, "keep_checkpoints": 5, "checkpoint_every_steps": 6}
    cfg = config(tiny | {"runtime": tiny["runtime"] | runtime})
    done, seen = lab("without-the-best", cfg)
    assert done
    assert (seen.scores, seen.unflushed) == (uniform.scores, 0)
    folder = lab.root / "without-the-best/checkpoints"
    assert {path.name for path in folder.glob("[0-9]*")} == {"6", "12"}
    assert not list(folder.glob("score-*"))  # the best of them is none


@pytest.fixture
def compilation_cache(tmp_path):
    """Set JAX's compilation cache: a folder, or None."""
    before = jax.config.values["jax_compilation_cache_dir"]
    yield lambda folder: jax.config.update("jax_compilation_cache_dir", folder and str(folder))
    jax.config.update("jax_compilation_cache_dir", before)


def test_a_kept_program_trains_bit_for_bit_like_a_traced_one(lab, tiny, selecting, compilation_cache):
    compilation_cache(None)  # so that nothing is kept
    _, traced = lab("traced", joint(tiny), reference=lab.reference)
    assert (traced.metrics, traced.scores) == (selecting.metrics, selecting.scores)


def test_runs_that_differ_in_seed_and_data_share_programs(lab, tiny, tmp_path, compilation_cache):
    compilation_cache(tmp_path)
    changes: tuple[dict[str, Any], ...] = (
        {},
        {"seed": 1, "initialization": 2, "data__filter": "similarity > 0.2"},
        {"loss": "softmax"},
    )
    programs = []
    for number, change in enumerate(changes):
        lab(f"shares-{number}", config(tiny, **change))
        programs.append({path.name for path in (tmp_path / "programs").iterdir()})
    first, same, other = programs
    assert first  # the step, and what other tests have not yet compiled in this process
    assert same == first
    assert len(other - first) == 1  # its step


def test_with_a_loss_of_ones_own_the_step_is_traced_each_time(lab, tiny, tmp_path, compilation_cache):
    compilation_cache(None)
    lab("own-loss-before", config(tiny))  # compiles what is not the step
    compilation_cache(tmp_path)
    lab("own-loss", config(tiny, loss=f"{own_code.MODULE}:decoupled"))
    assert not (tmp_path / "programs").exists()


@pytest.mark.parametrize("stop_after", [2, 6])  # before the first checkpoint, and between two
def test_a_stopped_run_goes_on_bit_for_bit(lab, tiny, selecting, stop_after):
    name = f"stopped-{stop_after}"
    done, first = lab(name, joint(tiny), tracker=Recorder(stop_after), reference=lab.reference)
    assert not done
    done, second = lab(name, joint(tiny), reference=lab.reference)
    assert done
    assert min(second.metrics) > stop_after
    assert first.metrics | second.metrics == selecting.metrics
    assert first.scores | second.scores == selecting.scores


def test_super_batches_of_the_first_step_and_of_evaluations_are_recorded(lab, tiny, uniform, selecting):
    folder = lab.root / "joint"
    assert batches.recorded(folder) == [1, 4, 8, 12]
    last = batches.load(folder, 12)
    assert (len(set(last.examples)), len(set(last.selected))) == (32, 16)
    logged = selecting.metrics[12]
    assert np.mean(last.scores) == pytest.approx(logged["score_super_batch"], rel=1e-5)
    assert np.mean(last.scores[last.selected]) == pytest.approx(logged["score_selected"], rel=1e-5)
    everything = batches.load(lab.root / "uniform", 12)
    assert everything.selected.tolist() == list(range(16))
    assert np.isnan(everything.scores).all()


@pytest.mark.parametrize("stop_after", [2, 6])
def test_a_stopped_run_records_what_the_uninterrupted_one_does(lab, tiny, selecting, stop_after):
    name = f"records-{stop_after}"
    lab(name, joint(tiny), tracker=Recorder(stop_after), reference=lab.reference)
    lab(name, joint(tiny), reference=lab.reference)
    for step in (1, 4, 8, 12):
        found, expected = (batches.load(lab.root / run, step) for run in (name, "joint"))
        for part in found._fields:
            assert np.array_equal(getattr(found, part), getattr(expected, part))


def test_a_run_killed_after_its_last_log_repeats_from_the_checkpoint(lab, tiny):
    """What the tracker saw after the checkpoint is computed again, the same."""

    class Killed(Exception):
        pass

    class Fragile(Recorder):
        def log(self, step, metrics):
            super().log(step, metrics)
            if step == 6:
                raise Killed

    cfg, fragile = config(tiny), Fragile()
    with pytest.raises(Killed):
        lab("killed", cfg, tracker=fragile)
    _, again = lab("killed", cfg)
    assert min(again.metrics) == 6
    assert again.metrics[6] == fragile.metrics[6]


def test_a_finished_run_trains_no_further(lab, tiny, uniform):
    done, again = lab("uniform", config(tiny))
    assert done
    assert again.metrics == {}


def test_seeds_change_order_initialisation_and_web(lab, tiny, uniform):
    one, other = uniform, lab("seed-1", config({**tiny, "seed": 1}))[1]
    assert one.metrics[2]["loss"] != other.metrics[2]["loss"]


def test_selected_pairs_score_above_the_super_batch(selecting):
    assert np.mean([m["score_selected"] - m["score_super_batch"] for m in selecting.metrics.values()]) > 0


def test_a_reference_scores_with_its_own_tokens(lab, tiny):
    """Its scores do not depend on how the learner reads: another tokenizer, another length."""
    other = copy.deepcopy(tiny)
    other["model"]["text"] |= {"vocabulary_size": 80, "length": 12}
    by_easy = {"selection__rule": "independent", "selection__criterion": "easy_reference"}
    scores = []
    for name, tree in (("reads-alike", tiny), ("reads-otherwise", other)):
        cfg = config(tree, selection__reference="r", selection__filtering_ratio=0.5, **by_easy)
        _, seen = lab(name, cfg, reference=lab.reference)
        scores.append([m["score_super_batch"] for m in seen.metrics.values()])
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)


def test_a_reference_for_other_images_is_refused(lab, tiny):
    larger = copy.deepcopy(tiny)
    larger["model"]["vision"]["image_size"] = 32
    with pytest.raises(ValueError, match="image_size"):
        lab("refused", joint(larger), reference=lab.reference)


def test_initialization_draws_other_parameters_for_the_same_seed(lab, tiny, uniform):
    one, other = uniform, lab("start-1", config({**tiny, "initialization": 1}))[1]
    assert one.metrics[2]["loss"] != other.metrics[2]["loss"]


def test_divergence_ends_the_run_and_names_the_step(lab, tiny):
    wild = config(tiny, optimizer__learning_rate=1e30, optimizer__warmup_percent=0)
    with pytest.raises(FloatingPointError, match=r"loss is nan at step \d+"):
        lab("diverged", wild)


def test_events_hold_scalars_and_hyperparameters(lab, tiny):
    """Also those of the step at which a run was stopped, after it went on."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lab("events", config(tiny), tracker=Recorder(stop_after=8))
    time.sleep(1)  # files of events are named by the second, and read in the order of their names
    lab("events", config(tiny))
    events = EventAccumulator(str(lab.root / "events/events"))
    events.Reload()
    assert [e.step for e in events.Scalars("loss")] == [2, 4, 6, 8, 10, 12]
    assert [e.step for e in events.Scalars("shapes/zero_shot")] == [4, 8, 12]
    assert "_hparams_/session_start_info" in events.summary_metadata


def test_seconds_of_training_leave_out_all_else_and_go_on_after_a_stop(lab, tiny, monkeypatch):
    """By a clock that the test moves: by 100 s in a compilation, 10 s in an evaluation, 1 s in a step."""
    now = [0.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    step, evaluate = loop._Stepper.__call__, Evaluator.__call__

    def timed_step(self, state, batches, selects):
        now[0] += 100.0 if self.compiles(len(batches), selects) else 1.0
        return step(self, state, batches, selects)

    def timed_evaluation(self, parameters):
        now[0] += 10.0
        return evaluate(self, parameters)

    monkeypatch.setattr(loop._Stepper, "__call__", timed_step)
    monkeypatch.setattr(Evaluator, "__call__", timed_evaluation)
    _, whole = lab("timed", config(tiny))
    assert whole.seconds == {4: 3.0, 8: 7.0, 12: 11.0}  # the first step was compiled
    lab("timed-parts", config(tiny), tracker=Recorder(stop_after=6))
    _, rest = lab("timed-parts", config(tiny))
    assert rest.seconds == {8: 6.0, 12: 10.0}  # so was the first step after the stop
    for path in (lab.root / "timed-parts" / "checkpoints").glob("seconds-*.json"):
        path.unlink()  # as in a checkpoint of an older version
    for path in (lab.root / "timed-parts" / "checkpoints").glob("12"):
        path.rename(path.with_name("damaged"))
    _, older = lab("timed-parts", config(tiny))
    assert np.isnan(older.seconds[12])


def early(tiny, **overrides):
    return joint(tiny, selection__until=0.5, **overrides)


@pytest.fixture(scope="module")
def selecting_early(lab, tiny):
    """What a run that selects in the first half of its steps reports."""
    done, seen = lab("early", early(tiny), reference=lab.reference)
    assert done
    return seen


def test_a_run_that_selects_early_alone_reads_uniformly_after_that(lab, tiny, selecting, selecting_early):
    assert early(tiny).selecting_steps == 6
    # The same as the run that selects to its end, as long as it selects.
    for step in (2, 4, 6):
        assert selecting_early.metrics[step] == pytest.approx(selecting.metrics[step])
    assert all("score_selected" not in selecting_early.metrics[step] for step in (8, 10, 12))
    found = [batches.load(lab.root / "early", step) for step in (1, 4, 8, 12)]
    assert [len(one.examples) for one in found] == [32, 32, 16, 16]
    assert [len(one.selected) for one in found] == [16] * 4


def test_a_run_that_selects_early_alone_costs_less_after_that(lab, tiny):
    tracker = Recorder()
    train(
        early(tiny),
        directory=lab.root / "early-priced",
        data_cache=lab.data_cache,
        flops_per_example=10.0,
        later_flops_per_example=3.0,
        tracker=tracker,
        reference=lab.reference,
    )
    found = {step: metrics["flops_total"] for step, metrics in tracker.metrics.items() if step % 2 == 0}
    assert found == {s: 16 * (10.0 * min(s, 6) + 3.0 * max(0, s - 6)) for s in (2, 4, 6, 8, 10, 12)}


@pytest.mark.parametrize("stop_after", [4, 6, 8])
def test_a_run_that_selects_early_alone_resumes_exactly(lab, tiny, selecting_early, stop_after):
    name = f"early-stopped-{stop_after}"
    done, first = lab(name, early(tiny), reference=lab.reference, tracker=Recorder(stop_after))
    assert not done
    done, second = lab(name, early(tiny), reference=lab.reference)
    assert done
    assert first.scores | second.scores == selecting_early.scores


def test_several_steps_in_one_call_stop_where_selection_does(lab, tiny):
    runs = []
    for size in (1, 2):
        cfg = early(tiny, runtime__steps_per_dispatch=size, runtime__log_every_steps=4)
        cfg = cfg.model_copy(update={"selection": cfg.selection.model_copy(update={"until": 0.6})})
        assert cfg.selecting_steps == 7  # of 12, which 2 do not divide
        runs.append(lab(f"early-by-{size}", cfg, reference=lab.reference)[1].scores)
    assert runs[0].keys() == runs[1].keys()
    for step in runs[0]:
        assert runs[1][step] == pytest.approx(runs[0][step], abs=0.05)


def test_a_run_chooses_by_concepts_without_any_model_that_scores(lab, tiny):
    cfg = config(
        tiny,
        selection__rule="concept_diversity",
        selection__concepts=["label", "background"],
        selection__filtering_ratio=0.75,
    )
    assert not cfg.scores_learner and not cfg.needs_reference
    done, seen = lab("concepts", cfg)
    assert done
    assert not [name for metrics in seen.metrics.values() for name in metrics if name.startswith("score_")]
    first = batches.load(lab.root / "concepts", 1)
    assert len(first.examples) == 64 and len(first.selected) == 16
    assert np.isnan(first.scores).all()


def test_a_loss_compares_with_a_reference_of_uniform_batches(lab, tiny):
    cfg = config(tiny, loss="distilled", selection__reference="reference")
    assert cfg.needs_reference and not cfg.selects
    done, seen = lab("distilled", cfg, reference=lab.reference)
    assert done and all(np.isfinite(seen.metrics[step]["loss"]) for step in (2, 12))


@pytest.mark.parametrize("kind", ["uniform", "joint", "concepts"])
def test_different_examples_are_counted_also_through_a_stop(lab, tiny, kind):
    """By super-batches that are recorded at every step: all that was trained on is known."""
    changes = {"evaluation__points": 12, "schedule__examples_seen": 16 * 12, "runtime__log_every_steps": 1}
    selections: dict[str, dict[str, Any]] = {
        "uniform": {},
        "joint": {"rule": "joint", "reference": "reference", "chunks": 4, "until": 0.7},
        "concepts": {"rule": "concept_frequency", "concepts": ["label"]},
    }
    selection = {"filtering_ratio": 0.5, **selections[kind]}
    cfg = config(tiny, **changes, selection=selection)
    name = f"distinct-{kind}"
    done, first = lab(name, cfg, reference=lab.reference, tracker=Recorder(stop_after=5))
    assert not done
    done, second = lab(name, cfg, reference=lab.reference)
    assert done
    counted = {step: m["distinct_examples"] for r in (first, second) for step, m in r.metrics.items()}
    seen: set[int] = set()
    for step in range(1, 13):
        one = batches.load(lab.root / name, step)
        seen |= set(one.examples[one.selected].tolist())
        assert counted[step] == pytest.approx(len(seen), abs=2)
    assert len(seen) > 100
