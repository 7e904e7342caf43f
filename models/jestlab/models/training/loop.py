"""One training run from data to final evaluation, resumable at any checkpoint."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from ..config import TrainConfig
from ..data import datasets
from ..data.files import write_whole
from ..data.pipeline import training_batches
from ..data.tokenizer import Tokenizer, ensure_tokenizer
from ..evaluation import Evaluator
from ..two_towers import Parameters, TwoTowerModel, initialize
from .checkpoints import Checkpoints, load_parameters
from .events import EventWriter, flatten
from .step import build_step, initial_state
from .tracker import Tracker

_LOG = logging.getLogger(__name__)
_TOKENIZER = "tokenizer.model"


def train(
    config: TrainConfig,
    *,
    directory: Path,
    data_cache: Path,
    flops_per_example: float,
    tracker: Tracker,
    reference: tuple[TrainConfig, Path] | None = None,
) -> bool:
    """Train, evaluate and checkpoint until the schedule's end, from the newest checkpoint if there is one.

    Args:
        config: The run.
        directory: The run's folder; `checkpoints/`, `events/` and `tokenizer.model` are written in it.
        data_cache: Where data made from settings lie, shared by all runs.
        flops_per_example: Cost of one example seen, for `flops_total`.
        tracker: Receives metrics and scores.
        reference: Config and folder of the finished reference run, if the selection scores with one.

    Returns:
        True when the schedule is done, False when the tracker asked to stop; a checkpoint was saved then.

    Raises:
        FloatingPointError: The loss is not finite; the message names the step.
        ValueError: The reference reads images of another size.
    """
    web = datasets.ensure_web(config.data.train, config.web_seed, data_cache)
    benchmark = datasets.ensure_benchmark(config.data.benchmark, data_cache)
    tokenizer = ensure_tokenizer(web, config.model.text.vocabulary_size)
    write_whole(directory / _TOKENIZER, tokenizer.model)  # whoever scores with this run reads as it does
    scorer = _load_reference(config, reference)

    batches = training_batches(
        web,
        filter=config.data.filter,
        tokenizer=tokenizer,
        image_size=config.model.vision.image_size,
        text_length=config.model.text.length,
        batch_size=config.super_batch_size,
        seed=config.seed,
        reference_tokenizer=scorer.other_reading(tokenizer, config.model.text.length) if scorer else None,
    )
    evaluator = Evaluator(config, benchmark, tokenizer)
    step_function = build_step(config, scorer.model if scorer else None)
    checkpoints = Checkpoints(directory / "checkpoints", config.runtime.keep_checkpoints)
    model_key, selection_key = jax.random.split(jax.random.key(config.seed))
    model_key = jax.random.fold_in(model_key, config.initialization)
    fresh = initial_state(config, initialize(config.model, model_key))
    state = checkpoints.restore(fresh, batches)
    step = int(state.step)
    events = EventWriter(directory / "events", flatten(config.model_dump(mode="json")), step)

    total, b = config.total_steps, config.batch_size
    evaluation_steps = {
        math.ceil(total * i / config.evaluation.points) for i in range(1, config.evaluation.points + 1)
    }
    timer = _Timer(step)
    _LOG.info("training from step %d to %d, B %d, b %d", step, total, config.super_batch_size, b)
    tracker.progress(step, total)
    try:
        while step < total:
            if tracker.stop_requested():
                tracker.flush()
                checkpoints.save(state, batches)
                return False
            batch = next(batches)
            state, metrics = step_function(
                state,
                {name: batch[name] for name in batch if name != "index"},
                selection_key,
                scorer.parameters if scorer else None,
            )
            step += 1
            seen, flops = step * b, step * b * flops_per_example

            if step % config.runtime.log_every_steps == 0 or step == total:
                values = _finite(metrics, step) | {"examples_seen": seen, "flops_total": flops}
                tracker.log(step, values)
                rate = timer.rate(step, b)
                events.scalars(step, values | {"examples_per_second": rate})
                _LOG.info("step %d/%d  loss %.4f  %.0f examples/s", step, total, values["loss"], rate)
                tracker.progress(step, total)
            if step in evaluation_steps:
                with timer.paused():
                    scores = evaluator(state.parameters)
                tracker.evaluation(step, seen, flops, scores)
                events.scalars(step, scores)
                _LOG.info("step %d/%d  %s", step, total, "  ".join(f"{k} {v:.3f}" for k, v in scores.items()))
            if step % config.runtime.checkpoint_every_steps == 0 or step == total:
                with timer.paused():
                    tracker.flush()
                    checkpoints.save(state, batches)
    finally:
        events.close()
        checkpoints.close()
    return True


class _Reference(NamedTuple):
    """A trained model whose loss says what is learnable, and how it reads captions."""

    model: TwoTowerModel
    parameters: Parameters
    tokenizer: Tokenizer
    length: int  # tokens

    def other_reading(self, tokenizer: Tokenizer, length: int) -> tuple[Tokenizer, int] | None:
        """Its tokenizer and length, unless the learner's give the same tokens."""
        alike = (self.tokenizer.digest, self.length) == (tokenizer.digest, length)
        return None if alike else (self.tokenizer, self.length)


def _load_reference(config: TrainConfig, reference: tuple[TrainConfig, Path] | None) -> _Reference | None:
    """The reference's model, parameters and tokenizer; it must read images of the learner's size."""
    if not config.needs_reference:
        return None
    if reference is None:
        raise ValueError("selection.reference names no finished run")
    theirs, directory = reference
    if theirs.model.vision.image_size != config.model.vision.image_size:
        raise ValueError(
            f"the reference reads images of {theirs.model.vision.image_size} px, "
            f"the learner of {config.model.vision.image_size} px: set model.vision.image_size alike"
        )
    return _Reference(
        TwoTowerModel(theirs.model),
        load_parameters(directory / "checkpoints", theirs.model),
        Tokenizer((directory / _TOKENIZER).read_bytes()),
        theirs.model.text.length,
    )


def _finite(metrics: Mapping[str, jax.Array], step: int) -> dict[str, float]:
    """Metrics as floats; a loss that is not finite ends the run."""
    values = {name: float(value) for name, value in metrics.items()}
    if not np.isfinite(values["loss"]):
        raise FloatingPointError(f"loss is {values['loss']} at step {step}: training diverged")
    return values


class _Timer:
    """Examples per second of training alone: evaluation and checkpoints do not count."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._start = time.perf_counter()

    def rate(self, step: int, batch_size: int) -> float:
        """Examples seen per second since the last call."""
        now = time.perf_counter()
        rate = (step - self._step) * batch_size / (now - self._start)
        self._step, self._start = step, now
        return rate

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Context in which time stands still."""
        began = time.perf_counter()
        yield
        self._start += time.perf_counter() - began
