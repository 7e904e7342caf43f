"""Steps and a whole run on the devices that this process is given; results as JSON.

    python steps_on_devices.py all OUT FOLDER DATA      # losses, selections, steps of two configs, and a run
    python steps_on_devices.py train OUT FOLDER DATA    # the run alone

While it trains, what it records is in FOLDER/records.jsonl, a line as soon as it is known. DATA is what
`prepare` made.

Started with one device, eight, or as one of two processes with four each: results must not depend on it.
"""

import copy
import gc
import json
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import compiler, distributed
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import PartitionSpec
from tests.models.support import collectives, own_code, structured

from jestlab.models import evaluation
from jestlab.models.config import TrainConfig
from jestlab.models.data.datasets import ensure_benchmark, ensure_web
from jestlab.models.data.tokenizer import Tokenizer, ensure_tokenizer
from jestlab.models.devices import AXIS, Devices
from jestlab.models.losses import loss_function
from jestlab.models.processes import initialize_processes
from jestlab.models.selection import scores, select
from jestlab.models.training.checkpoints import save_parameters
from jestlab.models.training.loop import train
from jestlab.models.training.reference import Reference
from jestlab.models.training.step import build_step, initial_state
from jestlab.models.training.tracker import NullTracker
from jestlab.models.two_towers import Embeddings, TwoTowerModel, initialize

TINY: dict[str, Any] = {
    "model": {
        "vision": {"width": 16, "depth": 1, "heads": 2, "image_size": 16, "patch_size": 4, "pooling": "map"},
        "text": {"width": 16, "depth": 1, "heads": 2, "length": 24, "pooling": "last", "vocabulary_size": 80},
        "embedding_dim": 16,
    },
    "schedule": {"batch_size": 32, "examples_seen": 32 * 20},
    "optimizer": {"warmup_percent": 0},
    "seed": 5,
}
# With a small gain rounding decides nothing: the noise of two candidates is hardly ever as near as that.
JOINT = {"rule": "joint", "filtering_ratio": 0.5, "chunks": 3, "gain": 1.0, "reference": "r"}
OWN_RULE = f"{own_code.MODULE}:halves"
CONFIGS: dict[str, Any] = {
    "softmax": {
        "loss": "softmax",
        "selection": JOINT,
        "approximation": {"method": "patch_drop", "keep": 0.5, "share": 0.25},
    },
    "flexi": {
        "selection": JOINT,
        "approximation": {"score": True, "share": 0.5},
        "runtime": {"microbatches": 2, "diagnostics": {"every_steps": 2}},
    },
    "own": {
        "loss": f"{own_code.MODULE}:decoupled",
        "selection": JOINT | {"rule": OWN_RULE, "criterion": f"{own_code.MODULE}:clipped"},
        "runtime": {"diagnostics": {"every_steps": 2}},
    },
    "concepts": {"selection": {"rule": "concept_diversity", "concepts": ["label"], "filtering_ratio": 0.5}},
    "both": {
        "loss": "distilled",
        "selection": JOINT | {"rule": f"{own_code.MODULE}:most_named", "concepts": ["label"]},
        "approximation": {"score": True, "share": 0.5},
        "runtime": {"microbatches": 2},
    },
    "compared": {"loss": "drrho", "selection": {"reference": "r"}},
}
STEPS = 3
STEPS_OF_A_RUN = 12


def config_of(name: str) -> TrainConfig:
    return TrainConfig.model_validate(copy.deepcopy(TINY) | CONFIGS[name])


def batch_of(config: TrainConfig, step: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(step)
    B, size = config.super_batch_size, config.model.vision.image_size
    return {
        "image": rng.integers(0, 256, (B, size, size, 3), np.uint8),
        "text": rng.integers(0, 80, (B, config.model.text.length), np.int32),
        "index": rng.integers(0, 1_000, B, np.uint32),
    } | (
        {"concepts": np.sort(rng.integers(-1, 9, (B, 3), np.int32), axis=1)[:, ::-1].copy()}
        if config.selection.concepts
        else {}
    )


def messages_of(name: str, rule: str) -> list[tuple[str, str, bool]]:
    """Pairs of messages of a step, and whether one waits for the other."""
    tree = copy.deepcopy(TINY) | CONFIGS[name]
    tree["selection"] = tree["selection"] | {"rule": rule}
    config = TrainConfig.model_validate(tree)
    devices = Devices.for_sizes(config.super_batch_size, config.batch_size, config.approximate_size)
    state = devices.replicate(
        initial_state(config, initialize(config.model, jax.random.key(0)), jax.random.key(0))
    )
    batch = devices.split({name: x[devices.rows(len(x))] for name, x in batch_of(config, 0).items()})
    step: Any = build_step(config, TwoTowerModel(config.model), devices)
    return collectives.messages(step.lower(state, batch, state.parameters).compile().as_text())


def steps(config: TrainConfig, count: int = STEPS, devices: Devices | None = None):
    """Metrics of some steps, and the parameters after them."""
    devices = devices or Devices.for_sizes(
        config.super_batch_size, config.batch_size, config.approximate_size
    )
    rows = devices.rows(config.super_batch_size)
    reference = devices.replicate(initialize(config.model, jax.random.key(9)))
    step = build_step(config, TwoTowerModel(config.model), devices)
    state = initial_state(config, initialize(config.model, jax.random.key(0)), jax.random.key(config.seed))
    state = devices.replicate(state)
    history = []
    for number in range(count):
        batch = {name: x[rows] for name, x in batch_of(config, number).items()}
        state, metrics = step(state, devices.split(batch), reference if config.needs_reference else None)
        # Scores are split by rows over the processes.
        gathered = {name: process_allgather(value, tiled=True) for name, value in metrics.items()}
        history.append({name: np.asarray(value).tolist() for name, value in gathered.items()})
    parameters = jax.tree.map(lambda x: np.asarray(x.addressable_data(0)), state.parameters)
    return history, parameters


class Recorder(NullTracker):
    def __init__(self, path: Path | None = None):
        super().__init__(lambda: self.stop)
        self.metrics: dict[int, Any] = {}
        self.scores: dict[int, Any] = {}
        self.stop = False
        self.file = path.open("a", buffering=1) if path else None

    def write(self, kind, step, values):
        if self.file:
            self.file.write(json.dumps([kind, step, values]) + "\n")

    def log(self, step, metrics):
        self.metrics[step] = dict(metrics)
        self.write("metrics", step, metrics)

    def evaluation(self, step, examples_seen, flops_total, scores, *, seconds=None):
        self.scores[step] = dict(scores)
        self.write("scores", step, scores)


RUN: dict[str, Any] = copy.deepcopy(TINY) | {
    "data": {
        "train": {"examples": 512, "image_size": 16, "shard_size": 256},
        "benchmark": {"classification_examples": 96, "retrieval_examples": 32, "image_size": 16},
    },
    "schedule": {"batch_size": 16, "examples_seen": 16 * STEPS_OF_A_RUN},
    "evaluation": {"points": 2, "shots": 2, "shot_seeds": 1},
    "runtime": {"log_every_steps": 1, "checkpoint_every_steps": 4, "diagnostics": {"every_steps": 1}},
    "selection": JOINT,
}


def prepare(folder: Path) -> None:
    """Make the data that `trained` reads, and a reference that knows nothing."""
    config = TrainConfig.model_validate(RUN)
    web = ensure_web(config.data.train, config.web_seed, folder / "data")
    ensure_benchmark(config.data.benchmark, folder / "data")
    save_parameters(folder / "reference/checkpoints", initialize(config.model, jax.random.key(9)))
    tokenizer = ensure_tokenizer(web, config.model.text.vocabulary_size)
    (folder / "reference/tokenizer.model").write_bytes(tokenizer.model)


def trained(folder: Path, data: Path) -> dict[str, Any]:
    """Return metrics and scores of a short run with joint selection."""
    recorder = Recorder(folder / "records.jsonl")
    signal.signal(signal.SIGTERM, lambda *_: setattr(recorder, "stop", True))
    config = TrainConfig.model_validate(RUN)
    done = train(
        config,
        directory=folder / "joint",
        data_cache=data / "data",
        flops_per_example=1.0,
        tracker=recorder,
        reference=Reference(data / "reference", config.model),
    )
    return {"done": done, "metrics": recorder.metrics, "scores": recorder.scores}


def evaluated(data: Path) -> list[Any]:
    """Embeddings of the retrieval set, images and texts, as an untrained model is evaluated by them.

    The scores would be those of chance, wherever rows went.
    """
    config = TrainConfig.model_validate(RUN)
    devices = Devices.for_sizes(config.super_batch_size, config.batch_size, config.approximate_size)
    tokenizer = Tokenizer((data / "reference/tokenizer.model").read_bytes())
    benchmark = ensure_benchmark(config.data.benchmark, data / "data")
    compared: list[Any] = []

    def recalls(images: np.ndarray, captions: np.ndarray, _: np.ndarray) -> dict[str, float]:
        compared.extend((images.tolist(), captions.tolist()))
        return {}

    setattr(evaluation, "recalls", recalls)  # noqa: B010
    parameters = devices.replicate(initialize(config.model, jax.random.key(0)))
    evaluation.Evaluator(config, benchmark, tokenizer, devices)(parameters)
    return compared


def losses() -> dict[str, Any]:
    """Value and gradients of three losses, one of one's own, of a batch that is split over all devices."""
    devices = Devices.for_sizes(64)
    rng = np.random.default_rng(0)
    image, text = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in rng.normal(size=(2, 64, 16)))
    z = devices.split({n: x[devices.rows(64)].astype(np.float32) for n, x in (("i", image), ("t", text))})
    scalars = devices.replicate((np.float32(10.0), np.float32(-10.0)))
    by_rows, whole = PartitionSpec(AXIS), PartitionSpec()
    found = {}
    for kind, named in (("sigmoid", "sigmoid"), ("softmax", "softmax"), ("own", own_code.decoupled)):
        loss = loss_function(named, devices.count, AXIS)

        def share(image, text, t, b, loss=loss):
            t, b = jax.lax.pcast((t, b), AXIS, to="varying")
            value, (of_image, of_text, *of_scalars) = jax.value_and_grad(
                lambda *z: loss(Embeddings(*z)), argnums=(0, 1, 2, 3)
            )(image, text, t, b)
            return jax.lax.psum(jnp.stack([value, *of_scalars]), AXIS), of_image, of_text

        split = jax.shard_map(
            share,
            mesh=devices.mesh,
            in_specs=(by_rows, by_rows, whole, whole),
            out_specs=(whole, by_rows, by_rows),
        )
        values = jax.jit(split, out_shardings=devices.replicated)(z["i"], z["t"], *scalars)
        found[kind] = [np.asarray(x).tolist() for x in values]
    return found


def selections() -> dict[str, Any]:
    """What each rule selects from a super-batch that is split over all devices, in many small blocks."""
    devices = Devices.for_sizes(64)
    learner, reference = structured.pairs(64, 16, seed=1), structured.pairs(64, 8, seed=2)
    arrays = [np.asarray(x)[devices.rows(64)] for z in (learner, reference) for x in (z.image, z.text)]
    split = list(devices.split({str(i): x for i, x in enumerate(arrays)}).values())
    by_rows, whole = PartitionSpec(AXIS), PartitionSpec()
    found = {}
    rules: tuple[tuple[Any, str, Any], ...] = (
        ("joint", "sigmoid", "learnability"),
        ("joint", "softmax", "learnability"),
        ("greedy", "sigmoid", "learnability"),
        ("gibbs", "softmax", "learnability"),
        (own_code.halves, "sigmoid", own_code.clipped),
        ("joint", "softmax", own_code.clipped),
    )
    for rule, loss, criterion in rules:

        def chosen(key, a, b, c, d, rule=rule, loss=loss, criterion=criterion):
            z = (learner._replace(image=a, text=b), reference._replace(image=c, text=d))
            selected = select(
                key,
                *z,
                batch_size=13,
                rule=rule,
                criterion=criterion,
                loss=loss,
                chunks=5,
                sweeps=1,
                gain=1.0,
                axis=AXIS,
                trace=True,
            )
            first = jax.lax.axis_index(AXIS) == 0
            indices = jax.lax.psum(jnp.where(first, selected.indices, 0), AXIS)
            parts = (jnp.where(first, selected.effective, 0), selected.score)
            shares = jax.lax.psum(jnp.concatenate(parts) + 0 * indices[0], AXIS)
            return indices, *jnp.split(shares, [len(selected.effective)])

        function = jax.shard_map(
            chosen, mesh=devices.mesh, in_specs=(whole, *[by_rows] * 4), out_specs=(whole, whole, whole)
        )
        values = jax.jit(function, out_shardings=devices.replicated)(jax.random.key(3), *split)
        found[f"{getattr(rule, '__name__', rule)}, {loss}, {getattr(criterion, '__name__', criterion)}"] = [
            np.asarray(x).tolist() for x in values
        ]
    return found


def keep_what_is_compiled() -> None:
    """Of several processes JAX lets the first alone write to its cache, where the others are to find it.

    On CPUs they do not, and compile for a minute: longer than the first, which has found all, waits for them.
    """
    first = SimpleNamespace(process_id=0, client=distributed.global_state.client)
    setattr(compiler, "distributed", SimpleNamespace(global_state=first))  # noqa: B010


def main() -> None:
    what, out, folder, data = sys.argv[1], *map(Path, sys.argv[2:])
    gc.freeze()  # tracing makes many objects and little garbage
    gc.set_threshold(100_000)
    initialize_processes()
    keep_what_is_compiled()
    results: dict[str, Any] = {"run": trained(folder, data)}
    if what == "all":
        scores.BLOCK_LOGITS = 15  # a few rows: a loop over blocks also where eight devices share them
        results |= {name: steps(config_of(name))[0] for name in CONFIGS}
        results |= {"losses": losses(), "selections": selections(), "evaluated": evaluated(data)}
        if jax.local_device_count() == 8:
            results["messages"] = messages_of("softmax", "independent") + messages_of("flexi", "joint")
            results["messages"] += messages_of("own", OWN_RULE)
            results["messages"] += messages_of("concepts", "concept_diversity")
            results["messages"] += messages_of("both", CONFIGS["both"]["selection"]["rule"])
    if jax.process_index() == 0:
        out.write_text(json.dumps({"devices": jax.device_count(), "results": results}))


if __name__ == "__main__":
    main()
