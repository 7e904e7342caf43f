"""Meaning of metrics: whether higher or lower is better, their units, and how values are written.

A spec declares the metrics of its programs (`metrics`). `OF_PROGRAM` declares those of jestlab's programs. A
metric without a declaration has no goal and is not ranked: a goal is never inferred from values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, model_serializer
from pydantic.dataclasses import dataclass

from .errors import RequestError, printable
from .units import HUGEST_WRITTEN, some

Goal = Literal["max", "min"]
"""Whether higher or lower is better."""

Scale = Literal["linear", "log"]
"""Scale of the metric's axis."""

PERCENT, OF_HUNDRED, RAW = "percent", "%", "raw"
_MOST_SHARE = 2.0  # 200%: a metric in percent that exceeds it isn't recorded as a share of 1


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Metric:
    """Meaning of a metric.

    Attributes:
        goal: max if higher is better, min if lower is better; null if undeclared: it is then not ranked.
        unit: "percent": a share of 1 that is shown in percent; "%": a percentage that is recorded from 0 to
            100; "raw": a number without a unit; or the name of the unit, such as "dB".
        name: Display name; empty for the recorded name.
        digits: Digits after the decimal point; null for one digit in percentages, and for four significant
            digits in other numbers.
        scale: Scale of the metric's axis.
    """

    goal: Goal | None = None
    unit: Annotated[str, Field(min_length=1, max_length=16), AfterValidator(printable)] = RAW
    name: Annotated[str, AfterValidator(printable)] = ""
    digits: Annotated[int, Field(strict=True, ge=0, le=12)] | None = None
    scale: Scale = "linear"

    @model_serializer
    def written(self) -> dict[str, Any]:
        """Return the declaration as written in a spec, without defaults."""
        return {key: value for key, value in vars(self).items() if value != getattr(Metric, key)}

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
        """Format a value as in tables; `sign` "+" adds a plus sign to positive values."""
        return self.texts([value], sign)[0]

    def texts(self, values: Iterable[float], sign: str = "") -> list[str]:
        """Format values as `text` does, which is faster for many values together."""
        factor, digits = self.factor, 1 if self.digits is None and self.in_percent else self.digits
        general = f"{sign}.4g"
        usual = general if digits is None else f"{sign}.{digits}f"
        scaled = [factor * value for value in values]
        forms = (usual if abs(value) < HUGEST_WRITTEN else general for value in scaled)
        return [format(value, form).replace("-", "−") for value, form in zip(scaled, forms, strict=True)]

    def rank(self, value: float) -> float:
        """Round a value to the shown digits, negated if lower is better; NaN without a goal."""
        return self.sign * float(self.text(value).replace("−", "-"))


UNKNOWN = Metric()
"""The meaning of a metric without a declaration."""

_DECLARATIONS = TypeAdapter(dict[str, Metric])

_ACCURACY = Metric("max", PERCENT)

_OF_TRAINING = (
    "examples_seen", "distinct_examples", "flops_total", "grad_norm", "temperature", "bias", "score_selected",
    "score_super_batch", "score_sub_batch",
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
"""Program → name or pattern → meaning. Metrics without a goal are not ranked."""


@dataclass(frozen=True)
class Metrics:
    """Meaning of the metrics of a study.

    Attributes:
        declared: Declarations of the spec, by name or pattern.
        programs: Programs of the study's runs.
        digits: Digits after the decimal point of all metrics; None for each metric's own.
    """

    declared: Mapping[str, Metric] = field(default_factory=dict)
    programs: tuple[str, ...] = ()
    digits: int | None = None

    @classmethod
    def of_spec(cls, spec: Mapping[str, Any], programs: Iterable[str]) -> Metrics:
        """Take the metrics of a resolved spec. Those of a union override those of its studies."""
        specs = (*reversed((spec.get("studies") or {}).values()), spec)
        written = {name: metric for part in specs for name, metric in (part.get("metrics") or {}).items()}
        return cls(_DECLARATIONS.validate_python(written), tuple(dict.fromkeys(programs)))

    def of(self, name: str) -> Metric:
        """Return the meaning of a metric, by the spec or else by a program; `UNKNOWN` without a declaration.

        If the spec's declaration has no goal, it overrides single keys of the program's declaration.
        """
        declarations: list[Metric] = []
        for layer in (self.declared, *(OF_PROGRAM.get(program, {}) for program in self.programs)):
            matches = (metric for pattern, metric in layer.items() if fnmatchcase(name, pattern))
            if (metric := layer.get(name) or next(matches, None)) is not None:
                declarations.append(metric)
        if declarations and declarations[0].goal is None:
            keys = {key: v for metric in reversed(declarations) for key, v in metric.written().items()}
            declarations = [Metric(**keys)]
        metric = declarations[0] if declarations else UNKNOWN
        return metric if self.digits is None else replace(metric, digits=self.digits)

    def rescaled(self, largest: Mapping[str, float]) -> Metrics:
        """Take metrics that the spec declares in percent as recorded from 0 to 100 where a share can't be.

        `largest` has the largest finite absolute value of metrics, by name.
        """
        names = [name for name, most in largest.items() if most > _MOST_SHARE]
        metrics = {name: Metrics(self.declared).of(name) for name in names}
        of_hundred = {name: metric.of_hundred for name, metric in metrics.items() if metric.in_percent}
        return replace(self, declared={**self.declared, **of_hundred})

    def called(self, names: Iterable[str]) -> dict[str, str]:
        """Map each name to its declared display name, or to itself if several metrics share that name."""
        shown_names = {name: self.of(name).name or name for name in names}
        times = Counter(shown_names.values())
        return {name: text if times[text] == 1 else name for name, text in shown_names.items()}

    def in_order(self, names: Sequence[str]) -> list[str]:
        """Return the names that the spec declares, in the order of the spec."""
        matches = (name for pattern in self.declared for name in names if fnmatchcase(name, pattern))
        return list(dict.fromkeys(matches))

    @property
    def names(self) -> list[str]:
        """The declared names, without patterns."""
        return [name for name in self.declared if not any(sign in name for sign in "*?[")]

    def mean(self, names: Sequence[str]) -> Metric:
        """Return the meaning of the mean of one or several metrics.

        Raises:
            RequestError: A name is repeated, or the metrics differ in goal or unit.
        """
        if repeated := [name for name, times in Counter(names).items() if times > 1]:
            raise RequestError(f"{some(repeated)} would count more than once: name each evaluation once")
        metrics = [self.of(name) for name in names]
        if len(metrics) == 1:
            return metrics[0]
        if len({(metric.goal, metric.unit) for metric in metrics}) > 1:
            pairs = zip(names, metrics, strict=True)
            different = [f"{name} ({metric.goal or 'no goal'}, {metric.unit})" for name, metric in pairs]
            remedy = "name one metric, or several of the same goal and unit, as `score`"
            if {metric.unit for metric in metrics} == {PERCENT, OF_HUNDRED}:
                remedy = "declare unit: '%' for those recorded from 0 to 100, percent for shares of 1"
            raise RequestError(f"{some(different)} have no mean, since their goals or units differ: {remedy}")
        first, *others = metrics
        shared = (key for key in ("digits", "scale") if all(vars(first)[key] == vars(m)[key] for m in others))
        return Metric(first.goal, first.unit, **{key: vars(first)[key] for key in shared})


def lacks_goal(names: Sequence[str]) -> str:
    """Say that metrics have no goal, with the remedy."""
    return (
        f"{some(list(names))} {'has' if len(names) == 1 else 'have'} no goal: say in the spec whether more "
        f"or less is better, metrics: {{{names[0]}: {{goal: max}}}} or {{goal: min}}, and launch it again "
        "(nothing is run again)"
    )
