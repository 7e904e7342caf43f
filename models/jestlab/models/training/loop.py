"""One training run from data to final evaluation, resumable at any checkpoint."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jestlab.models.config import TrainConfig
from jestlab.models.data import datasets
from jestlab.models.data.concepts import concepts
from jestlab.models.data.files import write_whole
from jestlab.models.data.pipeline import Later, training_batches
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tokenizer import ensure_tokenizer
from jestlab.models.devices import Devices
from jestlab.models.evaluation import Evaluator
from jestlab.models.processes import all_say, any_says, initialize_processes, is_first, largest
from jestlab.models.scoring.columns import columns_of
from jestlab.models.training.batches import SuperBatch, record
from jestlab.models.training.checkpoints import Checkpoints
from jestlab.models.training.diagnose import composition_of
from jestlab.models.training.distinct import Distinct
from jestlab.models.training.events import EventWriter
from jestlab.models.training.reference import TOKENIZER, Reference, prepare
from jestlab.models.training.step import (
    Metrics,
    StepFunction,
    TrainState,
    build_halves,
    build_step,
    initial_state,
)
from jestlab.models.training.tracker import NullTracker, Tracker
from jestlab.models.two_towers import Parameters, TwoTowerModel, initialize

_LOG = logging.getLogger(__name__)


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
    """Train, evaluate and checkpoint to the end of the schedule, from the newest checkpoint if there is one.

    Runs on all devices of all processes; the first process alone reports and writes results.

    Args:
        config: The run.
        directory: The run's folder; `checkpoints/`, `events/` and `tokenizer.model` are written in it.
        data_cache: Folder of the data that are made from settings, shared by all runs.
        flops_per_example: Cost of one example seen, for `flops_total`.
        tracker: Receives metrics and scores.
        reference: The finished reference run, if selection or loss looks at one.
        later_flops_per_example: Cost of one example seen after `selection.until`; None for the same.
        scores: Folder of the finished run whose scores the data's filter reads.

    Returns:
        True when the schedule is done, False when the tracker asked to stop; a checkpoint was saved then.

    Raises:
        FloatingPointError: The loss is not finite; the message names the step.
        ValueError: The config does not fit its reference, its data or the devices.
    """
    initialize_processes()
    devices = Devices.for_sizes(config.super_batch_size, config.batch_size, config.approximate_size)
    if not is_first():
        tracker = NullTracker(tracker.stop_requested)

    web = datasets.ensure_web(config.data.train, config.web_seed, data_cache, config.code)
    benchmark = datasets.ensure_benchmark(config.data.benchmark, data_cache)
    tokenizer = ensure_tokenizer(web, config.model.text.vocabulary_size)
    if is_first():
        write_whole(directory / TOKENIZER, tokenizer.model)  # for runs that score with this one
    columns = columns_of(scores, config.data, web) if scores is not None else None
    scorer = prepare(config, web, tokenizer, reference, columns)
    lookups = dict(scorer.lookups or {})
    if config.selects and config.selection.looks_at_concepts(config.code):
        lookups["concepts"] = concepts(web, config.selection.concepts).of
    later = None
    if config.selects and config.selecting_steps < config.total_steps:
        later = Later(config.selecting_steps, config.batch_size, devices.rows(config.batch_size))
    batches = training_batches(
        web,
        filter=config.data.filter,
        recaption=config.data.recaption,
        repeat=config.data.repeat,
        columns=columns,
        tokenizer=tokenizer,
        image_size=config.model.vision.image_size,
        text_length=config.model.text.length,
        batch_size=config.super_batch_size,
        together=config.super_batch_size,
        seed=config.seed,
        flip=config.augmentation.flip,
        crop=config.augmentation.crop,
        reference_tokenizer=scorer.tokenizer,
        lookups=lookups,
        rows=devices.rows(config.super_batch_size),
        later=later,
        threads=config.runtime.loader_threads,
        damaged_share=config.runtime.damaged_share,
        decoded_bytes=config.runtime.decoded_megabytes * 10**6,
    )
    evaluator = Evaluator(config, benchmark, tokenizer, devices)
    stepper = _Stepper(config, scorer.model, devices, devices.replicate(scorer.parameters))
    checkpoints = Checkpoints(directory / "checkpoints", config.runtime.keep_checkpoints, tracker.saved)

    model_key, selection_key = jax.random.split(jax.random.key(config.seed))
    model_key = jax.random.fold_in(model_key, config.initialization)
    fresh = initial_state(config, initialize(config.model, model_key), selection_key)
    state = checkpoints.restore(devices.replicate(fresh), batches)
    step, total, b = int(state.step), config.total_steps, config.batch_size
    spent = _Spent(flops_per_example, later_flops_per_example, later and later.first * b)
    marks = _Marks(config)
    composition = None
    if is_first() and config.selects and config.runtime.diagnostics.every_steps:
        columns_counted = config.runtime.diagnostics.columns
        composition = functools.partial(
            composition_of, ShardSource(web), config.selection.rule, columns_counted
        )
    clock = _Clock(step, checkpoints.seconds(step))
    distinct = checkpoints.distinct(step)
    sizes = f"B {config.super_batch_size}, b {b}, {devices.count} device(s)"
    _LOG.info("training from step %d to %d, %s", step, total, sizes)
    tracker.progress(step, total)
    events = EventWriter(directory / "events", config.model_dump(mode="json"), step, write=is_first())
    with contextlib.closing(events), _last_save(checkpoints, tracker):
        while step < total:
            if marks.may_stop(step) and any_says(tracker.stop_requested()):
                stepper.check(step)
                with tracker.phase("checkpoint", step):
                    tracker.flush()
                    stepper.count(distinct)
                    checkpoints.save(state, batches, seconds=clock.trained, distinct=distinct)
                return False
            size = marks.steps_from(step)
            with clock.waiting():
                loaded = [next(batches) for _ in range(size)]
            selects = step < config.selecting_steps
            with clock.compiling() if stepper.compiles(size, selects) else contextlib.nullcontext():
                state, metrics = stepper(state, loaded, selects)
            step += size
            if not marks.at(step):
                continue

            if is_first() and marks.records(step):
                with clock.stopped():
                    here = devices.rows(config.super_batch_size if selects else b)
                    record(directory, step, _super_batch(metrics, loaded[-1]["index"], here))
            seen, flops = step * b, spent(step * b)
            stepper.count(distinct)
            values, trained = stepper.finite(metrics, step), clock.trained
            due = {name: values.pop(name) for name in _WHEN_DUE if name in values}
            logged: dict[str, float] = {}
            if composition and state.recent is not None and config.diagnoses(step):
                with clock.stopped():
                    recent = np.asarray(state.recent.addressable_data(0))
                    logged |= due | composition(step, recent, loaded[-1]["index"])
            if marks.logs(step):
                values |= {"examples_seen": seen, "flops_total": flops}
                if distinct is not None:
                    distinct.registers = largest(distinct.registers)
                    values["distinct_examples"] = distinct.count
                logged |= values
            if logged:
                tracker.log(step, logged)
            if marks.logs(step):
                rate, waited = clock.read(step, b)
                events.scalars(step, values | {"examples_per_second": rate, "data_wait": waited})
                _LOG.info("step %d/%d  loss %.4f  %.0f examples/s", step, total, values["loss"], rate)
                tracker.progress(step, total)
            score = None
            if marks.evaluates(step):
                with clock.stopped(), tracker.phase("evaluation", step):
                    measured, own = evaluator(state.parameters), evaluator.extra(state.parameters)
                score = float(np.mean(list(measured.values())))
                measured |= own
                known = None if math.isnan(trained) else trained
                tracker.evaluation(step, seen, flops, measured, seconds=known)
                events.scalars(step, measured)
                _LOG.info(
                    "step %d/%d  %s", step, total, "  ".join(f"{k} {v:.3f}" for k, v in measured.items())
                )
            if marks.saves(step):
                with clock.stopped(), tracker.phase("checkpoint", step):
                    tracker.flush()
                    best_by = score if marks.may_be_best(step) else None
                    checkpoints.save(state, batches, best_by, trained, distinct)
    all_say(True)  # now the first process has written the last checkpoint
    return True


@contextlib.contextmanager
def _last_save(checkpoints: Checkpoints, tracker: Tracker) -> Iterator[None]:
    """Context that ends once the last checkpoint is whole."""
    try:
        yield
    finally:
        with tracker.phase("checkpoint"):
            checkpoints.close()


_OF_THE_HOST = ("index", "damaged")
_WHEN_DUE = ("score_sub_batch",)  # metrics that hold at steps that are diagnosed alone
_WATCHED = {
    # First, because examples that are chosen by scores that are NaN may have a finite loss.
    "score_super_batch": "embeddings of the learner or the reference are not finite",
    "loss": "training diverged",
}


def _build(config: TrainConfig, scorer: TwoTowerModel | None, devices: Devices, steps: int) -> StepFunction:
    """Build the step.

    On one device a step is two programs, so that runs that choose otherwise, or longer, share the second;
    unless the second needs what the first has computed, or a reference.
    """
    if devices.count > 1 or steps > 1 or config.reuses_scoring or config.compares_with_reference:
        return build_step(config, scorer, devices, steps)
    choose, learn = build_halves(config, scorer, devices)
    total = jax.numpy.int32(config.total_steps)

    def step(
        state: TrainState, batch: dict[str, Any], reference: Parameters | None
    ) -> tuple[TrainState, Metrics]:
        recent, choice = state.recent, Metrics()
        if choose is not None:
            recent, batch, choice = choose(state._replace(optimizer=None), batch, reference)
        state, metrics = learn(state._replace(recent=None), batch, total)
        return state._replace(recent=recent), choice | metrics

    return step


def _super_batch(metrics: Metrics, examples: np.ndarray, rows: slice) -> SuperBatch:
    """Return what a step chose from, as far as this process loaded it.

    Args:
        metrics: Of the step.
        examples: int64 [k], global numbers of the candidates.
        rows: Which rows of the super-batch they are.
    """
    scores, here = np.full(len(examples), np.nan, np.float32), np.arange(len(examples), dtype=np.int32)
    if "scores" in metrics:
        parts = sorted(metrics["scores"].addressable_shards, key=lambda part: part.index[-1].start or 0)
        scores = np.concatenate([np.asarray(part.data) for part in parts])
    if "selected" in metrics:
        chosen = np.asarray(metrics["selected"].addressable_data(0)) - (rows.start or 0)
        here = chosen[(chosen >= 0) & (chosen < len(examples))]
    return SuperBatch(examples, scores, here)


@dataclasses.dataclass(frozen=True)
class _Spent:
    """What training has cost, from the number of examples seen."""

    per_example: float
    later: float | None
    until: int | None

    def __call__(self, seen: int) -> float:
        if self.until is None or self.later is None or seen <= self.until:
            return seen * self.per_example
        return self.until * self.per_example + (seen - self.until) * self.later


class _Stepper:
    """The compiled step, for one step per call and for several."""

    def __init__(
        self,
        config: TrainConfig,
        scorer: TwoTowerModel | None,
        devices: Devices,
        reference: Parameters | None,
    ) -> None:
        self._devices = devices
        self._reference = reference
        self._first_row = devices.rows(config.super_batch_size).start
        sizes = {1, config.runtime.steps_per_dispatch}
        uniform = config.selection.model_copy(update={"rule": "uniform"})
        of_phases = {True: config} if config.selecting_steps else {}
        if config.selecting_steps < config.total_steps:
            of_phases[False] = config.model_copy(update={"selection": uniform})
        self._functions = {
            (n, selects): _build(phase, scorer, devices, n)
            for selects, phase in of_phases.items()
            for n in sizes
        }
        self._watched: list[dict[str, jax.Array]] = []
        self._trained: list[tuple[list[np.ndarray], jax.Array | None]] = []
        self._compiled: set[tuple[int, bool]] = set()

    def compiles(self, steps: int, selects: bool) -> bool:
        """Return whether a call for so many steps, selecting or not, will compile its function first."""
        return (steps, selects) not in self._compiled

    def __call__(
        self, state: TrainState, batches: list[dict[str, np.ndarray]], selects: bool
    ) -> tuple[TrainState, Metrics]:
        """Take one step per batch; returns at once while the devices go on computing.

        Args:
            state: What was learned so far.
            batches: Super-batches, or what is trained on as it is.
            selects: Whether sub-batches are selected.
        """
        names = [name for name in batches[0] if name not in _OF_THE_HOST]
        read = [batch["index"] for batch in batches]
        if state.recent is not None:
            names.append("index")
            # JAX has 32 bits; larger numbers would only be confused in these records.
            batches = [batch | {"index": batch["index"].astype(np.uint32)} for batch in batches]
        if len(batches) == 1:
            arrays = self._devices.split({name: batches[0][name] for name in names})
        else:
            stacked = {name: np.stack([batch[name] for batch in batches]) for name in names}
            arrays = self._devices.split(stacked, axis=1)
        program = (len(batches), selects)
        state, metrics = self._functions[program](state, arrays, self._reference)
        self._compiled.add(program)
        self._trained.append((read, metrics.get("selected")))
        self._watched.append({name: metrics[name] for name in _WATCHED if name in metrics})
        return state, metrics if len(batches) == 1 else {name: value[-1] for name, value in metrics.items()}

    def count(self, distinct: Distinct | None) -> None:
        """Count the examples that were trained on since the last call, as far as this process loaded them."""
        trained, self._trained = self._trained, []
        if distinct is None:
            return
        for read, selected in trained:
            if selected is None:
                distinct.add(np.concatenate(read))
                continue
            positions = np.asarray(selected.addressable_data(0)).reshape(len(read), -1) - self._first_row
            for index, here in zip(read, positions, strict=True):
                distinct.add(index[here[(here >= 0) & (here < len(index))]])

    def finite(self, metrics: Metrics, step: int) -> dict[str, float]:
        """Return the scalar metrics of the last step as floats; raises as `check` does."""
        self.check(step)
        return {name: float(value) for name, value in metrics.items() if not value.ndim}

    def check(self, step: int) -> None:
        """Check the losses and scores since the last call, up to a step.

        Raises:
            FloatingPointError: One is not finite; names its step.
        """
        watched, self._watched = self._watched, []
        found = []
        for name, what in _WATCHED.items():
            # Calls without a metric count as steps all the same.
            taken = [np.atleast_1d(m.get(name, np.zeros_like(m["loss"]))) for m in watched]
            values = np.concatenate([np.zeros(0), *taken])
            for place in np.flatnonzero(~np.isfinite(values))[:1].tolist():
                where = step - len(values) + 1 + place
                found.append((where, f"{name} is {values[place]} at step {where}: {what}"))
        if found:
            raise FloatingPointError(min(found, key=lambda bad: bad[0])[1])


class _Marks:
    """The steps at which something other than training happens.

    Steps are taken up to `steps_per_dispatch` at a time, on a grid that depends on the step's number alone,
    so that a resumed run calls the same compiled functions as an uninterrupted one.
    """

    def __init__(self, config: TrainConfig) -> None:
        runtime, points = config.runtime, config.evaluation.points
        self._total = config.total_steps
        self._log, self._save = runtime.log_every_steps, runtime.checkpoint_every_steps
        self._keep_best = runtime.keep_best
        self._size = runtime.steps_per_dispatch
        self._config = config
        self._evaluations = {math.ceil(self._total * i / points) for i in range(1, points + 1)}

    def records(self, step: int) -> bool:
        """Return whether the super-batch of a step is recorded: the first one, and those of evaluations."""
        return step == 1 or self.evaluates(step)

    def logs(self, step: int) -> bool:
        """Return whether metrics are logged after a step."""
        return step % self._log == 0 or step == self._total

    def evaluates(self, step: int) -> bool:
        """Return whether the model is evaluated after a step."""
        return step in self._evaluations

    def saves(self, step: int) -> bool:
        """Return whether a checkpoint is saved after a step: at intervals, and where it may be the best."""
        return step % self._save == 0 or self.may_be_best(step) or step == self._total

    def may_be_best(self, step: int) -> bool:
        """Return whether the checkpoint after a step is kept if it is the best so far."""
        return self._keep_best and self.evaluates(step)

    def at(self, step: int) -> bool:
        """Return whether any of these, or a diagnosis, happens after a step."""
        is_marked = self.logs(step) or self.records(step) or self.saves(step)
        return is_marked or bool(self._config.diagnoses(step))

    def may_stop(self, step: int) -> bool:
        """Return whether to ask if the run should stop: several processes have to agree, which takes time."""
        return jax.process_count() == 1 or self.at(step)

    def steps_from(self, step: int) -> int:
        """Return how many steps to take in one call."""
        inner = range(step + 1, step + self._size)
        whole = step % self._size == 0 and self._config.selecting_steps not in inner
        whole = whole and not any(self.at(s) for s in inner)
        return self._size if whole else 1


class _Clock:
    """Measures the speed and the seconds of training, without compilation, evaluation and checkpoints."""

    def __init__(self, step: int, trained: float) -> None:
        """Start it.

        Args:
            step: Steps done.
            trained: Seconds of training that they took; NaN if unknown.
        """
        self._step = step
        self._start = self._since = time.perf_counter()
        self._waited = 0.0
        self._trained = trained

    @property
    def trained(self) -> float:
        """Seconds of training so far, of all attempts; repeated steps count once. NaN if unknown."""
        return self._trained + time.perf_counter() - self._since

    def read(self, step: int, batch_size: int) -> tuple[float, float]:
        """Return examples seen per second, and the share of time spent on waiting, since the last call."""
        now = time.perf_counter()
        elapsed = now - self._start
        rate, waited = (step - self._step) * batch_size / elapsed, self._waited / elapsed
        self._step, self._start, self._waited = step, now, 0.0
        return rate, waited

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Count a while as waiting for data."""
        began = time.perf_counter()
        yield
        self._waited += time.perf_counter() - began

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Stop the clock while a step is compiled, and log how long that took."""
        began = time.perf_counter()
        with self.stopped():
            yield
        _LOG.info("compiled in %.1f s", time.perf_counter() - began)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop the clock for a while."""
        began = time.perf_counter()
        yield
        passed = time.perf_counter() - began
        self._start += passed
        self._since += passed
