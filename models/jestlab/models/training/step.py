"""One training step: score the super-batch, select the sub-batch, train on it ("Pseudocode for JEST").

Every device holds B/P rows of the super-batch. It scores them, selects together with the others, receives its
b/P rows of the sub-batch, and adds its share of the gradient. Each of these exchanges is one message, which
waits for the previous one: XLA may start independent messages in a different order on each device, and on
CPU they then deadlock (JAX 0.10.2).

Differences from the paper's pseudocode:

* The gradient reuses the forward pass from scoring only with `runtime.reuse_scoring`. The pseudocode computes
  it again, too, while the paper's cost formula F(2 + B/b) assumes reuse; without it a step costs F(3 + B/b).
* With B = b nothing is scored or selected: every rule would select all examples.
* `selection.jax` lists the differences in selection.
* The pseudocode splits the sub-batch into halves, `[::2]` and `[1::2]`. Here any share λ is spread evenly
  over the sub-batch in the order of its chunks; λ = ½ gives the same halves.
* The key is derived from the run's seed and the step, so that a resumed run draws the same numbers.

Letters: B super-batch, b sub-batch, P devices, L tokens, E embedding width, K concepts of an example.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from jestlab.models.config import TrainConfig
from jestlab.models.config.base import LOSSES
from jestlab.models.devices import AXIS, Devices, agree, gather_rows, take_rows
from jestlab.models.extensions import CustomFunction, code_of
from jestlab.models.losses import loss_function, takes_reference
from jestlab.models.selection import CRITERIA, RULES, Candidates, Embeddings, Selected, select
from jestlab.models.training.learner import Learner, Pass, embed_in_parts, loss_and_gradients, reusable_pass
from jestlab.models.training.optimizer import build_optimizer
from jestlab.models.training.state import TrainState
from jestlab.models.two_towers import Parameters, TwoTowerModel, temperature_and_bias

Batch = dict[str, jax.Array]
"""The keys of a batch:

* `image` uint8 [B, h, w, 3] and `text` int32 [B, L].
* `index` uint32 [B]: the global numbers of the examples; not needed without selection.
* For a rule that uses concepts, `concepts` int32 [B, K], padded with −1.
* For a reference with a different tokenizer, `reference_text` int32 [B, L'].
* For a reference with cached embeddings, `reference_image_embedding` and `reference_text_embedding`,
  float32 [B, E].
"""

Metrics = dict[str, jax.Array]

_CACHED = ("reference_image_embedding", "reference_text_embedding")

StepFunction = Callable[[TrainState, Batch, Parameters | None], tuple[TrainState, Metrics]]


def build_step(
    config: TrainConfig, reference: TwoTowerModel | None, devices: Devices | None = None
) -> StepFunction:
    """Build the compiled training step of a config.

    Args:
        config: The run.
        reference: The reference's towers, if they embed the super-batch.
        devices: The devices to compute on; None: one device. P divides B, b and λb.

    Returns:
        `step(state, batch, reference_parameters) → (state, metrics)`, jitted; the old state is donated. The
        batch holds B pairs, split by rows over the devices. `reference_parameters` are those of the
        reference; with cached embeddings `{t, b}`. The metrics:

        * float32 []: `loss`, `grad_norm`, `temperature`, `bias`.
        * With scores, float32 []: `score_selected` and `score_super_batch`, the mean scores of single pairs;
          `effective_sample_size`, the effective number of candidates at the first draw of a chunk, averaged
          over chunks (a custom rule may not report it); with diagnostics `score_sub_batch`, the score of the
          whole sub-batch, valid only at steps with diagnostics. `scores` float32 [B], the score of each pair.
        * With selection, `selected` int32 [b]: positions in the super-batch, in the order of the draws; and
          `examples` uint32 [b], the global numbers of these examples.

    Raises:
        ValueError: `runtime.microbatches` does not divide the rows of a device, or `runtime.reuse_scoring` is
            set for several devices.
    """
    devices = devices or Devices(jax.devices()[:1])
    everywhere, by_rows = PartitionSpec(), PartitionSpec(AXIS)
    on_devices = jax.shard_map(
        _Step(config, reference, devices.count),
        mesh=devices.mesh,
        in_specs=(everywhere, by_rows, everywhere),
        out_specs=(everywhere, (everywhere, by_rows)),
    )

    def joined(
        state: TrainState, batch: Batch, reference_parameters: Parameters | None
    ) -> tuple[TrainState, Metrics]:
        state, (metrics, scores) = on_devices(state, batch, reference_parameters)
        return state, metrics | scores

    return jax.jit(joined, donate_argnums=0)


class _Step:
    """One step on one device, under `jax.shard_map`."""

    def __init__(self, config: TrainConfig, reference: TwoTowerModel | None, devices: int) -> None:
        if config.reuses_scoring and devices > 1:
            raise ValueError(
                f"runtime.reuse_scoring is for one device, and there are {devices}: the selected rows and "
                "their activations may be on different devices: set it to false"
            )
        self.config, self.reference, self.devices = config, reference, devices
        self.learner = Learner(config, devices)
        names = config.selection
        loss = code_of("loss", config.loss, config.loss_options, LOSSES)
        self.rule = code_of("rule", names.rule, names.rule_options, RULES)
        self.criterion = code_of("criterion", names.criterion, names.criterion_options, CRITERIA)
        self.compares = isinstance(loss, CustomFunction) and takes_reference(loss)
        self.loss = loss_function(loss, devices, AXIS)
        # XLA rounds divisions by constants and by variables differently. Each kind of run keeps its rounding.
        self.constant_length = devices > 1 or config.reuses_scoring or self.compares

    def __call__(
        self, state: TrainState, batch: Batch, reference_parameters: Parameters | None
    ) -> tuple[TrainState, tuple[Metrics, Metrics]]:
        """Return the new state, the metrics, and the scores of this device's rows."""
        step_key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        selection_key, scoring_key, training_key = jax.random.split(step_key, 3)
        parameters: Parameters = jax.lax.pcast(state.parameters, AXIS, to="varying")  # a gradient per device
        selection, shares, scores = Metrics(), Metrics(), Metrics()
        forward_pass: Pass | None = None
        if self.config.selects:
            learner_z, reference_z, reuse = self.score(parameters, batch, reference_parameters, scoring_key)
            selected = self.select(state, learner_z, reference_z, batch, selection_key)
            chosen, examples = agree(selected.indices, batch["index"])
            batch = self.gather(batch, reference_z, chosen)
            selection = {"selected": chosen, "examples": examples}
            if len(selected.own):
                shares, scores = self.shares_of_scores(selected, chosen), {"scores": selected.own}
            if reuse is not None:
                forward_pass = reuse(chosen)
        learned = self.differentiate(parameters, batch, reference_parameters, training_key, forward_pass)
        state, metrics = self.update(state, *self.sum_over_devices((*learned, shares)))
        return state, (metrics | selection, scores)

    def score(
        self, parameters: Parameters, batch: Batch, reference_parameters: Parameters | None, key: jax.Array
    ) -> tuple[Embeddings | None, Embeddings | None, Callable[[jax.Array], Pass] | None]:
        """Embed this device's rows of the super-batch by the models that score.

        Returns:
            Embeddings by the learner and by the reference, each None if it does not score; and with
            `runtime.reuse_scoring`, the second result of `reusable_pass`.
        """
        learner_z = reference_z = reuse = None
        rows = self.learner.rows(batch, key)
        if self.config.reuses_scoring:
            (image, text), reuse = reusable_pass(self.learner.forward, parameters, rows)
            learner_z = Embeddings(image, text, *temperature_and_bias(parameters))
        elif self.config.scores_learner:
            learner = self.learner
            learner_z = embed_in_parts(
                learner.model, parameters, rows, learner.largest_part, learner.scoring_view
            )
        if self.config.scores_reference:
            reference_z = self.embed_reference(reference_parameters, batch)
        return learner_z, reference_z, reuse

    def embed_reference(self, parameters: Parameters | None, batch: Batch) -> Embeddings:
        """Embed a batch by the reference, unless the batch contains its embeddings."""
        if parameters is None:
            raise ValueError("a reference is needed, but none was given")
        if self.reference is None or _CACHED[0] in batch:
            image, text = (batch[name] for name in _CACHED)
            return Embeddings(image, text, *temperature_and_bias(parameters))
        rows = (batch["image"], batch.get("reference_text", batch["text"]), None)
        return embed_in_parts(self.reference, parameters, rows, self.learner.largest_part)

    def select(
        self,
        state: TrainState,
        learner_z: Embeddings | None,
        reference_z: Embeddings | None,
        batch: Batch,
        key: jax.Array,
    ) -> Selected:
        """Select the sub-batch together with the other devices."""
        concepts = None
        if "concepts" in batch:
            concepts = gather_rows(batch["concepts"])
            # The next message waits for this one.
            learner_z, reference_z, concepts = jax.lax.optimization_barrier(
                (learner_z, reference_z, concepts)
            )
        settings = self.config.selection
        return jax.lax.stop_gradient(
            select(
                key,
                learner_z,
                reference_z,
                batch_size=self.config.batch_size,
                rule=self.rule,
                criterion=self.criterion,
                loss=self.config.scoring_loss,
                chunks=settings.chunks,
                gain=settings.gain,
                sweeps=settings.sweeps,
                axis=AXIS,
                trace=self.config.diagnoses(state.step + 1),
                concepts=concepts,
            )
        )

    def gather(self, batch: Batch, reference_z: Embeddings | None, chosen: jax.Array) -> Batch:
        """Move the selected rows to the devices that train on them."""
        names = ["image", "text"]
        if self.compares:
            names += ["reference_text", *_CACHED]
            if reference_z is not None:
                batch = batch | dict(zip(_CACHED, (reference_z.image, reference_z.text), strict=True))
        return take_rows({name: batch[name] for name in names if name in batch}, chosen)

    def shares_of_scores(self, selected: Selected, chosen: jax.Array) -> Metrics:
        """Return this device's shares of the metrics of scores."""
        mine = Candidates(len(selected.own), AXIS).mask(chosen)
        shares = {
            "score_selected": jnp.sum(selected.own, where=mine) / self.config.batch_size,
            "score_super_batch": jnp.sum(selected.own) / self.config.super_batch_size,
        }
        if len(selected.effective):
            shares["effective_sample_size"] = selected.effective.mean() / self.devices  # equal on all devices
        if len(selected.score):
            shares["score_sub_batch"] = selected.score[-1]
        return shares

    def differentiate(
        self,
        parameters: Parameters,
        batch: Batch,
        reference_parameters: Parameters | None,
        key: jax.Array,
        forward_pass: Pass | None,
    ) -> tuple[jax.Array, Parameters]:
        """Compute this device's shares of the sub-batch's loss and gradient."""
        loss = self.loss
        if self.compares:
            z = self.embed_reference(reference_parameters, batch)
            image, text = self.learner.arrange((z.image, z.text))
            loss = functools.partial(loss, reference=z._replace(image=image, text=text))
        if forward_pass is None:
            rows = self.learner.arrange(self.learner.rows(batch, key))
            forward_pass = self.learner.train_pass(parameters, rows)
        return loss_and_gradients(loss, parameters, forward_pass)

    def sum_over_devices(self, shares: Any) -> Any:
        """Sum over devices, in one message."""
        if self.devices == 1:
            return jax.lax.psum(shares, AXIS)
        flat, restore = ravel_pytree(shares)
        return restore(jax.lax.psum(flat, AXIS))

    def update(
        self, state: TrainState, loss: jax.Array, gradients: Parameters, metrics: Metrics
    ) -> tuple[TrainState, Metrics]:
        """Update the parameters; return the new state, and the metrics with those of training."""
        total_steps: int | jax.Array = self.config.total_steps
        if not self.constant_length:
            total_steps = jax.lax.optimization_barrier(jnp.int32(total_steps))
        optimizer = build_optimizer(self.config.optimizer, total_steps)
        updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.parameters)
        metrics = metrics | {
            "loss": loss,
            "grad_norm": optax.global_norm(gradients),
            "temperature": jnp.exp(state.parameters["t"][0]),
            "bias": state.parameters["b"][0],
        }
        parameters = optax.apply_updates(state.parameters, updates)
        return TrainState(state.step + 1, parameters, optimizer_state, state.key), metrics
