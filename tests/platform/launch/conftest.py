"""Launches whose jobs are threads."""

import itertools
from collections.abc import Iterator

import pytest
from in_process import Machine

from jestlab.platform import processes
from jestlab.platform.launch.claiming import XManagerRecord


@pytest.fixture
def unrecorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches without XManager, which takes a third of a second each; `test_xmanager` tests it."""
    monkeypatch.setattr(XManagerRecord, "open", lambda record: None)


@pytest.fixture
def recorded_machine(monkeypatch: pytest.MonkeyPatch, forking: None) -> Iterator[Machine]:
    """Launches on "this machine" start threads instead of processes."""
    made = Machine(monkeypatch)
    yield made
    made.close()


@pytest.fixture
def machine(recorded_machine: Machine, unrecorded: None) -> Machine:
    """Launches start threads instead of processes, and do without XManager."""
    return recorded_machine


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each launcher of this process another name, like launchers in different processes."""
    numbers, name = itertools.count(), processes.identity()
    monkeypatch.setattr(processes, "identity", lambda: f"{name}:{next(numbers)}")
