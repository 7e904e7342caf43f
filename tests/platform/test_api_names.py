"""The public names of the Python API and their signatures, which scripts and notebooks rely on."""

import inspect
from importlib.metadata import version
from operator import attrgetter
from typing import Any

import pytest

from jestlab import api
from jestlab.platform.spec.options import FIGURES, FigureOptions, TableOptions

NAMES = [
    "Error", "ExperimentResults", "LaunchPlan", "LoadedStudy", "OpenLab", "Outcome", "Page", "__version__",
    "load", "open_lab",
]  # fmt: skip

SIGNATURES = {
    "load": "spec, *, scale=None, overrides=None, root=None, store=None",
    "open_lab": "place=None, *, store=None",
    "LoadedStudy.plan": "*, why=False",
    "LoadedStudy.launch": "*, progress=True, parallel=None, retries=None, on=None, fail_fast=False, "
    "keep_going=False, max_chip_hours=None, rerun_changed=False, rerun_retracted=False, runs=(), "
    "replace=False, reports=True, decide=False",
    "LoadedStudy.results": "",
    "LoadedStudy.to_yaml": "",
    "LaunchPlan.frame": "",
    "Outcome.check": "",
    "ExperimentResults.frame": "view='runs', where=None, *, columns=None, order_by=(), limit=None",
    "ExperimentResults.claims": "",
    "ExperimentResults.report": "*, baseline=None, scope=None",
    "OpenLab.results": "experiment",
    "OpenLab.frame": "view='runs', where=None, *, experiment=None, columns=None, order_by=(), limit=None",
    "OpenLab.query": "sql",
}
"""What may grow by further options, and may not lose any."""

ATTRIBUTES = {
    "LoadedStudy": ["lab", "name", "question", "scale"],
    "LaunchPlan": ["cost"],
    "Outcome": ["experiment", "files", "notes", "ok", "page", "reasons", "states"],
    "ExperimentResults": ["experiment"],
    "OpenLab": ["experiments"],
}


def signature(function: Any) -> str:
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]
    return str(inspect.Signature(parameters))[1:-1]


def test_the_public_names_and_their_signatures():
    assert sorted(api.__all__) == sorted(NAMES)
    assert all(hasattr(api, name) for name in NAMES)
    functions = {place: attrgetter(place)(api) for place in SIGNATURES}
    assert {place: signature(function) for place, function in functions.items()} == SIGNATURES
    assert all(map(inspect.getdoc, functions.values()))
    assert "from jestlab import api" in (api.__doc__ or "")
    assert api.__version__ == version("jestlab")


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


def test_nothing_public_is_left_out_here():
    methods = set()
    for name, attributes in ATTRIBUTES.items():
        public = {each: value for each, value in vars(getattr(api, name)).items() if each[0] != "_"}
        methods |= {f"{name}.{each}" for each, value in public.items() if inspect.isfunction(value)}
        properties = {each for each, value in public.items() if isinstance(value, property)}
        assert properties <= set(attributes), name
    generated = {"ExperimentResults.table", "ExperimentResults.figure"}
    assert methods == {place for place in SIGNATURES if "." in place} | generated
