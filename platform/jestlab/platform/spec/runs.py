"""The runs of a spec: their names, their differences from the base, and the budgets that they match."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, model_serializer, model_validator

from jestlab.analysis.costs import Scope
from jestlab.platform.errors import Mistakes, SpecError, nearest, no_string, shown
from jestlab.platform.spec.axes import display_name
from jestlab.platform.spec.tree import MATCH, Tree, is_mapping, listed, plain

LABEL = "label"
"""The key of a run for its display name."""

OF_RUNS = ("program", "needs", MATCH, LABEL)
"""Keys of a run that aren't part of its config."""

_LONGEST_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*")

MatchKind = Literal["flops", "learner_flops", "seconds"]


def is_name(name: str) -> bool:
    """Whether a study or a run may have this name, which becomes the name of a folder."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and len(name) <= _LONGEST_NAME


def _name(name: str) -> str:
    if not is_name(name):
        raise ValueError(
            f"invalid name {shown(name)}: expected at most {_LONGEST_NAME} letters, digits, and _ . + -, "
            "without '..', and without . or - at the start"
        )
    return name


Name = Annotated[str, AfterValidator(_name)]
"""Name of a study or a run."""


class Match(BaseModel):
    """The run whose FLOPs or training time a run spends. The plan solves for the number of examples.

    Attributes:
        kind: "flops": FLOPs of learner, scoring, and selection, as tables count by default; "learner_flops":
            those of the learner only, as the paper counts where it compares approximation methods;
            "seconds": training time, as measured in completed runs of the same configs.
        run: Name of the other run, at the point with equal values on all axis keys that both runs have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: MatchKind
    run: str

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        given = dict(written.items()) if is_mapping(written) else {}
        if len(given) != 1:
            kinds = ", ".join(get_args(MatchKind))
            raise SpecError((), f"must be one of {kinds} with the name of a run, not {shown(written)}")
        [(kind, run)] = given.items()
        if kind not in get_args(MatchKind):
            raise SpecError((str(kind),), f"unknown key: {nearest(str(kind), get_args(MatchKind))}")
        if not isinstance(run, str):
            raise SpecError((kind,), f"must be the name of a run, not {no_string(run)}")
        return {"kind": kind, "run": run}

    @property
    def scope(self) -> Scope:
        """The costs that count as FLOPs; unused for seconds."""
        return "learner" if self.kind == "learner_flops" else "scoring"

    def __str__(self) -> str:
        return f"{self.kind}: {self.run}"


class RunSpec(BaseModel):
    """One named run: its differences from the base.

    Attributes:
        program: The program of the run, if not the study's. The base is a config of the study's
            program, so a run of another program starts from that program's defaults and from the sections of
            the base that both programs share, as `embed` does with `data`.
        needs: Runs that have to complete first, by the role under which the program finds them. In a list,
            the role is the name. Runs that the config refers to need not be repeated here.
        match: The run whose FLOPs or seconds it spends, as in `{flops: joint}`; the plan solves for the
            number of examples.
        label: Display name in tables and figures; null for the run's name, empty for only the values on its
            axes.
        overrides: Config keys that differ from the base.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str | None = None
    needs: dict[str, str] = {}
    match: Match | None = None
    label: str | None = None
    overrides: Tree = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        """Separate the run's own keys from its overrides of the base."""
        if written is not None and not is_mapping(written):
            raise SpecError((), f"must be a mapping of overrides of the base, not {shown(written)}")
        overrides = dict(written.items()) if written is not None else {}
        own = {key: overrides.pop(key, None) for key in OF_RUNS}
        mistakes, run = Mistakes(), {key: value for key, value in own.items() if value is not None}
        with mistakes:
            run["needs"] = _roles(run.get("needs"))
        with mistakes:
            if LABEL in run:
                run[LABEL] = display_name(run[LABEL], (LABEL,))
        with mistakes:
            run["overrides"] = plain(overrides)
        mistakes.check()
        return run

    @model_serializer
    def _written(self) -> dict[str, Any]:
        """Return the form of a spec: the overrides, next to the run's own keys."""
        written: dict[str, Any] = {} if self.program is None else {"program": self.program}
        if self.needs:
            by_name = all(role == name for role, name in self.needs.items())
            written["needs"] = list(self.needs) if by_name else self.needs
        if self.match is not None:
            written[MATCH] = {self.match.kind: self.match.run}
        if self.label is not None:
            written[LABEL] = self.label
        return written | self.overrides


def _roles(given: Any) -> dict[str, str]:
    """Return the runs of `needs` by role."""
    named: Any = () if given is None else listed(given)
    if isinstance(named, list | tuple) and all(isinstance(name, str) for name in named):
        return {name: name for name in named}
    if is_mapping(named) and all(isinstance(text, str) for item in named.items() for text in item):
        return dict(named.items())
    what = "a list of names of runs, or a mapping from roles to them"
    raise SpecError(("needs",), f"must be {what}, not {no_string(given)}")
