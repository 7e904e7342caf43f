"""What a launcher says of the processes that compute together."""

import pytest

from jestlab.models.processes import initialize_processes, launched_first, launched_with_others

ALL = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (*ALL, "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "MEGASCALE_SLICE_ID", "JESTLAB_PROCESSES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("said", "others", "first"),
    [
        ({}, False, True),
        (ALL, True, False),
        (ALL | {"JAX_PROCESS_ID": "0"}, True, True),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "1"}, True, False),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0"}, True, True),
        ({"TPU_WORKER_HOSTNAMES": "a,b", "TPU_WORKER_ID": "0", "MEGASCALE_SLICE_ID": "1"}, True, False),
        ({"TPU_WORKER_HOSTNAMES": "a", "TPU_WORKER_ID": "3"}, False, True),
        ({"JESTLAB_PROCESSES": "64", "TPU_WORKER_ID": "3"}, True, False),
        ({"JESTLAB_PROCESSES": "64", "TPU_WORKER_ID": "0"}, True, True),
        ({"JESTLAB_PROCESSES": "1"}, False, True),
    ],
)
def test_who_is_first(monkeypatch, said, others, first):
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    assert (launched_with_others(), launched_first()) == (others, first)


def test_one_of_many_that_knows_no_number_does_not_train_alone(monkeypatch):
    monkeypatch.setenv("JESTLAB_PROCESSES", "64")
    with pytest.raises(ValueError, match="neither JAX_PROCESS_ID nor TPU_WORKER_ID says which this is"):
        launched_first()


def test_fewer_than_there_have_to_be_do_not_train(monkeypatch):
    monkeypatch.setenv("JESTLAB_PROCESSES", "64")
    monkeypatch.setattr("jax.distributed.initialize", lambda: None)
    with pytest.raises(RuntimeError, match="JESTLAB_PROCESSES is 64, and JAX finds 1 processes"):
        initialize_processes()


@pytest.mark.parametrize("missing", ALL)
def test_half_of_it_is_refused(monkeypatch, missing):
    for name in ALL.keys() - {missing}:
        monkeypatch.setenv(name, ALL[name])
    with pytest.raises(ValueError, match=f"and {missing} is not: set all three"):
        launched_first()
