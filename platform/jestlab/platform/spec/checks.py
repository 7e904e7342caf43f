"""Checks of the names in a study: reserved names, names of runs, and display names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jestlab.analysis.names import Names
from jestlab.platform.errors import Mistakes, Path, SpecError, nearest, shown, within
from jestlab.platform.spec.axes import LABELS
from jestlab.platform.spec.options import REPORTS, TABLES, LearnabilityOptions, TableOptions
from jestlab.platform.spec.runs import LABEL
from jestlab.platform.spec.tree import STUDIES, flatten

if TYPE_CHECKING:
    from jestlab.platform.spec.expand import Variant
    from jestlab.platform.spec.schema import Study

_OF_COMMANDS = ("command", "cwd")


# ---- names of runs in any study


def check_run_name(name: str, known: Collection[str], path: Path) -> None:
    """Check that a name is known; a SpecError suggests the nearest."""
    if name not in known:
        raise SpecError(path, f"no run {name!r}: {nearest(name, known)}")


def check_references(study: Study, variants: Sequence[Variant], wrong: Collection[str] = ()) -> None:
    """Check that reports and claims refer to names of runs or labels of points.

    Args:
        study: The study.
        variants: The variants of its runs.
        wrong: Runs with unknown points, because they have mistakes.
    """
    known = {*names_of(study, variants).known, *study.runs, *study.adopted}
    unknown_points = tuple(f"{name} " for name in (*wrong, *study.adopted))
    mistakes = Mistakes()
    for path, name in _shown_runs(study):
        if not name.startswith(unknown_points):
            with mistakes:
                check_run_name(name, known, path)
    mistakes.check()


def _shown_runs(study: Study) -> Iterator[tuple[Path, str]]:
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


def names_of(study: Study, variants: Sequence[Variant]) -> Names:
    """Return the display names of a study's runs at their points."""
    return Names(study.to_dict(), [(each.name, each.label, each.point) for each in variants])


def check_display_names(study: Study, variants: Sequence[Variant]) -> None:
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


def _label_place(study: Study, variant: Variant) -> Path:
    """Return the place of a display name: the run's own label, else the labels of an axis."""
    run = study.runs[variant.name]
    for index, axis in enumerate(study.axes):
        if run.label is None and axis.labels and variant.name in axis.runs:
            return ("axes", str(index), LABELS)
    return ("runs", variant.name, LABEL)


# ---- names in a spec; a study from the store passes without these checks


def check_names(study: Study, registered: Collection[str]) -> None:
    """Check that a study and its parts don't have the name of a table or a kind of report.

    Args:
        study: The study.
        registered: Names of registered studies, which parts may have.

    Raises:
        SpecError: A name is reserved.
    """
    if what := _reserved(study.name):
        problem = f"{study.name!r} is the name of {what}: choose another one, such as my_{study.name}"
        raise SpecError(("name",), problem)
    for name in study.studies:
        if name not in registered and (what := _reserved(name)):
            problem = f"is the name of {what}: choose another one, such as my_{name}"
            raise SpecError((STUDIES, name), problem)


def _reserved(name: str) -> str | None:
    if name in TABLES:
        return f"a table (`jestlab table {name}`)"
    return "a kind of report" if name in REPORTS else None


def check_texts(study: Study) -> None:
    """Check that no text in a free-form config is the name of a run, which may be an intended dependency.

    `init: pretrain` reaches the program as a text, and the run doesn't wait for `pretrain`. The text is
    accepted if the other run has it at the same key, or if `needs: {init: null}` declares it a text.

    Raises:
        SpecError: There is such a text.
    """
    mistakes = Mistakes()
    for name, part in study.studies.items():
        with mistakes, within(STUDIES, name):
            check_texts(part)
    mistakes.check()
    if study.studies:
        return
    values: dict[str, set[tuple[str, Any]]] = defaultdict(set)
    free: list[tuple[Variant, dict[str, str]]] = []
    for variant in {id(member.variant): member.variant for member in study.members}.values():
        if isinstance(variant.config, dict):
            texts = {key: value for key, value in flatten(variant.config).items() if isinstance(value, str)}
            values[variant.name] |= set(texts.items())
            free.append((variant, texts))
    for variant, texts in free:
        run = study.runs[variant.name]
        for key, value in texts.items():
            is_other = value in study.runs and value != variant.name and (key, value) not in values[value]
            if is_other and value not in run.needs.values() and key not in (*run.texts, *_OF_COMMANDS):
                problem = (
                    f"{key} is the text {shown(value)}, which is also the name of a run: to depend on that "
                    f"run, write `needs: {{{key}: {value}}}`; to keep the text, add `needs: {{{key}: null}}`"
                )
                mistakes.add([SpecError(("runs", variant.name), problem)])
    mistakes.check()
