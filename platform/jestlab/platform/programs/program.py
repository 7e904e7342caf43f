"""The border between what runs and what plans, launches and stores it.

A user's own program is a callable, named `package.module:callable` or `path/to/file.py:callable`. Plans find
and read it and import nothing: that may be slow, and need what only the workers' machines have. So a wrong
name is found when the spec is read, not hours later by a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jestlab.analysis.costs import Cost, Step
from jestlab.models.config import ELSEWHERE
from jestlab.models.extensions import references
from jestlab.models.training.phases import count_compilation
from jestlab.platform.errors import UserError
from jestlab.platform.programs.context import RunContext
from jestlab.platform.spec.program import Config, ProgramConfig


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


@dataclass(frozen=True, slots=True)
class Memory:
    """What a run occupies at its peak, in bytes: an estimate.

    Attributes:
        state: On each device, parameters and the optimiser's state; also the parameters of a reference.
        work: On each device, what a step computes with: activations, the gradient.
        batches: On each device, the examples.
        process: Beside all that, in the process on the host: Python and JAX, compiled functions, examples
            that are read ahead.
        reduced: What would reduce it, such as "lower schedule.batch_size", and how far.
    """

    state: float
    work: float
    batches: float
    process: float
    reduced: tuple[tuple[str, Memory], ...] = ()

    @property
    def device(self) -> float:
        """On each device that is not the host itself."""
        return self.state + self.work + self.batches

    @property
    def here(self) -> float:
        """In a process that computes on the host's own processor."""
        return self.device + self.process


Where = Literal["here", "elsewhere", "nowhere"]
"""Where the runs of a plan are executed: on this machine, so that scripts have to be there; on others; or
nowhere, if the plan only prices them: then nothing has to fit."""


class Contents:
    """What is found at the paths that configs name, each folder read once. For one plan: folders change.

    Attributes:
        absent: Each missing path → what it should be, such as "folder".
        left_out: Each folder of shards that was read → what of it is in no example; empty if nothing.
        where: Where runs are executed.
    """

    def __init__(self, note_absent: bool = False, where: Where = "here") -> None:
        """Create it; with `note_absent`, missing paths are noted in `absent` instead of being errors."""
        self._note_absent = note_absent
        self.absent: dict[Path, str] = {}
        self.left_out: dict[Path, str] = {}
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

    def path_digest(self, path: Path) -> str:
        """Return the digest of what a reader of one's own reads.

        Raises:
            UserError: There is nothing at the path.
        """
        if path not in self._digests:
            from jestlab.models.data.readers import path_digest  # imports NumPy

            try:
                self._digests[path] = path_digest(path)
            except FileNotFoundError as error:
                raise UserError(f"data.train.path: {error}") from None
        return self._digests[path]

    def columns(self, folder: Path) -> list[str]:
        """Return the names of the metadata columns of a folder of shards."""
        if folder not in self._columns:
            from jestlab.models.data.metadata import metadata_columns  # imports NumPy

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
            from jestlab.models.data.shards import ShardIndex

            self._counts[folder, filter] = count_examples(folder, filter)
            self.left_out[folder] = ShardIndex.load(folder).left_out()
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


@dataclass(frozen=True, kw_only=True)
class Program(ProgramConfig):
    """What a run executes.

    Attributes:
        entry_point: `module:callable` or `/path/file.py:callable`, imported only by the worker.
        identifier: The part of the name that belongs to a run's identity; empty for all of it.
        version: Increased when the same config comes to mean something else.
        price_of: Prices a config, given the configs of the runs it depends on by role, and of those that they
            depend on, as "role.role"; None if unknown.
        memory_of: Estimates the memory of a run of a config, given the configs of the runs it depends on by
            role, and the TPU chips that it computes on, 0 for this machine's processor; None if unknown.
        fits_needs: Checks that the runs which a config depends on can serve it, given their configs by role;
            raises UserError. None if any can.
        complete: Fills in what only the data can tell, such as their digests, and checks that what a config
            names is there and fits; None if there is nothing.
        collective: Whether several processes compute one run together; otherwise only the first works.
        subjects: Roles of runs that it examines without making references of them: they go on competing.
        imports: Modules that all its runs import, that take long to import and that start no thread.
        records: Returns patterns of the names that a run of a config records, of metrics and evaluations;
            None where nobody knows.
    """

    entry_point: str
    identifier: str = ""
    version: int = 1
    price_of: Callable[[Any, Mapping[str, Config]], Price | None] | None = None
    memory_of: Callable[[Any, Mapping[str, Config], int], Memory | None] | None = None
    fits_needs: Callable[[Any, Mapping[str, Config]], None] | None = None
    complete: Callable[[Any, Contents], Config] | None = None
    collective: bool = True
    subjects: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    records: Callable[[Any], Collection[str]] | None = None

    def price(self, config: Config, needs: Mapping[str, Config]) -> Price | None:
        """Return the cost of a run; None if unknown."""
        return None if self.price_of is None else self.price_of(config, needs)

    def memory(self, config: Config, needs: Mapping[str, Config], chips: int = 0) -> Memory | None:
        """Return an estimate of a run's memory, on TPU chips or without any; None if unknown."""
        return None if self.memory_of is None else self.memory_of(config, needs, chips)

    def entry(self, config: Mapping[str, Any], context: RunContext) -> None:
        """Execute a run by its config as planned and stored, plain; raises whatever ends the program."""
        call = references.load(self.entry_point)
        count_compilation(context.clock)  # what it was loaded from may have imported JAX
        call(self.read(config), context)

    def read(self, config: Mapping[str, Any]) -> Any:
        """Validate a config as planned and stored, here or elsewhere; ValidationError if it is none."""
        return dict(config) if self.schema is None else self.schema.model_validate(config, context=ELSEWHERE)
