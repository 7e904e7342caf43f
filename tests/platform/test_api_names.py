"""The public names of the Python API, and the options that its results accept."""

import inspect
from importlib.metadata import version

import pytest

from jestlab import api
from jestlab.platform.spec.options import FIGURES, FigureOptions, TableOptions


def test_public_names_exist_and_are_documented():
    assert api.__version__ == version("jestlab")
    public = [getattr(api, name) for name in api.__all__ if name != "__version__"]
    for place in public:
        methods = [each for name, each in vars(place).items() if name[0] != "_" and inspect.isfunction(each)]
        assert all(map(inspect.getdoc, (place, *methods))), place


def test_launch_has_the_options_of_the_command():
    """Scripts rely on them."""
    options = set(inspect.signature(api.LoadedStudy.launch).parameters) - {"self"}
    assert options == {
        "progress", "parallel", "retries", "on", "fail_fast", "keep_going", "max_chip_hours", "rerun_changed",
        "rerun_retracted", "runs", "replace", "reports", "decide",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("method", "models"),
    [
        (api.ExperimentResults.table, [TableOptions]),
        (api.ExperimentResults.figure, [*FIGURES.values(), FigureOptions]),
    ],
)
def test_results_accept_and_document_all_options(method, models):
    parameters = inspect.signature(method).parameters
    for name in {name for model in models for name in model.model_fields} - {"kind", "figure"}:
        assert name in parameters
        assert f"    {name}: " in (inspect.getdoc(method) or "")
