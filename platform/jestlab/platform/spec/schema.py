"""The validated form of a spec, which Python and YAML both load into: a study, or a union of studies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from jestlab.analysis.claims import Claim, Family, Until
from jestlab.analysis.metrics import Metric
from jestlab.analysis.sheet import Sheet
from jestlab.platform.errors import Mistakes, SpecError, UserError, nearest, shown
from jestlab.platform.spec.axes import AxisSpec, listed_axes
from jestlab.platform.spec.fields import validated
from jestlab.platform.spec.options import REPORTS, Report, parse_options
from jestlab.platform.spec.program import ProgramConfig, program_config
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.runs import LABEL, Name, RunSpec
from jestlab.platform.spec.tree import KIND, STUDIES, Tree, is_mapping, listed, plain
from jestlab.platform.spec.yaml import dump

_STUDY_ONLY_KEYS = ("program", "runs", "base", "axes", "seeds")  # not allowed in a union, only in its studies
_MOST_SEEDS = 100_000  # more is probably a typing error
_RESOURCES_DIFFER = "missing: the studies request different resources; set `resources` in the union"

# ---- values as a spec writes them


def _config(base: Any) -> Any:
    if not is_mapping(base):
        raise SpecError((), f"must be a mapping, not {shown(base)}")
    return plain(base)


def _seeds(written: Any) -> Any:
    if isinstance(written, Until):
        return written
    if is_mapping(written):
        return validated(Until, dict(written.items()))
    if type(written) is int and 1 <= written <= _MOST_SEEDS:
        return tuple(range(written))
    seeds = tuple(written) if isinstance(written, list | tuple) else ()
    if not seeds or not all(type(seed) is int and 0 <= seed < 2**32 for seed in seeds):
        raise ValueError(
            f"must be a number of replicates, a list of seeds or {{until: decided}}, not {shown(written)} "
            f"(replicates: 1 to {_MOST_SEEDS:,}; seeds: 0 to {2**32 - 1:,})"
        )
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"duplicate seed in {shown(written)}")
    return seeds


def _report(given: Any) -> Any:
    """Convert `curves`, `{curves: {…}}`, and `{kind: curves, …}` to a report."""
    if isinstance(given, str):
        given = {KIND: given}
    if not is_mapping(given):
        raise SpecError((), f"must be one of {', '.join(REPORTS)}, not {shown(given)}")
    options = dict(given.items())
    kind = options.pop(KIND, None)
    if kind is None and len(options) == 1 and is_mapping(body := next(iter(options.values()))):
        # The kind may be a file name such as `plots.py`, so take it before `plain` splits keys at dots.
        [kind], options = options, body
    if not isinstance(kind, str):
        raise SpecError((KIND,), f"no report {shown(kind)}: {nearest(str(kind), REPORTS)}")
    return parse_options(kind, plain(options))


def _distinct(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    statements = [claim.statement for claim in claims]
    for i, statement in enumerate(statements):
        if statement in statements[:i]:
            raise SpecError((str(i), "statement"), "duplicate statement: give each statement once")
    return claims


_Seeds = Annotated[
    tuple[int, ...] | Until,
    BeforeValidator(_seeds),
    WithJsonSchema({"type": ["integer", "array", "object"]}),
]
_Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(listed)]


class Record(BaseModel):
    """Additional data that a study records about each attempt.

    Attributes:
        packages: Installed packages whose versions may matter, in addition to JAX and NumPy.
        files: Files and folders that custom programs read. Their content is hashed when an attempt starts.
            Relative paths start at the folder of the spec.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    packages: _Texts = ()
    files: _Texts = ()

    def named_files(self) -> dict[str, Path]:
        """Map unique names to the files: base names, or whole paths if several files share a base name."""
        paths = [Path(file) for file in self.files]
        names = [path.name for path in paths]
        return {
            name if name and names.count(name) == 1 else str(path): path
            for name, path in zip(names, paths, strict=True)
        }


_FAMILY = {"anyOf": [Family.model_json_schema(), {"const": "none"}]}


class StudySpec(BaseModel):
    """A spec: the question, the runs, the axes, the reports; or a union of several such studies.

    Attributes:
        name: Name of the study, of its experiment in the store, and of its folder of reports; the name of the
            file by default.
        question: The question that the study answers.
        paper: The figure or table of the paper that the study reproduces.
        scale: Name of the size variant, such as `smoke` or `mini`; null if the spec has only one.
        program: The default program of the runs: train, embed, diagnose, score, weights, command,
            module:function or file.py:function.
        base: Config shared by all runs of the default program. Runs of other programs inherit only part of
            it: see `runs.<run>.program`.
        runs: The runs by name, each with its differences from the base.
        axes: Config keys that vary in some of the runs, with their values. A run is executed once for each
            point of its axes.
        seeds: Replicates of every run: 3 means the seeds 0, 1, and 2. With `{until: decided}`, and optionally
            `at_least`, `at_most`, and `budget`, seeds are added until the claims are decided.
        resources: Machines of the runs, and rules for executing them. They don't change results.
        record: Data that attempts record in addition to code and machine.
        reports: The tables and figures that the study produces.
        figure: Size, font, and other print options of all figures; each report can override them. In a union,
            also the default for its studies.
        claims: Statements that the runs confirm or refute.
        family: The error rate of all claims together, including those of the studies in a union. `{error:
            0.05}` bounds the probability of any wrong verdict (family-wise error, by Bonferroni); it is the
            default of fewer than ten claims. `{rate: 0.05}` bounds the expected share of wrong verdicts
            (false discovery rate, by Benjamini–Hochberg); it is the default of ten or more. `none` tests each
            claim at 5% without correction. `test: signed_rank` decides sooner if differences are symmetric.
        metrics: Metrics that the programs record, by name or pattern (`*/accuracy`): whether higher or lower
            is better, the unit, and the format. The metrics of jestlab's own programs are built in.
        score: Names of evaluations (dataset/metric) whose mean is the score. All must have the same direction
            (higher or lower is better) and unit. If empty, the score averages the headline evaluations, which
            tables show.
        adopted: Names of runs imported with `jestlab adopt`. If given, `runs` may be empty. Imported runs are
            part of the study even if they aren't listed.
        studies: The parts of a union by name, each a whole study; empty for an ordinary study.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: Name
    question: str = ""
    paper: str | None = None
    scale: str | None = None
    program: str = "train"
    base: Annotated[Tree, BeforeValidator(_config)] = {}
    runs: dict[Name, RunSpec] = {}
    axes: Annotated[tuple[AxisSpec, ...], BeforeValidator(listed_axes)] = ()
    seeds: _Seeds = (0,)
    resources: Resources = Resources()
    record: Record = Record()
    reports: Annotated[tuple[Annotated[Report, BeforeValidator(_report)], ...], BeforeValidator(listed)] = ()
    figure: Sheet | None = None
    claims: Annotated[tuple[Claim, ...], AfterValidator(_distinct)] = ()
    family: Annotated[Family, WithJsonSchema(_FAMILY)] = Family()
    metrics: dict[str, Metric] = {}
    score: Annotated[tuple[Annotated[str, Field(pattern=".+/.+")], ...], BeforeValidator(listed)] = ()
    adopted: _Texts = ()
    studies: dict[Name, StudySpec] = {}

    @classmethod
    def parse(cls, written: Any) -> StudySpec:
        """Parse the mapping that a spec consists of. `expand` validates the configs of its runs.

        Raises:
            SpecError: The spec is invalid.
        """
        return validated(cls, written)

    @property
    def replicates(self) -> tuple[int, ...]:
        """The seeds of each run; with `{until: decided}`, the seeds up to `at_most`."""
        return tuple(range(self.seeds.at_most)) if isinstance(self.seeds, Until) else self.seeds

    def until_decided(self) -> StudySpec:
        """Return a copy that adds seeds until its claims are decided, starting with the current number.

        Raises:
            UserError: The study has no claims.
        """
        if not any(each.claims for each in (self, *self.studies.values())):
            raise UserError(f"{self.name} has no claims to decide: write `claims` in its spec")
        parts = {name: part.until_decided() if part.claims else part for name, part in self.studies.items()}
        if self.studies or isinstance(self.seeds, Until):
            return self.replaced(studies=parts)
        default = Until(until="decided")
        own = min(len(self.seeds), default.at_most)
        return self.replaced(seeds=Until(until="decided", at_least=own if own > 1 else default.at_least))

    def replaced(self, **values: Any) -> StudySpec:
        """Return a copy with these fields replaced, without validation."""
        changed = self.model_copy(update=values)
        changed.__dict__.pop("derived", None)
        return changed

    @cached_property
    def derived(self) -> dict[str, Any]:
        """Cache of values computed from this study, such as the members that `expand` returns."""
        return {}

    def program_of(self, run: str | None = None) -> ProgramConfig:
        """Return the program of a run; without a run's name, the default program of the study.

        Raises:
            SpecError: The program is unknown.
        """
        own = self.runs[run].program if run is not None else None
        path = ("program",) if own is None else ("runs", str(run), "program")
        try:
            return program_config(own or self.program)
        except UserError as error:
            raise SpecError(path, str(error)) from None

    def to_dict(self) -> dict[str, Any]:
        """Return the resolved spec in the form of a spec file, without defaults."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_yaml(self) -> str:
        """Return the resolved spec in YAML. It launches the same runs from any folder of this machine."""
        return dump(self.to_dict())

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        if not is_mapping(written):
            raise SpecError((), f"a spec is a mapping of {', '.join(cls.model_fields)}, not {shown(written)}")
        known = cls.model_fields
        given = {
            key: _unwrapped(value) for key, value in written.items() if value is not None or key not in known
        }
        if isinstance(parts := given.get(STUDIES), dict) and parts:
            shared = {key: given[key] for key in ("scale", "figure") if key in given}
            given[STUDIES] = {
                name: {"name": name, **shared, **part} if isinstance(part, dict) else part
                for name, part in parts.items()
            }
        return given

    @model_validator(mode="after")
    def _check(self) -> StudySpec:
        mistakes = Mistakes()
        mistakes.add(self._errors())
        if self.studies and "resources" not in self.model_fields_set:
            given = [part.resources for part in self.studies.values() if part.resources != Resources()]
            self.__dict__["resources"] = given[0] if given else Resources()
            if any(resources != given[0] for resources in given):
                mistakes.add([SpecError(("resources",), _RESOURCES_DIFFER)])
        mistakes.check()
        return self

    def _errors(self) -> Iterator[SpecError]:
        if STUDIES in self.model_fields_set and not self.studies and not self.runs:
            yield SpecError((STUDIES,), "is empty: name studies or their files, or give the spec `runs`")
        elif not self.runs and not self.adopted and not self.studies:
            yield SpecError(("runs",), "is missing")
        for key in _STUDY_ONLY_KEYS:
            if self.studies and key in self.model_fields_set and getattr(self, key):
                yield SpecError((key,), f"not valid in a spec with {STUDIES}: move it to the studies")
        most = self.family.most_seeds
        for path, part in [((), self), *(((STUDIES, name), part) for name, part in self.studies.items())]:
            seeds = part.seeds if isinstance(part.seeds, Until) else Until(until="decided")
            if "at_most" in seeds.model_fields_set and seeds.at_most > most:
                problem = f"is above {most}, the maximum of the test {self.family.test}: lower it"
                yield SpecError((*path, "seeds", "at_most"), problem)
        for name, part in self.studies.items():
            if name == self.name:
                yield SpecError((STUDIES, name), "has the name of the union itself: rename one of them")
            if part.name != name:
                problem = f"is {part.name!r}: expected {name!r}, its name in the union"
                yield SpecError((STUDIES, name, "name"), problem)
            if part.studies:
                problem = "is itself a union: name its parts here instead"
                yield SpecError((STUDIES, name, STUDIES), problem)
        for name, run in self.runs.items():
            if run.label == "" and not any(name in axis.runs for axis in self.axes):
                problem = "is empty, and the run is on no axis: give it a text"
                yield SpecError(("runs", name, LABEL), problem)
        for i, name in enumerate(self.adopted):
            if name in self.runs:
                yield SpecError(("adopted", str(i)), f"{name!r} is a run of this spec: rename one")


def _unwrapped(value: Any) -> Any:
    """Convert nested `ConfigDict`s and studies to plain dicts."""
    if is_mapping(value):
        return {key: _unwrapped(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_unwrapped(item) for item in value]
    return value.to_dict() if isinstance(value, StudySpec) else value
