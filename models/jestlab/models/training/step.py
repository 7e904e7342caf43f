"""One training step: score the super-batch → select → train on the sub-batch ("Pseudocode for JEST").

The step is what one device does: it holds B/P rows of the super-batch, embeds and scores them, selects
together with the others, gets its b/P rows of the sub-batch, and adds its gradient to everyone's. Each of
these exchanges is one message, and each waits for the one before: of two at the same time, XLA
may start another one first on each device, and on CPU they then deadlock (seen with JAX 0.10.2).

Departures from the print:

* The scoring pass is not reused for the gradient, unless `runtime.reuse_scoring` says so (the print
  recomputes it too, while the paper's cost formula F(2 + B/b) assumes reuse), so a step costs F(3 + B/b).
* With B = b nothing is scored or selected: every rule would choose all.
* Selection's own departures are listed in `selection.select`.
* The print splits the sub-batch in halves, `[::2]` and `[1::2]`. Here any share λ is spread evenly over the
  sub-batch, chunk after chunk as drawn; λ = ½ gives the print's halves.
* The key is derived from the run's seed and the step, so that a resumed run draws what the uninterrupted one
  would.

Letters: B super-batch, b sub-batch, P devices, L tokens, E embedding width, λ share trained on approximately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec

from jestlab.models.config import Selection, TrainConfig
from jestlab.models.config.base import LOSSES
from jestlab.models.devices import AXIS, Devices, take_rows
from jestlab.models.extensions import Own
from jestlab.models.losses import loss_function, takes_reference
from jestlab.models.selection import CRITERIA, RULES, Candidates, Embeddings, Selected, select
from jestlab.models.selection.fused import best_sums
from jestlab.models.training.optimizer import build_optimizer
from jestlab.models.training.reused import KeptPass
from jestlab.models.transformer import Execution
from jestlab.models.two_towers import (
    FULL,
    Parameters,
    TwoTowerModel,
    View,
    embed,
    example_keys,
    temperature_and_bias,
)

Batch = dict[str, jax.Array]
"""`image` uint8 [B, h, w, 3], `text` int32 [B, L]; for a reference that reads otherwise `reference_text`
int32 [B, L']; for a cached one `reference_image_embedding` and `reference_text_embedding` float32 [B, E];
with selection `index` uint32 [B], the examples' global numbers; for a rule that looks at concepts `concepts`
int32 [B, K], the numbers of each example's concepts, then −1."""

_EMBEDDED = ("reference_image_embedding", "reference_text_embedding")
_OF_REFERENCE = ("reference_text", *_EMBEDDED)

RECENT_STEPS = 16
"""Number of steps whose sub-batches a state remembers: that of step s is in row s mod this number."""

NO_EXAMPLE = 2**32 - 1
"""Value in rows that no step has filled yet."""

Metrics = dict[str, jax.Array]


class TrainState(NamedTuple):
    """Everything that a step changes, and the key that it draws from."""

    step: jax.Array  # int32 [], steps done
    parameters: Parameters
    optimizer: Any
    key: jax.Array  # uint32, the data of the run's PRNG key; the same at every step
    recent: jax.Array | None = None
    """With selection: uint32 [RECENT_STEPS, b], the examples of the last sub-batches."""


StepFunction = Callable[[TrainState, Batch, Parameters | None], tuple[TrainState, Metrics]]


def initial_state(config: TrainConfig, parameters: Parameters, key: jax.Array) -> TrainState:
    """Create the state at step 0 from fresh parameters and the run's key."""

    def create(parameters: Parameters, key: jax.Array) -> TrainState:
        optimizer = build_optimizer(config.optimizer, config.total_steps).init(parameters)
        recent = None
        if config.selects:
            recent = jnp.full((RECENT_STEPS, config.batch_size), NO_EXAMPLE, jnp.uint32)
        return TrainState(jnp.int32(0), parameters, optimizer, jax.random.key_data(key), recent)

    # Array by array, it would compile a function for each shape.
    state: TrainState = jax.jit(create)(parameters, key)
    return state


def approximate_view(config: TrainConfig) -> View:
    """Return what the approximation looks at: larger patches, or some of them."""
    if config.approximation.method == "flexi":
        return View(patch_size=config.approximate_patch_size)
    return View(keep=config.approximation.keep)


def build_step(
    config: TrainConfig, reference: TwoTowerModel | None, devices: Devices | None = None, steps: int = 1
) -> StepFunction:
    """Compile the training step of a config.

    Args:
        config: The run.
        reference: The reference's architecture, if the selection scores with it online.
        devices: What to compute on; None: one device. P divides B, b and λb.
        steps: How many steps one call takes.

    Returns:
        `step(state, batch, reference_parameters) → (state, metrics)`, jitted; the old state is donated. The
        batch holds B pairs, split by rows over the devices; with several steps its arrays and the metrics
        have a leading axis of that length. `reference_parameters` are the reference's, of a cached one
        `{t, b}` alone. Metrics are float32 scalars: `loss`, `grad_norm`, `temperature`, `bias`, and with
        selection `score_selected` and `score_super_batch`, the means of the pairs' own scores,
        `effective_sample_size`, among how many candidates the first of a chunk was effectively a choice, mean
        over chunks (a rule of one's own may not tell), with diagnostics `score_sub_batch`, the score of the
        sub-batch as a whole, which holds at steps where they are due; `selected`, int32 [b], the positions
        in the super-batch that were trained on, as drawn; and `scores`, float32 [B], each pair's own score.
        A rule that looks at concepts alone has `selected` and no scores.

    Raises:
        ValueError: `runtime.microbatches` does not divide what a device trains on, `runtime.reuse_scoring` is
            asked of several devices, or `runtime.selection_kernel` is not for this backend.
    """
    devices = devices or Devices(jax.devices()[:1])
    step = _Step(config, reference, devices)
    function: Callable[..., Any] = step
    if steps > 1:

        def function(state: TrainState, batches: Batch, reference_parameters: Parameters | None) -> Any:
            return jax.lax.scan(
                lambda carry, batch: step(carry, batch, reference_parameters), state, batches, length=steps
            )

    everywhere, by_rows = PartitionSpec(), PartitionSpec(*[None] * (steps > 1), AXIS)
    mapped = jax.shard_map(
        function,
        mesh=devices.mesh,
        in_specs=(everywhere, by_rows, everywhere),
        out_specs=(everywhere, (everywhere, by_rows)),
    )

    def joined(state: TrainState, batch: Batch, reference: Parameters | None) -> tuple[TrainState, Metrics]:
        state, (metrics, of_rows) = mapped(state, batch, reference)
        return state, metrics | of_rows

    return jax.jit(joined, donate_argnums=0)


class Halves(NamedTuple):
    """The two halves of a step on one device, each jitted; see `_Step.choose` and `_Step.learn`."""

    choose: Callable[[TrainState, Batch, Parameters | None], tuple[jax.Array, Batch, Metrics]] | None
    learn: Callable[[TrainState, Batch, jax.Array], tuple[TrainState, Metrics]]


def build_halves(config: TrainConfig, reference: TwoTowerModel | None, device: Devices) -> Halves:
    """Compile the training step of a config as two functions, which are other runs' functions, too.

    How a batch is chosen has nothing to do with how it is learned: runs that choose otherwise learn by the
    same program, and so do runs of other lengths, since the schedule's is an argument. To compile a small
    step takes as long as a thousand such steps.

    Args:
        config: See `build_step`.
        reference: See `build_step`.
        device: The one device.

    Returns:
        `choose(state, batch, reference_parameters) → (recent, sub_batch, choice)`, None without selection,
        and `learn(state, sub_batch, total_steps) → (state, metrics)`; its old state is donated. The states
        that they get hold no more than each needs: `choose` no optimiser's, `learn` no `recent`.
    """
    step = _Step(config, reference, device)

    everywhere, by_rows = PartitionSpec(), PartitionSpec(AXIS)
    chosen = jax.shard_map(
        step.choose,
        mesh=device.mesh,
        in_specs=(everywhere, by_rows, everywhere),
        out_specs=(everywhere, by_rows, everywhere, by_rows),
        check_vma=False,  # one device's share of a metric is all of it
    )

    def choose(
        state: TrainState, batch: Batch, reference: Parameters | None
    ) -> tuple[jax.Array, Batch, Metrics]:
        recent, sub_batch, choice, of_rows = chosen(state, batch, reference)
        return recent, sub_batch, choice | of_rows

    learned = jax.shard_map(
        step.learn,
        mesh=device.mesh,
        in_specs=(everywhere, by_rows, everywhere),
        out_specs=(everywhere, everywhere),
    )
    return Halves(jax.jit(choose) if config.selects else None, jax.jit(learned, donate_argnums=0))


def chosen_by(selection: Selection) -> tuple[str | Own, str | Own]:
    """Return what selects, and by what criterion: names of what is built in, or code of one's own."""
    rule: str | Own = selection.rule
    criterion: str | Own = selection.criterion
    if selection.rule not in RULES:
        rule = Own.load("rule", selection.rule, selection.rule_options)
    if selection.criterion not in CRITERIA:
        criterion = Own.load("criterion", selection.criterion, selection.criterion_options)
    return rule, criterion


class _Step:
    """One step on one device, under `jax.shard_map`."""

    def __init__(self, config: TrainConfig, reference: TwoTowerModel | None, devices: Devices) -> None:
        self.config = config
        self.reference = reference
        self.model = TwoTowerModel(
            config.model, Execution(remat=config.runtime.remat, scan=config.runtime.scan_layers)
        )
        self.devices = devices.count
        loss: str | Own = config.loss
        self.compares = False
        if config.loss not in LOSSES:
            loss = Own.load("loss", config.loss, config.loss_options)
            self.compares = takes_reference(loss)
        self.loss = loss_function(loss, devices.count, AXIS)
        self.rule, self.criterion = chosen_by(config.selection)
        self.view = approximate_view(config)
        self.scoring_view = self.view if config.approximation.score else FULL
        self.sums = best_sums(config.runtime.selection_kernel)
        self.microbatches = config.runtime.microbatches
        each, approximate = config.batch_size // devices.count, config.approximate_size // devices.count
        if each % self.microbatches or approximate % self.microbatches:
            raise ValueError(
                f"runtime.microbatches {self.microbatches} does not divide the {each} examples that a device "
                f"trains on, {approximate} of them approximately"
            )
        self.reuses = config.reuses_scoring
        if self.reuses and devices.count > 1:
            raise ValueError(
                f"runtime.reuse_scoring is for one device, and there are {devices.count}: the rows that are "
                "chosen, and what was kept of them, may be on any: set it to false"
            )
        self.full, self.approximate = spread(each // self.microbatches, approximate // self.microbatches)
        self.order = np.concatenate([self.full, self.approximate])

    def __call__(
        self, state: TrainState, batch: Batch, reference_parameters: Parameters | None
    ) -> tuple[TrainState, tuple[Metrics, Metrics]]:
        total_steps = self.config.total_steps
        if not self.config.selects:
            reference = self._reference_embeddings(reference_parameters, batch) if self.compares else None
            state, metrics = self.learn(state, batch, total_steps, reference=reference)
            return state, (metrics, {})
        kept = learner_z = None
        if self.reuses:
            kept = KeptPass(
                lambda p, rows: self._mixed(p, (*rows, None)),
                self._varying(state.parameters),
                (batch["image"], batch["text"]),
            )
            image, text = kept.outputs
            learner_z = Embeddings(image, text, *temperature_and_bias(state.parameters))
        recent, sub_batch, choice, of_rows = self.choose(state, batch, reference_parameters, learner_z)
        selected = choice.pop("selected")
        state = state._replace(recent=recent)
        reference = self._reference_embeddings(reference_parameters, sub_batch) if self.compares else None
        if kept is None:
            state, metrics = self.learn(state, sub_batch, total_steps, choice, reference)
        else:
            state, metrics = self._update(
                state, self._learned_from(kept, state, selected, reference), total_steps, choice
            )
        return state, (metrics | {"selected": selected}, of_rows)

    def choose(
        self,
        state: TrainState,
        batch: Batch,
        reference_parameters: Parameters | None,
        learner_z: Embeddings | None = None,
    ) -> tuple[jax.Array, Batch, Metrics, Metrics]:
        """Choose the sub-batch.

        Args:
            state: What was learned so far; the optimiser's state is not looked at.
            batch: The super-batch.
            reference_parameters: See `build_step`.
            learner_z: The learner's embeddings of the super-batch; None: they are computed, if they score.

        Returns:
            The state's `recent` after the step; the sub-batch, with the reference's embeddings of it if it
            was scored by them and the loss looks at them, too; `selected`, and this device's shares of the
            other metrics of the choice; and `scores` of this device's rows.
        """
        if state.recent is None:
            raise ValueError("the state belongs to a run without selection")
        selection_key, scoring_key, _ = self._keys(state)
        if learner_z is None and self.config.scores_learner:
            keys = self._patch_keys(scoring_key, batch["image"].shape[0])
            learner_z = self._embed(
                self.model, state.parameters, batch["image"], batch["text"], self.scoring_view, keys
            )
        reference_z = None
        if self.config.scores_reference:
            reference_z = self._reference_embeddings(reference_parameters, batch)
        selected = self._select(state, learner_z, reference_z, batch, selection_key)
        chosen, numbers = self._agreed(selected.indices, batch["index"])
        recent = state.recent.at[state.step % RECENT_STEPS].set(numbers)
        rows = {name: batch[name] for name in ("image", "text")}
        if self.compares:
            rows |= {name: batch[name] for name in _OF_REFERENCE if name in batch}
            if reference_z is not None:
                rows |= dict(zip(_EMBEDDED, (reference_z.image, reference_z.text), strict=True))
        sub_batch = take_rows(rows, chosen, AXIS)
        if not len(selected.own):
            return recent, sub_batch, {"selected": chosen}, {}
        shares = self._shares_of_scores(selected, chosen) | {"selected": chosen}
        return recent, sub_batch, shares, {"scores": selected.own}

    def learn(
        self,
        state: TrainState,
        batch: Batch,
        total_steps: int | jax.Array,
        shares: Metrics | None = None,
        reference: Embeddings | None = None,
    ) -> tuple[TrainState, Metrics]:
        """Train on a sub-batch.

        Args:
            state: What was learned so far; `recent` stays as it is.
            batch: The sub-batch.
            total_steps: The length of the learning rate's schedule, int32 [].
            shares: This device's shares of further metrics, to be summed with the rest.
            reference: The reference's embeddings of the sub-batch, if the loss looks at them.
        """
        _, _, training_key = self._keys(state)
        keys = self._patch_keys(training_key, batch["image"].shape[0])
        learned = self._loss_and_gradients(
            state.parameters, (batch["image"], batch["text"], keys), self._as_mixed(reference)
        )
        return self._update(state, learned, total_steps, shares)

    def _update(
        self,
        state: TrainState,
        learned: tuple[jax.Array, Parameters],
        total_steps: int | jax.Array,
        shares: Metrics | None,
    ) -> tuple[TrainState, Metrics]:
        """Sum this device's shares of loss and gradients with the others', and update the parameters."""
        (loss, gradients), further = self._summed((learned, shares or {}))
        optimizer = build_optimizer(self.config.optimizer, total_steps)
        updates, optimizer_state = optimizer.update(gradients, state.optimizer, state.parameters)
        metrics = further | {
            "loss": loss,
            "grad_norm": optax.global_norm(gradients),
            "temperature": jnp.exp(state.parameters["t"][0]),
            "bias": state.parameters["b"][0],
        }
        parameters = optax.apply_updates(state.parameters, updates)
        state = TrainState(state.step + 1, parameters, optimizer_state, state.key, state.recent)
        return state, metrics

    def _keys(self, state: TrainState) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Return the step's keys: of selection, of patches to score by, of patches to train on."""
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.step)
        selection_key, scoring_key, training_key = jax.random.split(key, 3)
        return selection_key, scoring_key, training_key

    def _select(
        self,
        state: TrainState,
        learner_z: Embeddings | None,
        reference_z: Embeddings | None,
        batch: Batch,
        key: jax.Array,
    ) -> Selected:
        settings = self.config.selection
        concepts = None
        if "concepts" in batch:
            concepts = self._everyones(batch["concepts"])
            # No other message is sent before this one is here.
            learner_z, reference_z, concepts = jax.lax.optimization_barrier(
                (learner_z, reference_z, concepts)
            )
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
                sums=self.sums,
                concepts=concepts,
            )
        )

    def _everyones(self, rows: jax.Array) -> jax.Array:
        """Return the rows of all devices, int32 [B, …] for int32 [R, …], the same on each, in one message."""
        count = rows.shape[0]
        whole = jnp.zeros((count * self.devices, *rows.shape[1:]), rows.dtype)
        mine = jax.lax.dynamic_update_slice_in_dim(whole, rows, jax.lax.axis_index(AXIS) * count, 0)
        everyones: jax.Array = jax.lax.psum(mine, AXIS)
        return everyones

    def _agreed(self, chosen: jax.Array, numbers: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Agree on the choice among all devices: positions int32 [b] and global numbers uint32 [b].

        The positions are the first device's, since a row that two devices choose differently would be lost.
        """
        rows = numbers.shape[0]
        local = chosen - jax.lax.axis_index(AXIS) * rows
        is_here = (local >= 0) & (local < rows)
        mine = jnp.where(is_here, numbers[jnp.clip(local, 0, rows - 1)], jnp.uint32(0))
        first = jnp.where(jax.lax.axis_index(AXIS) == 0, chosen.astype(jnp.uint32), jnp.uint32(0))
        positions, everyones = jax.lax.psum(jnp.stack([first, mine]), AXIS)
        return positions.astype(jnp.int32), everyones

    def _shares_of_scores(self, selected: Selected, chosen: jax.Array) -> Metrics:
        """Return this device's shares of the metrics of a choice."""
        mine = Candidates(selected.own.shape[0], AXIS).mask(chosen)
        shares = {
            "score_selected": jnp.sum(selected.own, where=mine) / self.config.batch_size,
            "score_super_batch": jnp.sum(selected.own) / self.config.super_batch_size,
        }
        if len(selected.effective):  # a rule of one's own may not tell
            shares["effective_sample_size"] = selected.effective.mean() / self.devices  # everyone knows it
        if len(selected.score):
            shares["score_sub_batch"] = selected.score[-1]
        return shares

    def _reference_embeddings(self, parameters: Parameters | None, batch: Batch) -> Embeddings:
        """Embed a batch by the reference; what of it is embedded already is taken as it is."""
        if parameters is None:
            raise ValueError("a reference is needed, but none was given")
        if self.reference is None or _EMBEDDED[0] in batch:
            image, text = (batch[name] for name in _EMBEDDED)
            return Embeddings(image, text, *temperature_and_bias(parameters))
        text = batch.get("reference_text", batch["text"])
        return self._embed(self.reference, parameters, batch["image"], text, FULL, None)

    def _embed(
        self,
        model: TwoTowerModel,
        parameters: Parameters,
        images: jax.Array,
        tokens: jax.Array,
        view: View,
        keys: jax.Array | None,
    ) -> Embeddings:
        """Embed without a gradient, at most as many rows at a time as a microbatch has."""

        def part(rows: tuple[jax.Array, jax.Array, jax.Array | None]) -> tuple[jax.Array, jax.Array]:
            z = embed(model, parameters, rows[0], rows[1], view, rows[2])
            return z.image, z.text

        size = len(self.full) + len(self.approximate) if self.microbatches > 1 else images.shape[0]
        image, text = _in_parts(part, (images, tokens, keys), size)
        return Embeddings(image, text, *temperature_and_bias(parameters))

    def _loss_and_gradients(
        self,
        parameters: Parameters,
        rows: tuple[jax.Array, jax.Array, jax.Array | None],
        reference: Embeddings | None = None,
    ) -> tuple[jax.Array, Parameters]:
        """Compute this device's shares of both: summed over devices, they are the sub-batch's.

        With microbatches the gradient is the whole batch's all the same, negatives of other microbatches
        included (GradCache, Gao et al., 2021): embed without keeping activations, differentiate the loss with
        respect to the embeddings, then embed each part again to carry that on to the parameters.
        """
        parameters = self._varying(parameters)
        if self.microbatches == 1:
            loss, gradients = jax.value_and_grad(
                lambda p: self._compared(
                    Embeddings(*self._mixed(p, rows), *temperature_and_bias(p)), reference
                )
            )(parameters)
            return loss, gradients

        parts = jax.tree.map(lambda x: x.reshape(self.microbatches, -1, *x.shape[1:]), rows)
        image, text = jax.lax.map(lambda part: self._mixed(parameters, part), parts)
        loss, (image_gradient, text_gradient, scalar_gradients) = self._loss_of(
            parameters, _joined(image), _joined(text), reference
        )
        cotangents = tuple(z.reshape(image.shape) for z in (image_gradient, text_gradient))

        def accumulate(total: Parameters, part: Any) -> tuple[Parameters, None]:
            rows, cotangents = part
            _, backward = jax.vjp(lambda p: self._mixed(p, rows), parameters)
            return jax.tree.map(jnp.add, total, backward(cotangents)[0]), None

        gradients, _ = jax.lax.scan(
            accumulate,
            jax.tree.map(jnp.zeros_like, parameters) | scalar_gradients,
            (parts, cotangents),
        )
        return loss, gradients

    def _learned_from(
        self, kept: KeptPass, state: TrainState, chosen: jax.Array, reference: Embeddings | None
    ) -> tuple[jax.Array, Parameters]:
        """Compute loss and gradients of the chosen rows from the pass that scored them."""
        image, text = (z[chosen] for z in kept.outputs)
        loss, (*cotangents, scalar_gradients) = self._loss_of(
            self._varying(state.parameters), image, text, reference
        )
        gradients = kept.gradient(chosen, tuple(cotangents))
        # The towers depend on neither t nor b.
        return loss, gradients | scalar_gradients

    def _loss_of(
        self, parameters: Parameters, image: jax.Array, text: jax.Array, reference: Embeddings | None
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Parameters]]:
        """Compute the loss of embeddings, and its gradients with respect to them and to t and b."""
        scalars = {name: parameters[name] for name in ("t", "b")}
        found: tuple[jax.Array, tuple[jax.Array, jax.Array, Parameters]] = jax.value_and_grad(
            lambda image, text, p: self._compared(
                Embeddings(image, text, *temperature_and_bias(p)), reference
            ),
            argnums=(0, 1, 2),
        )(image, text, scalars)
        return found

    def _compared(self, z: Embeddings, reference: Embeddings | None) -> jax.Array:
        """Compute the loss, by the reference's embeddings, too, if it looks at them."""
        return self.loss(z) if reference is None else self.loss(z, reference=reference)

    def _as_mixed(self, reference: Embeddings | None) -> Embeddings | None:
        """Return the reference's embeddings in the order in which `_mixed` has the learner's."""
        if reference is None or not len(self.approximate):
            return reference

        def ordered(z: jax.Array) -> jax.Array:
            return _joined(z.reshape(self.microbatches, -1, *z.shape[1:])[:, self.order])

        return reference._replace(image=ordered(reference.image), text=ordered(reference.text))

    def _varying(self, parameters: Parameters) -> Parameters:
        """Return the parameters as each device has a gradient of its own of."""
        varying: Parameters = jax.lax.pcast(parameters, AXIS, to="varying")
        return varying

    def _summed(self, shares: Any) -> Any:
        """Sum over devices, in one message."""
        if self.devices == 1:
            return jax.lax.psum(shares, AXIS)
        flat, restore = ravel_pytree(shares)
        return restore(jax.lax.psum(flat, AXIS))

    def _mixed(
        self, parameters: Parameters, rows: tuple[jax.Array, jax.Array, jax.Array | None]
    ) -> tuple[jax.Array, jax.Array]:
        """Embed a microbatch: the larger part of its images in full view, the others approximately."""
        images, tokens, keys = rows
        if not len(self.approximate):
            z = embed(self.model, parameters, images, tokens)
            return z.image, z.text

        def seen(positions: np.ndarray, view: View) -> jax.Array:
            own_keys = None if keys is None else keys[positions]
            z: Any = self.model.apply(
                {"params": parameters}, images[positions], view, own_keys, method=TwoTowerModel.embed_images
            )
            return jnp.asarray(z)

        views = ((self.full, FULL), (self.approximate, self.view))
        parts = [(positions, view) for positions, view in views if len(positions)]
        image = jnp.concatenate([seen(positions, view) for positions, view in parts])
        text: Any = self.model.apply(
            {"params": parameters}, tokens[self.order], method=TwoTowerModel.embed_texts
        )
        return image, jnp.asarray(text)

    def _patch_keys(self, key: jax.Array, rows: int) -> jax.Array | None:
        """Return a key for each of this device's rows by its position in the whole batch, if it is needed."""
        if self.view.keep == 1.0:
            return None
        return example_keys(key, jax.lax.axis_index(AXIS) * rows + jnp.arange(rows))


def spread(size: int, marked: int) -> tuple[np.ndarray, np.ndarray]:
    """Split positions 0 … size − 1 in two parts: of 4 and 2, [0, 2] and [1, 3].

    Returns:
        int [size − marked] and int [marked], the second spread evenly.
    """
    before = np.arange(size + 1) * marked // size
    is_marked = np.diff(before) > 0
    return np.flatnonzero(~is_marked), np.flatnonzero(is_marked)


def _joined(x: jax.Array) -> jax.Array:
    """Join parts: [parts, rows, …] → [parts · rows, …]."""
    return x.reshape(-1, *x.shape[2:])


def _in_parts(function: Callable[[Any], Any], rows: Any, size: int) -> Any:
    """Compute function(rows), at most `size` rows at a time."""
    count = jax.tree.leaves(rows)[0].shape[0]
    parts = next(k for k in range(1, count + 1) if count % k == 0 and count // k <= size)
    if parts == 1:
        return function(rows)
    split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), rows)
    return jax.tree.map(_joined, jax.lax.map(function, split))
