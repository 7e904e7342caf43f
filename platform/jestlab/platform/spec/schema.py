"""The validated form of a spec, which Python and YAML both load into: a study, or a union of studies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    InstanceOf,
    PlainSerializer,
    field_validator,
    model_serializer,
    model_validator,
)

from jestlab.analysis.claims import Claim, parse_claims
from jestlab.analysis.claims.families import Family
from jestlab.analysis.claims.stopping import Until
from jestlab.analysis.costs import Scope
from jestlab.analysis.metrics import Metric, parse_metrics
from jestlab.analysis.written import WrittenError
from jestlab.models.extensions import references
from jestlab.platform.errors import (
    Mistakes,
    Path,
    SpecError,
    UserError,
    nearest,
    no_string,
    shown,
    within,
)
from jestlab.platform.spec.axes import Axis, parse_axes
from jestlab.platform.spec.config_tree import (
    MATCH,
    STUDIES,
    Tree,
    is_mapping,
    listed,
    plain,
    put,
    validated,
)
from jestlab.platform.spec.expand import Member, expand
from jestlab.platform.spec.labels import LABEL, parse_label
from jestlab.platform.spec.options import REPORTS, FigureOptions, Report, parse_options
from jestlab.platform.spec.record import Record
from jestlab.platform.spec.resources import Resources
from jestlab.platform.spec.yaml import dump

Parsed = TypeVar("Parsed")

_OF_PARTS = ("runs", "base", "axes", "seeds", "program")  # what a union leaves to its studies
_MOST_SEEDS = 100_000  # more is a slip of the pen
_LONGEST_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*")

MatchKind = Literal["flops", "learner_flops", "seconds"]
_MATCH_KINDS: tuple[MatchKind, ...] = get_args(MatchKind)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Match(_Part):
    """The run whose FLOPs or time a run spends. What is solved for is its program's extent: see `Program`.

    Attributes:
        kind: "flops": learner, scoring and selection, as tables count by default; "learner_flops": the
            learner's own alone, as the paper has it where it compares approximation methods; "seconds": of
            training, as measured in runs of the same configs, so that the length is solved for when such
            have completed.
        run: Name of the other run; of its points the one with equal values on all axis keys that both have.
    """

    kind: MatchKind
    run: str

    @property
    def scope(self) -> Scope:
        """The costs that count as FLOPs; of no meaning for seconds."""
        return "learner" if self.kind == "learner_flops" else "scoring"

    def __str__(self) -> str:
        return f"{self.kind}: {self.run}"


class RunSpec(_Part):
    """One named run: what it changes of the base.

    Attributes:
        program: What the run executes, where that is not the study's program. The base is the config of the
            study's program, so a run with another program starts from that program's defaults and from the
            sections of the base that it inherits, as `embed` does with `data`.
        needs: Runs that must have finished, by the role under which the program finds them. Written as a
            list, the role is the name. References inside the config need not be repeated here.
        texts: Keys of its config whose values are meant as texts, although they are names of runs: written as
            roles without a run, `needs: {init: null}`.
        match: Whose FLOPs or seconds it spends; its examples seen are solved for when it is planned.
        label: What tables and figures show for the run; null for its name, empty for the values on its axes
            alone.
        overrides: Laid over the base.
    """

    program: str | None = None
    needs: dict[str, str] = {}
    texts: tuple[str, ...] = ()
    match: Match | None = None
    label: str | None = None
    overrides: Tree = {}

    @model_serializer
    def _written(self) -> dict[str, Any]:
        """As a spec writes it: the overrides, and beside them what is not config."""
        written: dict[str, Any] = {} if self.program is None else {"program": self.program}
        if self.needs or self.texts:
            by_name = all(role == name for role, name in self.needs.items()) and not self.texts
            written["needs"] = list(self.needs) if by_name else {**self.needs, **dict.fromkeys(self.texts)}
        if self.match is not None:
            written[MATCH] = {self.match.kind: self.match.run}
        if self.label is not None:
            written[LABEL] = self.label
        return written | self.overrides


def _written_seeds(seeds: tuple[int, ...] | Until) -> Any:
    """Write seeds as a spec has them."""
    return seeds.written() if isinstance(seeds, Until) else list(seeds)


class Study(_Part):
    """A spec: the question, the runs, the axes, the reports; or a union of several such studies.

    Attributes:
        name: Name of the study: that of its experiment in the store and of its folder of reports.
        question: What the study asks.
        paper: The figure or table of the paper that it reproduces.
        scale: Which of its scales this is.
        program: What its runs execute, unless they say otherwise: train, embed, diagnose, weights, command,
            module:function or file.py:function.
        base: What all runs of that program share, and in part those of others: see
            `runs.<run>.program`.
        runs: The runs by name, each with what it changes of the base; none in a union.
        axes: Keys of configs with the values that runs take, each of which makes a run.
        seeds: Replicates of every run: 3 is short for the seeds 0, 1 and 2; or `{until: decided}`, optionally
            with `at_least`, `at_most` and `budget`: seeds are added until the claims are decided.
        resources: What a launch may use.
        record: What attempts record besides code and machine.
        reports: The tables and figures that it ends in.
        figure: How its figures are printed, unless a report says otherwise; in a union, those of its studies.
        claims: Statements that its runs decide.
        family: The error that its claims share, and in a union those of its studies: `{error: 0.05}` is the
            chance that any verdict is wrong; `none` gives each claim this chance by itself.
        metrics: What its programs measure, by name or pattern (`*/accuracy`): whether more or less of it is
            better, in what unit it is, how it is written. Those of jestlab's own programs need none.
        score: Names of evaluations (dataset/metric) whose mean is the score: of one goal and unit; empty for
            all headline ones.
        adopted: Names of runs of other tools, which `jestlab adopt` takes in: a spec that has some needs no
            runs of its own. Other adopted runs of the study are there, too.
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
    seeds: Annotated[tuple[int, ...] | InstanceOf[Until], PlainSerializer(_written_seeds)] = (0,)
    resources: Resources = Resources()
    record: Record = Record()
    reports: tuple[Report, ...] = ()
    figure: FigureOptions | None = None
    # Serialized one by one: a serializer of the whole field would write its default, too.
    claims: tuple[Annotated[InstanceOf[Claim], PlainSerializer(Claim.written)], ...] = ()
    family: Annotated[InstanceOf[Family], PlainSerializer(Family.written)] = Family()
    metrics: dict[str, Annotated[InstanceOf[Metric], PlainSerializer(Metric.written)]] = {}
    score: tuple[str, ...] = ()
    adopted: tuple[str, ...] = ()
    studies: dict[str, Study] = {}

    @classmethod
    def parse(cls, written: Any) -> Study:
        """Parse the mapping that a spec is written as.

        Raises:
            SpecError: It is not a spec; the place is named. Configs of runs are not looked into: `members`
                does that.
        """
        if not is_mapping(written):
            raise SpecError((), f"a spec is a mapping of {', '.join(cls.model_fields)}, not {shown(written)}")
        mistakes = Mistakes()
        for key in written:
            if key not in cls.model_fields:
                mistakes.add([SpecError((str(key),), f"unknown key: {nearest(str(key), cls.model_fields)}")])
        known = {key: value for key, value in written.items() if key in cls.model_fields}
        if "runs" not in known and STUDIES not in known and not known.get("adopted"):
            mistakes.check()  # one of them may be what is meant
        with mistakes:
            study = validated(cls, known)
        mistakes.check()
        return study

    @property
    def replicates(self) -> tuple[int, ...]:
        """The seeds that its runs may have."""
        return tuple(range(self.seeds.at_most)) if isinstance(self.seeds, Until) else self.seeds

    def decided(self) -> Study:
        """Return the study with seeds until its claims are decided, beginning with as many as it has.

        Raises:
            UserError: It claims nothing.
        """
        if not any(each.claims for each in (self, *self.studies.values())):
            raise UserError(f"{self.name} claims nothing that seeds could decide: write `claims` in its spec")
        if self.studies:
            parts = {name: part.decided() if part.claims else part for name, part in self.studies.items()}
            return self._with(studies=parts)
        if isinstance(self.seeds, Until):
            return self
        plain = Until()
        own = min(len(self.seeds), plain.at_most)
        return self._with(seeds=Until(own if own > 1 else plain.at_least))

    def _with(self, **update: Any) -> Study:
        """Copy the study with other values of some keys, and without what was derived from the old ones."""
        changed = self.model_copy(update=update)
        changed.__dict__.pop("members", None)
        return changed

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """Every run at every point and seed, its config validated, dependencies first.

        Raises:
            SpecError: A config, a reference or the order of the runs is wrong; the place is named.
        """
        return expand(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the resolved spec as it would be written: what is at its default is left out."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def to_yaml(self) -> str:
        """Return the resolved spec in YAML: it launches the same runs, from anywhere on this machine."""
        return dump(self.to_dict())

    @model_validator(mode="before")
    @classmethod
    def _known(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.get(STUDIES):
            return _union(data)
        if "runs" not in data and STUDIES in data:
            raise SpecError((STUDIES,), "is empty: name studies or their files, or give the spec `runs`")
        if "runs" not in data and not data.get("adopted"):
            raise SpecError(("runs",), "is missing")
        return data

    @field_validator("name", mode="before")
    @classmethod
    def _name(cls, name: Any) -> str:
        return _checked_name(name, ("name",))

    @field_validator("base", mode="before")
    @classmethod
    def _base(cls, base: Any) -> Any:
        if base is not None and not is_mapping(base):
            raise SpecError(("base",), f"must be a mapping, not {shown(base)}")
        return plain({} if base is None else base, ("base",))

    @field_validator("runs", mode="before")
    @classmethod
    def _runs(cls, runs: Any) -> Any:
        if not is_mapping(runs) or not runs:
            raise SpecError(
                ("runs",), f"must be a mapping from names to overrides of the base, not {shown(runs)}"
            )
        mistakes, parsed = Mistakes(), {}
        for name, run in runs.items():
            with mistakes:
                parsed[_checked_name(name, ("runs",))] = _run(name, run)
        mistakes.check()
        return parsed

    @field_validator("axes", mode="before")
    @classmethod
    def _axes(cls, axes: Any) -> Any:
        return parse_axes([] if axes is None else axes)

    @field_validator("seeds", mode="before")
    @classmethod
    def _seeds(cls, seeds: Any) -> Any:
        if isinstance(seeds, Until):
            return seeds
        if is_mapping(seeds):
            return _as_spec_error(lambda: Until.parse(dict(seeds.items())))
        if _is_whole(seeds) and 1 <= seeds <= _MOST_SEEDS:
            return tuple(range(seeds))
        is_list = isinstance(seeds, list | tuple) and len(seeds) > 0
        if not is_list or not all(_is_whole(seed) and 0 <= seed < 2**32 for seed in seeds):
            raise SpecError(
                ("seeds",),
                "must be a number of replicates, a list of seeds or {until: decided}, not "
                f"{shown(seeds)} (replicates: 1 to {_MOST_SEEDS:,}; seeds: 0 to {2**32 - 1:,})",
            )
        if len(set(seeds)) < len(seeds):
            raise SpecError(("seeds",), f"duplicate seed in {shown(seeds)}")
        return tuple(seeds)

    @field_validator("reports", mode="before")
    @classmethod
    def _reports(cls, reports: Any) -> Any:
        reports = listed(reports)
        if not isinstance(reports, list | tuple | None):
            raise SpecError(("reports",), f"must be a list of {', '.join(REPORTS)}, not {shown(reports)}")
        mistakes, parsed = Mistakes(), []
        for i, report in enumerate(reports or ()):
            with mistakes:
                parsed.append(_report(report, ("reports", str(i))))
        mistakes.check()
        return tuple(parsed)

    @field_validator("family", mode="before")
    @classmethod
    def _family(cls, written: Any) -> Family:
        return _as_spec_error(lambda: Family.parse(dict(written.items()) if is_mapping(written) else written))

    @field_validator("score", mode="before")
    @classmethod
    def _score(cls, names: Any) -> Any:
        given = () if names is None else listed(names)
        if not isinstance(given, list | tuple) or not all(isinstance(n, str) and "/" in n for n in given):
            raise SpecError(
                ("score",), f"must be a list of evaluations, such as coco/i2t_r1, not {shown(names)}"
            )
        return tuple(given)

    @field_validator("adopted", mode="before")
    @classmethod
    def _adopted(cls, names: Any) -> Any:
        given = () if names is None else listed(names)
        if not isinstance(given, list | tuple) or not all(isinstance(n, str) and n.strip() for n in given):
            raise SpecError(("adopted",), f"must be a list of names of runs, not {no_string(names)}")
        return tuple(given)

    @field_validator("metrics", mode="before")
    @classmethod
    def _metrics(cls, metrics: Any) -> Any:
        written: Any = {} if metrics is None else metrics
        if is_mapping(written):
            written, given = {}, written
            for name, meant in given.items():
                # A dot in the name of a metric divides nothing: clip-v1.5/accuracy, clip-v1.5/accuracy.goal.
                parts = [name] if is_mapping(meant) else str(name).rsplit(".", 1)
                put(written, parts, plain(meant, ("metrics", *parts)), ("metrics",))
        mistakes = Mistakes()
        for each in [{name: meant} for name, meant in written.items()] if is_mapping(written) else [written]:
            with mistakes:
                _as_spec_error(partial(parse_metrics, each))
        mistakes.check()
        return parse_metrics(written)

    @field_validator("claims", mode="before")
    @classmethod
    def _claims(cls, claims: Any) -> Any:
        mistakes = Mistakes()
        for i, claim in enumerate(claims if isinstance(claims, list | tuple) else ()):
            with mistakes:
                _as_spec_error(partial(Claim.parse, claim, ("claims", str(i))))
        mistakes.check()
        return _as_spec_error(lambda: parse_claims(claims))

    @model_validator(mode="after")
    def _names_are_of_runs(self) -> Study:
        mistakes = Mistakes()
        for i, axis in enumerate(self.axes):
            place = ("axes", str(i), "runs")
            unknown = [name for name in axis.runs if name not in self.runs]
            mistakes.add(SpecError(place, f"no run {name!r}: {nearest(name, self.runs)}") for name in unknown)
        mistakes.add(
            SpecError(("runs", name, LABEL), "is empty, and the run is on no axis: give it a text")
            for name, run in self.runs.items()
            if run.label == "" and not any(name in axis.runs for axis in self.axes)
        )
        for i, name in enumerate(self.adopted):
            if name in self.runs:
                mistakes.add([SpecError(("adopted", str(i)), f"{name!r} is a run of this spec: rename one")])
        mistakes.check()
        return self


def _as_spec_error(parse: Callable[[], Parsed]) -> Parsed:
    """Parse something, and raise what is wrong with it as a SpecError."""
    try:
        return parse()
    except WrittenError as error:
        raise SpecError(error.path, error.message) from None


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_name(name: str) -> bool:
    """Whether a study or a run may have this name, which becomes the name of a folder."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and len(name) <= _LONGEST_NAME


def _checked_name(name: object, path: Path) -> str:
    """Return a name of a study or a run if it is valid."""
    if not isinstance(name, str):
        raise SpecError(path, f"invalid name {no_string(name)}")
    if not is_name(name):
        raise SpecError(
            path,
            f"invalid name {shown(name)}: expected at most {_LONGEST_NAME} letters, digits and _ . + -, "
            "not beginning with . or -, and without '..'",
        )
    return name


def _run(name: str, given: Any) -> dict[str, Any]:
    """Split a run as written into its overrides of the base and, beside them, `program`, `needs`, `match`,
    `label`."""
    path = ("runs", name)
    if given is not None and not is_mapping(given):
        raise SpecError(path, f"must be a mapping of overrides of the base, not {shown(given)}")
    overrides = dict(given.items()) if given is not None else {}
    program, needs = overrides.pop("program", None), overrides.pop("needs", None)
    mistakes, parsed = Mistakes(), {"program": program}
    if program is not None and not isinstance(program, str):
        mistakes.add([SpecError((*path, "program"), f"must be a string, not {no_string(program)}")])
    with mistakes:
        roles = _needs(needs, (*path, "needs"))
        parsed["needs"] = {role: name for role, name in roles.items() if name is not None}
        parsed["texts"] = tuple(role for role, name in roles.items() if name is None)
    with mistakes:
        parsed["match"] = _match(overrides.pop(MATCH, None), (*path, MATCH))
    with mistakes:
        parsed["label"] = parse_label(overrides.pop(LABEL, None), (*path, LABEL))
    with mistakes:
        parsed["overrides"] = plain(overrides, path)
    mistakes.check()
    return parsed


def _needs(given: Any, path: Path) -> dict[str, str | None]:
    """Return role → name of the run; None for a role without a run, which the config gives a text."""
    named = () if given is None else listed(given)
    needs: dict[Any, Any]
    if isinstance(named, list | tuple):
        needs = {name if isinstance(name, str) else i: name for i, name in enumerate(named)}
    else:
        needs = dict(named.items()) if is_mapping(named) else {0: named}
    if not all(isinstance(role, str) and isinstance(name, str | None) for role, name in needs.items()):
        raise SpecError(
            path, f"must be a list of names of runs, or a mapping from roles to them, not {no_string(given)}"
        )
    return needs


def _match(given: Any, path: Path) -> Match | None:
    if given is None:
        return None
    written = dict(given.items()) if is_mapping(given) else {}
    if len(written) != 1:
        raise SpecError(
            path, f"must be one of {', '.join(_MATCH_KINDS)} with the name of a run, not {shown(given)}"
        )
    [(kind, run)] = written.items()
    if kind not in _MATCH_KINDS:
        raise SpecError((*path, str(kind)), f"unknown key: {nearest(str(kind), _MATCH_KINDS)}")
    if not isinstance(run, str):
        raise SpecError((*path, kind), f"must be the name of a run, not {no_string(run)}")
    return Match(kind=kind, run=run)


def _report(given: Any, path: Path) -> BaseModel:
    if isinstance(given, str):
        given = {"kind": given}
    if isinstance(given, BaseModel):
        given = given.model_dump()
    if not is_mapping(given):
        raise SpecError(path, f"must be one of {', '.join(REPORTS)}, not {shown(given)}")
    if len(named := dict(given.items())) == 1:
        [(kind, body)] = named.items()
        if isinstance(kind, str) and references.is_reference(kind) and is_mapping(body):
            given = {"kind": kind, **dict(body.items())}  # the dot in the name of a file divides nothing
    options: dict[str, Any] = plain(given, path)
    if len(options) == 1 and is_mapping(body := next(iter(options.values()))):
        options = {"kind": next(iter(options)), **body}  # `table: {baseline: uniform}`
    kind = options.get("kind")
    if not isinstance(kind, str):
        raise SpecError((*path, "kind"), f"no report {shown(kind)}: {nearest(str(kind), REPORTS)}")
    with within(*path):
        report: BaseModel = parse_options(
            kind, {key: value for key, value in options.items() if key != "kind"}
        )
        return report


def _union(written: Mapping[str, Any]) -> dict[str, Any]:
    """Prepare a union for validation: parse its studies, each at the union's scale unless it names its own.

    Raises:
        SpecError: It has runs as well; a part is not a spec, or is itself a union; parts have different
            resources and the union has none. The place is named.
    """
    given = written[STUDIES]
    if not is_mapping(given) or not given:
        raise SpecError(
            (STUDIES,), f"must be specs by name, or a list of names and paths, not {shown(given)}"
        )
    mistakes, parts = Mistakes(), {}
    mistakes.add(
        SpecError((key,), f"not valid in a spec with {STUDIES}: each of them has its own")
        for key in _OF_PARTS[:-1]
        if written.get(key)
    )
    for name, part in given.items():
        with mistakes:
            _checked_name(name, (STUDIES,))
            if name == written.get("name"):
                raise SpecError((STUDIES, name), "has the name of the union itself: give one another name")
            with within(STUDIES, name):
                parts[name] = _part(name, part, written.get("scale"), written.get("figure"))
    mistakes.check()
    union = {key: value for key, value in written.items() if key not in _OF_PARTS}
    if union.get("resources") is None:
        union["resources"] = _common_resources(parts)
    return union | {STUDIES: parts}


def _part(name: str, written: Any, scale: Any, figure: Any) -> Study:
    if hasattr(written, "to_dict") and not is_mapping(written):
        written = written.to_dict()
    if not is_mapping(written):
        hint = f": put names of studies in a list, [{written}]" if isinstance(written, str) else ""
        raise SpecError((), f"must be a spec, not {shown(written)}{hint}")
    part = {"name": name, "scale": scale, "figure": figure, **dict(written.items())}
    if part["name"] != name:
        raise SpecError(("name",), f"is {shown(part['name'])}: expected {name!r}, its name in the union")
    if part.get(STUDIES):
        raise SpecError((STUDIES,), "is itself a union: name its parts here instead")
    return Study.parse(part)


def _common_resources(parts: Mapping[str, Study]) -> Resources:
    """Return the resources of those parts that have any, if they agree."""
    given = [(name, part.resources) for name, part in parts.items() if part.resources != Resources()]
    for name, resources in given[1:]:
        first, common = given[0]
        if resources != common:
            one, other = _on_one_line(common), _on_one_line(resources)
            raise SpecError(
                ("resources",),
                f"is missing: {first}'s are {one} and {name}'s are {other}, and a union is one launch: "
                f"give it its own, such as resources: {one}",
            )
    return given[0][1] if given else Resources()


def _on_one_line(resources: Resources) -> str:
    return " ".join(dump(resources.model_dump(mode="json", exclude_defaults=True)).split())
