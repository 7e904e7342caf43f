"""A study by its registered name or by the path of its file."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from jestlab.platform.errors import UserError
from jestlab.platform.spec import overrides as overriding
from jestlab.platform.spec import registry, unions
from jestlab.platform.spec.errors import Path as Place
from jestlab.platform.spec.errors import SpecError, choices, shown, within
from jestlab.platform.spec.folders import anchor
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.tree import is_mapping
from jestlab.platform.spec.yaml_io import Document

_YAML = (".yaml", ".yml")


def load(name_or_path: str, scale: str | None = None, overrides: Sequence[str] = ()) -> Study:
    """Load, override and validate a study.

    A relative `path` of a data folder counts from the YAML file's folder; in Python and in overrides, from
    the working directory.

    Args:
        name_or_path: A registered study ("quickstart"), or a .py, .yaml or .yml file.
        scale: One of the study's scales; its first one by default. A YAML file has the one that it says.
        overrides: `path=value` each, as after `--set`.

    Returns:
        The study. Every config and every need in it has been checked.

    Raises:
        UserError: One line that names file, place and remedy.
    """
    return _study(_source(name_or_path, scale), overrides)


def _source(name_or_path: str, scale: str | None) -> _Source:
    """What is written under a registered name or at a path.

    Raises:
        SpecError: There is no such thing, or it has no such scale. The message says so by itself: in a union
            the place is where it is named.
        UserError: It cannot be read or run; the place is in that file.
    """
    path = Path(name_or_path)
    if path.suffix in _YAML or path.suffix == ".py" or os.sep in name_or_path:
        if not path.is_file():
            raise SpecError((), f"{name_or_path}: no such file{_near(path)}")
        if path.suffix not in (*_YAML, ".py"):
            raise SpecError((), f"{name_or_path}: a spec is a .py, .yaml or .yml file")
        if path.suffix == ".py":
            with registry.guarded(path.absolute()):
                written = _written(registry.module_at(path.absolute()), name_or_path, scale)
            return _Source(name_or_path, path.stem, written)
        return _read_yaml(path, scale)
    written = _written(registry.module(name_or_path), name_or_path, scale)
    return _Source(name_or_path, name_or_path, written)


def _near(path: Path) -> str:
    """The spec beside a missing file that is called most like it, as a hint."""
    beside = {
        file.stem: file.name for file in sorted(path.parent.glob("*")) if file.suffix in (*_YAML, ".py")
    }
    near = difflib.get_close_matches(path.stem, beside, n=1)
    return f": did you mean {beside[near[0]]}?" if near else ""


@dataclass(frozen=True)
class _Source:
    """A spec as written, and where.

    Attributes:
        file: Name of the study or path of the file, for errors.
        name: Of the study, where the spec gives none.
        written: What the spec says.
        line: Line of a place, where there are lines.
        folder: What relative paths in it count from.
        asked: The scale, where the user asked for it and the spec does not say it.
    """

    file: str
    name: str
    written: Any
    line: Callable[[Sequence[str]], int | None] = lambda _: None
    folder: Path | None = None
    asked: str | None = None

    def parse(self) -> Study:
        """The study, its configs not looked into yet."""
        written = self.written
        if is_mapping(written):
            written = {"name": self.name, **dict(written.items())}
            if isinstance(named := written.get(unions.KEY), list | tuple):
                written[unions.KEY] = self._loaded(named, written.get("scale"))
        study = Study.parse(written)
        return anchor(study, self.folder) if self.folder is not None else study

    def _loaded(self, named: Sequence[Any], scale: Any) -> dict[str, Any]:
        """The parts of a union that names them, each a registered name or a path, by their names."""
        parts: dict[str, Any] = {}
        at_scale = self.asked is None or not named
        for index, name in enumerate(named):
            place = (unions.KEY, str(index))
            if not isinstance(name, str):
                raise SpecError(place, f"must be a registered name or a path, not {shown(name)}")
            path, is_file = Path(name).expanduser(), os.sep in name or Path(name).suffix in (*_YAML, ".py")
            at = str(self.folder / path) if is_file and self.folder is not None else name
            with within(*place):
                source = _source(at, None if path.suffix in _YAML else scale)
            written = source.written if is_mapping(source.written) else {}
            if written.get(unions.KEY):
                raise SpecError(place, f"{name} is a union itself: name its parts here")
            if None not in (scale, own := written.get("scale")) and own != scale:
                raise SpecError(place, f"{name} is at scale {own}, and this union at {scale}")
            at_scale = at_scale or path.suffix not in _YAML or own == scale
            try:
                part = source.parse()
            except SpecError as error:
                raise UserError(source.located(error)) from None
            if part.name in parts:
                raise SpecError(place, f"{part.name!r} stands there already")
            parts[part.name] = part.to_dict()
        if not at_scale:
            raise UserError(
                f"{self.file} has no scale {scale!r}: neither it nor a study that it names says any, and "
                "only specs in Python have several"
            )
        return parts

    def located(self, error: SpecError) -> str:
        """An error with its file, and its line where that is known."""
        number = self.line(error.path)
        return f"{self.file}:{number}: {error}" if number else f"{self.file}: {error}"


def scales_of(module: ModuleType, name: str) -> tuple[str, ...]:
    """The scales that a Python spec has.

    Raises:
        UserError: It does not say.
    """
    scales = getattr(module, "SCALES", None)
    if (
        not isinstance(scales, tuple | list)
        or not scales
        or not callable(getattr(module, "get_config", None))
    ):
        raise UserError(f'{name}: a Python spec has SCALES = ("smoke",) and get_config(scale)')
    return tuple(map(str, scales))


def _written(module: ModuleType, name: str, scale: str | None) -> Any:
    """What a Python spec's `get_config` returns, with the scale in it."""
    scales = scales_of(module, name)
    scale = scales[0] if scale is None else scale
    if scale not in scales:
        raise SpecError((), f"{name} has no scale {scale!r}: {choices(scale, scales)}")
    config = module.get_config(scale)
    if isinstance(config, Study):
        return config.to_dict()
    return {**dict(config.items()), "scale": scale} if is_mapping(config) else config


def _read_yaml(path: Path, scale: str | None) -> _Source:
    try:
        document = Document(path.read_text(encoding="utf-8"))
    except SpecError as error:
        raise UserError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is no UTF-8 text") from None
    written = document.value
    own = written.get("scale") if is_mapping(written) else None
    asked = None
    if scale is not None and scale != own:
        if own is not None or not _names_parts(written):
            told = f"its scale is {own}" if own else "it says none, and only specs in Python have several"
            raise UserError(f"{path} has no scale {scale!r}: {told}")
        written, asked = {**written, "scale": scale}, scale  # that of the studies it names
    return _Source(str(path), path.stem, written, document.line, path.absolute().parent, asked)


def _names_parts(written: Any) -> bool:
    """Whether a spec is a union of studies that it names."""
    return is_mapping(written) and isinstance(written.get(unions.KEY), list)


def _study(source: _Source, overrides: Sequence[str]) -> Study:
    """Parse, override, validate; an error gets its file and line, or the override that caused it."""
    parsed: list[tuple[Place, Any]] = []
    try:
        study = source.parse()
        try:
            parsed = [overriding.parse(text) for text in overrides]
            study = overriding.apply(study, parsed)
        except SpecError as error:
            raise UserError(f"--set {error}") from None
        study = anchor(study, Path.cwd())
        study.members  # noqa: B018 — reading validates
    except SpecError as error:
        path = error.path[2:] if error.path[:1] == (unions.KEY,) else error.path  # may be set for all parts
        by_override = any(_is_within(at, place) for at in (error.path, path) for place, _ in parsed)
        raise UserError(f"--set {error}" if by_override else source.located(error)) from None
    except RecursionError:
        raise UserError(f"{source.file}: is nested too deeply to be a spec") from None
    return study


def _is_within(path: Place, place: Place) -> bool:
    """Whether an error's path lies at, below or just above the place of an override."""
    return path[: len(place)] == place or (len(path) > 0 and place[: len(path)] == path)
