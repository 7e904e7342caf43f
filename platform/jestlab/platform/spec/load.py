"""Load a study by its name or path: parse it, apply overrides, make paths absolute, and validate configs."""

import os
import runpy
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jestlab.analysis.names import NAME
from jestlab.models.extensions import references
from jestlab.platform.errors import Mistakes, SpecError, UserError, UserErrors, choices, near, shown, within
from jestlab.platform.errors import Path as Place
from jestlab.platform.spec import overrides as overriding
from jestlab.platform.spec.axes import AxisSpec
from jestlab.platform.spec.expand import expand
from jestlab.platform.spec.fields import IS_PATH, NAMES_CODE, marked, merge
from jestlab.platform.spec.program import ProgramConfig
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import STUDIES, Tree, has, is_mapping, lookup, nested
from jestlab.platform.spec.variants import check_custom_code, check_names
from jestlab.platform.spec.yaml import Document
from jestlab.platform.study_registry import scales_of, study_module, study_names

_YAML = (".yaml", ".yml")
_SUFFIXES = (*_YAML, ".py")
_MOST_LINES = 20  # maximum number of mistakes in one error

Written = Mapping[str, Any]
"""An unparsed spec: the mapping in a YAML file, or what `get_config` returns, such as a `ConfigDict`."""


def load(
    spec: str | Written, scale: str | None = None, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> StudySpec:
    """Load, override, and validate a study.

    Relative paths in the spec and in overrides are resolved against the folder of the spec's file (in a
    union, of the part's file). For a registered study and for a mapping, they are resolved against the
    working directory. This applies to paths of data, benchmarks, and weights, to `file.py:function`, and to
    a command's `cwd`. The default of `cwd` is that folder; `cwd: null` is the launcher's working directory.

    Args:
        spec: A registered study ("quickstart"), a .py, .yaml, or .yml file, or the content of such a file.
        scale: One of the study's scales; the first one by default. A YAML file has at most one scale.
        overrides: Texts `path=value`, as after `--set`; or a mapping, path → value.

    Returns:
        The study. All configs and dependencies are valid.

    Raises:
        UserError: One line for each mistake, with file, place, and remedy.
    """
    source = _read_source(spec, scale)
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
        study = _absolute_study(study, source.folder or Path.cwd(), source.folder)
        expand(study)
        check_custom_code(study)
        if source.folder is not None or study.name != source.name:
            check_names(study, study_names())
    except SpecError as error:
        raise source.user_error(error, [place for place, _ in parsed], override) from None
    except RecursionError:
        raise UserError(f"{source.file}: nested too deeply for a spec") from None
    return study


def load_stored(experiment: str, written: Any) -> StudySpec:
    """Parse the stored spec of an experiment.

    Raises:
        UserError: This version of jestlab or of its programs can't read the spec.
    """
    try:
        return StudySpec.parse(written)
    except SpecError as error:
        raise UserError(f"the stored spec of {experiment}: {error}; launch its spec again") from None


@dataclass(frozen=True)
class _Source:
    """An unparsed spec and where it comes from.

    Attributes:
        file: Name of the study or path of the file, for errors.
        name: Default of the study's name.
        line: Returns the line number of a place in the spec; None if the source has no lines.
        folder: Folder of the file; None for a registered study.
    """

    file: str
    name: str
    written: Any
    folder: Path | None = None
    line: Callable[[Sequence[str]], int | None] = lambda _: None

    def get(self, key: str) -> Any:
        """Return the value of a key of the spec, or None."""
        return self.written.get(key) if is_mapping(self.written) else None

    def at_scale(self, scale: str | None) -> "_Source":
        """Return the spec at the requested scale. A union without a scale passes it on to the listed studies.

        Raises:
            UserError: Any other spec has a different scale, or none.
        """
        own = self.get("scale")
        if scale is None or scale == own:
            return self
        if own is not None or not isinstance(self.get(STUDIES), list):
            reason = f"its scale is {own}" if own else "it names none, and only specs in Python have several"
            raise UserError(f"{self.file} has no scale {scale!r}: {reason}")
        return replace(self, written={**dict(self.written.items()), "scale": scale})

    def parse(self) -> StudySpec:
        """Parse the study. If there are mistakes, also validate its configs, to report all mistakes at once.

        Raises:
            SpecError: The spec is invalid.
        """
        written = self.written
        if is_mapping(written):
            written = {"name": self.name, **dict(written.items())}
            if isinstance(named := written.get(STUDIES), list | tuple):
                written[STUDIES] = self._load_parts(named, written.get("scale"))
        try:
            return self._parse(written)
        except SpecError as error:
            wrong = {one.path[0] for one in error.errors if one.path}
            if wrong & {"base", "runs", "axes", "program", "adopted", STUDIES} or self.get("runs") is None:
                raise
            mistakes = Mistakes()
            mistakes.add(error.errors)
            with mistakes:
                rest = {key: value for key, value in written.items() if key not in wrong}
                expand(self._parse({"name": "unnamed", **rest}))
            mistakes.check()
            raise

    def _parse(self, written: Any) -> StudySpec:
        study = StudySpec.parse(written)
        return _absolute_study(study, self.folder, self.folder) if self.folder is not None else study

    def _load_parts(self, named: Sequence[Any], scale: Any) -> dict[str, Any]:
        """Load the parts of a union that lists registered names and paths; return name → spec."""
        parts: dict[str, Any] = {}
        for index, name in enumerate(named):
            with within(STUDIES, str(index)):
                if not isinstance(name, str):
                    raise SpecError((), f"must be a registered name or a path, not {shown(name)}")
                path = Path(name).expanduser()
                is_file = self.folder is not None and (os.sep in name or path.suffix in _SUFFIXES)
                at = str(self.folder / path) if self.folder and is_file else name
                source = _read_source(at, None if path.suffix in _YAML else scale)
                if source.get(STUDIES):
                    raise SpecError((), f"{name} is itself a union: name its parts here instead")
                if None not in (scale, own := source.get("scale")) and own != scale:
                    raise SpecError((), f"{name} is at scale {own}, and this union at {scale}")
                try:
                    part = source.parse()
                except SpecError as error:
                    raise source.user_error(error) from None
                if part.name in parts:
                    raise SpecError((), f"duplicate study name {part.name!r}: rename one of the two")
            parts[part.name] = part.to_dict()
        return parts

    def user_error(
        self, error: SpecError, overrides: Sequence[Place] = (), override: str = "--set "
    ) -> UserError:
        """Return an error with one line for each mistake, in the order of the file.

        Each line starts with the file and line number, or with the override that contains the mistake.
        """

        def line(one: SpecError) -> str:
            # An override without `studies.<name>.` may apply to all parts of a union.
            path = one.path[2:] if one.path[:1] == (STUDIES,) else one.path
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
    """Whether an error's path is at, below, or above the place of an override."""
    return path[: len(place)] == place or (len(path) > 0 and place[: len(path)] == path)


# ---- reading


def _read_source(spec: str | Written, scale: str | None) -> _Source:
    """Read a registered study or a file; take a mapping as if it were a YAML file in the working directory.

    Raises:
        SpecError: The study, the file, or the scale doesn't exist. The error has no place in a spec yet.
        UserError: The file can't be read or executed. The message names the line.
    """
    if not isinstance(spec, str):
        if not (is_mapping(spec) and (own := spec.get("name"))):
            raise UserError('the spec has no name: add "name", the name of its experiment')
        return _Source(f"spec {own}", str(own), spec, Path.cwd()).at_scale(scale)
    path = Path(spec)
    if path.suffix not in _SUFFIXES and os.sep not in spec:
        return _Source(spec, spec, _call_get_config(study_module(spec), spec, scale))
    if not path.is_file():
        siblings = [file.name for file in path.parent.glob("*") if file.suffix in _SUFFIXES]
        hint = near(path.name, siblings)
        raise SpecError((), f"{spec}: no such file" + (f": {hint}" if hint else ""))
    if path.suffix not in _SUFFIXES:
        raise SpecError((), f"{spec}: not a spec: expected a .py, .yaml or .yml file")
    source = _Source(spec, path.stem, None, path.absolute().parent)
    if path.suffix == ".py":
        return replace(source, written=_run_file(spec, scale))
    try:
        document = Document(path.read_text(encoding="utf-8"))
    except SpecError as error:
        raise UserError(f"{path}: {error}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: not valid UTF-8") from None
    return replace(source, file=str(path), written=document.value, line=document.line).at_scale(scale)


def _call_get_config(module: Any, name: str, scale: str | None) -> Any:
    """Call a Python spec's `get_config` and add the scale."""
    scales = scales_of(module, name)
    scale = scales[0] if scale is None else scale
    if scale not in scales:
        raise SpecError((), f"{name} has no scale {scale!r}: {choices(scale, scales)}")
    config = module.get_config(scale)
    if isinstance(config, StudySpec):
        return config.to_dict()
    return {**dict(config.items()), "scale": scale} if is_mapping(config) else config


def _run_file(spec: str, scale: str | None) -> Any:
    """Run a spec in Python; convert an exception in it to a UserError with the file and line."""
    path = Path(spec).absolute()
    try:
        module = SimpleNamespace(**runpy.run_path(str(path), run_name="jestlab_spec"))
        return _call_get_config(module, spec, scale)
    except UserError:
        raise
    except Exception as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        message = error.msg if isinstance(error, SyntaxError) else error
        raise UserError(f"{path}:{line or 1}: {type(error).__name__}: {message}") from error


# ---- absolute paths, so that the resolved spec works from any folder of this machine

_Absolute = Mapping[str, Callable[[Any], Any]]
"""Dotted key of a config → function that makes its paths absolute."""


def _absolute_study(study: StudySpec, folder: Path, spec_folder: Path | None = None) -> StudySpec:
    """Return a study with absolute paths.

    Args:
        study: The study.
        folder: The folder against which relative paths are resolved.
        spec_folder: The folder of the spec, where commands run by default; None if it has no file.
    """

    def code(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: code(below) for key, below in value.items()}
        return references.anchored(value, folder) if isinstance(value, str) else value

    def path(value: Any) -> Any:
        return str(folder / Path(value).expanduser()) if isinstance(value, str) else value

    def absolute(program: ProgramConfig) -> _Absolute:
        if program.schema is None:
            return {program.folder_key: path} if program.folder_key else {}
        found = {".".join(place): path for place in marked(program.schema, IS_PATH)}
        return found | {".".join(place): code for place in marked(program.schema, NAMES_CODE)}

    def config(tree: Tree, program: ProgramConfig, is_base: bool = True) -> Tree:
        if is_base and program.folder_key is not None and spec_folder is not None:
            tree = {**tree, program.folder_key: tree.get(program.folder_key, str(spec_folder))}
        for key, make in absolute(program).items():
            if has(tree, place := key.split(".")):
                tree = merge(tree, nested(place, make(lookup(tree, place))))
        return tree

    reports = []
    for report in study.reports:
        field = "name" if report.kind == "table" else "kind"
        reports.append(report.model_copy(update={field: code(getattr(report, field))}))
    runs = {name: run.model_copy(update={"program": code(run.program)}) for name, run in study.runs.items()}
    study = study.replaced(
        program=code(study.program),
        record=study.record.model_copy(update={"files": tuple(map(path, study.record.files))}),
        reports=tuple(reports),
        resources=study.resources.model_copy(update={"on": code(study.resources.on)}),
        runs=runs,
        studies={name: _absolute_study(part, folder, spec_folder) for name, part in study.studies.items()},
    )
    own, axes = study.program_of(), list(study.axes)
    for name, run in runs.items():
        program = study.program_of(name)
        overrides = config(run.overrides, program, program.name != own.name)
        runs[name] = run.model_copy(update={"overrides": overrides})
        axes = [_absolute_axis(axis, absolute(program)) if name in axis.runs else axis for axis in axes]
    return study.replaced(base=config(study.base, own), runs=runs, axes=tuple(axes))


def _absolute_axis(axis: AxisSpec, absolute: _Absolute) -> AxisSpec:
    if not axis.keys & absolute.keys():
        return axis

    def moved(key: str, value: Any) -> Any:
        return absolute[key](value) if key in absolute else value

    given = getattr(axis, axis.kind)
    if isinstance(given, Mapping):
        points: Any = {key: tuple(moved(key, value) for value in values) for key, values in given.items()}
    else:
        points = tuple({key: moved(key, value) for key, value in case.items()} for case in given)
    labels = {
        key: {value if value == NAME else moved(key, value): text for value, text in texts.items()}
        for key, texts in axis.labels.items()
    }
    return axis.model_copy(update={axis.kind: points, "labels": labels})
