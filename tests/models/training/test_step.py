"""The step: what reduces to plain training, what differs only in how it is computed, what is refused."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.support.steps_on_devices import JOINT, TINY, batch_of, steps

from jestlab.models.config import TrainConfig
from jestlab.models.devices import Devices
from jestlab.models.training.step import build_step, initial_state, spread
from jestlab.models.two_towers import TwoTowerModel, embed, initialize


def config(**sections):
    return TrainConfig.model_validate(copy.deepcopy(TINY) | sections)


def flat(parameters):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(parameters)])


def assert_like(found, expected):
    """The same metrics of every step, the norm of its gradient among them, and the same choice.

    Not the parameters: where a gradient is 0 but for rounding, as of the keys' biases, Adam makes full steps
    of the rounding.
    """
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.keys() == theirs.keys()
        assert ours.get("selected") == theirs.get("selected")
        for name in ours.keys() - {"selected"}:
            # A score is a difference of two losses, and as exact as they are, however near to zero it comes.
            smallest = theirs["loss"] * 1e-5 if name.startswith("score") else 0.0
            assert ours[name] == pytest.approx(theirs[name], rel=2e-5, abs=smallest, nan_ok=True), name


@pytest.fixture(scope="module")
def one():
    return Devices(jax.devices()[:1])


@pytest.fixture(scope="module")
def found_by(one):
    """A function from a config to the metrics of its steps and the parameters after them; it computes each
    config once."""
    known = {}

    def found(config):
        key = config.model_dump_json()
        if key not in known:
            known[key] = steps(config, devices=one)
        return known[key]

    return found


@pytest.fixture(scope="module")
def plain(found_by):
    return found_by(config())


@pytest.fixture(scope="module")
def joint(found_by):
    """The metrics of each step with joint selection."""
    return found_by(config(selection=JOINT))[0]


def test_without_filtering_every_rule_is_plain_training(one, plain):
    """f = 0: the sub-batch is the super-batch, bit for bit."""
    for rule in ("joint", "independent"):
        selecting = config(selection=JOINT | {"rule": rule, "filtering_ratio": 0.0})
        history, parameters = steps(selecting, devices=one)
        assert history == plain[0]
        np.testing.assert_array_equal(flat(parameters), flat(plain[1]))


def test_without_a_share_an_approximation_is_plain_training(one, plain):
    """λ = 0, bit for bit, under either method."""
    for method in ("flexi", "patch_drop"):
        history, parameters = steps(config(approximation={"method": method, "share": 0.0}), devices=one)
        assert history == plain[0]
        np.testing.assert_array_equal(flat(parameters), flat(plain[1]))


def test_an_approximation_at_the_towers_own_patch_size_changes_nothing(one, plain):
    """Only the order in which sums are taken differs."""
    own = {"patch_size": TINY["model"]["vision"]["patch_size"], "share": 0.5}
    assert_like(steps(config(approximation=own), devices=one)[0], plain[0])


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_an_approximation_changes_the_step(one, plain, share):
    for method in ("flexi", "patch_drop"):
        history, _ = steps(config(approximation={"method": method, "share": share}), 1, devices=one)
        assert history[0]["loss"] != pytest.approx(plain[0][0]["loss"], rel=1e-4)


@pytest.mark.parametrize(
    "runtime",
    [{"microbatches": 4}, {"remat": "all", "scan_layers": True}],
    ids=["microbatches", "remat and scan"],
)
@pytest.mark.parametrize("loss", ["sigmoid", "softmax"])
def test_how_a_step_is_computed_does_not_change_it(one, found_by, runtime, loss):
    """Microbatches, too: every example meets the negatives of the whole batch."""
    share = {"approximation": {"share": 0.25}}
    expected, _ = found_by(config(loss=loss, **share))
    assert_like(steps(config(loss=loss, runtime=runtime, **share), devices=one)[0], expected)


def test_microbatches_select_what_the_whole_batch_selects(one, joint):
    parts, _ = steps(config(selection=JOINT, runtime={"microbatches": 2}), devices=one)
    assert [m["selected"] for m in parts] == [m["selected"] for m in joint]


def test_several_steps_a_call_are_as_many_calls(one, joint):
    cfg = config(selection=JOINT)
    model = TwoTowerModel(cfg.model)
    reference = initialize(cfg.model, jax.random.key(9))
    state = initial_state(cfg, initialize(cfg.model, jax.random.key(0)), jax.random.key(cfg.seed))
    batches = [batch_of(cfg, number) for number in range(3)]
    stacked = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    step = build_step(cfg, model, one, steps=3)
    state, metrics = step(one.replicate(state), one.split(stacked, axis=1), one.replicate(reference))
    assert int(state.step) == 3
    found = [{name: np.asarray(value[i]).tolist() for name, value in metrics.items()} for i in range(3)]
    assert_like(found, joint)


def test_cached_embeddings_select_what_the_reference_selects(one, joint):
    cfg = config(selection=JOINT)
    model = TwoTowerModel(cfg.model)
    reference = initialize(cfg.model, jax.random.key(9))
    batch = batch_of(cfg, 0)
    z = embed(model, reference, jnp.asarray(batch["image"]), jnp.asarray(batch["text"]))
    batch |= {
        "reference_image_embedding": np.asarray(z.image),
        "reference_text_embedding": np.asarray(z.text),
    }
    scalars = {name: reference[name] for name in ("t", "b")}
    state = initial_state(cfg, initialize(cfg.model, jax.random.key(0)), jax.random.key(cfg.seed))
    step = build_step(cfg, None, one)
    _, metrics = step(one.replicate(state), one.split(batch), one.replicate(scalars))
    assert metrics["selected"].tolist() == joint[0]["selected"]


def test_selected_positions_are_what_is_trained_on(one, joint):
    """The loss is that of the selected pairs, taken out by hand."""
    cfg = config(selection=JOINT)
    batch = batch_of(cfg, 0)
    chosen = np.array(joint[0]["selected"])
    assert sorted(set(chosen.tolist())) == sorted(chosen.tolist())
    plain_step = build_step(config(), None, one)
    state = initial_state(cfg, initialize(cfg.model, jax.random.key(0)), jax.random.key(cfg.seed))
    taken = {name: x[chosen] for name, x in batch.items()}
    _, metrics = plain_step(one.replicate(state), one.split(taken), None)
    assert float(metrics["loss"]) == pytest.approx(joint[0]["loss"], rel=1e-6)


def test_a_selection_without_its_reference_is_refused(one):
    cfg = config(selection=JOINT)
    state = initial_state(cfg, initialize(cfg.model, jax.random.key(0)), jax.random.key(0))
    with pytest.raises(ValueError, match="a reference is needed, but none was given"):
        build_step(cfg, None, one)(one.replicate(state), one.split(batch_of(cfg, 0)), None)


def test_microbatches_that_do_not_divide_are_refused(one):
    with pytest.raises(ValueError, match=r"runtime.microbatches 3 does not divide the 32 examples"):
        build_step(config(runtime={"microbatches": 3}), None, one)


@given(st.integers(1, 200), st.floats(0, 1))
def test_an_approximate_share_is_spread_evenly(size, share):
    marked = round(share * size)
    full, approximate = spread(size, marked)
    assert sorted([*full, *approximate]) == list(range(size))
    assert len(approximate) == marked
    for start in range(size):
        for length in (2, 5, 11):
            window = range(start, min(start + length, size))
            found = len(set(window) & set(approximate.tolist()))
            assert abs(found - marked / size * len(window)) < 1 + 1e-9


def test_half_is_the_papers_halves():
    full, approximate = spread(8, 4)
    assert (full.tolist(), approximate.tolist()) == ([0, 2, 4, 6], [1, 3, 5, 7])


@pytest.mark.parametrize(
    "selection", [{"rule": "greedy", "criterion": "hard_learner"}, {"rule": "gibbs", "sweeps": 1}]
)
def test_several_steps_a_call_select_and_remember_what_single_steps_do(one, selection):
    """By every other rule and criterion, too; with the score of the sub-batch where it is due."""
    runtime = {"diagnostics": {"every_steps": 2}}
    cfg = config(selection=JOINT | selection, runtime=runtime)
    expected, _ = steps(cfg, 2, devices=one)
    assert np.isfinite(expected[1]["score_sub_batch"])
    batches = [batch_of(cfg, number) for number in range(2)]
    state = initial_state(cfg, initialize(cfg.model, jax.random.key(0)), jax.random.key(cfg.seed))
    reference = one.replicate(initialize(cfg.model, jax.random.key(9))) if cfg.needs_reference else None
    step = build_step(cfg, TwoTowerModel(cfg.model), one, steps=2)
    stacked = {name: np.stack([batch[name] for batch in batches]) for name in batches[0]}
    state, metrics = step(one.replicate(state), one.split(stacked, axis=1), reference)
    assert metrics["selected"].tolist() == [of_step["selected"] for of_step in expected]
    assert state.recent is not None
    for number, batch in enumerate(batches):
        chosen = batch["index"][np.array(expected[number]["selected"])]
        assert np.asarray(state.recent)[number].tolist() == chosen.tolist()
    assert float(metrics["score_sub_batch"][1]) == pytest.approx(expected[1]["score_sub_batch"], rel=1e-5)
