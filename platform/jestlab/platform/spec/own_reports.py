"""The figures and tables of one's own that a study's reports name: found and digested, never executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from jestlab.models import extensions
from jestlab.models.extensions import references
from jestlab.platform.errors import SpecError, within
from jestlab.platform.spec.reports import REPORTS, TableName, own_code
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.tree import STUDIES

if TYPE_CHECKING:
    from jestlab.analysis.own import Kind

_MISSING = "missing"


def check(study: Study) -> None:
    """Check that there are the figures and tables of one's own that a study asks for.

    Raises:
        SpecError: There is no such code, or it does not take its options; the place is named.
    """
    for name, part in study.studies.items():
        with within(STUDIES, name):
            check(part)
    for i, report in enumerate(study.reports):
        if (named := own_code(report)) is None:
            continue
        kind, name = named
        field = "kind" if kind == "figure" else "name"
        try:
            check_code(kind, name, getattr(report, "options", {}), "options")
        except ValueError as error:
            raise SpecError(("reports", str(i), field), str(error)) from None


def check_code(kind: Kind, name: str, options: Mapping[str, Any], place: str) -> None:
    """Check that there is a figure or table of one's own, and that it takes its options.

    Args:
        kind: Which of the two.
        name: Where it is.
        options: Its arguments besides the results.
        place: Where they are given, in words.

    Raises:
        ValueError: It does not exist, or does not take them; one line.
    """
    from jestlab.platform.programs.own_code import check_options

    reference = extensions.reference_of(kind, name)
    references.check(reference)
    if (parameters := references.parameters_of(reference)) is not None:
        check_options(name, dict([*parameters.items()][1:]), options, place)  # the first gets the results


def digest(kind: Kind, name: str) -> str:
    """Return the digest of code; "missing" where there is none."""
    try:
        return extensions.digest(extensions.reference_of(kind, name))
    except (ValueError, OSError):
        return _MISSING


def digests(study: Study) -> list[str]:
    """Return names and digests of the code that a study's reports name, in a union of its parts', too."""
    named = (own_code(report) for part in (*study.studies.values(), study) for report in part.reports)
    return [f"{name} {digest(kind, name)}" for kind, name in filter(None, named)]


def named_in(spec: Mapping[str, Any]) -> Iterator[tuple[Kind, str, Mapping[str, Any]]]:
    """Yield the code of one's own that a stored spec's reports name, with its options.

    What is not installed here is named all the same.
    """
    for report in spec.get("reports") or ():
        if not isinstance(report, dict):
            continue
        kind, name, options = (report.get(key, "") for key in ("kind", "name", "options"))
        if kind == "table" and str(name or "summary") not in get_args(TableName):
            yield "table", str(name), options or {}
        elif kind != "table" and str(kind) not in REPORTS:
            yield "figure", str(kind), options or {}
