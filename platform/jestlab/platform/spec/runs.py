"""The runs of a spec: their names, their differences from the base, and the budgets that they match."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, model_serializer, model_validator

from jestlab.analysis.costs import Scope
from jestlab.platform.errors import SpecError, no_string, shown
from jestlab.platform.spec.axes import display_name
from jestlab.platform.spec.tree import MATCH, Tree, is_mapping, listed, plain

LABEL = "label"
"""The key of a run for its display name."""

RUN_KEYS = ("program", "needs", MATCH, LABEL)
"""Keys of a run that aren't part of its config."""

_LONGEST_NAME = 80
_NAME = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*")


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
    """The run whose FLOPs or training time a run matches. The plan solves for the number of examples.

    The other run is taken at the point with equal values on all axis keys that both runs have.

    Attributes:
        flops: Name of the run to match in FLOPs of learner, scoring, and selection, the total in tables.
        learner_flops: Name of the run to match in FLOPs of the learner only, as in the paper's comparison of
            approximation methods.
        seconds: Name of the run to match in training time, as measured in completed runs with these configs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    flops: str | None = None
    learner_flops: str | None = None
    seconds: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> "Match":
        if sum(run is not None for _, run in self) != 1:
            raise ValueError(f"must be one of {', '.join(Match.model_fields)} with the name of a run")
        return self

    @property
    def kind(self) -> str:
        """The measure to match: flops, learner_flops, or seconds."""
        return next(kind for kind, run in self if run is not None)

    @property
    def run(self) -> str:
        """Name of the other run."""
        return str(getattr(self, self.kind))

    @property
    def scope(self) -> Scope:
        """The costs that count as FLOPs. Has no effect for seconds."""
        return "learner" if self.kind == "learner_flops" else "scoring"

    def __str__(self) -> str:
        return f"{self.kind}: {self.run}"


def _roles(given: Any) -> dict[str, str]:
    named: Any = listed(given)
    if isinstance(named, list | tuple) and all(isinstance(name, str) for name in named):
        return {name: name for name in named}
    if is_mapping(named) and all(isinstance(text, str) for item in named.items() for text in item):
        return dict(named.items())
    what = "a list of names of runs, or a mapping from roles to them"
    raise SpecError((), f"must be {what}, not {no_string(given)}")


class RunSpec(BaseModel):
    """One named run: its differences from the base.

    Attributes:
        program: The program of the run; null for the study's. The base is a config of the study's program. A
            run of another program starts from its program's defaults, and inherits only the sections of the
            base that both programs share, as `embed` does with `data`.
        needs: Runs that must complete first: a mapping from roles, under which the program finds them, to
            names of runs; or a list of names, which are also the roles. Runs that the config refers to, such
            as `selection.reference`, need not be listed.
        match: The run whose FLOPs or seconds this run matches, as in `{flops: joint}`; the plan solves for
            the number of examples.
        label: Display name in tables and figures; null for the run's name, empty for only the values on its
            axes.
        overrides: Config keys that differ from the base.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str | None = None
    needs: Annotated[dict[str, str], BeforeValidator(_roles)] = {}
    match: Match | None = None
    label: Annotated[str, BeforeValidator(lambda label: display_name(label))] | None = None
    overrides: Annotated[Tree, BeforeValidator(lambda tree: plain(tree))] = {}

    @model_validator(mode="before")
    @classmethod
    def _read(cls, written: Any) -> Any:
        """Separate the run's own keys from its overrides of the base."""
        if written is not None and not is_mapping(written):
            raise SpecError((), f"must be a mapping of overrides of the base, not {shown(written)}")
        overrides = dict(written.items()) if written is not None else {}
        own = {key: overrides.pop(key, None) for key in RUN_KEYS}
        return {key: value for key, value in own.items() if value is not None} | {"overrides": overrides}

    @model_serializer
    def _written(self) -> dict[str, Any]:
        """Return the form of a spec: the overrides, next to the run's own keys."""
        is_list = all(role == name for role, name in self.needs.items())
        match = self.match and {self.match.kind: self.match.run}
        own = {"program": self.program, "needs": list(self.needs) if is_list else self.needs, MATCH: match}
        own = {key: value for key, value in own.items() if value}
        return own | ({} if self.label is None else {LABEL: self.label}) | self.overrides
