"""Meshes of devices, and messages among devices and processes."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import multihost_utils
from tests.models.support.virtual_devices import on_devices

from jestlab.models import devices as module
from jestlab.models.devices import (
    Devices,
    any_process,
    broadcast,
    broadcast_number,
    maximum_over_processes,
    take_rows,
)


@pytest.mark.parametrize("largest_bytes", [module.LARGEST_BYTES, 60])
def test_each_device_gets_its_part_of_the_chosen_rows(monkeypatch, largest_bytes):
    """In one exchange, or in several small ones."""
    monkeypatch.setattr(module, "LARGEST_BYTES", largest_bytes)
    rng = np.random.default_rng(0)
    rows = {
        "image": rng.integers(0, 256, (12, 3, 2), np.uint8),
        "text": rng.integers(-(2**31), 2**31, (12, 2), np.int32),
        "embedding": rng.normal(size=(12, 1)).astype(np.float32),
    }
    chosen = jnp.array([11, 0, 5, 6, 3, 9])
    for devices in (1, 3):
        taken = jax.jit(on_devices, static_argnums=(0, 1))(
            devices, lambda mine: take_rows(mine, chosen), rows
        )
        for name, x in rows.items():
            assert taken[name].dtype == x.dtype
            np.testing.assert_array_equal(taken[name].reshape(6, *x.shape[1:]), x[chosen])


def test_devices_that_do_not_divide_the_batches_are_left_out(monkeypatch, caplog):
    monkeypatch.setattr(jax, "devices", lambda: [None] * 4)
    used = []
    monkeypatch.setattr(Devices, "__init__", lambda self, devices: used.append(len(devices)))
    Devices.for_sizes(8, 4)
    assert not caplog.records
    Devices.for_sizes(9, 6)
    Devices.for_sizes(1)
    assert used == [4, 3, 1]
    assert "using 3 of 4 devices: more do not divide batches of 9, 6 examples" in caplog.text
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match="4 devices of 2 processes do not divide the batches of 8, 6"):
        Devices.for_sizes(8, 6)


def test_answers_of_all_processes_are_combined(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    others = iter([0, 0, 1, [3, 1]])
    monkeypatch.setattr(
        multihost_utils, "process_allgather", lambda mine: np.stack([mine, np.array(next(others))])
    )
    assert any_process(True) and not any_process(False) and any_process(False)
    assert maximum_over_processes(np.array([2, 2])).tolist() == [3, 2]


def test_the_first_process_sends_its_values_bit_for_bit(monkeypatch):
    """JAX would add −0 and 0, and shorten 64 bits to 32; bytes stay as they are."""
    sent = mock.Mock(side_effect=lambda tree: tree)
    monkeypatch.setattr(multihost_utils, "broadcast_one_to_all", sent)
    assert [broadcast_number(number) for number in (2**40 + 5, -1, True)] == [2**40 + 5, -1, 1]
    given = broadcast({"a": np.array([[-0.0, 1.5]]), "b": np.zeros((0, 3), np.float32)})
    assert np.signbit(given["a"]).tolist() == [[True, False]] and given["b"].shape == (0, 3)
    assert {leaf.dtype for leaf in jax.tree.leaves(sent.call_args.args)} == {np.dtype(np.uint8)}
