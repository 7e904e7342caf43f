"""Make tables and figures from options, for the command line, the Python API, and reports.

Custom figures and tables are not part of a run's identity. The code of an imported study is executed only
after `jestlab trust`; code that the user names on the command line or in a script needs no trust.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.analysis.sheet import PLAIN
from jestlab.models import extensions
from jestlab.models.extensions import references
from jestlab.platform import plugins
from jestlab.platform.errors import UserError
from jestlab.platform.lab.lab import Lab
from jestlab.platform.spec.options import (
    FIGURES,
    TABLES,
    Options,
    TableOptions,
    custom_code_in,
    parse_options,
)
from jestlab.platform.store.store import Store
from jestlab.platform.store.trust import refuse_untrusted

if TYPE_CHECKING:
    from jestlab.analysis.custom import CustomCode, Kind
    from jestlab.analysis.figures import Plot
    from jestlab.analysis.results import Snapshot
    from jestlab.analysis.tables import Table

BUILT_IN: dict[Kind, tuple[str, ...]] = {"table": TABLES, "figure": (*FIGURES, "all")}
"""Names of built-in figures and tables."""


class TrustedLoader:
    """Imports custom figures and tables, unless the experiment that names them isn't trusted."""

    def __init__(self, store_url: str, named: str | None = None) -> None:
        """Create a loader for the experiments of a store. Code that the user `named` is trusted."""
        self._url = store_url
        self._named = named

    def __call__(self, experiment: str, kind: Kind, name: str) -> CustomCode:
        """Import the code of an experiment; ValueError if it isn't trusted or can't be imported."""
        from jestlab.analysis.custom import CustomCode
        from jestlab.analysis.errors import RequestError

        try:
            if name != self._named and (store := Store.open_readonly(self._url)) is not None:
                with closing(store):
                    refuse_untrusted(store, experiment)
        except UserError as error:
            raise RequestError(str(error)) from None
        try:
            function = extensions.load(kind, name)
        except ValueError as error:
            raise RequestError(str(error)) from None
        if not callable(function):
            raise RequestError(f"{kind} {name!r} is a {type(function).__name__}: expected a function")
        return CustomCode(name, function, plugins.digest(kind, name))


def make_table(lab: Lab, experiments: Sequence[str], name: str, given: Mapping[str, Any]) -> Table:
    """Make a table by name: a built-in one, a published one, a custom one, or one of a study's reports.

    `given` has values of `TableOptions`.

    Raises:
        ValueError: The table, an option, or an experiment is unknown, or the table can't be made.
    """
    name, given, loader = _resolve(lab, experiments[0] if experiments else None, "table", name, given)
    named = {"name": name} if loader is not None or name in BUILT_IN["table"] else {}
    return table_of(
        lab.store_url, experiments, parse_options("table", {**given, **named}), name=name, own=loader
    )


def make_plots(lab: Lab, experiment: str | None, kind: str, given: Mapping[str, Any]) -> list[Plot]:
    """Make figures of a kind: a built-in one, "all", a custom one, or one of a study's reports.

    `given` has values of the kind's options. The kind "published" needs no experiment.

    Raises:
        ValueError: The kind, an option, or the experiment is unknown, or the figure can't be made.
    """
    from jestlab.analysis import figures

    kind, given, loader = _resolve(lab, experiment, "figure", kind, given)
    options = parse_options(kind, given)
    arguments = figure_options(lab, options) | {"own": loader}
    if kind == "all":
        return figures.all_possible(lab.store_url, experiment or "", **arguments)
    return [figures.draw(kind, lab.store_url, experiment or "", **arguments)]


def table_of(
    store: str | Snapshot,
    experiments: Sequence[str],
    options: TableOptions,
    *,
    name: str | None = None,
    **shared: Any,
) -> Table:
    """Make a table from validated options.

    Args:
        store: URL of the lab's store, or a snapshot of it.
        name: Name of the table, for a published one; by default `options.name`.
        shared: More arguments of `jestlab.analysis.tables.table`: `own`, which imports custom tables.
    """
    from jestlab.analysis import tables

    fields = ("baseline", "scope", "score", "options", "x", "by", "to")
    given = {field: getattr(options, field) for field in fields} | shared
    given["best"] = options.model_dump()["best"]
    with_published = options.published
    return tables.table(
        store, name or options.name, experiments, with_published=with_published, shape=options, **given
    )


def figure_options(lab: Lab, options: Options) -> dict[str, Any]:
    """Return arguments of `jestlab.analysis.figures.draw` from validated options."""
    from jestlab.platform.reports.selected import selected_images

    given = options.model_dump(exclude={"kind", "figure"})
    sheet = getattr(options, "figure", None) or PLAIN
    return {"pictures": partial(selected_images, lab), "sheet": sheet} | given


def _resolve(
    lab: Lab, experiment: str | None, kind: Kind, name: str, given: Mapping[str, Any]
) -> tuple[str, dict[str, Any], TrustedLoader | None]:
    """Resolve the name of a figure or table that a user gives.

    Returns:
        The name, with an absolute path if it names a file; the given options, and those in the study's spec
        that aren't given; a loader for custom code, or None.
    """
    given = dict(given)
    if name in BUILT_IN[kind]:
        return name, given, None
    if experiment and (stored := _in_spec(lab.store_url, experiment, kind, name)):
        name, options = stored
        given["options"] = {**options, **given.get("options", {})}
        return name, given, TrustedLoader(lab.store_url)
    if references.is_reference(name) or name in extensions.installed(kind):
        name = references.anchored(name, Path.cwd())
        plugins.check(kind, name, given.get("options", {}), "options")
        return name, given, TrustedLoader(lab.store_url, name)
    return name, given, None


def _in_spec(url: str, experiment: str, kind: Kind, name: str) -> tuple[str, Mapping[str, Any]] | None:
    """Find a custom figure or table in a study's spec by the name of its files; return code and options."""
    from jestlab.analysis.claims import studies
    from jestlab.analysis.custom import stem_of
    from jestlab.analysis.results import opened

    with opened(url) as store:
        known = store.once(studies)
    spec = known[experiment].spec if experiment in known else {}
    found = (
        (code, options)
        for used, code, options in custom_code_in(spec)
        if used == kind and stem_of(code) == name
    )
    return next(found, None)
