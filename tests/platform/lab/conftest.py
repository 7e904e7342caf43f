"""Fixtures for tests of labs and archives."""

import shutil
from pathlib import Path

import archives_support as archives
import pytest
import stores_support as stores

from jestlab.platform.lab.lab import Lab


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab with rows and files of every kind; no test may change it."""
    lab = stores.empty_lab(tmp_path_factory.mktemp("filled") / "lab")
    archives.fill(lab)
    return lab


@pytest.fixture(scope="session")
def archive(filled: Lab) -> bytes:
    """An archive of that lab, without checkpoints."""
    path = filled.root.with_name("lab.tar.gz")
    archives.export(filled, path)
    return path.read_bytes()


@pytest.fixture
def lab(filled: Lab, tmp_path: Path) -> Lab:
    """A copy of the filled lab."""
    shutil.copytree(filled.root, tmp_path / "lab")
    return Lab.find(tmp_path / "lab")


@pytest.fixture
def copy(tmp_path: Path) -> Lab:
    """An empty lab."""
    return stores.empty_lab(tmp_path / "copy")
