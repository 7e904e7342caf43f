"""Plan a study: resolve, fingerprint, and price its runs, in dependency order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from pydantic import BaseModel

from jestlab.analysis.costs import Cost
from jestlab.platform import dependencies, programs
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.planning.identity import fingerprint, folder_suffix, identity_of
from jestlab.platform.planning.matching import (
    TimedRun,
    Timings,
    config_key,
    examples_in_time,
    examples_within,
    stored_form,
)
from jestlab.platform.programs import Config, DataLookup, Placement, Price, Program
from jestlab.platform.spec.expand import expand, spec_path
from jestlab.platform.spec.schema import StudySpec
from jestlab.platform.spec.variants import Replicate
from jestlab.platform.store.records import RunState
from jestlab.platform.words import counted

Section = TypeVar("Section", bound=BaseModel)


class Action(StrEnum):
    """Action of a launch on a run."""

    DONE = "done"  # completed: skip it
    RESUME = "resume"  # started before: continue from its latest checkpoint
    RUN = "run"  # start it


_STARTED = frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED, RunState.PREEMPTED})


class RunPlace(NamedTuple):
    """A place of a run in its study: name, label, and values on the axes."""

    name: str
    label: str
    point: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunBudget:
    """Expected use of chips by a run.

    Attributes:
        chip: A TPU type such as `v5e`; `gpu`; or `local` if chips aren't counted. Then each run has one chip.
        chips: Number of chips in use at a time.
        chip_hours: Chips × hours of learner, scoring, selection, and uncached reference scoring; without
            compilation, loading, and evaluation.
        dollars: Cost at the user's price; None without a price.
        by_runs: Number of earlier runs that the estimate is based on; 0 if it assumes a share of the chip's
            peak.
    """

    chip: str
    chips: int
    chip_hours: float
    dollars: float | None = None
    by_runs: int = 0

    @property
    def hours(self) -> float:
        """Expected wall-clock hours."""
        return self.chip_hours / self.chips


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a plan.

    Attributes:
        label: Name and values on the axes.
        point: Values on the axes, by dotted key.
        config: The whole resolved config as plain data.
        needs: Role → fingerprint of the dependency, which precedes the run in the plan.
        price: Cost of the whole run; None if its program has no price.
        state: State in the store; None if the run isn't in the store.
        aliases: Other places in the study with the same fingerprint, and therefore the same run.
        budget: Expected use of chips; None if unknown.
        match: The run whose FLOPs or seconds it matches, as "flops: joint"; None if the spec sets its length.
    """

    fingerprint: str
    name: str
    label: str
    point: Mapping[str, Any]
    seed: int
    program: str
    config: dict[str, Any] = field(repr=False)
    needs: Mapping[str, str]
    price: Price | None
    state: RunState | None = None
    aliases: tuple[RunPlace, ...] = ()
    budget: RunBudget | None = None
    match: str | None = None

    @property
    def places(self) -> tuple[RunPlace, ...]:
        """All places of the run in the study."""
        return RunPlace(self.name, self.label, self.point), *self.aliases

    @property
    def directory(self) -> str:
        """Its folder, relative to the lab's root."""
        return f"runs/{self.name.rpartition('/')[2]}{folder_suffix(self.fingerprint)}"

    @property
    def action(self) -> Action:
        """Action of a launch on the run."""
        if self.state is RunState.COMPLETED:
            return Action.DONE
        return Action.RESUME if self.state in _STARTED else Action.RUN


@dataclass(frozen=True, slots=True)
class WaitingMember:
    """A member of a study that can't be planned yet, because its training length requires a measurement.

    Attributes:
        label: Label of the member.
        seed: Seed of the member.
        match: The run whose seconds the member matches, as "seconds: joint". If the member waits because a
            dependency does, this is the `match` of the dependency.
        awaits: Labels of runs of the study that must complete first.
    """

    label: str
    seed: int
    match: str
    awaits: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A study and its runs.

    Attributes:
        study: The study.
        runs: Each run once, after its dependencies, otherwise in the order of the spec.
        needed: Names of the runs that others depend on, except to diagnose them. If a run has two names, only
            the name that the other runs refer to.
        absent: Missing folders and files in configs → their expected type. The fingerprints of runs that read
            them are based on the paths, and will change once the files exist.
        left_out: Folders of shards that were read → a summary of the files that are in no example.
        parts: For a union, the plan of each of its studies by itself.
        waiting: Members that can be planned only after others have completed.
        later: Fingerprints of the study's runs that are left to later rounds. Another launcher may have
            started them already.
    """

    study: StudySpec
    runs: tuple[PlannedRun, ...]
    needed: frozenset[str] = frozenset()
    absent: Mapping[Path, str] = field(default_factory=dict)
    left_out: Mapping[Path, str] = field(default_factory=dict)
    parts: tuple[Plan, ...] = ()
    waiting: tuple[WaitingMember, ...] = ()
    later: frozenset[str] = frozenset()

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the runs, in order."""
        return [run.fingerprint for run in self.runs]

    @property
    def by_study(self) -> dict[str, list[str]]:
        """Fingerprints of the runs of the study and of each of its parts, by name, the study first."""
        return {each.study.name: each.fingerprints for each in (self, *self.parts)}

    def with_states(self, states: Mapping[str, RunState]) -> Plan:
        """Add the states of runs in a store, by fingerprint."""
        runs = tuple(replace(run, state=states.get(run.fingerprint)) for run in self.runs)
        return replace(self, runs=runs, parts=tuple(part.with_states(states) for part in self.parts))


def plan(
    study: StudySpec,
    *,
    note_absent: bool = False,
    placement: Placement = "local",
    timings: Timings | None = None,
) -> Plan:
    """Plan a study, in time linear in its runs.

    Args:
        study: The study.
        note_absent: List missing data and weights in the plan instead of raising an error, for a plan that
            isn't launched.
        placement: Where the runs execute.
        timings: Measured training times; None for none.

    Raises:
        UserError: The spec is invalid, a path in it is missing, a config doesn't fit its data, or local runs
            need an extra that isn't installed.
    """
    data = DataLookup(note_absent=note_absent, placement=placement)
    resolved = _Planner(expand(study), data, timings or Timings()).resolve_all()
    parts, end = [], 0
    for part in study.studies.values():
        start, end = end, end + len(expand(part))
        parts.append(_merged(part, resolved[start:end]))
    merged = _merged(study, resolved)
    return replace(merged, absent=data.absent, left_out=data.left_out, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class _Resolved(TimedRun):
    """A member with its complete config. `configs` contains the configs of its dependencies by role."""

    fingerprint: str
    needs: Mapping[str, str]
    configs: Mapping[str, Config]


class _Planner:
    """Resolves the members of a study one by one."""

    def __init__(self, members: Sequence[Replicate], data: DataLookup, timings: Timings) -> None:
        self._members = members
        self._data = data
        self._timings = timings
        self._resolved: list[_Resolved | WaitingMember] = []

    def resolve_all(self) -> list[_Resolved | WaitingMember]:
        """Resolve all members, in order."""
        for member in self._members:
            self._resolved.append(self._resolve(member))
        return self._resolved

    def _resolve(self, member: Replicate) -> _Resolved | WaitingMember:
        """Complete a member's config from the data, solve for `match`, and compute price and fingerprint."""
        variant, program = member.variant, _program(member)
        if self._data.placement == "local":
            self._data.once(dependencies.check, program.extra)
        needed: dict[str, _Resolved] = {}
        for role, index in member.needs.items():
            need = self._resolved[index]
            if isinstance(need, WaitingMember):
                return replace(need, label=variant.label, seed=member.seed)
            needed[role] = need
        configs = {role: need.config for role, need in needed.items()}
        for role, need in needed.items():
            configs |= {f"{role}.{inner}": inner_config for inner, inner_config in need.configs.items()}
        place = spec_path(variant.name)
        with _placed(place):
            config = program.complete(member.config, self._data)
            program.check_needs(config, configs)
            price = program.price(config, configs)
        if variant.match is not None and member.match is not None and program.extent is not None:
            # The other run has no `match` itself, but one of its dependencies may be waiting.
            other = self._resolved[member.match]
            if isinstance(other, WaitingMember):
                return replace(other, label=variant.label, seed=member.seed)
            with _placed(f"{place}.match"):
                if variant.match.kind == "seconds":
                    run = TimedRun(program, variant.label, config, price)
                    length = examples_in_time(run, other, self._timings)
                    if length is None:
                        return self._waiting(member, config, other.label)
                else:
                    length = examples_within(price, other.price, variant.match.scope)
            config = _with_value(cast(BaseModel, config), program.extent, length)
            price = program.price(config, configs)
        needs = {role: need.fingerprint for role, need in needed.items()}
        identity = fingerprint(program.name, program.version, identity_of(program, config), needs)
        return _Resolved(program, variant.label, config, price, identity, needs, configs)

    def _waiting(self, member: Replicate, config: Config, other: str) -> WaitingMember:
        """Return a member whose speed hasn't been measured, with the runs that it awaits.

        Raises:
            UserError: Neither the study nor the store has a run with its config.
        """
        program, label = _program(member), member.variant.label
        measured_by = self._labels_by_key.get(config_key(program, member.config))
        if measured_by is None and config_key(program, config) not in self._timings.paces:
            raise UserError(
                f"the time per example of {label} is unknown: add a run with the same config and any "
                "examples_seen, without match"
            )
        awaits = (other,) if measured_by in (None, other) else (other, measured_by)
        return WaitingMember(label, member.seed, str(member.variant.match), awaits)

    @cached_property
    def _labels_by_key(self) -> dict[str, str]:
        """`config_key` → label of the first member with it that has no `match`."""
        labels: dict[str, str] = {}
        for member in self._members:
            if member.match is None:
                key = config_key(_program(member), member.config)
                labels.setdefault(key, member.variant.label)
        return labels


@contextmanager
def _placed(place: str) -> Iterator[None]:
    """Convert errors to a UserError that starts with the place in the spec."""
    try:
        yield
    except (UserError, OSError, ValueError) as error:
        raise UserError(f"{place}: {sentence(error)}") from None


def _program(member: Replicate) -> Program:
    return programs.get(member.variant.program.name)


def _with_value(section: Section, path: Sequence[str], value: int) -> Section:
    """Copy a config with another value at a path."""
    head, *rest = path
    changed = _with_value(getattr(section, head), rest, value) if rest else value
    return section.model_copy(update={head: changed})


def _merged(study: StudySpec, resolved: Sequence[_Resolved | WaitingMember]) -> Plan:
    """Make the plan of a study. Members with equal fingerprints become one run with the first one's name."""
    runs: dict[str, PlannedRun] = {}
    places: dict[str, dict[str, RunPlace]] = defaultdict(dict)
    needed: set[str] = set()
    for member, entry in zip(expand(study), resolved, strict=True):
        variant = member.variant
        subjects = _program(member).subjects
        needed |= {one.name for one in variant.references if one.role not in subjects}
        if isinstance(entry, WaitingMember):
            continue
        places[entry.fingerprint][variant.label] = RunPlace(variant.name, variant.label, variant.point)
        if entry.fingerprint not in runs:
            runs[entry.fingerprint] = PlannedRun(
                fingerprint=entry.fingerprint,
                name=variant.name,
                label=variant.label,
                point=variant.point,
                seed=member.seed,
                program=variant.program.name,
                config=stored_form(entry.config),
                needs=entry.needs,
                price=entry.price,
                match=None if variant.match is None else str(variant.match),
            )
    merged = (replace(run, aliases=(*places[key].values(),)[1:]) for key, run in runs.items())
    waiting = tuple(entry for entry in resolved if isinstance(entry, WaitingMember))
    return Plan(study, tuple(merged), frozenset(needed), waiting=waiting)


def totals(runs: Sequence[PlannedRun]) -> Price:
    """Sum the known prices of runs."""
    prices = [run.price for run in runs if run.price is not None]
    cost = sum((price.cost for price in prices), Cost())
    return Price(cost, examples=sum(price.examples for price in prices))


def waiting_lines(plan: Plan) -> Iterator[str]:
    """Describe the members that can be planned only after others have completed."""
    seeds = Counter((member.label, member.match, member.awaits) for member in plan.waiting)
    for (label, match, awaits), count in seeds.items():
        have = "has" if len(awaits) == 1 else "have"
        yield (
            f"NOT PLANNED YET: {label} ({match}), {counted(count, 'seed')}: the launch solves for its "
            f"examples and runs it once {' and '.join(awaits)} {have} completed."
        )
