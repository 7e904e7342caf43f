"""Runs that the real W&B and MLflow recorded: committed ones, and new ones where the libraries are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.platform.adopting.make_data import make


@pytest.fixture(scope="session")
def peers_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the libraries that are installed beside JESTLAB_PEERS have recorded runs."""
    python = os.environ.get("JESTLAB_PEERS")
    if not python:
        pytest.skip("JESTLAB_PEERS is not set: it names a Python that has wandb and mlflow")
    folder = tmp_path_factory.mktemp("peers")
    make(python, folder)
    return folder
