"""Griffe extension for the Python reference: options of methods that are generated from models."""

from __future__ import annotations

import importlib
import inspect
from operator import attrgetter
from typing import Any

import griffe


class RuntimeOptions(griffe.Extension):
    """Replaces a docstring that contains `{options}`, and its parameters, by those of the imported method."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Read the docstring and the signature of such a method."""
        if func.docstring is None or "{options}" not in func.docstring.value:
            return
        place = func.path.removeprefix(f"{func.module.path}.")
        method = attrgetter(place)(importlib.import_module(func.module.path))
        func.docstring.value = inspect.getdoc(method) or ""
        own = [each for each in func.parameters if each.kind is not griffe.ParameterKind.var_keyword]
        names = {each.name for each in own}
        options = [
            griffe.Parameter(
                each.name,
                annotation=inspect.formatannotation(each.annotation),
                kind=griffe.ParameterKind.keyword_only,
                default=repr(each.default),
            )
            for each in inspect.signature(method).parameters.values()
            if each.name not in names
        ]
        func.parameters = griffe.Parameters(*own, *options)
