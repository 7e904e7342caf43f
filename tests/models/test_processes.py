"""Environment variables that describe the processes that compute together."""

import pytest

from jestlab.models.processes import initialize_processes, launched_first, launched_with_others

ALL = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:1", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (*ALL, "TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "MEGASCALE_SLICE_ID", "JESTLAB_PROCESSES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "others", "first"),
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
def test_the_first_process_is_recognized(monkeypatch, environment, others, first):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (launched_with_others(), launched_first()) == (others, first)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"JESTLAB_PROCESSES"}, "neither JAX_PROCESS_ID nor TPU_WORKER_ID says which this is"),
        *((ALL.keys() - {missing}, f"and {missing} is not: set all three") for missing in ALL),
    ],
)
def test_rejects_processes_without_a_number_and_incomplete_variables(monkeypatch, names, message):
    for name in names:
        monkeypatch.setenv(name, "64")
    with pytest.raises(ValueError, match=message):
        launched_first()


def test_rejects_fewer_processes_than_expected(monkeypatch):
    monkeypatch.setenv("JESTLAB_PROCESSES", "64")
    monkeypatch.setattr("jax.distributed.initialize", lambda: None)
    with pytest.raises(RuntimeError, match="JESTLAB_PROCESSES is 64, and JAX finds 1 processes"):
        initialize_processes()
