"""Custom code that specs and configs name: find it, check it, and identify it by a digest.

Except for `check_criteria`, functions don't import or execute the code, but read its parameters from the
source: a plan must not run code, and the code may require packages that only other machines have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jestlab.models import extensions
from jestlab.models.extensions import Kind, references
from jestlab.platform.errors import UserError, dotted, near

if TYPE_CHECKING:
    from jestlab.models.config import Code, DataConfig, Extension


def check(kind: Kind, name: str, options: Mapping[str, Any], place: str) -> None:
    """Check that custom code exists and accepts its options.

    Args:
        kind: Use of the code, such as "criterion".
        name: Reference or entry point of the code.
        options: Keyword arguments for the code.
        place: Key of the options in the spec or config, for the message.

    Raises:
        ValueError: The code doesn't exist, an option is unknown, or a required one is missing.
    """
    reference = extensions.reference_of(kind, name)
    references.check(reference)
    parameters = references.parameters_of(reference)
    if parameters is None:
        return
    given = extensions.GIVEN.get(kind) or [*parameters][:1]  # figures and tables are called with the results
    has_default = {key: has for key, has in parameters.items() if key not in given}
    known = [parameter for parameter in has_default if parameter != "**"]
    for option in options:
        if option not in known and "**" not in parameters:
            hint = near(option, known) or f"its options: {', '.join(known) or 'none'}"
            raise ValueError(f"{name} has no option {option!r}, given in {place}: {hint}")
    for required in known:
        if not has_default[required] and required not in options:
            raise ValueError(f"{name} requires {required!r}: give it in {place}")


def digest(kind: Kind, name: str) -> str:
    """Return the digest of custom code, or "missing" if the code isn't found."""
    try:
        return extensions.digest(extensions.reference_of(kind, name))
    except (ValueError, OSError):
        return "missing"


# ---- the code that a config names


def identify(
    config: DataConfig, is_absent: Callable[[Path], bool], known: dict[Any, Code]
) -> dict[str, Code]:
    """Return the digest and the inputs of all custom code that a config names, by its name.

    Args:
        config: The config.
        is_absent: Whether a file doesn't exist, but is allowed not to. Code in such a file is left out: its
            path identifies it.
        known: Cache of code that was identified before; code of this config is added.

    Raises:
        UserError: Code doesn't exist, doesn't accept its options, or requires an input that the run doesn't
            have, such as a reference model. The message names the key.
    """
    from jestlab.models.config import Code

    found: dict[str, Code] = {}
    for extension in config.extensions():
        kind, name = extension.kind, extension.name
        place = dotted(extension.options_path)
        try:
            reference = extensions.reference_of(kind, name)
            file = Path(reference.rpartition(":")[0])
            if file.suffix == ".py" and is_absent(file):
                continue
            key = (kind, name, place, repr(extension.options))
            uses = known[key].uses if key in known else extensions.uses(kind, name)
            _check_inputs(config, extension, uses)
            if key not in known:
                check(kind, name, extension.options, place)
                known[key] = Code(digest=extensions.digest(reference), uses=uses)
            found[name] = known[key]
        except ValueError as error:
            raise UserError(f"{dotted(extension.path)}: {error}") from None
    return found


def check_unchanged(config: DataConfig) -> None:
    """Check that the custom code of a config hasn't changed since the run was planned.

    Raises:
        UserError: Code has changed, or doesn't exist.
    """
    for extension in config.extensions():
        planned = config.code.get(extension.name)
        if planned is None:
            continue
        now = digest(extension.kind, extension.name)
        if now != planned.digest:
            raise UserError(
                f"{dotted(extension.path)}: {extension.name} has changed since the run was planned "
                f"({planned.digest[:8]}, now {now[:8]}): launch again to plan a run with the new code"
            )


def check_criteria(config: DataConfig) -> None:
    """Run the contract test of each custom criterion of a config, before a run trains with it.

    Raises:
        UserError: A criterion fails its test.
    """
    for extension in config.extensions():
        if extension.kind != "criterion":
            continue
        from jestlab.testing import check_criterion  # imports JAX

        try:
            check_criterion(extensions.load("criterion", extension.name), **extension.options)
        except (AssertionError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise UserError(f"{dotted(extension.path)}: {extension.name}: {reason}") from error


def files_of(config: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files on this machine that contain the custom code of a stored config."""
    code = config.get("code")
    for name in code if isinstance(code, dict) else ():
        if references.is_reference(name) and (file := references.file_of(name)) is not None:
            yield file


def _check_inputs(config: Any, extension: Extension, uses: tuple[str, ...] | None) -> None:
    """Raise ValueError if custom code requires an input that the run lacks, or lacks a required parameter."""
    if uses is None:
        return
    name, kind = extension.name, extension.kind
    section = getattr(config, "selection", config)
    prefix = "selection." if section is not config else ""
    if kind in ("criterion", "loss") and "reference" in uses and section.reference is None:
        raise ValueError(f"{name} uses the reference model: set {prefix}reference")
    if kind == "criterion" and not uses:
        raise ValueError(f"{name} must take `learner`, `reference`, or both: the losses that it scores")
    if kind == "rule" and "concepts" in uses and not section.concepts:
        raise ValueError(
            f"{name} uses concepts: set selection.concepts to the metadata columns that hold them"
        )
    if kind == "rule" and not {"batch", "concepts"} & set(uses):
        raise ValueError(f"{name} must take `batch`, `concepts`, or both: a rule chooses by them")
