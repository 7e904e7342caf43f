"""Names that a study of one's own cannot have, because they mean something else on the command line."""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from jestlab.platform.errors import SpecError, within
from jestlab.platform.spec.config_tree import STUDIES
from jestlab.platform.spec.reports import REPORTS, TableName
from jestlab.platform.spec.schema import Study


def check_names(study: Study, registered: Collection[str]) -> None:
    """Refuse names of tables, verbs and kinds of reports as names of a study and of its parts.

    A study that is loaded from the store keeps its name: only what is launched from a spec is checked.

    Args:
        study: The study.
        registered: Names that are taken by registered studies, some of them after the paper's tables; a part
            of that name may be the registered study itself.

    Raises:
        SpecError: A name is reserved.
    """
    if what := _meaning(study.name):
        raise SpecError(
            ("name",),
            f"{study.name!r} is the name of {what}: give the study another one, such as my_{study.name}",
        )
    for name in study.studies:
        if name not in registered and (what := _meaning(name)):
            with within(STUDIES):
                raise SpecError(
                    (name,), f"is the name of {what}: give the study another one, such as my_{name}"
                )


def _meaning(name: str) -> str | None:
    """Say what else a name means; None for nothing."""
    from jestlab.platform.cli import VERBS  # which imports this package in turn, when a verb is called

    if name in get_args(TableName):
        return f"a table (`jestlab table {name}`)"
    if name in VERBS:
        return f"a verb (`jestlab {name}`)"
    if name in REPORTS:
        return "a kind of report"
    return None
