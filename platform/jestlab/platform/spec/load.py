"""Load a study by its registered name or by the path of its file, with overrides, validated."""

from __future__ import annotations

import importlib
import importlib.util
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from jestlab.analysis.names import value_text
from jestlab.models.extensions import references
from jestlab.platform.errors import Path as Place
from jestlab.platform.errors import SpecError, UserError, choices, closest, nearest, shown, within
from jestlab.platform.registry import REGISTRY, study_names
from jestlab.platform.spec import overrides as overriding
from jestlab.platform.spec.axes import KINDS, columns_of
from jestlab.platform.spec.config_tree import (
    IS_PATH,
    NAMES_CODE,
    STUDIES,
    Tree,
    depth_of,
    is_mapping,
    lookup,
    marked,
    merge,
    nested,
)
from jestlab.platform.spec.labels import LABELS
from jestlab.platform.spec.layers import program_of
from jestlab.platform.spec.meant import check_meant
from jestlab.platform.spec.mistakes import all_of, told
from jestlab.platform.spec.names import check_names
from jestlab.platform.spec.options import check_custom_code
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.yaml import Document

_YAML = (".yaml", ".yml")
_SUFFIXES = (*_YAML, ".py")


Written = Mapping[str, Any]
"""A spec as YAML and Python write it; `ml_collections.ConfigDict` counts as one."""


def load(
    spec: str | Written, scale: str | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> Study:
    """Load, override and validate a study.

    Relative paths count from the folder of the spec's file, in YAML, in Python and in overrides alike: paths
    of data, benchmarks and weights, `file.py:function`, a command's `cwd`, and, as that is the spec's folder
    unless it is given, the scripts and files that a command's words name. (`cwd: null` is the launcher's
    working directory.) In a union they count from the file of the part that names them. A registered study
    has no file: there they count from the working directory. What a script or a notebook writes counts as a
    YAML file there.

    Args:
        spec: A registered study ("quickstart"), a .py, .yaml or .yml file, or what such a file would hold.
        scale: One of the study's scales; its first one by default. A YAML file has the one that it names.
        overrides: `path=value` each, as after `--set`; or path → value.

    Returns:
        The study. Every config and every dependency in it has been checked.

    Raises:
        UserError: One line that names file, place and remedy; of several mistakes a line each.
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
        study = anchor(study, source.folder or Path.cwd(), source.folder)
        study.members  # noqa: B018 — reading validates
        check_meant(study)
        check_custom_code(study)
        if source.folder is not None or study.name != source.name:
            check_names(study, study_names())
    except SpecError as error:
        raise source.told(error, [place for place, _ in parsed], override) from None
    except RecursionError:
        raise UserError(f"{source.file}: nested too deeply for a spec") from None
    return study


def load_stored(experiment: str, written: Any) -> Study:
    """Parse a study as the store has it: as it was last launched.

    Raises:
        UserError: Its programs are not what they were.
    """
    try:
        return Study.parse(written)
    except SpecError as error:
        raise UserError(f"{experiment} as it was launched: {error}; launch its spec again") from None


def _is_within(path: Place, place: Place) -> bool:
    """Whether an error's path lies at, below or just above the place of an override."""
    return path[: len(place)] == place or (len(path) > 0 and place[: len(path)] == path)


@dataclass(frozen=True)
class _Source:
    """A spec as written, and where.

    Attributes:
        file: Name of the study or path of the file, for errors.
        name: Of the study, if the spec gives none.
        line: Line of a place, where there are lines.
        folder: What relative paths in it count from: its file's; None for a registered study.
        asked: The scale, if the user asked for it and the spec does not name it.
    """

    file: str
    name: str
    written: Any
    line: Callable[[Sequence[str]], int | None] = lambda _: None
    folder: Path | None = None
    asked: str | None = None

    def parse(self) -> Study:
        """Parse the study; its configs are not validated yet.

        Raises:
            SpecError: It cannot be parsed. Then the rest of it, configs included, has been checked as well.
        """
        written = self.written
        if is_mapping(written):
            written = {"name": self.name, **dict(written.items())}
            if isinstance(named := written.get(STUDIES), list | tuple):
                written[STUDIES] = self._loaded(named, written.get("scale"))
        try:
            return self._parsed(written)
        except SpecError as error:
            raise all_of(error, written, self._parsed) from None

    def _parsed(self, written: Any) -> Study:
        study = Study.parse(written)
        return anchor(study, self.folder, self.folder) if self.folder is not None else study

    def _loaded(self, named: Sequence[Any], scale: Any) -> dict[str, Any]:
        """Load the parts of a union that names them, each a registered name or a path, by their names."""
        parts: dict[str, Any] = {}
        at_scale = self.asked is None or not named
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
                raise source.told(error) from None
            if part.name in parts:
                raise SpecError(place, f"duplicate study name {part.name!r}: rename one of the two")
            parts[part.name] = part.to_dict()
        if not at_scale:
            raise UserError(
                f"{self.file} has no scale {scale!r}: neither it nor a study that it names has any, and "
                "only specs in Python have several"
            )
        return parts

    def told(self, error: SpecError, overrides: Sequence[Place] = (), override: str = "--set ") -> UserError:
        """Write mistakes with their file, and their lines where these are known; or with the override."""

        def tell(one: SpecError) -> str:
            path = one.path[2:] if one.path[:1] == (STUDIES,) else one.path  # may be set for all parts
            if any(_is_within(at, place) for at in (one.path, path) for place in overrides):
                return f"{override}{one}"
            number = self.line(one.path)
            return f"{self.file}:{number}: {one}" if number else f"{self.file}: {one}"

        return told(error, self.file, self.line, tell)


def _source(name_or_path: str, scale: str | None) -> _Source:
    """Read what is written under a registered name or at a path.

    Raises:
        SpecError: There is no such study or file, or it has no such scale. The message is complete: in a
            union its place is where the study is named.
        UserError: It cannot be read or run; the place is in that file.
    """
    path = Path(name_or_path)
    if path.suffix not in _SUFFIXES and os.sep not in name_or_path:
        module = study_module(name_or_path)
        return _Source(name_or_path, name_or_path, _returned(module, name_or_path, scale))
    if not path.is_file():
        beside = [file.name for file in path.parent.glob("*") if file.suffix in _SUFFIXES]
        near = closest(path.name, beside)
        raise SpecError((), f"{name_or_path}: no such file" + (f": did you mean {near}?" if near else ""))
    if path.suffix in _YAML:
        return _read_yaml(path, scale)
    if path.suffix != ".py":
        raise SpecError((), f"{name_or_path}: not a spec: expected a .py, .yaml or .yml file")
    with _guarded(path.absolute()):
        written = _returned(_module_at(path.absolute()), name_or_path, scale)
    return _Source(name_or_path, path.stem, written, folder=path.absolute().parent)


def _read_yaml(path: Path, scale: str | None) -> _Source:
    try:
        document = Document(path.read_text(encoding="utf-8"))
    except SpecError as error:
        raise UserError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not valid UTF-8") from None
    return _of_mapping(str(path), path.stem, document.value, scale, path.absolute().parent, document.line)


def _given(written: Written, scale: str | None) -> _Source:
    """Take a spec from a script or a notebook, as if it were a YAML file in the working directory.

    Raises:
        UserError: It has no name, as it has no file whose name it could take.
    """
    named = written.get("name") if is_mapping(written) else None
    if not named:
        raise UserError('the spec has no name: add "name", which its results go by')
    return _of_mapping(f"spec {named}", str(named), written, scale, Path.cwd())


def _of_mapping(
    file: str,
    name: str,
    written: Any,
    scale: str | None,
    folder: Path,
    line: Callable[[Sequence[str]], int | None] = lambda _: None,
) -> _Source:
    """Take a spec that has one scale at most."""
    own = written.get("scale") if is_mapping(written) else None
    asked = None
    if scale is not None and scale != own:
        names_parts = is_mapping(written) and isinstance(written.get(STUDIES), list)
        if own is not None or not names_parts:
            told = f"its scale is {own}" if own else "it names none, and only specs in Python have several"
            raise UserError(f"{file} has no scale {scale!r}: {told}")
        written, asked = {**dict(written.items()), "scale": scale}, scale  # that of the studies it names
    return _Source(file, name, written, line, folder, asked)


def study_module(name: str) -> ModuleType:
    """Import the module of a registered study.

    Raises:
        SpecError: There is no study of that name; names the nearest.
    """
    known = study_names()
    if name not in known:
        raise SpecError((), f"no study {name!r}: {nearest(name, known)} (a spec of your own: give its path)")
    return importlib.import_module(f"{REGISTRY}.{name}")


def scales_of(module: ModuleType, name: str) -> tuple[str, ...]:
    """Return the scales that a Python spec has.

    Raises:
        UserError: It names none.
    """
    scales = getattr(module, "SCALES", None)
    has_config = callable(getattr(module, "get_config", None))
    if not isinstance(scales, tuple | list) or not scales or not has_config:
        raise UserError(f'{name}: a Python spec has SCALES = ("smoke",) and get_config(scale)')
    return tuple(map(str, scales))


def _returned(module: ModuleType, name: str, scale: str | None) -> Any:
    """Call a Python spec's `get_config` and add the scale."""
    scales = scales_of(module, name)
    scale = scales[0] if scale is None else scale
    if scale not in scales:
        raise SpecError((), f"{name} has no scale {scale!r}: {choices(scale, scales)}")
    config = module.get_config(scale)
    if isinstance(config, Study):
        return config.to_dict()
    return {**dict(config.items()), "scale": scale} if is_mapping(config) else config


def _module_at(path: Path) -> ModuleType:
    """Run a Python file.

    Raises:
        UserError: It cannot be run; names the line.
    """
    name = "jestlab_spec_" + "".join(c if c.isalnum() else "_" for c in path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path}: not a Python file")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@contextmanager
def _guarded(path: Path) -> Iterator[None]:
    """Turn an exception of a user's Python file into one line that names the place."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        message = error.msg if isinstance(error, SyntaxError) else error
        raise UserError(f"{path}:{line or 1}: {type(error).__name__}: {message}") from error


def anchor(study: Study, folder: Path, own: Path | None = None) -> Study:
    """Make the paths of a study absolute, so that the resolved spec works from anywhere.

    Args:
        study: The study.
        folder: What relative paths in it count from.
        own: The folder of its spec, where commands run that name no other; None if it has none.
    """
    written = study.to_dict()
    if study.record.files:
        written["record"] = study.record.anchored(folder).model_dump(mode="json", exclude_defaults=True)
    if study.studies:
        parts = {name: anchor(part, folder, own).to_dict() for name, part in study.studies.items()}
        _anchor_code(written, folder)
        return _parsed_again(study, written | {STUDIES: parts})
    # First: programs know which other keys are paths.
    for section in (written, *written.get("runs", {}).values()):
        if "program" in section:
            section["program"] = references.anchored(section["program"], folder)
    _anchor_code(written, folder)
    study = _parsed_again(study, written)
    if own is not None:
        _enter_folder(study, written, own)
        study = _parsed_again(study, written)
    for path, absolute in _places(study):
        _anchor_in(written, ("base",), path, absolute, folder)
    for name in study.runs:
        for path, absolute in _places(study, name):
            _anchor_in(written["runs"], (name,), path, absolute, folder)
            for axis in written.get("axes", ()):
                if name in axis["runs"]:
                    _anchor_on(axis, ".".join(path), absolute, folder)
    return _parsed_again(study, written)


def _anchor_code(written: Tree, folder: Path) -> None:
    """Make the files of figures, tables and executors of one's own absolute."""
    for report in written.get("reports", ()):
        field = "name" if report["kind"] == "table" else "kind"
        if field in report:
            report[field] = references.anchored(report[field], folder)
    if on := written.get("resources", {}).get("on"):
        written["resources"]["on"] = references.anchored(on, folder)


def _enter_folder(study: Study, written: Tree, own: Path) -> None:
    """Enter the folder of a spec in its written form, where configs of its programs leave it open."""
    if key := program_of(study).spec_folder:
        written.setdefault("base", {}).setdefault(key, str(own))
    for name in study.runs:
        program = program_of(study, name)
        if program.spec_folder and program.name != study.program:
            written["runs"][name].setdefault(program.spec_folder, str(own))


def _parsed_again(study: Study, written: Tree) -> Study:
    return study if written == study.to_dict() else Study.parse(written)


Absolute = Callable[[Any, Path], Any]
"""Makes a value of a spec absolute, given what relative paths count from."""


def _places(study: Study, run: str | None = None) -> Iterator[tuple[Place, Absolute]]:
    """Yield the places of files, folders and code in a run's config, or without a run in the base."""
    program = program_of(study, run)
    if program.schema is None:
        yield from ((path, _absolute) for path in program.local_paths)
    else:
        yield from ((path, _absolute) for path in marked(program.schema, IS_PATH))
        yield from ((path, _absolute_code) for path in marked(program.schema, NAMES_CODE))


def _anchor_in(tree: Tree, prefix: Place, path: Place, absolute: Absolute, folder: Path) -> None:
    where = (*prefix, *path)
    if depth_of(tree, where) == len(where):
        tree[prefix[0]] = merge(tree, nested(where, absolute(lookup(tree, where), folder)))[prefix[0]]


def _anchor_on(axis: dict[str, Any], key: str, absolute: Absolute, folder: Path) -> None:
    if texts := axis.get(LABELS, {}).get(key):
        moved = {value_text(v): value_text(absolute(v, folder)) for v in columns_of(_values(axis))[key]}
        axis[LABELS][key] = {moved.get(value, value): text for value, text in texts.items()}
    for columns in (axis.get("grid"), axis.get("zip")):
        if columns and key in columns:
            columns[key] = [absolute(value, folder) for value in columns[key]]
    for case in axis.get("cases", ()):
        if key in case:
            case[key] = absolute(case[key], folder)


def _values(axis: Mapping[str, Any]) -> Any:
    return next(axis[kind] for kind in KINDS if kind in axis)


def _absolute(value: Any, folder: Path) -> Any:
    """Make a path absolute; what is not a string is left for validation to refuse."""
    return str(folder / Path(value).expanduser()) if isinstance(value, str) else value


def _absolute_code(value: Any, folder: Path) -> Any:
    """Make the files of references to code absolute, in a text or in all texts of a mapping."""
    if isinstance(value, dict):
        return {key: _absolute_code(below, folder) for key, below in value.items()}
    return references.anchored(value, folder) if isinstance(value, str) else value
