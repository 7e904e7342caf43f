"""The border between what runs and what plans, launches and stores it.

A user's own program is a callable, named `package.module:callable` or `path/to/file.py:callable`. Plans find
and read it and import nothing: that may be slow, and need what only the workers' machines have. So a wrong
name is found when the spec is read, not hours later by a worker.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from pydantic import BaseModel

from jestlab.analysis.costs import Cost, Step
from jestlab.platform.errors import UserError, nearest
from jestlab.platform.programs.context import RunContext

Config = BaseModel | dict[str, Any]
"""A config: validated by the program's schema, or a plain mapping where it has none."""

Problem = tuple[tuple[str, ...], str]
"""Path of a field in a config, and what is wrong there."""


_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_FILE = re.compile(rf"(.+\.py):({_DOTTED})", re.DOTALL)
_MODULE = re.compile(rf"({_DOTTED}):({_DOTTED})")


@dataclass(frozen=True, slots=True)
class Price:
    """Cost of a whole run.

    Attributes:
        cost: FLOPs by what they are spent on, as counted, without those of the runs that it depends on.
        examples: Examples seen by the learner.
        step: What each training step does, for other conventions; None if nothing is trained.
    """

    cost: Cost
    examples: int
    step: Step | None = None

    @property
    def total(self) -> float:
        """Cost of learner, scoring and selection, without the reference's: what tables show by default."""
        return self.cost.total("scoring")

    @property
    def by_paper(self) -> float:
        """The same by the paper's formulas; 0 if nothing is trained.

        They reuse the scoring pass for the gradient, and count neither the loss nor the selection.
        """
        return self.step.cost("paper").total("scoring") * self.examples if self.step is not None else 0.0

    @property
    def executed(self) -> float:
        """Cost of all that the run itself computes, also the reference's scoring, which is 0 if cached."""
        return self.cost.total("reference_scoring")


Where = Literal["here", "elsewhere", "nowhere"]
"""Where the runs of a plan are executed: on this machine, so that scripts have to be there; on others; or
nowhere, if the plan only prices them: then nothing has to fit."""


class Contents:
    """What is found at the paths that configs name, each folder read once. For one plan: folders change.

    Attributes:
        absent: Each missing path → what it should be, such as "folder".
        where: Where runs are executed.
    """

    def __init__(self, note_absent: bool = False, where: Where = "here") -> None:
        """Create it; with `note_absent`, missing paths are noted in `absent` instead of being errors."""
        self._note_absent = note_absent
        self.absent: dict[Path, str] = {}
        self.where = where
        self._digests: dict[Path, str] = {}
        self._columns: dict[Path, list[str]] = {}
        self._counts: dict[tuple[Path, str | None], int | None] = {}
        self._benchmarks: set[Path] = set()

    def passes_over(self, path: Path, what: str) -> bool:
        """Whether a path is missing and only noted: then the path itself identifies the content."""
        if not self._note_absent or path.exists():
            return False
        self.absent[path] = what
        return True

    def digest(self, folder: Path) -> str:
        """Return the content digest of a data folder.

        Raises:
            ValueError: It holds no shards.
        """
        if folder not in self._digests:
            from jestlab.models.data import datasets  # imports NumPy, which few plans need

            self._digests[folder] = datasets.digest(folder)
        return self._digests[folder]

    def columns(self, folder: Path) -> list[str]:
        """Return the names of the metadata columns of a folder of shards."""
        if folder not in self._columns:
            from jestlab.models.data.curation import metadata_columns  # imports NumPy

            self._columns[folder] = metadata_columns(folder)
        return self._columns[folder]

    def examples(self, folder: Path, filter: str | None = None) -> int | None:
        """Return how many examples a folder of shards holds, or a filter leaves of it.

        Returns:
            The number; None where it takes too long to find out.

        Raises:
            ValueError: There are no shards, the filter leaves nothing, or it does not fit the metadata.
        """
        if (folder, filter) not in self._counts:
            from jestlab.models.data.curation import count_examples  # imports NumPy

            self._counts[folder, filter] = count_examples(folder, filter)
        return self._counts[folder, filter]

    def check_benchmark(self, folder: Path) -> None:
        """Check that a folder holds datasets to evaluate on.

        Raises:
            FileNotFoundError: It holds none.
            ValueError: Two of them have one name, or one is of a type that is not scored.
        """
        if folder not in self._benchmarks:
            from jestlab.models.data.benchmarks import dataset_folders  # imports NumPy

            dataset_folders(folder)
            self._benchmarks.add(folder)


@dataclass(frozen=True)
class Program:
    """What a run executes.

    Attributes:
        name: Its name in specs.
        entry_point: `module:callable` or `/path/file.py:callable`, imported only by the worker.
        identifier: The part of the name that belongs to a run's identity; empty for all of it.
        version: Increased when the same config comes to mean something else.
        schema: Model of its config; None for a free-form mapping.
        problems_of: Finds what is wrong with a free-form config, given the roles of the runs that it depends
            on; None if every config is valid.
        local_paths: Fields of a free-form config that hold paths of files and folders.
        identity_of: Selects what in a config decides the result; None for all of it.
        price_of: Prices a config, given the configs of the runs it depends on by role; None if unknown.
        extent: Field of the config for the training length, to which the price is proportional; None if
            there is no such field.
        complete: Fills in what only the data can tell, such as their digests, and checks that what a config
            names is there and fits; None if there is nothing.
        inherits: Sections of a study's base that also hold for runs of this program, if the study's own
            program is another one with a section of that name and type.
        spec_folder: Key of a free-form config that holds the folder of the spec, unless it is given.
        collective: Whether several processes compute one run together; otherwise only the first works.
        subjects: Roles of runs that it examines without making references of them: they go on competing.
        imports: Modules that all its runs import, that take long to import and that start no thread.
        records: Returns patterns of the names that a run of a config records, of metrics and evaluations;
            None where nobody knows.
    """

    name: str
    entry_point: str
    identifier: str = ""
    version: int = 1
    schema: type[BaseModel] | None = None
    problems_of: Callable[[Mapping[str, Any], Collection[str]], Iterable[Problem]] | None = None
    local_paths: tuple[tuple[str, ...], ...] = ()
    identity_of: Callable[[Any], dict[str, Any]] | None = None
    price_of: Callable[[Any, Mapping[str, Config]], Price | None] | None = None
    extent: tuple[str, ...] | None = None
    complete: Callable[[Any, Contents], Config] | None = None
    spec_folder: str | None = None
    collective: bool = True
    inherits: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    records: Callable[[Any], Collection[str]] | None = None

    def inherited(self, base: Mapping[str, Any], owner: Program) -> dict[str, Any]:
        """Return what of the base of a study of another program, its owner, holds for a run of this one."""
        if self.name == owner.name:
            return dict(base)
        return {name: base[name] for name in self.inherits if name in base and self._shares(name, owner)}

    def _shares(self, section: str, other: Program) -> bool:
        """Whether a section of the config means the same to both programs."""
        if self.schema is None or other.schema is None:
            return False
        own, theirs = (schema.model_fields.get(section) for schema in (self.schema, other.schema))
        return own is not None and theirs is not None and own.annotation is theirs.annotation

    def problems(self, config: Mapping[str, Any], roles: Collection[str]) -> Iterable[Problem]:
        """Find what is wrong with a free-form config, given the roles of the runs that the run depends on."""
        return () if self.problems_of is None else self.problems_of(config, roles)

    def identity(self, config: Config) -> dict[str, Any]:
        """Return what in a config decides the result, as plain data that the caller may change."""
        return dict(config) if self.identity_of is None else self.identity_of(config)

    def price(self, config: Config, needs: Mapping[str, Config]) -> Price | None:
        """Return the cost of a run; None if unknown."""
        return None if self.price_of is None else self.price_of(config, needs)

    def entry(self, config: Mapping[str, Any], context: RunContext) -> None:
        """Execute a run by its config as planned and stored, plain; raises whatever ends the program."""
        call = load(self.entry_point)
        call(dict(config) if self.schema is None else self.schema.model_validate(config), context)


# ---- a user's own callables


def names_callable(name: str) -> bool:
    """Whether a program's name has the form of a callable's."""
    return bool(_FILE.fullmatch(name) or _MODULE.fullmatch(name))


def anchored(name: str, folder: Path) -> str:
    """Return the name with its file made absolute, and every other name of a program as it is."""
    match = _FILE.fullmatch(name)
    if match is None:
        return name
    return f"{os.path.normpath(folder.absolute() / Path(match[1]).expanduser())}:{match[2]}"


def callable_identifier(name: str) -> str:
    """Return the part of the name that identifies a run: a file counts by its own name, in any folder."""
    match = _FILE.fullmatch(name)
    return name if match is None else f"{Path(match[1]).name}:{match[2]}"


def check_callable(name: str) -> None:
    """Check that a callable, in a module or at an absolute path, exists, without importing anything.

    Raises:
        UserError: There is no such module or file, it is not valid Python, or it defines no such name.
    """
    source = _source(name)
    if source is None:
        return
    try:
        tree = ast.parse(source.read_bytes(), filename=str(source))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise UserError(f"{source}:{line}: {getattr(error, 'msg', error)}") from None
    names = _names(tree)
    wanted = name.rpartition(":")[2].partition(".")[0]
    if names is not None and wanted not in names:
        raise UserError(f"no {wanted!r} in {source}: {nearest(wanted, names)}")


def load(name: str) -> Any:
    """Import a callable; the folder of its file becomes importable, as with `python file.py`."""
    match = _FILE.fullmatch(name)
    if match is not None:
        found: Any = _run(Path(match[1]))
    else:
        _make_working_directory_importable()
        found = importlib.import_module(name.partition(":")[0])
    for part in name.rpartition(":")[2].split("."):
        found = getattr(found, part)
    return found


def _run(file: Path) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


def file_of(name: str) -> Path | None:
    """Return the file of a callable's module; None if there is none to read, or no such module."""
    try:
        return _source(name)
    except UserError:
        return None


def _source(name: str) -> Path | None:
    """Return the file to read; None if there is none, as for a compiled module."""
    match = _FILE.fullmatch(name)
    if match is not None:
        file = Path(match[1])
        if not file.is_file():
            raise UserError(f"{file}: no such file")
        return file
    module = name.partition(":")[0]
    _make_working_directory_importable()
    found = _spec_of(module)
    if found is None:
        raise UserError(
            f"no module {module!r} for the program {name!r}: install it, or launch from its folder"
        )
    origin = Path(found.origin or "")
    return origin if found.has_location and origin.suffix == ".py" and origin.is_file() else None


def _spec_of(module: str) -> ModuleSpec | None:
    """Find a module. `importlib.util.find_spec` would import the packages around it."""
    places: list[str] | None = None
    found = None
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        found = _spec_in(".".join(parts[:end]), places)
        if found is None or (end < len(parts) and found.submodule_search_locations is None):
            return None
        places = list(found.submodule_search_locations or ())
    return found


def _spec_in(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Find a module in the folders of the package around it; None for those of modules of no package."""
    finders = (finder for finder in sys.meta_path if hasattr(finder, "find_spec"))
    specs = (finder.find_spec(name, places) for finder in finders)
    try:
        return next((spec for spec in specs if spec is not None), None)
    except KeyError:  # a folder without __init__.py, which asks the package around it, had that been imported
        found = ModuleSpec(name, None, is_package=True)
        folders = (Path(place) / name.rpartition(".")[2] for place in places or ())
        found.submodule_search_locations = [str(folder) for folder in folders if folder.is_dir()]
        return found


def _names(tree: ast.Module) -> set[str] | None:
    """Return what a module defines at its top level; None if reading does not tell."""
    names: set[str] = set()
    for node in _top_level(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Name) and node.id in ("globals", "exec"):
            return None
    return None if names & {"*", "__getattr__"} else names


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that are executed on import, except those within functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(child)


def _make_working_directory_importable() -> None:
    """Make the user's own modules importable from the working directory, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
