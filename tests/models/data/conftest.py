"""Small data that the tests of this folder read and do not change."""

import shutil

import pytest

from jestlab.models.config import ShapesBenchmark, ShapesWeb
from jestlab.models.data import shapes

WEB = ShapesWeb(examples=700, shard_size=300)


@pytest.fixture(scope="session")
def web(tmp_path_factory):
    """Shards of 300, 300 and 100 pairs."""
    folder = tmp_path_factory.mktemp("web")
    shapes.make_web(folder, WEB, seed=5)
    return folder


@pytest.fixture
def own_web(web, tmp_path):
    """A copy to damage."""
    shutil.copytree(web, tmp_path / "web")
    return tmp_path / "web"


@pytest.fixture(scope="session")
def benchmark_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    shapes.make_benchmark(folder, ShapesBenchmark(classification_examples=100, retrieval_examples=64))
    return folder
