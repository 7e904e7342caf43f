"""Find texts in free-form configs that were probably meant as runs to depend on."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from jestlab.platform.errors import Mistakes, SpecError, shown, within
from jestlab.platform.spec.config_tree import STUDIES, flatten

if TYPE_CHECKING:
    from jestlab.platform.spec.expand import Variant
    from jestlab.platform.spec.schema import Study

_NEVER = ("command", "cwd")  # keys of commands


def check_meant(study: Study) -> None:
    """Refuse a text that is the name of another run which the run does not depend on: `init: pretrain`.

    It reaches the program as a text, and the run would not wait for the other one. It counts as an ordinary
    value if the other run has it at the same key: of runs that are named after their optimiser, one has
    `optimizer: adam` and is called `adam`. A role without a run, `needs: {init: null}`, says that it is meant
    as a text.

    Raises:
        SpecError: There is such a text; with its place and both remedies.
    """
    mistakes = Mistakes()
    for name, part in study.studies.items():
        with mistakes, within(STUDIES, name):
            check_meant(part)
    mistakes.check()
    if study.studies:
        return
    variants = {id(member.variant): member.variant for member in study.members}.values()
    values: dict[str, set[tuple[str, Any]]] = defaultdict(set)
    free: list[tuple[Variant, dict[str, str]]] = []
    for variant in variants:
        if isinstance(variant.config, dict):
            texts = {key: value for key, value in flatten(variant.config).items() if isinstance(value, str)}
            values[variant.name] |= set(texts.items())
            free.append((variant, texts))
    for variant, texts in free:
        run = study.runs[variant.name]
        for key, value in texts.items():
            is_other = value in study.runs and value != variant.name and (key, value) not in values[value]
            is_known = value in run.needs.values() or key in run.texts or key in _NEVER
            if is_other and not is_known:
                message = (
                    f"{key} is the text {shown(value)}, which is also the name of a run: write "
                    f"`needs: {{{key}: {value}}}` instead if that run is meant, or add "
                    f"`needs: {{{key}: null}}` if the text is"
                )
                mistakes.add([SpecError(("runs", variant.name), message)])
    mistakes.check()
