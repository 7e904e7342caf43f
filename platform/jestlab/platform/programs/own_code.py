"""Code of one's own that configs name: found and digested when a run is planned, checked when it starts."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jestlab.models import extensions
from jestlab.models.config import Code, Extended, Extension
from jestlab.models.extensions import references
from jestlab.platform.errors import UserError, dotted
from jestlab.platform.programs.program import DataLookup


def described(config: Extended, data: DataLookup) -> dict[str, Code]:
    """Return the code that a config names, as it is now.

    Raises:
        UserError: There is no such code, it does not take its options, or it looks at what the run does not
            have, such as a reference. The field is named.
    """
    found: dict[str, Code] = {}
    for extension in config.extensions():
        try:
            reference = extensions.reference_of(extension.kind, extension.name)
            file = Path(reference.rpartition(":")[0])
            if file.suffix == ".py" and data.is_absent(file, "file of code"):
                continue
            references.check(reference)
            parameters = references.parameters_of(reference)
            uses = extensions.uses(extension.kind, extension.name)
            _check_inputs(config, extension, uses)
            if parameters is not None:
                _check_options(extension, parameters)
            found[extension.name] = Code(digest=extensions.digest(reference), uses=uses)
        except ValueError as error:
            raise UserError(f"{dotted(extension.path)}: {error}") from None
    return found


def check_unchanged(config: Extended) -> None:
    """Check that the code that a config names is what it was when the run was planned.

    Raises:
        UserError: It has changed, or is missing.
    """
    for extension in config.extensions():
        planned = config.code.get(extension.name)
        if planned is None:
            continue
        try:
            now = extensions.digest(extensions.reference_of(extension.kind, extension.name))
        except ValueError as error:
            raise UserError(f"{dotted(extension.path)}: {error}") from None
        if now != planned.digest:
            raise UserError(
                f"{dotted(extension.path)}: {extension.name} has changed since this run was planned "
                f"({planned.digest[:8]}, now {now[:8]}): launch again, which makes a run of the new code"
            )


def check_criteria(config: Extended) -> None:
    """Check the criteria that a config names by their contract, before anything is trained with them.

    One that looks at other pairs than its own would train, and nobody would notice that it selects wrongly.

    Raises:
        UserError: One is no criterion; its place is named, and what is wrong.
    """
    criteria = [extension for extension in config.extensions() if extension.kind == "criterion"]
    if not criteria:
        return
    from jestlab.platform.contracts.training import check_criterion  # imports JAX

    for extension in criteria:
        try:
            check_criterion(extensions.load("criterion", extension.name), **extension.options)
        except (AssertionError, ValueError) as error:
            said = " ".join(str(error).split())
            raise UserError(f"{dotted(extension.path)}: {extension.name}: {said}") from error


def files_of(config: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files of the code that a stored config names, as far as they are on this machine."""
    named = config.get("code")
    for name in named if isinstance(named, dict) else ():
        if references.is_reference(name) and (file := references.file_of(name)) is not None:
            yield file


def _check_inputs(config: Any, extension: Extension, uses: Collection[str] | None) -> None:
    """Raise ValueError if code looks at a reference or at concepts that the run has not, or at nothing."""
    if uses is None:
        return
    name, kind = extension.name, extension.kind
    section = getattr(config, "selection", config)
    where = "selection.reference" if section is not config else "reference"
    if kind in ("criterion", "loss") and "reference" in uses and section.reference is None:
        raise ValueError(f"{name} looks at the reference: set {where}")
    if kind == "criterion" and not uses:
        raise ValueError(
            f"{name} takes neither `learner` nor `reference`: a "
            "criterion is a function of the losses of one or both"
        )
    if kind == "rule" and "concepts" in uses and not section.concepts:
        raise ValueError(
            f"{name} looks at concepts: set selection.concepts to the columns of metadata that hold them"
        )
    if kind == "rule" and not {"batch", "concepts"} & set(uses):
        raise ValueError(f"{name} takes neither `batch` nor `concepts`: a rule chooses by one or both")


def _check_options(extension: Extension, parameters: Mapping[str, bool]) -> None:
    """Raise ValueError if a function does not take an option, or an option that it needs is not given."""
    place = dotted((*extension.path[:-1], _OPTIONS_OF.get(extension.path[-1], "options")))
    given = extensions.GIVEN[extension.kind]
    own = {name: has_default for name, has_default in parameters.items() if name not in given}
    check_options(extension.name, own, extension.options, place)


def check_options(name: str, parameters: Mapping[str, bool], options: Iterable[str], place: str) -> None:
    """Raise ValueError if a function does not take an option, or an option that it needs is not given.

    Args:
        name: Of the function.
        parameters: Those that jestlab does not give, as of `references.parameters_of`.
        options: Names of the options.
        place: Where options are given, in words.
    """
    own, options = [parameter for parameter in parameters if parameter != "**"], list(options)
    for option in options:
        if option not in own and "**" not in parameters:
            near = difflib.get_close_matches(option, own, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"its options: {', '.join(own) or 'none'}"
            raise ValueError(f"{name} takes no {option!r}, which {place} gives: {hint}")
    for needed in own:
        if not parameters[needed] and needed not in options:
            raise ValueError(f"{name} needs {needed!r}: give it in {place}")


_OPTIONS_OF = {"rule": "rule_options", "criterion": "criterion_options", "loss": "loss_options"}
