"""What tables and figures call runs and the values on their axes: `label` of a run, `labels` of an axis.

They change what is shown, not what is run: no part of a run's identity. `analysis.names` composes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from jestlab.analysis.names import NAME, Names, value_text
from jestlab.platform.errors import Path, SpecError, nearest, shown
from jestlab.platform.spec.config_tree import is_mapping

if TYPE_CHECKING:
    from jestlab.platform.spec.expand import Variant
    from jestlab.platform.spec.schema import Study

LABEL = "label"
"""The key beside a run's overrides that says what is shown for it."""

LABELS = "labels"
"""The key of an axis that says what is shown for its keys and their values."""

_LONGEST = 80

AxisLabels = dict[str, dict[str, str]]
"""Dotted key → its name, under "name", and the texts of its values, by the values as labels write them."""


def parse_label(given: Any, path: Path) -> str | None:
    """Parse the `label` of a run; empty for one that its axes' values stand for."""
    return None if given is None else _text(given, path)


def parse_labels(given: Any, values: Mapping[str, Iterable[Any]], path: Path) -> AxisLabels:
    """Parse the `labels` of an axis.

    Args:
        given: Dotted key → its name and the texts of its values: `{selection.filtering_ratio: {name: f, 0.5:
            50%}}`; None for none.
        values: Dotted key of the axis → its values.
        path: The place of the labels.

    Raises:
        SpecError: They have another form, or a key or value that is not on the axis; the place is named.
    """
    if given is None:
        return {}
    if not is_mapping(given):
        example = "{selection.filtering_ratio: {name: f, 0.5: 50%}}"
        raise SpecError(path, f"must be a mapping such as {example}, not {shown(given)}")
    parsed: AxisLabels = {}
    for key, texts in given.items():
        here = (*path, *str(key).split("."))
        if key not in values:
            raise SpecError(here, f"the axis has no key {str(key)!r}: {nearest(str(key), values)}")
        if not is_mapping(texts):
            raise SpecError(here, f"must be a mapping of `{NAME}` and of texts by value, not {shown(texts)}")
        known = {value_text(value): value for value in values[key]}
        parsed[key] = {}
        for value, text in texts.items():
            place = (*here, value_text(value))
            found = NAME if value == NAME else _written(value, known)
            if found is None:
                raise SpecError(
                    place,
                    f"the axis has no value {shown(value)} of {key}: {nearest(value_text(value), known)}",
                )
            parsed[key][found] = _text(text, place)
    return parsed


def without_stale(labels: AxisLabels, values: Mapping[str, Iterable[Any]]) -> AxisLabels:
    """Keep the labels of values that are on the axis, where an override has given it others."""
    kept = {
        key: {
            value: text
            for value, text in texts.items()
            if value == NAME or value in set(map(value_text, values[key]))
        }
        for key, texts in labels.items()
        if key in values
    }
    return {key: texts for key, texts in kept.items() if texts}


def names_of(study: Study, variants: Iterable[Variant]) -> Names:
    """Return the names of a study's runs at their points."""
    return Names(_said(study), [(each.name, each.label, each.point) for each in variants])


def _said(study: Study) -> dict[str, Any]:
    """What a study says of names, in the form that the store keeps."""
    return {
        "runs": {name: {LABEL: run.label} for name, run in study.runs.items()},
        "axes": [{"runs": axis.runs, LABELS: axis.labels} for axis in study.axes],
        "studies": {name: _said(part) for name, part in study.studies.items()},
    }


def check_shown(study: Study, variants: Iterable[Variant]) -> None:
    """Refuse names that do not say which run is shown.

    Raises:
        SpecError: Two runs have the same one, or one has the name of another run; the place is named.
    """
    if not any(run.label is not None for run in study.runs.values()) and not any(
        axis.labels for axis in study.axes
    ):
        return
    variants = list(variants)
    names = names_of(study, variants)
    taken = {each.name: each for each in variants} | {each.label: each for each in variants}
    seen: dict[str, Variant] = {}
    for each in variants:
        text = names.shown[each.label]
        other = seen.setdefault(text, each)
        if other is not each:
            raise SpecError(
                _place(study, each),
                f"{each.label!r} and {other.label!r} are both shown as {text!r}: give them different labels",
            )
    for text, each in seen.items():
        if text in taken and taken[text].name != each.name:
            raise SpecError(
                _place(study, each),
                f"{each.label!r} is shown as {text!r}, the name of another run: give it another label",
            )


def _place(study: Study, variant: Variant) -> Path:
    """Where the name of a run comes from: its own label, else the first axis with labels that it is on."""
    run = study.runs[variant.name]
    for index, axis in enumerate(study.axes):
        if run.label is None and axis.labels and variant.name in axis.runs:
            return ("axes", str(index), LABELS)
    return ("runs", variant.name, LABEL)


def _written(value: Any, known: Mapping[str, Any]) -> str | None:
    """Find a value of an axis as labels write it; None if it has no such value."""
    text = value_text(value)
    if text in known:
        return text
    equal = (
        text
        for text, each in known.items()
        if isinstance(each, int | float) and not isinstance(each, bool) and not isinstance(value, bool)
        and each == value
    )  # fmt: skip
    return next(equal, None)


def _text(given: Any, path: Path) -> str:
    if isinstance(given, int | float) and not isinstance(given, bool):
        given = value_text(given)
    if not isinstance(given, str) or not given.isprintable() or given != given.strip():
        raise SpecError(path, f"must be a text on one line, as tables show it, not {shown(given)}")
    if len(given) > _LONGEST:
        raise SpecError(path, f"is longer than {_LONGEST} characters")
    return given
