"""The contract tests that users get: jestlab's own code passes, and wrong code does not."""

import functools
import itertools
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from tests.models.support import own_code

from jestlab import testing
from jestlab.models import losses
from jestlab.models.selection import criteria
from jestlab.models.selection.jax import by_gibbs, in_chunks

RANDOM = np.random.default_rng(0)
COUNT = itertools.count()
IMAGE = np.zeros((4, 4, 3), np.uint8)


def in_all_chunks(key, batch, *, batch_size, gain):
    return in_chunks(key, batch, batch_size=batch_size, chunks=batch_size, gain=gain)


def test_jestlabs_criteria_and_losses_pass():
    for criterion in criteria.CRITERIA.values():
        testing.check_criterion(criterion)
    for loss in (losses.sigmoid_loss, losses.softmax_loss):
        testing.check_loss(loss)


@pytest.mark.full
def test_jestlabs_rules_pass():
    for rule in (
        in_all_chunks,
        functools.partial(in_chunks, chunks=1),
        functools.partial(by_gibbs, sweeps=1),
    ):
        testing.check_rule(rule)


def scatter(results, x="flops", bins=None):
    figure = Figure(figsize=(2, 2))
    figure.subplots().scatter(results.final[x], results.final["score"])
    return figure


def per_label(results):
    return results.final.groupby("label")[["shapes/accuracy", "wiki/perplexity"]].mean()


def test_code_as_a_user_writes_it_passes():
    testing.check_criterion(own_code.clipped, floor=0.1)
    testing.check_rule(own_code.halves, second_gain=2.0)
    testing.check_loss(own_code.decoupled)
    testing.check_evaluation(own_code.colours, names=("red", "green", "blue"))
    testing.check_reader(own_code.squares, count=20)
    testing.check_tower(own_code.Layer, hidden=16)
    testing.check_tower(own_code.Layer, "text")
    testing.check_figure(scatter)
    for table in (per_label, lambda results: results.config("width").to_frame()):
        testing.check_table(table)


class Wide(own_code.Layer):
    @staticmethod
    def flops(config, *, hidden=32):
        return 2 * own_code.Layer.flops(config, hidden=hidden)


def rule(choose):
    return lambda key, batch, *, batch_size, gain: choose(batch_size, batch.candidates.count)


def noisy(results):
    figure = scatter(results)
    figure.axes[0].plot(np.random.default_rng().random(9))
    return figure


def early(results):
    ends = results.evaluations
    return ends[ends["final"]].groupby("label")["score"].mean().to_frame()


REFUSED = {
    "criterion": (
        (lambda loss: loss, "learner.*reference"),
        (lambda learner: learner.sum(), "must keep the shape"),
        (lambda learner: learner.astype(int), "must keep float32"),
        (lambda learner: learner - learner.mean(), "independently"),
        (lambda learner, reference: learner / reference, "finite for losses from 0 to 100.*reference = 0"),
        (lambda learner: learner.no, "the criterion fails: AttributeError"),
    ),
    "rule": (
        (rule(lambda size, count: jnp.zeros(size, int)), "must choose 12 distinct examples, not 1"),
        (rule(lambda size, count: jnp.arange(size - 1)), "must return 1 integers"),
        (rule(lambda size, count: jnp.arange(size) + count), "indices from 0 to 47"),
        (lambda key, batch: None, "the rule fails: TypeError"),
        (rule(lambda size, count: (jnp.arange(size) + next(COUNT)) % count), "same `key`"),
    ),
    "loss": (
        (lambda z: 0.0 * z.image.sum(), "is zero"),
        (lambda z: -losses.sigmoid_loss(z), "lower for matching pairs"),
        (lambda z: jnp.log(-jnp.ones(()) * z.image.sum() ** 2), "must be finite"),
        (lambda z: (z.image * jnp.arange(len(z.image))[:, None]).sum(), "order of the pairs"),
    ),
    "evaluation": (
        (lambda model: {"a": RANDOM.random()}, "must not be random"),
        (lambda model: {"a/b": 1.0}, "expected a finite number"),
    ),
    "reader": (
        (lambda: iter(()), "yields no examples"),
        (lambda: [{"image": IMAGE}], "example 0 must be a mapping with `image`, `caption`"),
        (lambda: [{"image": IMAGE, "caption": f"{RANDOM.random()}"}], "the same examples"),
    ),
    "tower": (
        (SimpleNamespace, "the tower fails: TypeError|AttributeError"),
        (nn.Dense, "the tower fails|flops"),
        (Wide, "a tower's flops are .* but XLA counts"),
    ),
    "figure": (
        (lambda results: None, "returned NoneType: expected a matplotlib.figure.Figure"),
        (noisy, "must be the same for the same results: seed random numbers"),
        (lambda results: scatter(results, x="gone"), r"test_contracts.py:\d+: KeyError: 'gone'"),
    ),
    "table": (
        (lambda results: results.final.to_dict(), "returned dict: expected a pandas DataFrame"),
        (lambda results: results.final.head(0), "has no rows"),
        (early, "while no run has completed: .*has no rows"),
        (lambda results: results.final[["label"]], "has two rows called"),
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_wrong_code_is_refused(kind):
    for code, message in REFUSED[kind]:
        with pytest.raises(AssertionError, match=message), jax.disable_jit("`key`" in message):
            getattr(testing, f"check_{kind}")(code)


def test_an_unknown_check_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'check_figures'"):
        testing.check_figures  # noqa: B018
