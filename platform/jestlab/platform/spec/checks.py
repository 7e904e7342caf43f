"""Checks of a spec that is loaded: reserved names, texts that are names of runs, and custom code.

A study from the store passes without them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from jestlab.platform import plugins
from jestlab.platform.errors import Mistakes, Path, SpecError, shown, within
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.options import REPORTS, TABLES, custom_code
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import STUDIES, flatten
from jestlab.platform.spec.variants import Variant

_OF_COMMANDS = ("command", "cwd")


def check_names(study: StudySpec, registered: Collection[str]) -> None:
    """Check that a study and its parts don't have the name of a table or a kind of report.

    Args:
        study: The study.
        registered: Names of registered studies, which parts may have.

    Raises:
        SpecError: A name is reserved.
    """
    places: dict[Path, str] = {("name",): study.name}
    places |= {(STUDIES, name): name for name in study.studies if name not in registered}
    for path, name in places.items():
        if what := _reserved(name):
            problem = f"{name!r} is the name of {what}: choose another one, such as my_{name}"
            raise SpecError(path, problem)


def _reserved(name: str) -> str | None:
    if name in TABLES:
        return f"a table (`jestlab table {name}`)"
    return "a kind of report" if name in REPORTS else None


def check_texts(study: StudySpec) -> None:
    """Check that no text in a free-form config is the name of a run, which may be an intended dependency.

    `init: pretrain` reaches the program as a text, and the run doesn't wait for `pretrain`. The text is
    accepted if the other run has it at the same key, or if `needs: {init: null}` declares it a text.

    Raises:
        SpecError: There is such a text.
    """
    mistakes = Mistakes()
    for name, part in study.studies.items():
        with mistakes, within(STUDIES, name):
            check_texts(part)
    mistakes.check()
    if study.studies:
        return
    values: dict[str, set[tuple[str, Any]]] = defaultdict(set)
    free: list[tuple[Variant, dict[str, str]]] = []
    for variant in {id(member.variant): member.variant for member in expand(study)}.values():
        if isinstance(variant.config, dict):
            texts = {key: value for key, value in flatten(variant.config).items() if isinstance(value, str)}
            values[variant.name] |= set(texts.items())
            free.append((variant, texts))
    for variant, texts in free:
        run = study.runs[variant.name]
        for key, value in texts.items():
            is_other = value in study.runs and value != variant.name and (key, value) not in values[value]
            if is_other and value not in run.needs.values() and key not in (*run.texts, *_OF_COMMANDS):
                problem = (
                    f"{key} is the text {shown(value)}, which is also the name of a run: to depend on that "
                    f"run, write `needs: {{{key}: {value}}}`; to keep the text, add `needs: {{{key}: null}}`"
                )
                mistakes.add([SpecError(("runs", variant.name), problem)])
    mistakes.check()


def check_custom_code(study: StudySpec) -> None:
    """Check that the custom figures and tables of a study exist and accept their options. Executes nothing.

    Raises:
        SpecError: One doesn't; the path names it.
    """
    for name, part in study.studies.items():
        with within(STUDIES, name):
            check_custom_code(part)
    for i, report in enumerate(study.reports):
        if (code := custom_code(report)) is None:
            continue
        kind, name = code
        try:
            plugins.check(kind, name, getattr(report, "options", {}), "options")
        except ValueError as error:
            field = "kind" if kind == "figure" else "name"
            raise SpecError(("reports", str(i), field), str(error)) from None
