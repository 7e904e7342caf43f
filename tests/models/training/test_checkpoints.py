"""Checkpoints are restored exactly, and damage costs at most one checkpoint."""

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.models.support import own_code
from tests.rights import without_rights

from jestlab.models.config import TwoTowers
from jestlab.models.training.checkpoints import Checkpoints, load_parameters, save_parameters
from jestlab.models.training.distinct import Distinct
from jestlab.models.training.state import TrainState
from jestlab.models.two_towers import initialize


def state_at(step):
    """A state of random numbers: data files of numbers that compress well wouldn't be the largest."""
    w, m = np.random.default_rng(step).normal(size=(2, 64, 64)).astype(np.float32)
    parameters = {"w": jnp.asarray(w), "t": jnp.full(1, float(step))}
    key = jax.random.key_data(jax.random.key(7))
    return TrainState(jnp.int32(step), parameters, {"m": jnp.asarray(m)}, key)


def fill(folder, steps, scores=None):
    with closing(Checkpoints(folder, 2, lambda step: None)) as checkpoints:
        for step in steps:
            seen = Distinct()
            seen.add(np.arange(step))
            checkpoints.save(state_at(step), step / 2, seen, (scores or {}).get(step))


def restored(folder, like=None):
    with closing(Checkpoints(folder, 2, lambda step: None)) as checkpoints:
        return checkpoints.restore(like or state_at(0))


def test_the_newest_comes_back_with_its_totals(tmp_path):
    state, seconds, distinct = restored(tmp_path)
    assert (state.step, seconds, distinct.count) == (0, 0.0, 0.0)
    fill(tmp_path, [1, 2, 3])
    state, seconds, distinct = restored(tmp_path)
    assert (state.step, seconds, round(distinct.count)) == (3, 1.5, 3)
    jax.tree.map(np.testing.assert_array_equal, state, state_at(3))


def test_the_newest_and_the_best_are_kept(tmp_path):
    (tmp_path / "3.orbax-checkpoint-tmp-0").mkdir()  # of a killed run
    (tmp_path / "4").mkdir()  # a run was killed before it wrote the hashes
    fill(tmp_path, [1, 2, 3, 4, 5], scores={1: 0.2, 2: 0.9, 4: 0.5})
    expected = {name for step in (2, 4, 5) for name in (str(step), f"{step}.json")}
    assert {path.name for path in tmp_path.iterdir()} == expected


def test_a_state_may_be_donated_while_it_is_saved(tmp_path):
    state = state_at(1)
    with closing(Checkpoints(tmp_path, 1, lambda step: None)) as checkpoints:
        checkpoints.save(state, 0.0, Distinct())
        jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)(state)
    np.testing.assert_array_equal(restored(tmp_path)[0].parameters["w"], state_at(1).parameters["w"])


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(bytes(content))


def largest(folder):
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: flip(largest(folder / "3")),
        lambda folder: largest(folder / "3").unlink(),
        lambda folder: (folder / "3.json").write_bytes(b"[]"),
        lambda folder: shutil.rmtree(folder / "3"),
    ],
    ids=["a flipped bit", "a missing file", "no hashes", "no folder"],
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, damage, caplog):
    fill(tmp_path, [1, 2, 3])
    damage(tmp_path)
    is_folder = (tmp_path / "3").exists()
    assert restored(tmp_path)[0].step == 2
    assert "checkpoint 3 is damaged" in caplog.text
    assert len(list(tmp_path.glob("damaged-3-*"))) == is_folder
    fill(tmp_path, [3])  # its step can be saved again
    assert restored(tmp_path)[0].step == 3
    for step in (2, 3):
        flip(largest(tmp_path / str(step)))
    assert restored(tmp_path)[0].step == 0


@pytest.mark.parametrize("closed", ["", "2", "2/parameters", "a file"])
def test_a_lack_of_permission_is_no_damage(closed):
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        fill(folder, [1, 2])
        before = sorted(path.name for path in folder.iterdir())
        for path in (folder, *folder.rglob("*")):
            os.chown(path, 65534, -1)
        place = largest(folder / "2") if closed == "a file" else folder / closed
        place.chmod(0)
        with without_rights(), pytest.raises(PermissionError, match=r"[Pp]ermission .*"):
            restored(folder)
        place.chmod(0o755)
        assert sorted(path.name for path in folder.iterdir()) == before


def test_rejects_another_structure_and_deletes_nothing(tmp_path):
    fill(tmp_path, [1])
    other = state_at(0)._replace(optimizer={"another": jnp.zeros(3)})
    with pytest.raises(ValueError, match=r"this run's structure.*: remove .* to train from the beginning"):
        restored(tmp_path, other)
    assert (tmp_path / "1").exists() and (tmp_path / "1.json").exists()


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
