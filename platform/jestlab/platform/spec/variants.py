"""The runs of a study at the points of their axes, their display names, and the references to them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jestlab.analysis.names import Names
from jestlab.platform.errors import Mistakes, Path, SpecError, nearest
from jestlab.platform.spec.axes import LABELS, Point
from jestlab.platform.spec.options import LearnabilityOptions, TableOptions
from jestlab.platform.spec.program import Config, ProgramConfig
from jestlab.platform.spec.runs import LABEL, Match
from jestlab.platform.spec.schema import StudySpec


class RunReference(NamedTuple):
    """A reference to another run.

    Attributes:
        role: The role under which the program finds the other run: a key of the config, or a role of `needs`.
        name: The name of the other run.
        path: The place of the reference in the spec.
    """

    role: str
    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class Variant:
    """A run at one point of its axes: what its replicates have in common.

    Attributes:
        label: Name and values on the axes, as the store identifies it.
        point: Values on the axes, by dotted key.
        config: Validated; a plain dict where the program has no schema.
        references: The runs that it refers to, with the place of each name.
        match: The run whose FLOPs or seconds it spends; None where the config states the training length.
    """

    name: str
    label: str
    point: Point
    program: ProgramConfig
    config: Config
    references: tuple[RunReference, ...]
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Replicate:
    """A variant with a seed in its config.

    Attributes:
        needs: Role → position, among the study's members, of a dependency; always before this member.
        match: Position of the run whose budget it spends, also before this member; or None.
    """

    variant: Variant
    seed: int
    config: Config
    needs: Mapping[str, int]
    match: int | None = None


def check_run_name(name: str, known: Collection[str], path: Path) -> None:
    """Check that a name is known; a SpecError suggests the nearest."""
    if name not in known:
        raise SpecError(path, f"no run {name!r}: {nearest(name, known)}")


def check_references(study: StudySpec, variants: Sequence[Variant], wrong: Collection[str] = ()) -> None:
    """Check that reports and claims refer to names of runs or labels of points.

    The points of runs that are `wrong`, because they have mistakes, are unknown.
    """
    known = {*names_of(study, variants).known, *study.runs, *study.adopted}
    unknown_points = tuple(f"{name} " for name in (*wrong, *study.adopted))
    mistakes = Mistakes()
    for path, name in _shown_runs(study):
        if not name.startswith(unknown_points):
            with mistakes:
                check_run_name(name, known, path)
    mistakes.check()


def _shown_runs(study: StudySpec) -> Iterator[tuple[Path, str]]:
    """Yield the names and labels of runs in reports and claims, each with its place."""
    for index, report in enumerate(study.reports):
        option = "run" if isinstance(report, LearnabilityOptions) else "baseline"
        named: dict[Path, str | None] = {(option,): getattr(report, option, None)}
        of_runs = report.rows_of_runs if isinstance(report, TableOptions) else getattr(report, "runs", None)
        option = "rows" if isinstance(report, TableOptions) else "runs"
        named |= {(option, str(i)): name for i, name in enumerate(of_runs or ())}
        yield from (
            (("reports", str(index), *place), name) for place, name in named.items() if name is not None
        )
    for index, claim in enumerate(study.claims):
        for key, side in (("of", claim.of), (claim.comparison, claim.other)):
            yield from ((("claims", str(index), key, *below), name) for below, name in side.named())


def names_of(study: StudySpec, variants: Sequence[Variant]) -> Names:
    """Return the display names of a study's runs at their points."""
    return Names(study.to_dict(), [(each.name, each.label, each.point) for each in variants])


def check_display_names(study: StudySpec, variants: Sequence[Variant]) -> None:
    """Check that each display name identifies a run."""
    if all(run.label is None for run in study.runs.values()) and not any(axis.labels for axis in study.axes):
        return
    names = names_of(study, variants)
    taken = {each.name: each for each in variants} | {each.label: each for each in variants}
    seen: dict[str, Variant] = {}
    for each in variants:
        text = names.shown[each.label]
        other = seen.setdefault(text, each)
        if other is not each:
            both = f"{each.label!r} and {other.label!r} are both shown as {text!r}"
            raise SpecError(_label_place(study, each), f"{both}: give them different labels")
        if text in taken and taken[text].name != each.name:
            problem = f"{each.label!r} is shown as {text!r}, the name of another run: give it another label"
            raise SpecError(_label_place(study, each), problem)


def _label_place(study: StudySpec, variant: Variant) -> Path:
    """Return the place of a display name: the run's own label, else the labels of an axis."""
    run = study.runs[variant.name]
    for index, axis in enumerate(study.axes):
        if run.label is None and axis.labels and variant.name in axis.runs:
            return ("axes", str(index), LABELS)
    return ("runs", variant.name, LABEL)
