"""Load a study by its registered name or by the path of its file, with overrides, validated."""

from __future__ import annotations

import importlib.util
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from jestlab.platform.errors import (
    Mistakes,
    SpecError,
    UserError,
    UserErrors,
    choices,
    closest,
    shown,
    within,
)
from jestlab.platform.errors import Path as Place
from jestlab.platform.registry import scales_of, study_module, study_names
from jestlab.platform.spec import overrides as overriding
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.paths import anchored
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import STUDIES, is_mapping
from jestlab.platform.spec.variants import check_custom_code, check_names
from jestlab.platform.spec.yaml import Document

_YAML = (".yaml", ".yml")
_SUFFIXES = (*_YAML, ".py")
_MOST_LINES = 20  # mistakes that are listed

Written = Mapping[str, Any]
"""A spec as YAML and Python write it, also an `ml_collections.ConfigDict`."""


def load(
    spec: str | Written, scale: str | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> StudySpec:
    """Load, override, and validate a study.

    Relative paths start at the folder of the spec's file, in YAML, in Python, and in overrides: paths of
    data, benchmarks, and weights, `file.py:function`, and a command's `cwd`, whose default is that folder.
    (`cwd: null` is the launcher's working directory.) In a union they start at the file of the part. For a
    registered study and for a mapping they start at the working directory.

    Args:
        spec: A registered study ("quickstart"), a .py, .yaml, or .yml file, or the mapping of such a file.
        scale: One of the study's scales; its first one by default. A YAML file has at most one.
        overrides: `path=value` each, as after `--set`; or path → value.

    Returns:
        The study. All configs and dependencies are valid.

    Raises:
        UserError: One line for each mistake, with file, place, and remedy.
    """
    source = _source(spec, scale) if isinstance(spec, str) else _given(spec, scale)
    parsed: list[tuple[Place, Any]] = []
    override = "overrides: " if isinstance(overrides, Mapping) else "--set "
    try:
        study = source.parse()
        try:
            if isinstance(overrides, Mapping):
                parsed = [(tuple(str(path).split(".")), value) for path, value in overrides.items()]
            else:
                parsed = [overriding.parse(text) for text in overrides]
            study = overriding.apply(study, parsed)
        except SpecError as error:
            raise UserError(f"{override}{error}") from None
        study = anchored(study, source.folder or Path.cwd(), source.folder)
        expand(study)
        check_custom_code(study)
        if source.folder is not None or study.name != source.name:
            check_names(study, study_names())
    except SpecError as error:
        raise source.reported(error, [place for place, _ in parsed], override) from None
    except RecursionError:
        raise UserError(f"{source.file}: nested too deeply for a spec") from None
    return study


def load_stored(experiment: str, written: Any) -> StudySpec:
    """Parse the spec of an experiment as the store has it.

    Raises:
        UserError: This version of jestlab or of its programs can't read it.
    """
    try:
        return StudySpec.parse(written)
    except SpecError as error:
        raise UserError(f"the stored spec of {experiment}: {error}; launch its spec again") from None


@dataclass(frozen=True)
class _Source:
    """A spec as written.

    Attributes:
        file: Name of the study or path of the file, for errors.
        name: Default of the study's name.
        line: Returns the line of a place, if the source has lines.
        folder: Folder of the file; None for a registered study.
        scale: The scale that the user asked for, if the spec doesn't state it.
    """

    file: str
    name: str
    written: Any
    line: Callable[[Sequence[str]], int | None] = lambda _: None
    folder: Path | None = None
    scale: str | None = None

    def parse(self) -> StudySpec:
        """Parse the study. If there are mistakes, its configs are validated as well, to report all together.

        Raises:
            SpecError: It isn't a valid spec.
        """
        written = self.written
        if is_mapping(written):
            written = {"name": self.name, **dict(written.items())}
            if isinstance(named := written.get(STUDIES), list | tuple):
                written[STUDIES] = self._parts(named, written.get("scale"))
        try:
            return self._parsed(written)
        except SpecError as error:
            raise self._with_configs(error, written) from None

    def _parsed(self, written: Any) -> StudySpec:
        study = StudySpec.parse(written)
        return anchored(study, self.folder, self.folder) if self.folder is not None else study

    def _with_configs(self, error: SpecError, written: Any) -> SpecError:
        """Add the mistakes in configs, if those that prevent parsing are in other parts of the spec."""
        wrong = {one.path[0] for one in error.errors if one.path}
        needed = {"base", "runs", "axes", "program", "adopted", STUDIES}
        if wrong & needed or not is_mapping(written) or "runs" not in written:
            return error
        mistakes = Mistakes()
        mistakes.add(error.errors)
        rest = {key: value for key, value in written.items() if key not in wrong}
        with mistakes:
            expand(self._parsed({"name": "unnamed", **rest}))
        return mistakes.together()

    def _parts(self, named: Sequence[Any], scale: Any) -> dict[str, Any]:
        """Load the parts of a union that lists registered names and paths."""
        parts: dict[str, Any] = {}
        at_scale = self.scale is None or not named
        for index, name in enumerate(named):
            place = (STUDIES, str(index))
            if not isinstance(name, str):
                raise SpecError(place, f"must be a registered name or a path, not {shown(name)}")
            path, is_file = Path(name).expanduser(), os.sep in name or Path(name).suffix in _SUFFIXES
            at = str(self.folder / path) if is_file and self.folder is not None else name
            with within(*place):
                source = _source(at, None if path.suffix in _YAML else scale)
            written = source.written if is_mapping(source.written) else {}
            if written.get(STUDIES):
                raise SpecError(place, f"{name} is itself a union: name its parts here instead")
            if None not in (scale, own := written.get("scale")) and own != scale:
                raise SpecError(place, f"{name} is at scale {own}, and this union at {scale}")
            at_scale = at_scale or path.suffix not in _YAML or own == scale
            try:
                part = source.parse()
            except SpecError as error:
                raise source.reported(error) from None
            if part.name in parts:
                raise SpecError(place, f"duplicate study name {part.name!r}: rename one of the two")
            parts[part.name] = part.to_dict()
        if not at_scale:
            raise UserError(
                f"{self.file} has no scale {scale!r}: neither it nor its studies name one, and only specs in "
                "Python have several"
            )
        return parts

    def reported(
        self, error: SpecError, overrides: Sequence[Place] = (), override: str = "--set "
    ) -> UserError:
        """Write mistakes in the order of the file, each with its file and line, or with the override."""

        def line(one: SpecError) -> str:
            path = one.path[2:] if one.path[:1] == (STUDIES,) else one.path  # may be set for all parts
            if any(_is_within(at, place) for at in (one.path, path) for place in overrides):
                return f"{override}{one}"
            number = self.line(one.path)
            return f"{self.file}:{number}: {one}" if number else f"{self.file}: {one}"

        errors = sorted(error.errors, key=lambda one: self.line(one.path) or 0)
        lines = list(dict.fromkeys(map(line, errors)))
        if len(lines) == 1:
            return UserError(lines[0])
        more = f"and {len(lines) - _MOST_LINES} more: " if len(lines) > _MOST_LINES else ""
        return UserErrors([*lines[:_MOST_LINES], f"{more}{len(lines)} mistakes in {self.file}"])


def _is_within(path: Place, place: Place) -> bool:
    """Whether an error's path is at, below, or directly above the place of an override."""
    return path[: len(place)] == place or (len(path) > 0 and place[: len(path)] == path)


def _source(name_or_path: str, scale: str | None) -> _Source:
    """Read a registered study or a file.

    Raises:
        SpecError: The study, the file, or its scale doesn't exist; the caller adds the place.
        UserError: It can't be read or run; names the place in the file.
    """
    path = Path(name_or_path)
    if path.suffix not in _SUFFIXES and os.sep not in name_or_path:
        module = study_module(name_or_path)
        return _Source(name_or_path, name_or_path, _returned(module, name_or_path, scale))
    if not path.is_file():
        siblings = [file.name for file in path.parent.glob("*") if file.suffix in _SUFFIXES]
        near = closest(path.name, siblings)
        raise SpecError((), f"{name_or_path}: no such file" + (f": did you mean {near}?" if near else ""))
    if path.suffix in _YAML:
        return _read_yaml(path, scale)
    if path.suffix != ".py":
        raise SpecError((), f"{name_or_path}: not a spec: expected a .py, .yaml or .yml file")
    with _one_line_errors(path.absolute()):
        written = _returned(_module_at(path.absolute()), name_or_path, scale)
    return _Source(name_or_path, path.stem, written, folder=path.absolute().parent)


def _read_yaml(path: Path, scale: str | None) -> _Source:
    try:
        document = Document(path.read_text(encoding="utf-8"))
    except SpecError as error:
        raise UserError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not valid UTF-8") from None
    source = _Source(str(path), path.stem, document.value, document.line, path.absolute().parent)
    return _at_scale(source, scale)


def _given(written: Written, scale: str | None) -> _Source:
    """Take a spec from a script or a notebook, as if it were a YAML file in the working directory.

    Raises:
        UserError: It has no name.
    """
    name = written.get("name") if is_mapping(written) else None
    if not name:
        raise UserError('the spec has no name: add "name", the name of its experiment')
    return _at_scale(_Source(f"spec {name}", str(name), written, folder=Path.cwd()), scale)


def _at_scale(source: _Source, scale: str | None) -> _Source:
    """Check the scale that the user asked for, or pass it on to the studies that a union lists."""
    written = source.written
    own = written.get("scale") if is_mapping(written) else None
    if scale is None or scale == own:
        return source
    lists_parts = is_mapping(written) and isinstance(written.get(STUDIES), list)
    if own is not None or not lists_parts:
        reason = f"its scale is {own}" if own else "it names none, and only specs in Python have several"
        raise UserError(f"{source.file} has no scale {scale!r}: {reason}")
    written = {**dict(written.items()), "scale": scale}
    return _Source(source.file, source.name, written, source.line, source.folder, scale)


def _returned(module: ModuleType, name: str, scale: str | None) -> Any:
    """Call a Python spec's `get_config` and add the scale."""
    scales = scales_of(module, name)
    scale = scales[0] if scale is None else scale
    if scale not in scales:
        raise SpecError((), f"{name} has no scale {scale!r}: {choices(scale, scales)}")
    config = module.get_config(scale)
    if isinstance(config, StudySpec):
        return config.to_dict()
    return {**dict(config.items()), "scale": scale} if is_mapping(config) else config


def _module_at(path: Path) -> ModuleType:
    """Run a Python file."""
    name = "jestlab_spec_" + "".join(c if c.isalnum() else "_" for c in path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Convert an exception of a user's Python file to one line with its place."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        message = error.msg if isinstance(error, SyntaxError) else error
        raise UserError(f"{path}:{line or 1}: {type(error).__name__}: {message}") from error
