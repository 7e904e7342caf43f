"""A union: a spec of several whole studies, so that one launch runs them all, and what they share once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jestlab.platform.spec import yaml_io
from jestlab.platform.spec.errors import SpecError, shown, within
from jestlab.platform.spec.names import check_name
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.tree import is_mapping

if TYPE_CHECKING:
    from jestlab.platform.spec.expand import Member, Variant
    from jestlab.platform.spec.schema import Study

KEY = "studies"

OF_PARTS = ("runs", "base", "axes", "seeds", "program")
"""What a union leaves to its parts."""


def prepared(written: Mapping[str, Any], parse: Callable[[Any], Study]) -> dict[str, Any]:
    """A union as written, made ready for validation.

    Args:
        written: With `studies`, a mapping from names to specs.
        parse: Makes a study of a spec.

    Returns:
        The same with the parts as studies, each at the union's scale unless it says its own, and with the
        resources that its parts say unless it has its own.

    Raises:
        SpecError: It has runs, too; a part is no spec, or itself a union; parts say different resources and
            the union none. The place is named.
    """
    given = written[KEY]
    if not is_mapping(given) or not given:
        raise SpecError((KEY,), f"must be specs by name, or a list of names and paths, not {shown(given)}")
    for key in OF_PARTS[:-1]:
        if written.get(key):
            raise SpecError((key,), f"a spec with {KEY} has none of its own: each part has")
    union = {key: value for key, value in written.items() if key not in OF_PARTS}
    parts = {}
    for name, part in given.items():
        check_name(name, (KEY,))
        if name == written.get("name"):
            raise SpecError((KEY, name), "has the name of the union itself, and is another experiment")
        with within(KEY, name):
            parts[name] = _part(name, part, written.get("scale"), parse)
    if union.get("resources") is None:
        union["resources"] = _resources(parts)
    return union | {KEY: parts}


def _resources(parts: Mapping[str, Study]) -> Resources:
    """What the parts say, those that say anything."""
    said = {name: part.resources for name, part in parts.items() if part.resources != Resources()}
    if not said:
        return Resources()
    (first, common), *others = said.items()
    for name, resources in others:
        if resources != common:
            told = (f"{each}'s are {_as_yaml(which)}" for each, which in ((first, common), (name, resources)))
            raise SpecError(
                ("resources",),
                f"is missing: {' and '.join(told)}, and a union is one launch: give it its own, such as "
                f"resources: {_as_yaml(common)}",
            )
    return common


def _as_yaml(resources: Resources) -> str:
    """What they say, on one line as a spec has it."""
    return " ".join(yaml_io.dump(resources.model_dump(mode="json", exclude_defaults=True)).split())


def _part(name: str, written: Any, scale: Any, parse: Callable[[Any], Study]) -> Study:
    """One part: a study of that name."""
    if hasattr(written, "to_dict") and not is_mapping(written):
        written = written.to_dict()
    if not is_mapping(written):
        remedy = f": studies that are named stand in a list, [{written}]" if isinstance(written, str) else ""
        raise SpecError((), f"must be a spec, not {shown(written)}{remedy}")
    part = {"name": name, "scale": scale, **dict(written.items())}
    if part["name"] != name:
        raise SpecError(("name",), f"is {shown(part['name'])}: a part has the name that it stands under")
    if part.get(KEY):
        raise SpecError((KEY,), "is a union itself: name its parts here")
    return parse(part)


def members(study: Study) -> tuple[Member, ...]:
    """All members of a union: those of its parts in order, with the part's name before theirs.

    Raises:
        SpecError: Something in a part is wrong; the place is named.
    """
    together: list[Member] = []
    for name, part in study.studies.items():
        start = len(together)
        with within(KEY, name):
            own = part.members
        variants = {id(member.variant): _named(name, member.variant) for member in own}
        together += (
            replace(
                member,
                variant=variants[id(member.variant)],
                needs={role: start + index for role, index in member.needs.items()},
                match=None if member.match is None else start + member.match,
            )
            for member in own
        )
    return tuple(together)


def _named(part: str, variant: Variant) -> Variant:
    """A variant as the union calls it: "part/run"."""
    return replace(
        variant,
        name=f"{part}/{variant.name}",
        label=f"{part}/{variant.label}",
        references=tuple(one._replace(name=f"{part}/{one.name}") for one in variant.references),
    )


def place(run: str) -> str:
    """Where a run is written: `runs.joint`, of a union's `part/joint` `studies.part.runs.joint`."""
    part, slash, name = run.rpartition("/")
    return f"{KEY}.{part}.runs.{name}" if slash else f"runs.{run}"
