"""The validated form of a spec: what Python and YAML both load into."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    field_validator,
    model_serializer,
    model_validator,
)

from jestlab.platform.errors import nearest
from jestlab.platform.spec import match as matches
from jestlab.platform.spec import unions, yaml_io
from jestlab.platform.spec.axes import Axis, parse_axes
from jestlab.platform.spec.claims import Claim, parse_claims
from jestlab.platform.spec.errors import SpecError, shown
from jestlab.platform.spec.expand import Member, check_reports, expand
from jestlab.platform.spec.fields import Field, fields_of
from jestlab.platform.spec.names import check_name
from jestlab.platform.spec.reports import REPORTS, Report
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.translate import first_error
from jestlab.platform.spec.tree import Tree, is_mapping, plain

_MOST_SEEDS = 100_000  # more is a slip of the pen


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RunSpec(_Part):
    """One named run: what it changes of the base.

    Attributes:
        program: What it executes; None for the study's program. The base is the config of the study's
            program, so a run with another program starts from that program's defaults and from the sections
            of the base that it inherits, as `embed` does with `data`.
        needs: Runs that must have finished, by the role under which the program finds them. Written as a
            list, the role is the name. References inside the config need not be repeated here.
        match: Whose FLOPs it spends; its examples seen are solved for when it is planned.
        overrides: Laid over the base.
    """

    program: str | None = None
    needs: dict[str, str] = {}
    match: matches.Match | None = None
    overrides: Tree = {}

    @model_serializer
    def _written(self) -> dict[str, Any]:
        """As a spec says it: the overrides, and beside them what is not config."""
        written: dict[str, Any] = {} if self.program is None else {"program": self.program}
        if self.needs:
            by_name = all(role == name for role, name in self.needs.items())
            written["needs"] = list(self.needs) if by_name else dict(self.needs)
        if self.match is not None:
            written[matches.KEY] = {self.match.kind: self.match.run}
        return written | self.overrides


class Study(_Part):
    """A spec: the question, the runs, the axes, the reports; or a union of several such studies.

    Attributes:
        name: Of the study: its experiment in the store, its folder of reports.
        question: What it asks.
        paper: The figure or table of the paper that it reproduces.
        scale: Which of its scales this is.
        program: What its runs execute, unless they say otherwise.
        base: What all runs of that program share, and in part those of others: see `RunSpec.program`.
        runs: By name; none in a union.
        axes: Values that runs take.
        seeds: Replicates.
        resources: What a launch may use.
        reports: What it ends in.
        claims: What its runs decide.
        score: Names of evaluations (dataset/metric) whose mean is the score; empty for all headline ones.
        studies: The parts of a union, by name, each a whole study; empty for an ordinary study.
    """

    name: str
    question: str = ""
    paper: str | None = None
    scale: str | None = None
    program: str = "train"
    base: Tree = {}
    runs: dict[str, RunSpec] = {}
    axes: tuple[Axis, ...] = ()
    seeds: tuple[int, ...] = (0,)
    resources: Resources = Resources()
    reports: tuple[Report, ...] = ()
    claims: tuple[Claim, ...] = ()
    score: tuple[str, ...] = ()
    studies: dict[str, Study] = {}

    @classmethod
    def parse(cls, written: Any) -> Study:
        """A study from the mapping that a spec is written as.

        Raises:
            SpecError: It is none; the place is named. Configs of runs are not looked into: `members` does.
        """
        if not is_mapping(written):
            raise SpecError((), f"a spec is a mapping of {', '.join(cls.model_fields)}, not {shown(written)}")
        try:
            return cls.model_validate(dict(written.items()))
        except ValidationError as error:
            path, message = first_error(error, _FIELDS)
            raise SpecError(path, message) from None

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Every run at every point and seed, its config validated, needed runs first.

        Raises:
            SpecError: A config, a reference or the order of the runs is wrong; the place is named.
        """
        if not self.studies:
            return expand(self)
        members = unions.members(self)
        check_reports(self, [member.variant for member in members])
        return members

    def to_dict(self) -> dict[str, Any]:
        """The resolved spec as it would be written: what is at its default is left out."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_yaml(self) -> str:
        """The resolved spec in YAML: launches the same runs, from anywhere on this machine."""
        return yaml_io.dump(self.to_dict())

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        for key in data if isinstance(data, dict) else ():
            if key not in cls.model_fields:
                raise SpecError((str(key),), f"unknown key: {nearest(str(key), cls.model_fields)}")
        if not isinstance(data, dict):
            return data
        if data.get(unions.KEY):
            return unions.prepared(data, cls.parse)
        if "runs" not in data and unions.KEY in data:
            raise SpecError((unions.KEY,), "is empty: name studies or their files, or give the spec `runs`")
        if "runs" not in data:
            raise SpecError(("runs",), "is missing")
        return data

    @field_validator("name", mode="before")
    @classmethod
    def _name(cls, name: Any) -> str:
        return check_name(name, ("name",))

    @field_validator("base", mode="before")
    @classmethod
    def _base(cls, base: Any) -> Any:
        return _mapping(base, ("base",))

    @field_validator("runs", mode="before")
    @classmethod
    def _runs(cls, runs: Any) -> Any:
        if not is_mapping(runs) or not runs:
            raise SpecError(
                ("runs",), f"must be a mapping from names to overrides of the base, not {shown(runs)}"
            )
        return {check_name(name, ("runs",)): _run(name, run) for name, run in runs.items()}

    @field_validator("axes", mode="before")
    @classmethod
    def _axes(cls, axes: Any) -> Any:
        return parse_axes([] if axes is None else axes)

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, seeds: Any) -> Any:
        if _is_whole(seeds) and 1 <= seeds <= _MOST_SEEDS:
            return tuple(range(seeds))
        listed = (
            isinstance(seeds, list | tuple) and seeds and all(_is_whole(s) and 0 <= s < 2**32 for s in seeds)
        )
        if not listed:
            raise SpecError(
                ("seeds",),
                f"must be a number of replicates or a list of seeds, not {shown(seeds)}",
            )
        if len(set(seeds)) < len(seeds):
            raise SpecError(("seeds",), f"holds a seed twice: {shown(seeds)}")
        return tuple(seeds)

    @field_validator("reports", mode="before")
    @classmethod
    def _reports(cls, reports: Any) -> Any:
        if reports is None:
            return ()
        if not isinstance(reports, list | tuple):
            raise SpecError(("reports",), f"must be a list of {', '.join(REPORTS)}, not {shown(reports)}")
        return tuple(_report(report, i) for i, report in enumerate(reports))

    @field_validator("score", mode="before")
    @classmethod
    def _score(cls, names: Any) -> Any:
        if names is None:
            return ()
        if not isinstance(names, list | tuple) or not all(isinstance(n, str) and "/" in n for n in names):
            raise SpecError(("score",), f"must be a list of evaluations, as coco/i2t_r1, not {shown(names)}")
        return tuple(names)

    @field_validator("claims", mode="before")
    @classmethod
    def _claims(cls, claims: Any) -> Any:
        return parse_claims(claims)

    @model_validator(mode="after")
    def _axes_are_of_runs(self) -> Study:
        for i, axis in enumerate(self.axes):
            for name in axis.runs:
                if name not in self.runs:
                    raise SpecError(("axes", str(i), "runs"), f"no run {name!r}: {nearest(name, self.runs)}")
        return self


_FIELDS: Field = fields_of(Study)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _mapping(value: Any, path: tuple[str, ...]) -> Tree:
    if value is None:
        return {}
    if not is_mapping(value):
        raise SpecError(path, f"must be a mapping, not {shown(value)}")
    tree: Tree = plain(value, path)
    return tree


def _run(name: str, given: Any) -> dict[str, Any]:
    """A run in its written form: overrides of the base, and beside them `program`, `needs` and `match`."""
    path = ("runs", name)
    if given is not None and not is_mapping(given):
        raise SpecError(path, f"must be a mapping of overrides of the base, not {shown(given)}")
    overrides = dict(given.items()) if given is not None else {}
    program, needs = overrides.pop("program", None), overrides.pop("needs", None)
    if program is not None and not isinstance(program, str):
        raise SpecError((*path, "program"), f"must be a text, not {shown(program)}")
    return {
        "program": program,
        "needs": _needs(needs, (*path, "needs")),
        "match": matches.parse(overrides.pop(matches.KEY, None), (*path, matches.KEY)),
        "overrides": plain(overrides, path),
    }


def _needs(given: Any, path: tuple[str, ...]) -> dict[str, str]:
    if given is None:
        return {}
    if isinstance(given, str):
        given = [given]
    needs = dict(given.items()) if is_mapping(given) else given
    if isinstance(needs, list | tuple):
        needs = {name if isinstance(name, str) else i: name for i, name in enumerate(needs)}
    if not isinstance(needs, dict) or not all(isinstance(x, str) for pair in needs.items() for x in pair):
        raise SpecError(
            path, f"must be a list of names of runs, or a mapping from roles to them, not {shown(given)}"
        )
    return needs


def _report(given: Any, index: int) -> BaseModel:
    path = ("reports", str(index))
    if isinstance(given, str):
        given = {"kind": given}
    if isinstance(given, BaseModel):
        given = given.model_dump()
    if not is_mapping(given):
        raise SpecError(path, f"must be one of {', '.join(REPORTS)}, not {shown(given)}")
    options: dict[str, Any] = plain(given, path)
    if len(options) == 1 and is_mapping(body := next(iter(options.values()))):
        options = {"kind": next(iter(options)), **body}  # `table: {baseline: uniform}`
    kind = options.get("kind")
    if not isinstance(kind, str) or kind not in REPORTS:
        raise SpecError((*path, "kind"), f"no report {shown(kind)}: {nearest(str(kind), REPORTS)}")
    report = REPORTS[kind]
    for key in options:
        if key not in report.model_fields:
            others = [name for name in report.model_fields if name != "kind"]
            raise SpecError((*path, key), f"{kind} has no such option: {nearest(key, others)}")
    try:
        return report.model_validate(options)
    except ValidationError as error:
        below, message = first_error(error, fields_of(report))
        raise SpecError((*path, *below), message) from None
