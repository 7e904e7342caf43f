"""The border between what runs and what plans, launches and stores it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from jestlab.analysis.costs import Cost, Step
from jestlab.platform.programs import callables
from jestlab.platform.programs.contents import Contents

if TYPE_CHECKING:
    from jestlab.platform.context import RunContext

Config = BaseModel | dict[str, Any]
"""A config: validated by the program's schema, or a plain mapping where it has none."""

Problem = tuple[tuple[str, ...], str]
"""A place in a config, and what is wrong there."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a whole run costs.

    Attributes:
        cost: FLOPs by what they are spent on, as counted; what it took to make what the run needs is not in
            it.
        examples: Examples seen by the learner.
        step: What each of its training steps does, for other conventions; None where it trains nothing.
    """

    cost: Cost
    examples: int
    step: Step | None = None

    @property
    def total(self) -> float:
        """Learner, scoring and selection, the reference's scores cached: what tables show by default."""
        return self.cost.total("scoring")

    @property
    def by_paper(self) -> float:
        """The same by the paper's formulas: the pass that scores is kept for the gradient, and neither the
        loss nor choosing costs anything; 0 where nothing is trained."""
        return self.step.cost("paper").total("scoring") * self.examples if self.step is not None else 0.0

    @property
    def executed(self) -> float:
        """All that the run itself computes: the reference's scoring too, which is 0 where it is cached."""
        return self.cost.total("reference_scoring")


@dataclass(frozen=True)
class Program:
    """What a run executes.

    Attributes:
        name: As specs say it.
        entry_point: `module:callable` or `/path/file.py:callable`, imported only where the run runs.
        identifier: What of the name is part of a run's identity; all of it where this is empty.
        version: Raised when the same config comes to mean something else.
        schema: Model of its config; None for a free-form mapping.
        problems_of: What is wrong with a free-form config, given the roles of the runs that it needs; None
            where anything goes.
        local_paths: Places in a free-form config of paths of files and folders.
        identity_of: What in a config decides the result; None for all of it.
        price_of: Cost of a config, given the configs of the runs it needs by role; None where nobody knows.
        extent: Place in the config of how much it trains for, which its price is in proportion to; None where
            there is no such place.
        complete: Fills in what only the data can say, such as their digests; None where there is nothing.
        inherits: Sections of a study's base that hold for runs of this program too where the study's own
            program is another, with a section of that name and type.
        collective: Whether several processes compute one run together; otherwise the first alone works.
        subjects: Roles of runs that it looks into, which makes no references of them: they go on competing.
        imports: Modules that each of its runs imports, and that take long to: those that start no thread.
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
    collective: bool = True
    inherits: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def inherited(self, base: Mapping[str, Any], owner: Program) -> dict[str, Any]:
        """What of a study's base holds for a run of this program.

        Args:
            base: Of the study: sections of the config of its program.
            owner: The study's program.

        Returns:
            All of it for the study's own program, else the sections that this one inherits.
        """
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
        """What is wrong with a free-form config, given the roles of the runs that the run needs."""
        return () if self.problems_of is None else self.problems_of(config, roles)

    def identity(self, config: Config) -> dict[str, Any]:
        """What in a config decides the result, as plain data that the caller may change."""
        return dict(config) if self.identity_of is None else self.identity_of(config)

    def price(self, config: Config, needs: Mapping[str, Config]) -> Price | None:
        """Cost of a run, or None where nobody knows."""
        return None if self.price_of is None else self.price_of(config, needs)

    def entry(self, config: Mapping[str, Any], context: RunContext) -> None:
        """Execute a run.

        Args:
            config: As planned and stored, plain.
            context: Where to work and report.

        Raises:
            Exception: Whatever ends the program.
        """
        call = callables.load(self.entry_point)
        call(dict(config) if self.schema is None else self.schema.model_validate(config), context)
