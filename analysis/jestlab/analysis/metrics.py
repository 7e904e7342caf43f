"""Meaning of metrics: whether higher or lower is better, their units, and how values are written.

A spec declares the metrics of its programs (`metrics`). `OF_PROGRAM` declares those of jestlab's programs. A
metric without a declaration has no goal and is not ranked: nothing is inferred from values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from .errors import RequestError
from .units import HUGEST_WRITTEN, nearest, some
from .words import shown

Path = tuple[str, ...]
"""A place in a spec: `("metrics", "loss", "goal")`."""

Goal = Literal["max", "min"]
"""Whether higher or lower is better."""

Scale = Literal["linear", "log"]
"""Scale of the metric's axis."""

PERCENT, OF_HUNDRED, RAW = "percent", "%", "raw"
MOST_SHARE = 2.0  # 200%: a metric in percent that exceeds it isn't recorded as a share of 1


class MetricError(RequestError):
    """An invalid declaration: `message` describes the error at `path`."""

    def __init__(self, path: Path, message: str) -> None:
        self.path = path
        self.message = message
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "goal": ("max or min", lambda goal: goal in get_args(Goal)),
    "unit": (
        "a word of at most 16 characters, such as percent, raw, or dB",
        lambda unit: _is_word(unit) and len(unit) <= 16,
    ),
    "name": ("a word", _is_word),
    "digits": ("a whole number from 0 to 12", lambda n: type(n) is int and 0 <= n <= 12),
    "scale": ("linear or log", lambda scale: scale in get_args(Scale)),
}
"""Key of a declaration → which values are valid, and how to tell."""


@dataclass(frozen=True)
class Metric:
    """Meaning of a metric.

    Attributes:
        goal: max if higher is better, min if lower is better; null if undeclared, which is not ranked.
        unit: "percent": a share of 1 that is shown in percent; "%": a percentage that is recorded from 0 to
            100; "raw": a number without a unit; or the name of the unit, such as "dB".
        name: Shown name; empty for the name by which the metric is recorded.
        digits: Digits after the decimal point; null for one digit of a percentage, and for four significant
            digits of other numbers.
        scale: Scale of the metric's axis.
    """

    goal: Goal | None = None
    unit: str = RAW
    name: str = ""
    digits: int | None = None
    scale: Scale = "linear"

    @classmethod
    def parse(cls, written: Any, path: Path = ()) -> Metric:
        """Parse a declaration of a spec.

        Raises:
            MetricError: The declaration is invalid; the error has its place below `path`.
        """
        if isinstance(written, Metric):
            return written
        if not isinstance(written, Mapping):
            raise MetricError(
                path, f"must be a mapping such as {{goal: max, unit: percent}}, not {shown(written)}"
            )
        values = {str(key): value for key, value in written.items() if value is not None}
        for key, value in values.items():
            if key not in _KEYS:
                raise MetricError((*path, key), f"unknown key: {nearest(key, _KEYS)}")
            expected, is_valid = _KEYS[key]
            if not is_valid(value):
                raise MetricError((*path, key), f"must be {expected}, not {shown(value)}")
        return cls(**values)

    def written(self) -> dict[str, Any]:
        """Return the declaration as a spec has it, without defaults."""
        default = Metric()
        return {key: value for key in _KEYS if (value := getattr(self, key)) != getattr(default, key)}

    @property
    def sign(self) -> float:
        """The factor that makes higher values better: 1, −1 if lower is better, or NaN without a goal."""
        return {"max": 1.0, "min": -1.0, None: math.nan}[self.goal]

    @property
    def in_percent(self) -> bool:
        """Whether the metric is a share of 1 that is shown in percent."""
        return self.unit == PERCENT

    @property
    def factor(self) -> float:
        """The factor from recorded to shown values."""
        return 100.0 if self.in_percent else 1.0

    @property
    def suffix(self) -> str:
        """The unit in headings and on axes: "%", "dB"; empty without a unit."""
        return "%" if self.in_percent else "" if self.unit == RAW else self.unit

    @property
    def of_differences(self) -> str:
        """The unit of a difference: "points" of a percentage; empty without a unit."""
        return "points" if self.suffix == "%" else self.suffix

    @property
    def of_hundred(self) -> Metric:
        """The same metric, recorded from 0 to 100 instead of as a share."""
        return replace(self, unit=OF_HUNDRED, digits=1 if self.digits is None else self.digits)

    @property
    def arrow(self) -> str:
        """↑ if higher is better, ↓ if lower is better."""
        return {"max": "↑", "min": "↓", None: ""}[self.goal]

    def text(self, value: float, sign: str = "") -> str:
        """Write a value as in tables; `sign` "+" adds a plus sign to positive values."""
        scaled = self.factor * value
        if (self.digits is None and not self.in_percent) or not abs(scaled) < HUGEST_WRITTEN:
            text = f"{scaled:{sign}.4g}"
        else:
            text = f"{scaled:{sign}.{1 if self.digits is None else self.digits}f}"
        return text.replace("-", "−")

    def rounded(self, value: float) -> float:
        """Round a value to the shown digits, for comparisons."""
        return float(self.text(value).replace("−", "-"))

    def rank(self, value: float) -> float:
        """Round a value to the shown digits, with the sign that makes higher better; NaN without a goal."""
        return self.sign * self.rounded(value)


UNKNOWN = Metric()
"""The meaning of a metric without a declaration."""


def parse_metrics(written: Any) -> dict[str, Metric]:
    """Parse the metrics of a spec.

    Args:
        written: Name → declaration, where `*` in a name matches any text; None without metrics.

    Raises:
        MetricError: A declaration is invalid; the error has its place.
    """
    if written is None:
        return {}
    if not isinstance(written, Mapping):
        raise MetricError(
            ("metrics",),
            f"must be a mapping such as {{wiki/perplexity: {{goal: min}}}}, not {shown(written)}",
        )
    for name in written:
        if not _is_word(name):
            raise MetricError(
                ("metrics",), f"a metric's name is a word such as wiki/perplexity, not {shown(name)}"
            )
    return {name: Metric.parse(each, ("metrics", name)) for name, each in written.items()}


_ACCURACY = Metric("max", PERCENT)

_OF_TRAINING = (
    "examples_seen", "distinct_examples", "flops_total", "grad_norm", "temperature", "bias", "score_selected",
    "score_super_batch", "score_sub_batch", "selected_again",
)  # fmt: skip

_SELECTED = {"selected/*": Metric(), "effective_sample_size*": Metric()}

OF_PROGRAM: dict[str, dict[str, Metric]] = {
    "train": {
        "*/zero_shot": _ACCURACY,
        "*/*_shot": _ACCURACY,
        "*/i2t_r*": _ACCURACY,
        "*/t2i_r*": _ACCURACY,
        "loss": Metric("min"),
        **dict.fromkeys(_OF_TRAINING, Metric()),
        **_SELECTED,
    },
    "embed": dict.fromkeys(("examples_embedded", "examples_damaged", "examples_per_second"), Metric()),
    "score": {},
    "weights": {},
    "diagnose": {"learnability*": Metric(), **_SELECTED},
}
"""Program → name or pattern → meaning. Metrics without a goal have no better values."""


@dataclass(frozen=True)
class Metrics:
    """Meaning of the metrics of a study.

    Attributes:
        declared: Declarations of the spec, by name or pattern.
        programs: Programs of the study's runs.
    """

    declared: Mapping[str, Metric] = field(default_factory=dict)
    programs: tuple[str, ...] = ()

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any], programs: Iterable[str]) -> Metrics:
        """Take the metrics of a resolved spec. Those of a union override those of its studies."""
        declared = parse_metrics(spec.get("metrics"))
        for part in (spec.get("studies") or {}).values():
            declared = parse_metrics(part.get("metrics")) | declared
        return cls(declared, tuple(dict.fromkeys(programs)))

    def find(self, name: str) -> Metric | None:
        """Find the meaning of a metric, by the spec or else by a program; None without a declaration.

        A declaration without a goal in the spec overrides single keys of the program's.
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
        """Return the meaning of a metric; `UNKNOWN` without a declaration."""
        return self.find(name) or UNKNOWN

    def called(self, names: Iterable[str]) -> dict[str, str]:
        """Map each name to the declared name to show, unless several metrics have the same."""
        shown_names = {name: self.of(name).name or name for name in names}
        times = Counter(shown_names.values())
        return {name: text if times[text] == 1 else name for name, text in shown_names.items()}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return those of the names that the spec declares, in the order of the spec."""
        names = list(names)
        matches = (name for pattern in self.declared for name in names if fnmatchcase(name, pattern))
        return list(dict.fromkeys(matches))

    @property
    def names(self) -> list[str]:
        """The declared names, without patterns."""
        return [name for name in self.declared if not any(sign in name for sign in "*?[")]

    def mean(self, names: Sequence[str]) -> Metric:
        """Return the meaning of the mean of metrics.

        Args:
            names: Names of one or several metrics.

        Raises:
            ValueError: There are no names, a name is repeated, or the metrics differ in goal or unit.
        """
        if not names:
            raise RequestError("a score needs at least one metric")
        if repeated := [name for name, times in Counter(names).items() if times > 1]:
            raise RequestError(f"{some(repeated)} would count more than once: name each evaluation once")
        found = [self.of(name) for name in names]
        if len(found) == 1:
            return found[0]
        if len({(each.goal, each.unit) for each in found}) > 1:
            pairs = zip(names, found, strict=True)
            different = [f"{name} ({each.goal or 'no goal'}, {each.unit})" for name, each in pairs]
            remedy = "name one metric, or several of the same goal and unit, as `score`"
            if {each.unit for each in found} == {PERCENT, OF_HUNDRED}:
                remedy = "declare unit: '%' for those recorded from 0 to 100, percent for shares of 1"
            raise RequestError(f"{some(different)} have no mean, since their goals or units differ: {remedy}")
        digits, scales = {each.digits for each in found}, {each.scale for each in found}
        return Metric(
            found[0].goal,
            found[0].unit,
            digits=digits.pop() if len(digits) == 1 else None,
            scale=scales.pop() if len(scales) == 1 else "linear",
        )


NONE_DECLARED = Metrics()
"""Metrics without any declaration."""


def lacks_goal(names: Sequence[str]) -> str:
    """Write that metrics have no goal, and the remedy."""
    return (
        f"{some(list(names))} {'has' if len(names) == 1 else 'have'} no goal: say in the spec whether more "
        f"or less is better, metrics: {{{names[0]}: {{goal: max}}}} or {{goal: min}}, and launch it again "
        "(nothing is run again)"
    )
