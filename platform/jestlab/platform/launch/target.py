"""A run as far as launching cares: what it is called, and what it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Target(Protocol):
    """A run as far as the controller cares; a `PlannedRun` is one."""

    @property
    def fingerprint(self) -> str:
        """Its identity."""

    @property
    def name(self) -> str:
        """In the study."""

    @property
    def label(self) -> str:
        """Name and values on the axes."""

    @property
    def seed(self) -> int:
        """Replicate."""

    @property
    def program(self) -> str:
        """What it executes."""

    @property
    def needs(self) -> Mapping[str, str]:
        """Role → fingerprint of each run that it needs."""
