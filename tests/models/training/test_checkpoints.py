"""Checkpoints: what is restored is what was saved, and damage costs at most one checkpoint."""

import os
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support import own_code
from tests.rights import without_rights

from jestlab.models.config import TwoTowers
from jestlab.models.training.checkpoints import Checkpoints, load_parameters, save_parameters
from jestlab.models.training.step import TrainState
from jestlab.models.two_towers import initialize


def state_at(step):
    """A state of random numbers: data files of numbers that compress well wouldn't be the largest."""
    w, m = np.random.default_rng(step).normal(size=(2, 64, 64)).astype(np.float32)
    parameters = {"w": jnp.asarray(w), "t": jnp.full(1, float(step))}
    key = jax.random.key_data(jax.random.key(7))
    return TrainState(jnp.int32(step), parameters, {"m": jnp.asarray(m)}, key)


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


@pytest.fixture
def batches():
    return fresh()


def kept(folder):
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())


def test_the_newest_comes_back_with_its_iterator_and_key(tmp_path, batches):
    fill(tmp_path, batches, [1, 2, 3])
    again = fresh()
    state = restored(tmp_path, again)
    assert int(state.step) == 3
    jax.tree.map(np.testing.assert_array_equal, state, state_at(3))
    assert next(again) == next(batches) == 3
    assert restored(tmp_path / "empty", fresh()).step == 0


def test_the_newest_and_the_best_are_kept(tmp_path, batches):
    (tmp_path / "3.orbax-checkpoint-tmp-0").mkdir()  # left by a run that was killed
    fill(tmp_path, batches, [1, 2, 3, 4, 5], scores={1: 0.2, 2: 0.9, 4: 0.5})
    assert not list(tmp_path.glob("*tmp*"))
    assert kept(tmp_path) == [2, 4, 5]
    assert {path.name for path in tmp_path.glob("sha256-*")} == {f"sha256-{s}.json" for s in (2, 4, 5)}


def test_a_state_may_be_donated_while_it_is_saved(tmp_path, batches):
    checkpoints = Checkpoints(tmp_path, 1)
    state = state_at(1)
    next(batches)
    checkpoints.save(state, batches)
    jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)(state)
    checkpoints.close()
    np.testing.assert_array_equal(restored(tmp_path, fresh()).parameters["w"], state_at(1).parameters["w"])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def largest(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(
    "damage", [lambda file: flip(file), lambda file: file.unlink()], ids=["a flipped bit", "a missing file"]
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, batches, damage, caplog):
    fill(tmp_path, batches, [1, 2, 3])
    damage(largest(tmp_path / "3"))
    again = fresh()
    state = restored(tmp_path, again)
    assert int(state.step) == 2
    assert again.get_state() == {"next_index": 2}
    assert "checkpoint 3 is damaged" in caplog.text
    assert kept(tmp_path) == [2]
    fill(tmp_path, again, [3])  # its step can be saved again
    assert int(restored(tmp_path, fresh()).step) == 3
    for step in (2, 3):  # all that are left
        damage(largest(tmp_path / str(step)))
    again = fresh()
    assert int(restored(tmp_path, again).step) == 0
    assert next(again) == 0


def test_rejects_a_position_in_the_data_that_is_not_the_step(tmp_path, batches):
    with pytest.raises(ValueError, match=r"after 2 steps the data are at .*0"):
        Checkpoints(tmp_path, 2).save(state_at(2), batches)


@pytest.mark.parametrize("closed", ["", "2", "2/parameters", "a file"])
@pytest.mark.parametrize("hashed", [True, False])
def test_a_lack_of_permission_is_no_damage(closed, hashed):
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        fill(folder, fresh(), [1, 2])
        if not hashed:
            (folder / "sha256-2.json").unlink()
        before = sorted(path.name for path in folder.iterdir())
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, -1)
        place = largest(folder / "2") if closed == "a file" else folder / closed
        place.chmod(0)
        with without_rights(), pytest.raises(PermissionError, match=r"[Pp]ermission .*"):
            restored(folder, fresh())
        place.chmod(0o755)
        assert sorted(path.name for path in folder.iterdir()) == before


def test_a_checkpoint_without_its_hash_is_read_unless_it_is_damaged(tmp_path, batches):
    fill(tmp_path, batches, [1, 2])
    (tmp_path / "sha256-2.json").unlink()
    assert int(restored(tmp_path, fresh()).step) == 2
    largest(tmp_path / "2").write_bytes(largest(tmp_path / "2").read_bytes()[:100])
    assert int(restored(tmp_path, fresh()).step) == 1


def test_rejects_another_structure_and_deletes_nothing(tmp_path, batches):
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


def test_loads_parameters_without_the_rest(tmp_path):
    tower = {"width": 16, "architecture": f"{own_code.MODULE}:Layer"}
    towers = TwoTowers.model_validate({"vision": tower, "text": tower, "embedding_dim": 16})
    parameters = initialize(towers, jax.random.key(3))
    save_parameters(tmp_path / "checkpoints", parameters)
    jax.tree.map(np.testing.assert_array_equal, load_parameters(tmp_path / "checkpoints", towers), parameters)
    flip(largest(tmp_path / "checkpoints/0"))
    with pytest.raises(ValueError, match="is damaged"):
        load_parameters(tmp_path / "checkpoints", towers)
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        load_parameters(tmp_path / "nothing", towers)
