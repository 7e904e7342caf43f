"""Solve for the training length at which a run with `match` costs the FLOPs or seconds of another run."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from jestlab.analysis import units
from jestlab.analysis.costs import Scope, matching_examples
from jestlab.platform import programs
from jestlab.platform.errors import UserError
from jestlab.platform.programs import Config, Price, Program
from jestlab.platform.spec.expand import SEED, expand
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.tree import lookup, without

if TYPE_CHECKING:
    from jestlab.platform.store.store import Store


def stored_form(config: Config) -> dict[str, Any]:
    """Return a resolved config in the form that the store keeps."""
    return config.model_dump(mode="json") if isinstance(config, BaseModel) else config


# ---- FLOPs


def examples_within(price: Price | None, budget: Price | None, scope: Scope) -> int:
    """Solve for the number of examples, in whole steps, whose cost is closest to that of another run.

    Args:
        price: Price of the run at any training length, on which the cost of one example doesn't depend.
        budget: Price of the other run.
        scope: FLOPs to count.

    Raises:
        UserError: Either cost is unknown or zero, or the budget is less than one step.
    """
    if price is None or price.step is None:
        raise UserError("the cost of one example of this run is unknown")
    if budget is None or not budget.cost.total(scope):
        raise UserError("the cost of that run is unknown or zero: name a run of train")
    try:
        examples = matching_examples(1.0, budget.cost, price.step.cost(), scope)
    except ValueError as error:
        raise UserError(str(error)) from None
    steps = round(examples / price.step.batch_size)
    if steps < 1:
        raise UserError(f"the budget of {units.flops(budget.cost.total(scope))} is less than one step costs")
    return steps * price.step.batch_size


# ---- seconds


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run to compare by time; `config` is resolved."""

    program: Program
    label: str
    config: Config
    price: Price | None


@dataclass(frozen=True)
class Timings:
    """Measured seconds per example, and the training lengths of the study's last launch.

    Measurements apply to configs that differ only in seed and training length. Only measurements on the same
    type of device are compared.

    Attributes:
        paces: `config_key` → device → seconds per example of each completed run.
        launched: Label → stored configs of its runs in the last launch.
    """

    paces: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    launched: Mapping[str, Sequence[dict[str, Any]]] = field(default_factory=dict)

    @classmethod
    def read(cls, store: Store | None, study: StudySpec) -> Timings:
        """Read the timings for a study; empty if there is no store, or no run matches seconds."""
        if store is None or not matches_seconds(study):
            return cls()
        names = {member.variant.program.name for member in expand(study)}
        paces: dict[str, dict[str, list[float]]] = {}
        for program, config, device, pace in store.paces(names):
            key = config_key(programs.get(program), config)
            paces.setdefault(key, {}).setdefault(device, []).append(pace)
        launched: dict[str, list[dict[str, Any]]] = {}
        for label, _, config in store.launched(study.name):
            launched.setdefault(label, []).append(config)
        return cls(paces, launched)

    def pace(self, program: Program, own: Config, other: Config) -> tuple[float, float] | None:
        """Return the median seconds per example of two configs, on the device with most measurements of both.

        None if no device has measurements of both.
        """
        first, second = (self.paces.get(config_key(program, config), {}) for config in (own, other))
        shared = [device for device in first if device in second]
        if not shared:
            return None
        device = max(shared, key=lambda name: min(len(first[name]), len(second[name])))
        return statistics.median(first[device]), statistics.median(second[device])

    def previous_length(self, run: TimedRun, other: TimedRun) -> int | None:
        """Return the run's training length in the last launch; None if either run has changed since.

        Later seeds reuse this length. A new measurement would differ slightly, and all seeds would run again.
        """

        def text(config: dict[str, Any]) -> str:
            return json.dumps(without(config, [SEED]), sort_keys=True)

        if text(stored_form(other.config)) not in map(text, self.launched.get(other.label, ())):
            return None
        key = config_key(run.program, run.config)
        for config in self.launched.get(run.label, ()):
            if config_key(run.program, config) == key:
                return length_of(run.program, config)
        return None


def examples_in_time(run: TimedRun, other: TimedRun, timings: Timings) -> int | None:
    """Solve for the number of examples, in whole steps, whose duration is closest to that of another run.

    Args:
        run: The run to solve for; its training length is ignored.
        other: The other run.
        timings: Measurements of both.

    Returns:
        The number of examples: that of the last launch if nothing has changed. None if the two runs haven't
        been measured on the same type of device.

    Raises:
        UserError: The runs aren't training runs, or the time is less than one step.
    """
    if run.price is None or run.price.step is None or other.program is not run.program:
        raise UserError(f"both must be runs of train: {run.label} and {other.label} are not")
    if (length := timings.previous_length(run, other)) is not None:
        return length
    if (paces := timings.pace(run.program, run.config, other.config)) is None:
        return None
    pace, other_pace = paces
    examples = length_of(other.program, other.config) * other_pace / pace
    steps = round(examples / run.price.step.batch_size)
    if steps < 1:
        raise UserError(f"{other.label} takes less time than one step of {run.label}")
    return steps * run.price.step.batch_size


def matches_seconds(study: StudySpec) -> bool:
    """Whether a run of a study, or of a part of a union, matches the seconds of another run."""
    runs = [run for part in (study, *study.studies.values()) for run in part.runs.values()]
    return any(run.match is not None and run.match.kind == "seconds" for run in runs)


def length_of(program: Program, config: Config) -> int:
    """Return the training length in a config."""
    return int(lookup(stored_form(config), program.extent or ()))


def config_key(program: Program, config: Config) -> str:
    """Return a key for configs with the same speed: the program, and the config without seed and length."""
    rest = without(stored_form(config), [SEED])
    if program.extent is not None:
        rest = without(rest, program.extent)
    return f"{program.name} {json.dumps(rest, sort_keys=True)}"
