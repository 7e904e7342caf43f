"""Labs with real processes, for every test of the platform."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parent / "support"
sys.path.insert(0, str(SUPPORT))  # toy programs and helpers; workers get it by PYTHONPATH

import labs_support as labs  # noqa: E402


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Folder of a lab, not made yet. In the end no process of it may be left."""
    root = tmp_path / "lab"
    for name, value in labs.variables(root).items():
        monkeypatch.setenv(name, value)
    yield root
    labs.wait_until(lambda: not labs.processes_of(root), seconds=3)  # the kernel takes a moment to kill
