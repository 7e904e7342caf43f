"""A lab on the cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from slurm_support import SlurmCluster, SlurmLab


@pytest.fixture
def lab(slurm: SlurmCluster, root: Path) -> SlurmLab:
    """A lab whose runs go to the cluster."""
    return SlurmLab(slurm, root)
