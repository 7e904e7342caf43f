"""The runs of a study at the points of their axes, and the checks of names that refer to them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jestlab.analysis.names import Names
from jestlab.platform import plugins
from jestlab.platform.errors import Path, SpecError, nearest, within
from jestlab.platform.spec.axes import Point
from jestlab.platform.spec.options import REPORTS, TABLES, custom_code
from jestlab.platform.spec.program import Config, ProgramConfig
from jestlab.platform.spec.runs import Match
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import STUDIES


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
    """A run at one point of its axes. Its replicates differ only in the seed.

    Attributes:
        label: Name and values on the axes, which identify the variant in the store.
        point: Values on the axes, by dotted key.
        config: Validated; a plain dict where the program has no schema.
        references: The runs that it refers to, with the place of each name.
        match: The run whose FLOPs or seconds it matches; None if the config sets the training length.
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
        needs: Role → position of the dependency among the study's members, which is before this member.
        match: Position of the run whose budget it matches, also before this member; None without `match`.
    """

    variant: Variant
    seed: int
    config: Config
    needs: Mapping[str, int]
    match: int | None = None


def unknown_run(name: str, known: Collection[str], path: Path) -> Iterator[SpecError]:
    """Yield an error with the nearest name if a name is unknown."""
    if name not in known:
        yield SpecError(path, f"no run {name!r}: {nearest(name, known)}")


def name_errors(
    study: StudySpec, variants: Sequence[Variant], wrong: Collection[str] = ()
) -> Iterator[SpecError]:
    """Check that each display name identifies one run, and that reports and claims refer to existing runs.

    `wrong` are runs with mistakes, whose points are unknown: references to their points aren't checked.
    """
    names = Names(study.to_dict(), [(each.name, each.label, each.point) for each in variants])
    for each in variants:
        text = names.shown[each.label]
        if (first := names.meant(text)[0]) != each.label:
            problem = f"{each.label!r} is shown as {text!r}, which means {first!r}: give it another label"
            yield SpecError(("runs", each.name), problem)
    best = [getattr(report, "best", {}) for report in study.reports]
    known = {*names.known, *study.runs, *study.adopted}.union(*best)
    unknown_points = tuple(f"{name} " for name in (*wrong, *study.adopted))
    for path, name in _named_runs(study):
        if not name.startswith(unknown_points):
            yield from unknown_run(name, known, path)


def _named_runs(study: StudySpec) -> Iterator[tuple[Path, str]]:
    """Yield the names and labels of runs in reports and claims, each with its place."""
    for index, report in enumerate(study.reports):
        place = ("reports", str(index))
        for option in ("run", "baseline"):
            if (name := getattr(report, option, None)) is not None:
                yield (*place, option), name
        for option, field in (("runs", "runs"), ("rows", "rows_of_runs")):
            yield from (((*place, option, str(i)), name) for i, name in enumerate(getattr(report, field, ())))
        for row, choice in getattr(report, "best", {}).items():
            yield from (((*place, "best", row, "of", str(i)), name) for i, name in enumerate(choice.of))
    for index, claim in enumerate(study.claims):
        for key, side in zip(claim.keys, claim.sides, strict=True):
            yield from ((("claims", str(index), key, *below), name) for below, name in side.named())


# ---- checks of a spec that is loaded; a study from the store passes without them


def check_names(study: StudySpec, registered: Collection[str]) -> None:
    """Check that a study and its parts don't have the name of a table or a kind of report.

    Args:
        study: The study.
        registered: Names of registered studies, which parts may have.

    Raises:
        SpecError: A name is reserved.
    """
    places: dict[Path, str] = {("name",): study.name}
    places |= {(STUDIES, name): name for name in study.studies if name not in registered}
    for path, name in places.items():
        if name in TABLES or name in REPORTS:
            what = f"a table (`jestlab table {name}`)" if name in TABLES else "a kind of report"
            raise SpecError(path, f"{name!r} is the name of {what}: choose another one, such as my_{name}")


def check_custom_code(study: StudySpec) -> None:
    """Check that the custom figures and tables of a study exist and accept their options. Executes nothing.

    Raises:
        SpecError: A figure or table doesn't exist or rejects its options. The path names the report.
    """
    for name, part in study.studies.items():
        with within(STUDIES, name):
            check_custom_code(part)
    for i, report in enumerate(study.reports):
        if (code := custom_code(report)) is not None:
            try:
                plugins.check(*code, "options")
            except ValueError as error:
                field = "kind" if code[0] == "figure" else "name"
                raise SpecError(("reports", str(i), field), str(error)) from None
