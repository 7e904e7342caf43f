"""Diagnose how learnable the batches are that each rule selects: Figure 2 of the paper.

Metrics, means over the super-batches, in words of `DiagnoseConfig`. The "learnability" of a sub-batch is its
score by the criterion, the mean over its examples; that of a part of it is the mean over that part. What is
no function of the filtering ratio is at `filtering_ratio`.

    learnability_matrix/size                        n, at step 0
    learnability_matrix                             by image · n + text, of the first n pairs of the first
                                                    super-batch; none with the softmax loss
    learnability/joint                              by chunk 1 … N: of all that is chosen until then
    learnability/gibbs                              by resampled places, thinned to less than 200 numbers
    learnability/<rule>                             uniform, independent: at step 1; greedy: at step b
    learnability/filtering_ratio/<f>/joint          by N
    learnability/filtering_ratio/<f>/independent    at step 1
    effective_sample_size/<rule>                    of each draw, by the steps of learnability/<rule>
    selected/<rule>/<column>/<value>                share of what each rule selected, at step 0;
                                                    `candidates`: of the super-batches

Letters: B super-batch, b sub-batch, N chunks, f filtering ratio, E embedding width.
"""

from __future__ import annotations

import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from jestlab.models.config import DiagnoseConfig, TwoTowers
from jestlab.models.data import datasets
from jestlab.models.data.curation import Columns, shares_by_value
from jestlab.models.data.pipeline import Batch, training_batches
from jestlab.models.data.shards import ShardSource
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices
from jestlab.models.extensions import Own
from jestlab.models.losses import score_matrix
from jestlab.models.scoring.columns import columns_of
from jestlab.models.selection import CRITERIA, Embeddings, Selected, select
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.training.reference import TOKENIZER, Reference, Scorer, load
from jestlab.models.training.step import NO_EXAMPLE, RECENT_STEPS
from jestlab.models.training.tracker import Tracker
from jestlab.models.two_towers import Parameters, TwoTowerModel, embed, temperature_and_bias

_LOG = logging.getLogger(__name__)
_MOST_EXAMPLES = 1_024  # of a sub-batch whose metadata are read: shares to within 1.6 points

Ints = npt.NDArray[np.int64]


def shares(
    source: ShardSource, columns: Sequence[str], examples: Mapping[str, Iterable[Ints]]
) -> dict[str, float]:
    """Count examples by the values of metadata columns, as shares.

    Args:
        source: The folder of shards.
        columns: Of their metadata.
        examples: What they are called → their global numbers, in any number of parts.

    Returns:
        `selected/<called>/<column>/<value>`, with values as `curation.shares_by_value` has them.
    """
    counted = shares_by_value(
        source, columns, {called: np.concatenate([*parts]) for called, parts in examples.items()}
    )
    return {
        f"selected/{called}/{column}/{value}": share
        for column, values in counted.items()
        for value, by_called in values.items()
        for called, share in by_called.items()
    }


class Composition:
    """Records what kinds of examples a training run selects.

    The numbers of the examples are in the training state, so a resumed run records what the uninterrupted one
    would.
    """

    def __init__(self, folder: Path, rule: str, columns: Sequence[str]) -> None:
        """Open the metadata of a run's folder of shards; `columns` are what to count by."""
        self._source = ShardSource(folder)
        self._rule = rule
        self._columns = columns

    def __call__(self, step: int, recent: npt.NDArray[np.uint32], candidates: Ints) -> dict[str, float]:
        """Compute the metrics after a step.

        Args:
            step: Its number, counted from 1.
            recent: uint32 [RECENT_STEPS, b], `TrainState.recent`.
            candidates: int64 [k], the examples of its super-batch that this process loaded: a uniform sample.

        Returns:
            `selected_again`, the share of the sub-batch that was in one of the earlier sub-batches that the
            state remembers (0 within an epoch, where each example comes once); and `shares` of the
            sub-batch, called by the rule, and of `candidates`. If metadata cannot be read, only these are
            missing.
        """
        row = (step - 1) % RECENT_STEPS
        now, before = recent[row].astype(np.int64), np.delete(recent, row, axis=0)
        again = float(np.isin(now, before[before != NO_EXAMPLE]).mean())
        sample = now[np.linspace(0, len(now) - 1, min(len(now), _MOST_EXAMPLES)).astype(int)]
        try:
            counted = {self._rule: [sample], "candidates": [candidates[: len(sample)]]}
            found = shares(self._source, self._columns, counted)
        except (OSError, ValueError) as error:
            _LOG.warning("step %d: kinds of the selected examples unknown: %s", step, error)
            found = {}
        return {"selected_again": again, **found}


_ROWS = 256  # examples of a forward pass
_POINTS = 200  # of Gibbs sampling's many draws that are kept
_INPUTS = ("image", "text", "reference_text")  # of a batch, for the models
_ORDER = 2**32  # added to the seed: an order in which no run trains, since its seeds are below

Series = dict[str, tuple[Ints, npt.NDArray[np.float64]]]
"""Metrics: name → steps and values."""


def diagnose(
    config: DiagnoseConfig,
    *,
    data_cache: Path,
    tracker: Tracker,
    learner: tuple[TwoTowers, Path],
    reference: Reference | None = None,
    scores: Path | None = None,
) -> bool:
    """Select from super-batches of real data by every rule, and log what came of it when all are done.

    Nothing is saved before that: a restart begins again and finds the same numbers.

    Args:
        config: The run.
        data_cache: Folder of the data that are made from settings, shared by all runs.
        tracker: Receives progress, by super-batches, and the metrics named above.
        learner: Architecture and folder of the finished run: `checkpoints/`, `tokenizer.model`.
        reference: The finished reference run, if the criterion scores with one.
        scores: Folder of the finished run whose scores the data's filter reads.

    Returns:
        True when all is logged, False when the tracker asked to stop.

    Raises:
        FileNotFoundError: A run's folder lacks its checkpoint or tokenizer.
        ValueError: The reference does not fit the learner or the data, or embeddings are not finite.
    """
    web = datasets.ensure_web(config.data.train, config.web_seed, data_cache, config.code)
    measured: dict[str, list[Any]] = defaultdict(list)
    chosen: dict[str, list[Ints]] = defaultdict(list)
    matrix: Series = {}
    tracker.progress(0, config.draws)
    columns = columns_of(scores, config.data, web) if scores is not None else None
    batches = _super_batches(config, web, learner, reference if config.needs_reference else None, columns)
    for draw in range(config.draws):
        if tracker.stop_requested():
            return False
        with tracker.phase("startup") if draw == 0 else contextlib.nullcontext():  # both models are read
            batch = next(batches)
        series, by_rule = _measure(config, jax.random.fold_in(jax.random.key(config.seed), draw), batch)
        for name, of_draw in series.items():
            measured[name].append(of_draw)
        for rule, examples in by_rule.items():
            chosen[rule].append(examples)
        if draw == 0:
            matrix = _matrix(config, batch)
        _LOG.info("super-batch %d/%d", draw + 1, config.draws)
        tracker.progress(draw + 1, config.draws)
    means = {name: (of[0][0], np.mean([values for _, values in of], axis=0)) for name, of in measured.items()}
    kinds = shares(ShardSource(web), config.columns, chosen)
    at_0 = {name: (np.array([0]), np.array([share])) for name, share in kinds.items()}
    _log(tracker, matrix | means | at_0)
    return True


class _SuperBatch(NamedTuple):
    """The B embedded candidates of a super-batch."""

    examples: Ints  # [B], global numbers
    learner: Embeddings | None
    reference: Embeddings | None

    def first(self, count: int) -> _SuperBatch:
        """Return the first few of them."""

        def part(z: Embeddings | None) -> Embeddings | None:
            return None if z is None else z._replace(image=z.image[:count], text=z.text[:count])

        return _SuperBatch(self.examples[:count], part(self.learner), part(self.reference))


def _super_batches(
    config: DiagnoseConfig,
    web: Path,
    learner: tuple[TwoTowers, Path],
    reference: Reference | None,
    columns: Columns | None,
) -> Iterator[_SuperBatch]:
    """Yield super-batches of the largest size endlessly, in the order of the examples."""
    towers, folder = learner
    tokenizer = Tokenizer((folder / TOKENIZER).read_bytes())
    scorer = Scorer()
    if reference is not None:
        scorer = load(reference, config.data, web, towers, tokenizer, columns)
    embedder = _Embedder(
        TwoTowerModel(towers), load_parameters(folder / "checkpoints", towers), scorer, config.scores_learner
    )
    batches = training_batches(
        web,
        filter=config.data.filter,
        recaption=config.data.recaption,
        repeat=config.data.repeat,
        columns=columns,
        tokenizer=tokenizer,
        image_size=towers.vision.image_size,
        text_length=towers.text.length,
        batch_size=_ROWS,
        together=config.super_batch_size(),
        seed=config.seed + _ORDER,
        reference_tokenizer=scorer.tokenizer,
        lookups=scorer.lookups,
        threads=config.runtime.loader_threads,
        damaged_share=config.runtime.damaged_share,
    )
    size = config.super_batch_size()
    held: list[dict[str, np.ndarray]] = []
    while True:
        while sum(len(rows["index"]) for rows in held) < size:
            batch = next(batches)
            held.append({"index": batch["index"], **embedder(batch)})
        rows = {name: np.concatenate([part[name] for part in held]) for name in held[0]}
        held = [{name: array[size:] for name, array in rows.items()}]
        examples = rows["index"][:size]
        if repeated := size - len(np.unique(examples)):
            _LOG.warning("a super-batch of %d holds %d examples twice: the data set is small", size, repeated)
        yield _SuperBatch(
            examples, *(embedder.embeddings(rows, name, size) for name in ("learner", "reference"))
        )


class _Embedder:
    """The forward pass of learner and reference, compiled once, over all devices that divide its rows."""

    def __init__(
        self, learner: TwoTowerModel, parameters: Parameters, scorer: Scorer, scores_learner: bool
    ) -> None:
        self._devices = Devices.for_sizes(_ROWS)
        models = {"learner": learner if scores_learner else None, "reference": scorer.model}
        self._models = {name: model for name, model in models.items() if model is not None}
        given = {"learner": parameters if scores_learner else None, "reference": scorer.parameters}
        self._scalars = {name: temperature_and_bias(its) for name, its in given.items() if its is not None}
        self._parameters = self._devices.replicate({name: given[name] for name in self._models})
        self._embed = jax.jit(self._forward, out_shardings=self._devices.replicated)

    def _forward(self, parameters: dict[str, Any], batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        found: dict[str, jax.Array] = {}
        for name, model in self._models.items():
            text = batch.get(f"{name}_text", batch["text"])
            z = embed(model, parameters[name], batch["image"], text)
            found |= {f"{name}_image_embedding": z.image, f"{name}_text_embedding": z.text}
        return found

    def __call__(self, batch: Batch) -> dict[str, np.ndarray]:
        """Embed a batch: float32 [rows, E], as `<model>_image_embedding` and `<model>_text_embedding`."""
        cached = {name: array for name, array in batch.items() if name.endswith("_embedding")}
        inputs = {name: array for name, array in batch.items() if name in _INPUTS}
        computed = self._embed(self._parameters, self._devices.split(inputs)) if self._models else {}
        return cached | {name: np.asarray(array) for name, array in computed.items()}

    def embeddings(self, rows: Mapping[str, np.ndarray], model: str, count: int) -> Embeddings | None:
        """Return the first rows as embedded by "learner" or "reference"; None if it does not score."""
        if model not in self._scalars:
            return None
        image, text = (
            jax.numpy.asarray(rows[f"{model}_{part}_embedding"][:count], jax.numpy.float32)
            for part in ("image", "text")
        )
        return Embeddings(image, text, *self._scalars[model])


def _measure(config: DiagnoseConfig, key: jax.Array, batch: _SuperBatch) -> tuple[Series, dict[str, Ints]]:
    """Select from a super-batch by every rule: the metrics, and by rule the examples at `filtering_ratio`."""

    def by(rule: str, filtering_ratio: float, chunks: int = config.joint_chunks) -> tuple[Selected, Ints]:
        candidates = batch.first(config.super_batch_size(filtering_ratio))
        selected = select(
            key,  # the same for all, so that they differ by their rule and not by their luck
            candidates.learner,
            candidates.reference,
            batch_size=config.batch_size,
            rule=rule,
            criterion=_criterion(config),
            loss=config.scoring_loss,
            gain=config.gain,
            chunks=chunks,
            sweeps=config.sweeps,
            trace=True,
        )
        return selected, candidates.examples[np.asarray(selected.indices)]

    series: Series = {}
    for f in config.filtering_ratios:
        of_rules = {
            "independent": [(1, by("independent", f)[0])],
            "joint": [(chunks, by("joint", f, chunks=chunks)[0]) for chunks in config.chunks],
        }
        for rule, selections in of_rules.items():
            series[f"learnability/filtering_ratio/{f:g}/{rule}"] = (
                np.array([chunks for chunks, _ in selections], np.int64),
                np.array([selected.score[-1] for _, selected in selections], np.float64),
            )

    chosen = {"candidates": batch.first(config.super_batch_size(config.filtering_ratio)).examples}
    for rule in ("uniform", "independent", "joint", "greedy", "gibbs"):
        selected, chosen[rule] = by(rule, config.filtering_ratio)
        draws = len(selected.score)
        steps = np.array([draws]) if rule == "greedy" else _spread(draws)
        for name, values in (
            ("learnability", selected.score),
            ("effective_sample_size", selected.effective),
        ):
            series[f"{name}/{rule}"] = (steps, np.asarray(values, np.float64)[steps - 1])
    return series, chosen


def _criterion(config: DiagnoseConfig) -> str | Own:
    """Return the name of a built-in criterion, or one's own with its options."""
    if config.criterion in CRITERIA:
        return config.criterion
    return Own.load("criterion", config.criterion, config.criterion_options)


def _spread(draws: int) -> Ints:
    """Return 1 … draws, thinned evenly on a logarithmic axis if there are many."""
    if draws <= _POINTS:
        return np.arange(1, draws + 1)
    return np.unique(np.geomspace(1, draws, _POINTS).round().astype(np.int64))


def _matrix(config: DiagnoseConfig, batch: _SuperBatch) -> Series:
    """Score the first images with the first texts; empty if the loss is not a sum over pairs."""
    if config.scoring_loss != "sigmoid":
        return {}
    n = config.matrix_size
    scores = score_matrix(_criterion(config), batch.first(n).learner, batch.first(n).reference)
    return {
        "learnability_matrix/size": (np.array([0]), np.array([n], np.float64)),
        "learnability_matrix": (np.arange(n * n), np.asarray(scores, np.float64).reshape(-1)),
    }


def _log(tracker: Tracker, series: Series) -> None:
    """Log the metrics step by step, as trackers expect them."""
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for name, (steps, values) in series.items():
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            by_step[step][name] = value
    for step in sorted(by_step):
        tracker.log(step, by_step[step])
    tracker.flush()
