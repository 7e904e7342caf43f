"""Budget matching: a run that sees as many examples as cost what another run costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, model_serializer

from jestlab.analysis.costs import Scope
from jestlab.platform.errors import nearest
from jestlab.platform.spec.errors import Path, SpecError, shown
from jestlab.platform.spec.tree import depth_of, is_mapping

if TYPE_CHECKING:
    from jestlab.platform.programs import Program
    from jestlab.platform.spec.schema import Study

Kind = Literal["flops", "learner_flops"]
KINDS: tuple[Kind, ...] = get_args(Kind)

KEY = "match"
"""Beside a run's overrides."""


class Match(BaseModel):
    """Whose FLOPs a run spends. What is solved for is where its program has its extent: see `Program`.

    Attributes:
        kind: "flops": learner, scoring and selection, as tables count by default; "learner_flops": the
            learner's own alone, as the paper has it where it compares approximation methods.
        run: Name of the other run; of its points the one with equal values on all axis keys that both have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    run: str

    @property
    def scope(self) -> Scope:
        """What counts as FLOPs."""
        return "scoring" if self.kind == "flops" else "learner"

    def __str__(self) -> str:
        return f"{self.kind}: {self.run}"

    @model_serializer
    def _written(self) -> dict[str, str]:
        return {self.kind: self.run}


def parse(given: Any, path: Path) -> Match | None:
    """What stands under `match` of a run: nothing, or `{flops: NAME}`.

    Raises:
        SpecError: Anything else; the place is named.
    """
    if given is None:
        return None
    written = dict(given.items()) if is_mapping(given) else {}
    if len(written) != 1:
        raise SpecError(path, f"must be one of {', '.join(KINDS)} with the name of a run, not {shown(given)}")
    [(kind, run)] = written.items()
    if kind not in KINDS:
        raise SpecError((*path, str(kind)), f"unknown key: {nearest(str(kind), KINDS)}")
    if not isinstance(run, str):
        raise SpecError((*path, kind), f"must be the name of a run, not {shown(run)}")
    return Match(kind=kind, run=run)


def check(study: Study, programs: Mapping[str, Program]) -> None:
    """Check what can be checked of a study's matches before its points are known.

    Args:
        study: The study.
        programs: Of its runs, by name.

    Raises:
        SpecError: A run matches one that matches; or its program, or the run itself, leaves nothing to solve.
    """
    for name, run in study.runs.items():
        if run.match is None:
            continue
        path, extent = ("runs", name, KEY), programs[name].extent
        if extent is None:
            raise SpecError(path, f"{programs[name].name} has no examples_seen to solve for: drop it")
        other = study.runs.get(run.match.run)
        if other is not None and other.match is not None:
            raise SpecError(path, f"{run.match.run!r} itself matches: name {other.match.run!r} instead")
        solved = f"is what {'.'.join(path)} solves for: drop one of them"
        if depth_of(run.overrides, extent) == len(extent):
            raise SpecError(("runs", name, *extent), solved)
        for index, axis in enumerate(study.axes):
            if name in axis.runs and ".".join(extent) in axis.keys:
                raise SpecError(("axes", str(index), *axis.place(".".join(extent), 0)), solved)
