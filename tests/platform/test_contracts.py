"""The contract tests that users get: jestlab's own code passes, and wrong code does not."""

import functools
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support import own_code

from jestlab import testing
from jestlab.models import losses
from jestlab.models.selection import scores
from jestlab.models.selection.select import by_gibbs, in_chunks


def in_all_chunks(key, batch, *, batch_size, gain, noise=True):
    return in_chunks(key, batch, batch_size=batch_size, chunks=batch_size, gain=gain)


def test_jestlabs_criteria_and_losses_pass():
    for criterion in scores.CRITERIA.values():
        testing.check_criterion(criterion.function)
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


def test_code_as_a_user_writes_it_passes(tmp_path):
    testing.check_criterion(own_code.clipped, floor=0.1)
    testing.check_rule(own_code.halves, second_gain=2.0)
    testing.check_loss(own_code.decoupled)
    testing.check_evaluation(own_code.colours, names=("red", "green", "blue"))
    testing.check_reader(own_code.squares, count=20)
    testing.check_tower(own_code.Layer, hidden=16)
    testing.check_tower(own_code.Layer, "text")


def refused(check, code, message, **options):
    with pytest.raises(AssertionError, match=message):
        check(code, **options)


def test_bad_criteria_are_refused():
    check = functools.partial(refused, testing.check_criterion)
    check(lambda loss: loss, "learner.*reference")
    check(lambda learner: learner.sum(), "must keep the shape")
    check(lambda learner: learner.astype(int), "must keep float32")
    check(lambda learner: learner - learner.mean(), "independently")
    check(lambda learner, reference: learner / reference, "finite for losses from 0 to 100.*reference = 0")
    check(lambda learner: learner.no, "the criterion fails: AttributeError")


def test_bad_rules_are_refused():
    def first(key, batch, *, batch_size, gain):
        return jnp.zeros(batch_size, int)

    def short(key, batch, *, batch_size, gain):
        return jnp.arange(batch_size - 1)

    def beyond(key, batch, *, batch_size, gain):
        return jnp.arange(batch_size) + batch.candidates.count

    count = iter(range(100))

    def random(key, batch, *, batch_size, gain):
        return (jnp.arange(batch_size) + next(count)) % batch.candidates.count

    check = functools.partial(refused, testing.check_rule)
    check(first, "must choose 12 distinct examples, not 1")
    check(short, "must return 1 whole numbers")
    check(beyond, "indices from 0 to 47")
    check(lambda key, batch: None, "the rule fails: TypeError")
    with jax.disable_jit():
        check(random, "same `key`")


def test_bad_losses_are_refused():
    check = functools.partial(refused, testing.check_loss)
    check(lambda z: 0.0 * z.image.sum(), "is zero")
    check(lambda z: -losses.sigmoid_loss(z), "lower for matching pairs")
    check(lambda z: jnp.log(-jnp.ones(()) * z.image.sum() ** 2), "must be finite")
    check(lambda z: (z.image * jnp.arange(len(z.image))[:, None]).sum(), "order of the pairs")


def test_bad_evaluations_readers_and_towers_are_refused():
    random = np.random.default_rng(0)
    refused(testing.check_evaluation, lambda model: {"a": random.random()}, "must not be random")
    refused(testing.check_evaluation, lambda model: {"a/b": 1.0}, "expected a finite number")
    image = np.zeros((4, 4, 3), np.uint8)
    refused(testing.check_reader, lambda: iter(()), "yields no examples")
    refused(testing.check_reader, lambda: [{"image": image}], "example 0 has no 'caption'")
    refused(
        testing.check_reader, lambda: [{"image": image, "caption": f"{random.random()}"}], "the same examples"
    )
    refused(testing.check_tower, SimpleNamespace, "the tower fails: TypeError|AttributeError")
    refused(testing.check_tower, nn.Dense, "the tower fails|flops")

    class Wide(own_code.Layer):
        @staticmethod
        def flops(config, *, hidden=32):
            return 2 * own_code.Layer.flops(config, hidden=hidden)

    refused(testing.check_tower, Wide, "a tower's flops are .* but XLA counts")


# ---- figures and tables


def scatter(results, x="flops", bins=None):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    figure.subplots().scatter(results.final[x], results.final["score"])
    return figure


def noisy(results):
    figure = scatter(results)
    figure.axes[0].plot(np.random.default_rng().random(9))
    return figure


def early(results):
    ends = results.evaluations
    return ends[ends["final"]].groupby("label")["score"].mean().to_frame()


def per_label(results):
    return results.final.groupby("label")[["shapes/accuracy", "wiki/perplexity"]].mean()


def test_figures_and_tables_pass():
    testing.check_figure(scatter)
    testing.check_table(per_label)
    testing.check_table(lambda results: results.claims)
    testing.check_table(lambda results: results.config("width").to_frame())


@pytest.mark.parametrize(
    ("check", "made", "message"),
    [
        ("figure", lambda results: None, "returned NoneType: expected a matplotlib.figure.Figure"),
        ("figure", noisy, "must be the same for the same results: seed random numbers"),
        ("figure", lambda results: scatter(results, x="gone"), r"test_contracts.py:\d+: KeyError: 'gone'"),
        ("table", lambda results: results.final.to_dict(), "returned dict: expected a pandas DataFrame"),
        ("table", lambda results: results.final.head(0), "has no rows"),
        ("table", early, "while no run has completed: .*has no rows"),
        ("table", lambda results: results.final[["label"]], "has two rows called"),
    ],
)
def test_bad_figures_and_tables_are_refused(check, made, message):
    with pytest.raises(AssertionError, match=message):
        getattr(testing, f"check_{check}")(made)


def test_an_unknown_check_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'check_figures'"):
        testing.check_figures  # noqa: B018
