"""The boundary between programs and the code that plans, launches, and stores their runs.

A custom program is a callable, named `package.module:callable` or `path/to/file.py:callable`. Planning finds
and parses its file but never imports it: the import can be slow, and may need packages that only workers
have. A wrong name is therefore reported when the spec is loaded, before any worker starts.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from jestlab.analysis.costs import Cost, Step
from jestlab.models.config import ELSEWHERE, Code
from jestlab.platform.spec.program import Config, ProgramConfig

Result = TypeVar("Result")

Placement = Literal["local", "remote", "none"]
"""Where the runs of a plan execute: on this machine, so that scripts must exist here; on other machines; or
nowhere, for a plan that only computes prices, so that configs need not fit their data."""


@dataclass(frozen=True, slots=True)
class Price:
    """Cost of a whole run.

    Attributes:
        cost: Counted FLOPs by component, without those of the run's dependencies.
        examples: Examples seen by the learner.
        step: Work per training step, for other conventions; None if the run trains nothing.
    """

    cost: Cost
    examples: int
    step: Step | None = None

    @property
    def total(self) -> float:
        """FLOPs of learner, scoring, and selection, without the reference: the default in tables."""
        return self.cost.total("scoring")

    @property
    def by_paper(self) -> float:
        """The same total by the paper's formulas; 0 if the run trains nothing.

        The formulas reuse the scoring pass for the gradient, and count neither the loss nor the selection.
        """
        return self.step.cost("paper").total("scoring") * self.examples if self.step is not None else 0.0

    @property
    def executed(self) -> float:
        """FLOPs that the run itself executes, including the reference's scoring, which is 0 if cached."""
        return self.cost.total("reference_scoring")


@dataclass
class DataLookup:
    """Reads facts about the data at the paths in configs, each fact once. Use a new instance for each plan.

    Attributes:
        note_absent: Whether missing paths are recorded instead of raising errors.
        placement: Where the runs execute.
        absent: Each missing path → its expected type, such as "folder".
        left_out: Each folder of shards that was read → a summary of the files that are in no example.
        code: Custom code that was identified: see `plugins.identify`.
    """

    note_absent: bool = False
    placement: Placement = "local"
    absent: dict[Path, str] = field(default_factory=dict, init=False)
    left_out: dict[Path, str] = field(default_factory=dict, init=False)
    code: dict[Any, Code] = field(default_factory=dict, init=False)
    _results: dict[tuple[Any, ...], Any] = field(default_factory=dict, init=False)

    def once(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function once with the same arguments; return the same result later."""
        key = (function, *arguments)
        if key not in self._results:
            self._results[key] = function(*arguments)
        result: Result = self._results[key]
        return result

    def is_absent(self, path: Path, expected: str) -> bool:
        """Whether a path is missing and may be: its content is then identified by the path."""
        if not self.note_absent or path.exists():
            return False
        self.absent[path] = expected
        return True

    def examples(self, folder: Path, filter: str | None = None) -> int | None:
        """Count the examples in a folder of shards, or those that pass a filter; None if counting is slow.

        Raises:
            ValueError: There are no shards, no example passes, or the filter doesn't match the metadata.
        """
        from jestlab.models.data.curation import count_examples  # imports NumPy, which few plans need
        from jestlab.models.data.shards import ShardIndex

        count = self.once(count_examples, folder, filter)
        if folder not in self.left_out:
            self.left_out[folder] = ShardIndex.load(folder).left_out()
        return count


@dataclass(frozen=True, kw_only=True)
class Program(ProgramConfig):
    """A program that runs execute.

    Attributes, in addition to those of its config:
        entry_point: `module:callable` or `/path/file.py:callable`, imported only by the worker.
        version: Increased when the meaning of a config changes.
        price: Prices a config, given the configs of its dependencies by role, and of their dependencies as
            "role.role"; None if unknown.
        check_needs: Checks that dependencies, given their configs by role, fit their roles; raises UserError.
        complete: Adds facts about the data, such as digests, to a config, and checks that paths exist.
        extra: The extra of jestlab that its runs need; None without one.
        collective: Whether several processes compute one run together; otherwise only the first one works.
        subjects: Roles of runs that this program examines. Unlike references, they stay in comparisons.
        imports: Slow imports of all its runs that start no threads.
        records: Returns patterns for the names of the metrics and evaluations that a config records; None if
            all configs record those of `analysis.metrics.OF_PROGRAM`.
    """

    entry_point: str
    version: int = 1
    price: Callable[[Any, Mapping[str, Config]], Price | None] = lambda config, needs: None
    check_needs: Callable[[Any, Mapping[str, Config]], None] = lambda config, needs: None
    complete: Callable[[Any, DataLookup], Config] = lambda config, data: config
    extra: str | None = None
    collective: bool = True
    subjects: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    records: Callable[[Any], Collection[str]] | None = None

    def read(self, config: Mapping[str, Any]) -> Any:
        """Validate a stored config, which may come from another machine; pydantic's ValidationError if
        invalid."""
        return dict(config) if self.schema is None else self.schema.model_validate(config, context=ELSEWHERE)
