"""Contract tests for figures and tables of one's own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jestlab.analysis import figures, tables
from jestlab.analysis.own import OwnCode
from jestlab.analysis.tables.core import FORMATS
from jestlab.platform.contracts import example

_FIGURE_STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def check_figure(figure: Callable[..., Any], **options: Any) -> None:
    """Check a figure: `figure(results, **options)` → a Matplotlib figure, with its caption, or a `Plot`.

    It is drawn from a small study whose results are made up (`jestlab.platform.contracts.example`): a
    reference, uniform and joint selection at two widths, three seeds, with the evaluations shapes/accuracy
    and wiki/perplexity and the training metric loss. Checked: it is drawn, also while no run has completed,
    unless it asks for results that are missing then; it is written as PNG, SVG and PDF; the same results give
    the same picture.

    Args:
        figure: The function.
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no figure; the message says why.
    """
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:
        url = _written(folder, complete=True)

        def drawn(place: str) -> dict[str, bytes]:
            paths = _made(figures.draw, _name(figure), _request(url, figure, options)).save(
                f"{folder}/{place}"
            )
            return {path.suffix: path.read_bytes() for path in paths}

        first, again = drawn("first"), drawn("again")
        for suffix, start in _FIGURE_STARTS.items():
            assert first[suffix].startswith(start), f"the figure's {suffix} file is none"
        assert first == again, "a figure must be the same for the same results: seed what is random"
        running = _written(f"{folder}/running", complete=False)
        if (
            plot := _made_or_not_yet(figures.draw, _name(figure), _request(running, figure, options))
        ) is not None:
            plot.save(f"{folder}/early")


def check_table(table: Callable[..., Any], **options: Any) -> None:
    """Check a table: `table(results, **options)` → a pandas frame whose index names its rows, or a `Table`.

    It is made from the same study as in `check_figure`. Checked: it is made, also while no run has completed,
    unless it asks for results that are missing then; it is written in all formats; the same results give the
    same table.

    Args:
        table: The function.
        options: Its keyword arguments.

    Raises:
        AssertionError: It is no table; the message says why.
    """
    with tempfile.TemporaryDirectory(prefix="jestlab-") as folder:

        def made(url: str, make: Callable[..., Any]) -> Any:
            return make(tables.table, url, _name(table), [example.NAME], options=options, own=_loader(table))

        url = _written(folder, complete=True)
        first, again = made(url, _made), made(url, _made)
        for format in FORMATS:
            text = first.render(format)
            assert text.strip(), f"the table is empty as {format}"
            assert text == again.render(format), "a table must be the same for the same results"
        assert json.loads(first.json())["rows"], "a table must have rows"
        if (early := made(_written(f"{folder}/running", complete=False), _made_or_not_yet)) is not None:
            early.markdown()


def _written(folder: str, *, complete: bool) -> str:
    Path(folder).mkdir(exist_ok=True)
    return example.write(Path(folder), complete=complete)


def _request(url: str, figure: Callable[..., Any], options: dict[str, Any]) -> figures.Request:
    return figures.Request(url, example.NAME, options=options, own=_loader(figure))


def _loader(function: Callable[..., Any]) -> Callable[..., OwnCode]:
    return lambda experiment, kind, name: OwnCode(name, function)


def _name(function: Callable[..., Any]) -> str:
    return f"own:{getattr(function, '__name__', 'function')}"


def _made(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make it; what it fails with becomes the reason that it is refused for."""
    try:
        return make(*args, **kwargs)
    except ValueError as error:
        raise AssertionError(str(error)) from error


def _made_or_not_yet(make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make it from results of runs under way; None if it says that it needs more."""
    from jestlab.analysis.own import NotYet

    try:
        return make(*args, **kwargs)
    except NotYet:
        return None
    except ValueError as error:
        raise AssertionError(
            f"while no run has completed: {error} (Results.final waits for that; else look at what is there)"
        ) from error
