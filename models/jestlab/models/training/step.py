"""One step: score the super-batch, select, train on the sub-batch (the paper's "Pseudocode for JEST").

Departures from the print: the model is not approximated; the scoring pass is not reused for the gradient (the
print recomputes it too, while the paper's cost formula F(2 + B/b) assumes reuse), so a step costs F(3 + B/b);
and the selection's key is derived from the run's seed and the step, so that a resumed run draws what the
uninterrupted one would.

Letters: B super-batch, b sub-batch, L tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from ..config import TrainConfig
from ..losses import sigmoid_loss
from ..selection import score_matrix, select
from ..two_towers import Parameters, TwoTowerModel, embed
from .optimizer import build_optimizer

Batch = dict[str, jax.Array]
"""`image` uint8 [B, h, w, 3], `text` int32 [B, L], `reference_text` likewise where it differs."""


class TrainState(NamedTuple):
    """All that a step changes."""

    step: jax.Array  # int32 [], steps done
    parameters: Parameters
    optimizer: Any


StepFunction = Callable[
    [TrainState, Batch, jax.Array, Parameters | None], tuple[TrainState, dict[str, jax.Array]]
]


def build_step(config: TrainConfig, reference: TwoTowerModel | None) -> StepFunction:
    """Compile the training step of a config.

    Args:
        config: The run.
        reference: The reference's architecture, if the selection scores with it.

    Returns:
        `step(state, batch, key, reference_parameters) → (state, metrics)`, jitted; the old state is donated.
        The batch holds B pairs; the key is the run's, the same at every step (an argument and no constant,
        so that runs that differ in their seed share one compiled function). Metrics are float32 scalars:
        `loss`, `grad_norm`, `temperature`, `bias`, and with selection `score_selected` and
        `score_super_batch`, the means of the pairs' own scores.
    """
    model = TwoTowerModel(config.model)
    optimizer = build_optimizer(config.optimizer, config.total_steps)
    selection = config.selection
    b = config.batch_size

    def choose(
        state: TrainState, batch: Batch, key: jax.Array, reference_parameters: Parameters | None
    ) -> tuple[Batch, dict[str, jax.Array]]:
        scoring = selection.criterion
        learner_z = reference_z = None
        if scoring != "easy_reference":
            learner_z = embed(model, state.parameters, batch["image"], batch["text"])
        if scoring != "hard_learner":
            if reference is None or reference_parameters is None:
                raise ValueError(f"criterion {scoring!r} scores with a reference, and none was given")
            text = batch.get("reference_text", batch["text"])
            reference_z = embed(reference, reference_parameters, batch["image"], text)
        scores = jax.lax.stop_gradient(score_matrix(scoring, learner_z, reference_z))
        chosen = select(
            jax.random.fold_in(key, state.step),
            scores,
            rule=selection.rule,
            batch_size=b,
            chunks=selection.chunks,
            gain=selection.gain,
        )
        own = jnp.diagonal(scores)
        metrics = {"score_selected": own[chosen].mean(), "score_super_batch": own.mean()}
        return {name: batch[name][chosen] for name in ("image", "text")}, metrics

    def loss_of(parameters: Parameters, batch: Batch) -> jax.Array:
        return sigmoid_loss(embed(model, parameters, batch["image"], batch["text"]))

    def step(
        state: TrainState, batch: Batch, key: jax.Array, reference_parameters: Parameters | None
    ) -> tuple[TrainState, dict[str, jax.Array]]:
        metrics: dict[str, jax.Array] = {}
        if config.selects:
            batch, metrics = choose(state, batch, key, reference_parameters)
        loss, gradients = jax.value_and_grad(loss_of)(state.parameters, batch)
        updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        metrics |= {
            "loss": loss,
            "grad_norm": optax.global_norm(gradients),
            "temperature": jnp.exp(state.parameters["t"][0]),
            "bias": state.parameters["b"][0],
        }
        return TrainState(state.step + 1, parameters, optimizer_state), metrics

    return jax.jit(step, donate_argnums=0)


def initial_state(config: TrainConfig, parameters: Parameters) -> TrainState:
    """Step 0 from fresh parameters."""
    optimizer = build_optimizer(config.optimizer, config.total_steps)
    return TrainState(jnp.int32(0), parameters, optimizer.init(parameters))
