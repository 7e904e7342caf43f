"""Diagnose how learnable the batches are that each rule selects: Figure 2 of the paper.

Metrics are means over the super-batches; `DiagnoseConfig` defines the terms. The "learnability" of a
sub-batch is its score by the criterion, the mean over its examples. Metrics that don't depend on the
filtering ratio are measured at `filtering_ratio`.

    learnability_matrix/size                        n, at step 0
    learnability_matrix                             of the first n pairs of the first super-batch, at step
                                                    image · n + text; absent for the softmax loss
    learnability/joint                              at step i: of chunks 1 … i together
    learnability/gibbs                              by resampled places, thinned to less than 200 numbers
    learnability/<rule>                             uniform, independent: at step 1; greedy: at step b
    learnability/filtering_ratio/<f>/joint          by N
    learnability/filtering_ratio/<f>/independent    at step 1
    effective_sample_size/<rule>                    of each draw, by the steps of learnability/<rule>
    selected/<rule>/<column>/<value>                share of the examples that a rule selected, at step 0;
                                                    `candidates`: of the super-batches

Letters: B super-batch, b sub-batch, N chunks, f filtering ratio, E embedding width.
"""

import functools
import itertools
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jestlab.models.config import DiagnoseConfig, TrainConfig, TwoTowers
from jestlab.models.data import datasets
from jestlab.models.data.curation import Columns, shares_by_value
from jestlab.models.data.pipeline import training_batches
from jestlab.models.data.shards import ShardIndex
from jestlab.models.data.tokenizer import Tokenizer
from jestlab.models.devices import Devices
from jestlab.models.extensions import CustomFunction, code_of
from jestlab.models.losses import score_matrix
from jestlab.models.scoring.columns import columns_of
from jestlab.models.selection import CRITERIA, Embeddings, Selected, select
from jestlab.models.training.checkpoints import load_parameters
from jestlab.models.training.reference import TOKENIZER, Reference, Scorer, load
from jestlab.models.training.tracker import Tracker
from jestlab.models.two_towers import TwoTowerModel, embed, temperature_and_bias

_LOG = logging.getLogger(__name__)
_MOST_EXAMPLES = 1_024  # of a sub-batch whose metadata are read: shares to within 1.6 points

Ints = npt.NDArray[np.int64]


def _shares(source: ShardIndex, columns: Sequence[str], groups: Mapping[str, Ints]) -> dict[str, float]:
    """Return `selected/<group>/<column>/<value>` → share of the group's examples, int64 [k]."""
    return {
        f"selected/{group}/{column}/{value}": share
        for column, values in shares_by_value(source, columns, groups).items()
        for value, by_group in values.items()
        for group, share in by_group.items()
    }


def composition_of(
    source: ShardIndex, config: TrainConfig, step: int, selected: np.ndarray, candidates: Ints
) -> dict[str, float]:
    """Compute which kinds of examples a training step selected.

    Args:
        step: Number of the step, from 1.
        selected: uint32 [b], the examples of the sub-batch.
        candidates: int64 [k], the examples of the super-batch that this process loaded: a uniform sample.

    Returns:
        `selected/<rule>/<column>/<value>`, the share of the sub-batch with a value of a metadata column, and
        the same for `candidates`; empty if metadata cannot be read.
    """
    rows = np.linspace(0, len(selected) - 1, min(len(selected), _MOST_EXAMPLES)).astype(int)
    groups = {config.selection.rule: selected[rows].astype(np.int64), "candidates": candidates[: len(rows)]}
    try:
        return _shares(source, config.runtime.diagnostics.columns, groups)
    except (OSError, ValueError) as error:
        _LOG.warning("step %d: kinds of the selected examples unknown: %s", step, error)
        return {}


_ROWS = 256  # examples per forward pass
_POINTS = 200  # of Gibbs sampling's many draws that are kept
_INPUTS = ("image", "text", "reference_text")  # of a batch, for the models
_ORDER = 2**32  # added to the seed: an order in which no run trains, since its seeds are smaller

Metrics = dict[tuple[int, str], float]  # (step, name) → value
Pairs = dict[str, Embeddings]  # of candidates, by the models that score: "learner", "reference", or both


def diagnose(
    config: DiagnoseConfig,
    *,
    data_cache: Path,
    tracker: Tracker,
    learner: tuple[TwoTowers, Path],
    reference: Reference | None = None,
    scores: Path | None = None,
) -> bool:
    """Select from super-batches of real data by every rule, and log the metrics at the end.

    Nothing is saved before the end: an interrupted diagnosis starts over and computes the same numbers.

    Args:
        data_cache: Folder of generated data, shared by all runs.
        tracker: Receives the progress in super-batches, and the metrics named above.
        learner: Architecture and folder of a completed run: `checkpoints/`, `tokenizer.model`.
        reference: The completed reference run, if the criterion scores with a reference.
        scores: Folder of a completed run whose scores the data's filter reads.

    Returns:
        True when all metrics are logged, False when the tracker asked to stop.

    Raises:
        FileNotFoundError: A run's folder lacks its checkpoint or tokenizer.
        ValueError: The reference does not fit the learner or the data, or embeddings are not finite.
    """
    web = datasets.ensure_web(config, data_cache)
    columns = columns_of(scores, config.data, web)
    criterion = code_of("criterion", config.criterion, config.criterion_options, CRITERIA)
    measured: dict[tuple[int, str], list[float]] = defaultdict(list)
    chosen: dict[str, list[Ints]] = defaultdict(list)
    batches = _super_batches(config, web, learner, reference if config.needs_reference else None, columns)
    for draw, (candidates, pairs) in enumerate(itertools.islice(batches, config.draws)):
        tracker.progress(draw, config.draws)  # the first report ends the run's start-up
        if tracker.stop_requested():
            return False
        key = jax.random.fold_in(jax.random.key(config.seed), draw)
        metrics, selected = _measure(config, criterion, key, pairs)
        if draw == 0 and config.scoring_loss == "sigmoid":  # the loss is a sum over pairs
            first = _first(pairs, config.matrix_size)
            matrix = score_matrix(criterion, first.get("learner"), first.get("reference"))
            metrics |= {(i, "learnability_matrix"): x for i, x in enumerate(matrix.ravel().tolist())}
            metrics[0, "learnability_matrix/size"] = config.matrix_size
        for step_and_name, value in metrics.items():
            measured[step_and_name].append(value)
        for rule, indices in selected.items():
            chosen[rule].append(candidates[indices])
        _LOG.info("super-batch %d/%d", draw + 1, config.draws)
    by_step: dict[int, dict[str, float]] = defaultdict(dict)
    for (step, name), values in measured.items():
        by_step[step][name] = sum(values) / len(values)
    groups = {rule: np.concatenate(parts) for rule, parts in chosen.items()}
    by_step[0] |= _shares(ShardIndex.load(web), config.columns, groups)
    for step in sorted(by_step):
        tracker.log(step, by_step[step])
    tracker.progress(config.draws, config.draws)
    tracker.flush()
    return True


def _super_batches(
    config: DiagnoseConfig,
    web: Path,
    learner: tuple[TwoTowers, Path],
    reference: Reference | None,
    columns: Columns | None,
) -> Iterator[tuple[Ints, Pairs]]:
    """Yield super-batches of the largest size endlessly: global example numbers, int64 [B], and pairs."""
    (towers, folder), size = learner, config.super_batch_size()
    tokenizer = Tokenizer((folder / TOKENIZER).read_bytes())
    scorer = load(reference, config.data, web, towers, tokenizer, columns) if reference else Scorer()
    batches = training_batches(
        web,
        config.data,
        towers,
        config.runtime,
        columns=columns,
        tokenizer=tokenizer,
        batch_size=_ROWS,
        together=size,
        seed=config.seed + _ORDER,
        reference_tokenizer=scorer.tokenizer,
        lookups=scorer.lookups,
    )
    models = {"reference": scorer.model} if scorer.model else {}
    parameters = {"reference": scorer.parameters} if scorer.parameters else {}
    if config.scores_learner:
        models["learner"] = TwoTowerModel(towers)
        parameters["learner"] = load_parameters(folder / "checkpoints", towers)
    scalars = {name: temperature_and_bias(each) for name, each in parameters.items()}
    devices = Devices.for_sizes(_ROWS)
    on_devices = devices.replicate({name: parameters[name] for name in models})

    @functools.partial(jax.jit, out_shardings=devices.replicated)
    def embedded(parameters: dict[str, Any], batch: dict[str, jax.Array]) -> dict[str, Any]:
        image, texts = batch["image"], {name: batch.get(f"{name}_text", batch["text"]) for name in models}
        return {name: embed(models[name], parameters[name], image, texts[name])[:2] for name in models}

    held: list[Any] = []  # trees of arrays [rows, …]: example numbers, and by model images and texts
    while True:
        while sum(len(examples) for examples, _ in held) < size:
            batch = next(batches)
            inputs = devices.split({name: batch[name] for name in _INPUTS if name in batch})
            cached = {"reference": tuple(batch[name] for name in scorer.lookups)} if scorer.lookups else {}
            held.append((batch["index"], jax.tree.map(np.asarray, embedded(on_devices, inputs)) | cached))
        rows = jax.tree.map(lambda *parts: np.concatenate(parts), *held)
        held = [jax.tree.map(lambda part: part[size:], rows)]
        examples, pairs = jax.tree.map(lambda part: part[:size], rows)
        for name, arrays in pairs.items():
            if not all(np.isfinite(array).all() for array in arrays):
                raise ValueError(f"embeddings of the {name} are not finite: train that run again")
        if repeated := size - len(np.unique(examples)):
            _LOG.warning("a super-batch of %d repeats %d examples: the data set is small", size, repeated)
        z = {name: (*map(jnp.asarray, pairs[name]), *scalars[name]) for name in pairs}
        yield examples, {name: Embeddings._make(each) for name, each in z.items()}


def _first(pairs: Pairs, count: int) -> Pairs:
    """Return the first pairs."""
    return {name: z._replace(image=z.image[:count], text=z.text[:count]) for name, z in pairs.items()}


def _measure(
    config: DiagnoseConfig, criterion: str | CustomFunction, key: jax.Array, pairs: Pairs
) -> tuple[Metrics, dict[str, Ints]]:
    """Select by every rule; return the metrics, and by rule the positions selected at `filtering_ratio`."""

    def by(rule: str, filtering_ratio: float, chunks: int = config.joint_chunks) -> Selected:
        candidates = _first(pairs, config.super_batch_size(filtering_ratio))
        return select(
            key,  # the same for all rules, so that their results don't differ by chance
            candidates.get("learner"),
            candidates.get("reference"),
            batch_size=config.batch_size,
            rule=rule,
            criterion=criterion,
            loss=config.scoring_loss,
            gain=config.gain,
            chunks=chunks,
            sweeps=config.sweeps,
            trace=True,
        )

    metrics: Metrics = {}
    for f in config.filtering_ratios:
        for rule, counts in (("independent", (1,)), ("joint", config.chunks)):
            for chunks in counts:
                score = float(by(rule, f, chunks).score[-1])
                metrics[chunks, f"learnability/filtering_ratio/{f:g}/{rule}"] = score

    chosen = {"candidates": np.arange(config.super_batch_size(config.filtering_ratio))}
    for rule in ("uniform", "independent", "joint", "greedy", "gibbs"):
        selected = by(rule, config.filtering_ratio)
        chosen[rule] = np.asarray(selected.indices)
        scores, effective = selected.score.tolist(), selected.effective.tolist()
        for step in [len(scores)] if rule == "greedy" else _spread(len(scores)):
            metrics[step, f"learnability/{rule}"] = scores[step - 1]
            metrics[step, f"effective_sample_size/{rule}"] = effective[step - 1]
    return metrics, chosen


def _spread(draws: int) -> list[int]:
    """Return 1 … draws, thinned evenly on a logarithmic axis if there are many."""
    steps = np.arange(1, draws + 1) if draws <= _POINTS else np.geomspace(1, draws, _POINTS).round()
    return [int(step) for step in np.unique(steps)]
