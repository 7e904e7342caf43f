"""What metrics mean: whether more or less is better, in what unit they are, and how they are written.

A spec declares the metrics of its programs (`metrics`); those of jestlab's own programs are in `OF_PROGRAM`.
Nothing is guessed from values: a metric that nobody declares has no goal, and is not ranked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from .units import HUGEST_WRITTEN, some
from .written import Path, WrittenError, shown
from .written import given as given_in

Goal = Literal["max", "min"]
"""Whether more is better, or less."""

Scale = Literal["linear", "log"]
"""Scale of the axis that a metric is drawn on."""

PERCENT, OF_HUNDRED, RAW = "percent", "%", "raw"
MOST_SHARE = 2.0  # 200%: a metric in percent that exceeds it isn't recorded as a share of 1
_LONGEST_UNIT = 16
_MOST_DIGITS = 12
_FIELDS = ("goal", "unit", "name", "digits", "scale")


class MetricError(WrittenError):
    """An invalid declaration."""


@dataclass(frozen=True)
class Metric:
    """What a metric means.

    Attributes:
        goal: Whether more or less is better: max or min. A metric that nobody declares has none, and nothing
            is ranked by it.
        unit: "percent": a share of 1 that people read in percent; "%": a percentage that is recorded from 0
            to 100; "raw": a number without a unit; or the unit's name, such as "dB".
        name: What people call it; empty for the name by which it is recorded.
        digits: Digits behind the decimal point; null for one of a percentage, and for four significant digits
            of another number.
        scale: Scale of the axis that it is drawn on.
    """

    goal: Goal | None = None
    unit: str = RAW
    name: str = ""
    digits: int | None = None
    scale: Scale = "linear"

    @classmethod
    def parse(cls, written: Any, path: Path = ()) -> Metric:
        """Parse the form that a spec has it in.

        Raises:
            MetricError: It has another form; the place is named, below `path`.
        """
        if isinstance(written, Metric):
            return written
        if not isinstance(written, Mapping):
            raise MetricError(
                path, f"must be a mapping such as {{goal: max, unit: percent}}, not {shown(written)}"
            )
        given = given_in(written, _FIELDS, path, MetricError)
        for key, choices in (("goal", get_args(Goal)), ("scale", get_args(Scale))):
            if key in given and given[key] not in choices:
                raise MetricError((*path, key), f"must be {' or '.join(choices)}, not {shown(given[key])}")
        for key in ("unit", "name"):
            text = given.get(key, "x")
            if not isinstance(text, str) or not text.strip() or not text.isprintable():
                raise MetricError((*path, key), f"must be a word, not {shown(text)}")
        if len(given.get("unit", "")) > _LONGEST_UNIT:
            raise MetricError(
                (*path, "unit"), f"is longer than {_LONGEST_UNIT} characters: percent, raw, dB, …"
            )
        digits = given.get("digits", 0)
        if not isinstance(digits, int) or isinstance(digits, bool) or not 0 <= digits <= _MOST_DIGITS:
            raise MetricError(
                (*path, "digits"), f"must be a whole number from 0 to {_MOST_DIGITS}, not {shown(digits)}"
            )
        return cls(**given)

    def written(self) -> dict[str, Any]:
        """Write it as a spec has it, without defaults."""
        plain = Metric()
        return {key: value for key in _FIELDS if (value := getattr(self, key)) != getattr(plain, key)}

    @property
    def sign(self) -> float:
        """What values are multiplied by so that more is better: 1, or −1 if less is; NaN without a goal."""
        return math.nan if self.goal is None else 1.0 if self.goal == "max" else -1.0

    @property
    def in_percent(self) -> bool:
        """Whether it is a share that people read in percent."""
        return self.unit == PERCENT

    @property
    def factor(self) -> float:
        """What values are multiplied by to be shown."""
        return 100.0 if self.in_percent else 1.0

    @property
    def suffix(self) -> str:
        """Its unit as headings and axes have it: "%", "dB"; empty where there is none."""
        return "%" if self.in_percent else "" if self.unit == RAW else self.unit

    @property
    def of_differences(self) -> str:
        """The unit of a difference: "points" of a percentage; empty where there is none."""
        return "points" if self.suffix == "%" else self.suffix

    @property
    def of_hundred(self) -> Metric:
        """The same, of values that are recorded from 0 to 100 instead of as shares."""
        return replace(self, unit=OF_HUNDRED, digits=1 if self.digits is None else self.digits)

    @property
    def arrow(self) -> str:
        """↑ where more is better, ↓ where less is."""
        return {"max": "↑", "min": "↓", None: ""}[self.goal]

    def text(self, value: float, sign: str = "") -> str:
        """Write a value as tables show it; `sign` "+" writes it before positive ones, too."""
        shown = self.factor * value
        if (self.digits is None and not self.in_percent) or not abs(shown) < HUGEST_WRITTEN:
            written = f"{shown:{sign}.4g}"
        else:
            written = f"{shown:{sign}.{1 if self.digits is None else self.digits}f}"
        return written.replace("-", "−")

    def rounded(self, value: float) -> float:
        """Round a value as it is shown, for comparison with others."""
        return float(self.text(value).replace("−", "-"))

    def rank(self, value: float) -> float:
        """Round a value as it is shown, so that more is better; NaN without a goal."""
        return self.sign * self.rounded(value)


UNKNOWN = Metric()
"""What a metric means that nobody declares."""


def parse_metrics(written: Any) -> dict[str, Metric]:
    """Parse the metrics of a spec.

    Args:
        written: A mapping from names, in which `*` stands for anything, to what they mean; None for none.

    Raises:
        MetricError: It has another form; the place is named.
    """
    if written is None:
        return {}
    if not isinstance(written, Mapping):
        raise MetricError(
            ("metrics",),
            f"must be a mapping such as {{wiki/perplexity: {{goal: min}}}}, not {shown(written)}",
        )
    for name in written:
        if not isinstance(name, str) or not name.strip():
            raise MetricError(
                ("metrics",), f"a metric's name is a word such as wiki/perplexity, not {shown(name)}"
            )
    return {name: Metric.parse(each, ("metrics", name)) for name, each in written.items()}


_ACCURACY = Metric("max", PERCENT)

_SELECTED = {"selected/*": Metric(), "effective_sample_size*": Metric()}

OF_PROGRAM: dict[str, dict[str, Metric]] = {
    "train": {
        "*/zero_shot": _ACCURACY,
        "*/*_shot": _ACCURACY,
        "*/i2t_r*": _ACCURACY,
        "*/t2i_r*": _ACCURACY,
        "loss": Metric("min"),
        **dict.fromkeys(("examples_seen", "distinct_examples", "flops_total"), Metric()),
        **dict.fromkeys(("grad_norm", "temperature", "bias"), Metric()),
        **dict.fromkeys(
            ("score_selected", "score_super_batch", "score_sub_batch", "selected_again"), Metric()
        ),
        **_SELECTED,
    },
    "embed": dict.fromkeys(("examples_embedded", "examples_damaged", "examples_per_second"), Metric()),
    "score": {},
    "weights": {},
    "diagnose": {"learnability*": Metric(), **_SELECTED},
}
"""Program → what its metrics mean, by patterns of their names; of those without a goal no value is better."""


@dataclass(frozen=True)
class Metrics:
    """What the metrics of a study mean.

    Attributes:
        declared: By the spec, by name or pattern.
        programs: Of the study's runs.
    """

    declared: Mapping[str, Metric] = field(default_factory=dict)
    programs: tuple[str, ...] = ()

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any], programs: Iterable[str]) -> Metrics:
        """Take them from a resolved spec; those of a union from it and its studies, its own first."""
        declared = parse_metrics(spec.get("metrics"))
        for part in (spec.get("studies") or {}).values():
            declared = parse_metrics(part.get("metrics")) | declared
        return cls(declared, tuple(dict.fromkeys(programs)))

    def find(self, name: str) -> Metric | None:
        """Find what a metric means: what the spec says, else what a program says; None if neither does.

        What the spec says without a goal is laid over what a program says.
        """
        found: list[Metric] = []
        for layer in (self.declared, *(OF_PROGRAM.get(program, {}) for program in self.programs)):
            patterns = (each for pattern, each in layer.items() if fnmatchcase(name, pattern))
            if (each := layer.get(name) or next(patterns, None)) is not None:
                found.append(each)
        if not found or found[0].goal is not None:
            return next(iter(found), None)
        return Metric(**{key: value for each in reversed(found) for key, value in each.written().items()})

    def of(self, name: str) -> Metric:
        """Return what a metric means; without a goal if nobody says."""
        return self.find(name) or UNKNOWN

    def called(self, names: Iterable[str]) -> dict[str, str]:
        """Map each of the names to what people call it: as declared, unless several are called the same."""
        declared = {name: self.of(name).name or name for name in names}
        times = Counter(declared.values())
        return {name: text if times[text] == 1 else name for name, text in declared.items()}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that the spec declares, in its order."""
        kept: dict[str, None] = {}
        for pattern in self.declared:
            kept |= dict.fromkeys(name for name in names if name == pattern or fnmatchcase(name, pattern))
        return list(kept)

    @property
    def names(self) -> list[str]:
        """Names that the spec declares, without patterns."""
        return [name for name in self.declared if not any(sign in name for sign in "*?[")]

    def mean(self, names: Sequence[str]) -> Metric:
        """Say what the mean of metrics means.

        Args:
            names: Of one metric, or of several.

        Raises:
            ValueError: There are none, one is named twice, or they have several goals or units.
        """
        if not names:
            raise ValueError("there is no metric to take a score of")
        if repeated := [name for name, times in Counter(names).items() if times > 1]:
            raise ValueError(f"{some(repeated)} would count more than once: name each evaluation once")
        found = [self.of(name) for name in names]
        if len({(each.goal, each.unit) for each in found}) > 1:
            told = [
                f"{name} ({each.goal or 'no goal'}, {each.unit})"
                for name, each in zip(names, found, strict=True)
            ]
            remedy = "name one metric, or several of the same goal and unit, as `score`"
            if {each.unit for each in found} == {PERCENT, OF_HUNDRED}:
                remedy = "declare unit: '%' for those recorded from 0 to 100, percent for shares of 1"
            raise ValueError(f"{some(told)} have no mean, since their goals or units differ: {remedy}")
        if len(names) == 1:
            return found[0]
        digits = {each.digits for each in found}
        scales = {each.scale for each in found}
        return Metric(
            found[0].goal,
            found[0].unit,
            digits=digits.pop() if len(digits) == 1 else None,
            scale=scales.pop() if len(scales) == 1 else "linear",
        )


NONE_DECLARED = Metrics()
"""Metrics of which nobody says what they mean."""


def lacks_goal(names: Sequence[str]) -> str:
    """Say that nobody declares whether more or less of metrics is better, and what to do."""
    return (
        f"{some(list(names))} {'has' if len(names) == 1 else 'have'} no goal: say in the spec whether more "
        f"or less is better, metrics: {{{names[0]}: {{goal: max}}}} or {{goal: min}}, and launch it again "
        "(nothing is run again)"
    )
