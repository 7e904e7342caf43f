"""Checkpoints: what is restored is what was saved, and damage costs no more than one checkpoint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jestlab.models.config import TwoTowers
from jestlab.models.training.checkpoints import Checkpoints, load_parameters, save_parameters
from jestlab.models.training.step import TrainState
from jestlab.models.two_towers import initialize


@pytest.fixture
def batches():
    import grain

    return iter(grain.MapDataset.range(100).to_iter_dataset(grain.ReadOptions(num_threads=1)))


def state_at(step):
    """Of random numbers: what compresses well would make the data files the smallest."""
    w, m = jax.random.normal(jax.random.key(step), (2, 64, 64))
    return TrainState(
        jnp.int32(step),
        {"w": w, "t": jnp.ones(1) * step},
        {"m": m},
        jax.random.key_data(jax.random.key(7)),
    )


def fill(folder, batches, steps, scores=None, keep=2):
    checkpoints = Checkpoints(folder, keep)
    for step in steps:
        next(batches)
        checkpoints.save(state_at(step), batches, (scores or {}).get(step))
    checkpoints.close()


def restored(folder, batches, keep=2):
    checkpoints = Checkpoints(folder, keep)
    state = checkpoints.restore(state_at(0), batches)
    checkpoints.close()
    return state


def fresh():
    import grain

    return iter(grain.MapDataset.range(100).to_iter_dataset(grain.ReadOptions(num_threads=1)))


def kept(folder):
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def test_the_newest_comes_back_with_its_iterator_and_key(tmp_path, batches):
    fill(tmp_path, batches, [1, 2, 3])
    again = fresh()
    state = restored(tmp_path, again)
    assert int(state.step) == 3
    jax.tree.map(np.testing.assert_array_equal, state, state_at(3))
    assert next(again) == next(batches) == 3


def test_nothing_saved_is_the_state_given(tmp_path, batches):
    assert restored(tmp_path, batches).step == 0


def test_the_newest_and_the_best_are_kept(tmp_path, batches):
    fill(tmp_path, batches, [1, 2, 3, 4, 5], scores={1: 0.2, 2: 0.9, 4: 0.5})
    assert kept(tmp_path) == [2, 4, 5]
    assert {path.name for path in tmp_path.glob("sha256-*")} == {f"sha256-{s}.json" for s in (2, 4, 5)}


def test_a_state_may_be_donated_while_it_is_saved(tmp_path, batches):
    checkpoints = Checkpoints(tmp_path, 1)
    train = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    state = state_at(1)
    next(batches)
    checkpoints.save(state, batches)
    for _ in range(5):
        state = train(state)
    checkpoints.close()
    np.testing.assert_array_equal(restored(tmp_path, fresh()).parameters["w"], state_at(1).parameters["w"])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def largest(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


DAMAGE = {
    "a flipped bit": lambda folder: flip(largest(folder)),
    "cut short": lambda folder: largest(folder).write_bytes(largest(folder).read_bytes()[:100]),
    "a missing file": lambda folder: largest(folder).unlink(),
    "empty": lambda folder: largest(folder).write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, batches, damage, caplog):
    fill(tmp_path, batches, [1, 2, 3])
    DAMAGE[damage](tmp_path / "3")
    again = fresh()
    state = restored(tmp_path, again)
    assert int(state.step) == 2
    assert again.get_state() == {"next_index": 2}
    assert "checkpoint 3 is damaged" in caplog.text
    assert kept(tmp_path) == [2]
    fill(tmp_path, again, [3])  # its step can be saved again
    assert int(restored(tmp_path, fresh()).step) == 3


def test_a_place_in_the_data_that_is_not_the_step_is_refused(tmp_path, batches):
    with pytest.raises(ValueError, match=r"after 2 steps the data are at .*0"):
        Checkpoints(tmp_path, 2).save(state_at(2), batches)


def test_all_damaged_begins_anew(tmp_path, batches):
    fill(tmp_path, batches, [1, 2])
    for step in (1, 2):
        flip(largest(tmp_path / str(step)))
    again = fresh()
    assert int(restored(tmp_path, again).step) == 0
    assert next(again) == 0


def test_killed_before_it_was_hashed_it_is_still_read_and_damage_is_noticed(tmp_path, batches):
    fill(tmp_path, batches, [1, 2])
    (tmp_path / "sha256-2.json").unlink()
    assert int(restored(tmp_path, fresh()).step) == 2
    DAMAGE["cut short"](tmp_path / "2")
    assert int(restored(tmp_path, fresh()).step) == 1


def test_another_structure_is_an_error_and_loses_nothing(tmp_path, batches):
    """Whole files that do not fit come from other code, not from damage."""
    fill(tmp_path, batches, [1])
    checkpoints = Checkpoints(tmp_path, 2)
    other = state_at(0)._replace(optimizer={"another": jnp.zeros(3)})
    with pytest.raises(
        ValueError, match=r"holds another state than this run.s.*: remove .* to train from the beginning"
    ):
        checkpoints.restore(other, fresh())
    checkpoints.close()
    assert kept(tmp_path) == [1]


SMALL = TwoTowers.model_validate(
    {"vision": {"width": 16, "depth": 1}, "text": {"width": 16, "depth": 1}, "embedding_dim": 16}
)


def test_parameters_alone(tmp_path):
    parameters = initialize(SMALL, jax.random.key(3))
    save_parameters(tmp_path / "checkpoints", parameters)
    jax.tree.map(np.testing.assert_array_equal, load_parameters(tmp_path / "checkpoints", SMALL), parameters)
    flip(largest(tmp_path / "checkpoints/0"))
    with pytest.raises(ValueError, match="is damaged"):
        load_parameters(tmp_path / "checkpoints", SMALL)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_parameters(tmp_path / "nothing", SMALL)
