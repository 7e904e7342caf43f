"""One training run from data to final evaluation, resumable from any checkpoint."""

import contextlib
import functools
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from jestlab.models.config import TrainConfig
from jestlab.models.data import datasets
from jestlab.models.data.curation import concepts
from jestlab.models.data.files import write_whole
from jestlab.models.data.pipeline import BatchLayout, training_batches
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tokenizer import ensure_tokenizer
from jestlab.models.devices import Devices, any_process, is_first, maximum_over_processes
from jestlab.models.evaluation import Evaluator
from jestlab.models.processes import initialize_processes
from jestlab.models.scoring.columns import columns_of
from jestlab.models.training.checkpoints import Checkpoints
from jestlab.models.training.diagnose import composition_of
from jestlab.models.training.distinct import Distinct
from jestlab.models.training.events import EventWriter
from jestlab.models.training.records import local, record, super_batch
from jestlab.models.training.reference import TOKENIZER, Reference, Scorer, load
from jestlab.models.training.state import initial_state
from jestlab.models.training.step import Metrics, build_step
from jestlab.models.training.tracker import Tracker
from jestlab.models.two_towers import initialize

_LOG = logging.getLogger(__name__)

_MUST_BE_FINITE = {
    # First, because examples that were selected by NaN scores can have a finite loss.
    "score_super_batch": "embeddings of the learner or the reference are not finite",
    "loss": "training diverged",
}

_Call = tuple[np.ndarray, Metrics]
"""A call of the step function: global numbers of this process's rows, and metrics to check."""


def train(
    config: TrainConfig,
    *,
    directory: Path,
    data_cache: Path,
    flops_per_example: float,
    tracker: Tracker,
    reference: Reference | None = None,
    later_flops_per_example: float | None = None,
    scores: Path | None = None,
) -> bool:
    """Train, evaluate, and checkpoint until the end of the schedule, from the newest checkpoint if any.

    Runs on all devices of all processes; only the first process reports and writes results.

    Args:
        directory: The run's folder, for `checkpoints/`, `events/`, `batches/`, and `tokenizer.model`.
        data_cache: Folder of generated data, shared by all runs.
        flops_per_example: Cost of one example seen, for `flops_total`.
        reference: The finished reference run, if selection or the loss needs one.
        later_flops_per_example: Cost of one example seen after `selection.until`; None for the same.
        scores: Folder of the finished run with the scores for the data's filter.

    Returns:
        True when the schedule is complete; False if the tracker asked to stop, after a checkpoint was saved.

    Raises:
        FloatingPointError: The loss is not finite; the message names the step.
        ValueError: The config doesn't fit its reference, its data, or the devices.
    """
    initialize_processes()
    total, b = config.total_steps, config.batch_size
    devices = Devices.for_sizes(config.super_batch_size, b, config.approximate_size)
    rows = devices.rows(config.super_batch_size)
    if not is_first():
        tracker = Tracker(tracker.stop_requested)

    web = datasets.ensure_web(config, data_cache)
    benchmark = datasets.ensure_benchmark(config.data.benchmark, data_cache)
    tokenizer = ensure_tokenizer(web, config.model.text.vocabulary_size)
    if is_first():
        write_whole(directory / TOKENIZER, tokenizer.model)  # for runs that score with this one
    columns = columns_of(scores, config.data, web)
    scorer = Scorer()
    if config.needs_reference:
        if reference is None:
            raise ValueError("selection.reference: a completed run is needed, but none was given")
        scorer = load(reference, config.data, web, config.model, tokenizer, columns)
    lookups = dict(scorer.lookups)
    if config.uses_concepts:
        lookups["concepts"] = concepts(web, config.selection.concepts).__getitem__
    selecting = config.selecting_steps
    later = BatchLayout(selecting, b, devices.rows(b)) if 0 < selecting < total else None
    batches = training_batches(
        web,
        config.data,
        config.model,
        config.runtime,
        columns=columns,
        tokenizer=tokenizer,
        batch_size=config.super_batch_size,
        together=config.super_batch_size,
        seed=config.seed,
        augmentation=config.augmentation,
        reference_tokenizer=scorer.tokenizer,
        lookups=lookups,
        rows=rows,
        later=later,
        decoded_bytes=config.runtime.decoded_megabytes * 10**6,
    )

    model_key, selection_key = jax.random.split(jax.random.key(config.seed))
    model_key = jax.random.fold_in(model_key, config.initialization)
    state = devices.replicate(initial_state(config, initialize(config.model, model_key), selection_key))
    scorer_parameters = devices.replicate(scorer.parameters)
    uniform = config.selection.model_copy(update={"rule": "uniform"})  # after `selection.until`
    phases = {True: config, False: config.model_copy(update={"selection": uniform})}  # by whether it selects
    step_functions = {selects: build_step(phase, scorer.model, devices) for selects, phase in phases.items()}
    compiled: set[bool] = set()
    evaluator = Evaluator(config, benchmark, tokenizer, devices)
    composition = None
    if is_first() and config.selects and config.runtime.diagnostics.every_steps:
        composition = functools.partial(composition_of, ShardIndex.load(web), config)

    checkpoints = Checkpoints(directory / "checkpoints", config.runtime.keep_checkpoints, tracker.saved)
    state, seconds, distinct = checkpoints.restore(state)
    step = int(state.step)
    batches.set_state({"next_index": step})  # a step trains on one batch
    watch, waited, logged_at = _Stopwatch(seconds), 0.0, (step, seconds)
    calls: list[_Call] = []
    _LOG.info("training from step %d to %d on %d device(s)", step, total, devices.count)
    tracker.progress(step, total)
    events = EventWriter(directory / "events", config.model_dump(mode="json"), step, write=is_first())
    with contextlib.closing(events), contextlib.closing(checkpoints):
        while step < total:
            # Several processes have to agree, which takes time.
            if (jax.process_count() == 1 or _due(config, step)) and any_process(tracker.stop_requested()):
                _settle(calls, step, rows.start, distinct)
                with tracker.phase("checkpoint", step):
                    tracker.flush()
                    checkpoints.save(state, watch.seconds, distinct)
                    checkpoints.wait()
                return False

            selects, began = step < selecting, time.perf_counter()
            batch = next(batches)
            waited += time.perf_counter() - began
            if compiles := selects not in compiled:
                _LOG.info("compiling")
                compiled.add(selects)
            examples = batch["index"]
            # JAX has 32 bits. Larger numbers would only be confused in the records of diagnostics.
            arrays = batch | {"index": examples.astype(np.uint32)}
            with watch.paused() if compiles else contextlib.nullcontext():
                state, metrics = step_functions[selects](state, devices.split(arrays), scorer_parameters)
            noted = {name: metrics[name] for name in (*_MUST_BE_FINITE, "selected") if name in metrics}
            calls.append((examples, noted))
            step += 1
            if not (due := _due(config, step)):
                continue

            _settle(calls, step, rows.start, distinct)
            trained, seen = watch.seconds, step * b
            first = min(step, selecting) * b if later else seen  # examples seen before the cost changes
            flops = first * flops_per_example
            flops += (seen - first) * (later_flops_per_example or flops_per_example)
            if is_first() and "record" in due:
                with watch.paused():
                    record(directory, step, super_batch(metrics, examples, rows.start))
            values = {name: float(value) for name, value in metrics.items() if not value.ndim}
            diagnosed = {name: values.pop(name) for name in ("score_sub_batch",) if name in values}
            if composition and "diagnose" in due:
                with watch.paused():
                    selected = np.asarray(metrics["examples"].addressable_data(0))
                    tracker.log(step, diagnosed | composition(step, selected, examples))
            if "log" in due:
                values |= {"examples_seen": seen, "flops_total": flops, "distinct_examples": distinct.count}
                tracker.log(step, values)
                elapsed = trained - logged_at[1]
                rate = (step - logged_at[0]) * b / elapsed
                events.scalars(step, values | {"examples_per_second": rate, "data_wait": waited / elapsed})
                _LOG.info("step %d/%d  loss %.4f  %.0f examples/s", step, total, values["loss"], rate)
                tracker.progress(step, total)
                waited, logged_at = 0.0, (step, trained)
            score = None
            if "evaluate" in due:
                with watch.paused(), tracker.phase("evaluation", step):
                    measured, extra = evaluator(state.parameters), evaluator.extra(state.parameters)
                score = float(np.mean(list(measured.values())))
                measured |= extra
                tracker.evaluation(step, seen, flops, measured, seconds=trained)
                events.scalars(step, measured)
                shown = "  ".join(f"{name} {value:.3f}" for name, value in measured.items())
                _LOG.info("step %d/%d  %s", step, total, shown)
            if "save" in due:
                with watch.paused(), tracker.phase("checkpoint", step):
                    tracker.flush()
                    checkpoints.save(state, trained, distinct, score if config.runtime.keep_best else None)
                    if step == total:
                        checkpoints.wait()
    any_process(False)  # returns when the first process has written the last checkpoint
    return True


class _Stopwatch:
    """Measures seconds of training, without compilation, evaluations, and checkpoints."""

    def __init__(self, seconds: float) -> None:
        self._start = time.perf_counter() - seconds

    @property
    def seconds(self) -> float:
        """Seconds so far, including those of earlier attempts; repeated steps count once."""
        return time.perf_counter() - self._start

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Context whose time is not counted."""
        began = time.perf_counter()
        yield
        self._start += time.perf_counter() - began


def _due(config: TrainConfig, step: int) -> set[str]:
    """Return the names of what happens after a step: record, log, diagnose, evaluate, save."""
    runtime, points, total = config.runtime, config.evaluation.points, config.total_steps
    point = step * points // total  # evaluation i of n comes after ⌈i · total / n⌉ steps
    is_last, evaluates = step == total, point > 0 and step == -(-point * total // points)
    happens = {
        "record": step == 1 or evaluates,
        "log": is_last or step % runtime.log_every_steps == 0,
        "diagnose": config.diagnoses(step),
        "evaluate": evaluates,
        "save": is_last or step % runtime.checkpoint_every_steps == 0 or (runtime.keep_best and evaluates),
    }
    return {name for name, is_due in happens.items() if is_due}


def _settle(calls: list[_Call], step: int, first_row: int, distinct: Distinct) -> None:
    """Wait for calls up to a step, check their metrics, and count the examples that they trained on.

    Raises:
        FloatingPointError: A loss or score is not finite; the message names the step.
    """
    for past, (examples, noted) in enumerate(calls, start=step - len(calls) + 1):
        metrics = {name: np.asarray(value.addressable_data(0)) for name, value in noted.items()}
        for name, problem in _MUST_BE_FINITE.items():
            if name in metrics and not np.isfinite(metrics[name]):
                raise FloatingPointError(f"{name} is {metrics[name]} at step {past}: {problem}")
        if "selected" in metrics:
            examples = examples[local(metrics["selected"], len(examples), first_row)]
        distinct.add(examples)
    calls.clear()
    distinct.registers = maximum_over_processes(distinct.registers)
