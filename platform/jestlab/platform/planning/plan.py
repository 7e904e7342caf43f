"""From a study to the runs that a launch makes: ordered, fingerprinted, priced, compared with the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel

from jestlab.analysis import units
from jestlab.analysis.costs import Cost, Scope, matching_examples
from jestlab.platform.errors import UserError
from jestlab.platform.planning.identity import fingerprint, identity_of
from jestlab.platform.programs import Config, Contents, Price, Where
from jestlab.platform.spec.expand import Member, written_at
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.records import RunState

Section = TypeVar("Section", bound=BaseModel)


class Action(StrEnum):
    """What a launch does with a run."""

    DONE = "done"  # completed: nothing
    RESUME = "resume"  # started before: continue from its last checkpoint
    RUN = "run"  # from the start


_STARTED = frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED, RunState.PREEMPTED})


@dataclass(frozen=True, slots=True)
class Alias:
    """Another place in the study where the same run appears."""

    name: str
    label: str
    point: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run is expected to occupy, from its start to its end.

    Attributes:
        chip: A TPU type such as `v5e`; `local` for a process of this machine, which counts as one chip.
        chips: Number of chips used at a time.
        chip_hours: Chips × hours of what the run itself computes: learner, scoring, selection, and
            reference scoring where that is not cached; without compiling, loading and evaluating.
        dollars: At the user's price; None where there is no price.
        by_runs: Number of earlier runs that the estimate is from; 0 where a share of the chip's peak is
            assumed.
    """

    chip: str
    chips: int
    chip_hours: float
    dollars: float | None = None
    by_runs: int = 0

    @property
    def hours(self) -> float:
        """The expected hours of wall-clock time."""
        return self.chip_hours / self.chips


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a plan.

    Attributes:
        label: Name and values on the axes.
        point: Values on the axes, by dotted key.
        config: The whole resolved config, plain.
        needs: Role → fingerprint of each run that it needs; they precede it in the plan.
        price: Cost of the whole run; None where its program has no price.
        state: In the store; None where the store does not know it.
        aliases: Other places in the study where it appears: equal fingerprints make one run.
        budget: What it is expected to occupy; None where that is unknown.
        match: Whose FLOPs it spends, as "flops: joint"; None where its config says how long it trains.
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
    aliases: tuple[Alias, ...] = ()
    budget: Budget | None = None
    match: str | None = None

    @property
    def directory(self) -> str:
        """Its folder, relative to the lab's root; its name there is without the part of a union."""
        return f"runs/{self.name.rpartition('/')[2]}-{self.fingerprint[:8]}"

    @property
    def action(self) -> Action:
        """What a launch does with the run."""
        if self.state is RunState.COMPLETED:
            return Action.DONE
        return Action.RESUME if self.state in _STARTED else Action.RUN


@dataclass(frozen=True)
class Plan:
    """A study and its runs.

    Attributes:
        study: The study.
        runs: Each run once, dependencies first, otherwise in the order of the spec.
        needed: Names of the runs that others refer to, except to diagnose them. A run with two names counts
            only under the name referred to.
        absent: Folders and files that configs name and that are missing → what they would be. The
            fingerprints of runs that read them rest on these paths, and are not those of a launch.
        parts: For a union, the plan of each of its studies by itself, in order; otherwise empty.
    """

    study: Study
    runs: tuple[PlannedRun, ...]
    needed: frozenset[str] = frozenset()
    absent: Mapping[Path, str] = field(default_factory=dict)
    parts: tuple[Plan, ...] = ()

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the runs, in order."""
        return [run.fingerprint for run in self.runs]

    @property
    def by_study(self) -> dict[str, list[str]]:
        """Fingerprints of the runs of the study and of each of its parts, by name; its own come first."""
        return {each.study.name: each.fingerprints for each in (self, *self.parts)}

    def with_states(self, states: Mapping[str, RunState]) -> Plan:
        """Compare the plan with a store, by the states of the fingerprints that it knows."""
        runs = tuple(replace(run, state=states.get(run.fingerprint)) for run in self.runs)
        return replace(self, runs=runs, parts=tuple(part.with_states(states) for part in self.parts))


def plan(study: Study, absent: Literal["refuse", "note"] = "refuse", where: Where = "here") -> Plan:
    """Plan a study. Takes time linear in its runs.

    Args:
        study: The study.
        absent: Whether missing data and weights are an error, or noted in a plan that is only to look at.
        where: Where its runs are executed.

    Raises:
        UserError: The spec is wrong, what it names is missing, or a config does not fit its data; the place
            is named.
    """
    contents = Contents(note_absent=absent == "note", where=where)
    resolved: list[_Resolved] = []
    for member in study.members:
        resolved.append(_resolve(member, resolved, contents))
    parts, end = [], 0
    for part in study.studies.values():
        begin, end = end, end + len(part.members)
        parts.append(_gathered(part, resolved[begin:end]))
    return replace(_gathered(study, resolved), absent=contents.absent, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class _Resolved:
    """What planning finds out about a member."""

    config: Config
    fingerprint: str
    needs: Mapping[str, str]
    price: Price | None


def _resolve(member: Member, before: Sequence[_Resolved], contents: Contents) -> _Resolved:
    """Complete a member's config from its data, solve for its budget, and price and fingerprint it."""
    program = member.variant.program
    config = _complete(member, contents)
    needed = {role: before[index].config for role, index in member.needs.items()}
    price = program.price(config, needed)
    if member.match is not None and member.variant.match is not None and program.extent is not None:
        try:
            seen = examples_within(price, before[member.match].price, member.variant.match.scope)
        except UserError as error:
            raise UserError(f"{written_at(member.variant.name)}.match: {error}") from None
        config = _with_value(cast(BaseModel, config), program.extent, seen)
        price = program.price(config, needed)
    needs = {role: before[index].fingerprint for role, index in member.needs.items()}
    return _Resolved(config, _fingerprint(member, config, needs), needs, price)


def examples_within(price: Price | None, budget: Price | None, scope: Scope) -> int:
    """Solve for the examples seen, in whole steps, that cost as nearly as possible what another run costs.

    Args:
        price: Of the run, however long it is for now: what an example costs does not depend on that.
        budget: Of the other run, whole.
        scope: What counts as FLOPs.

    Raises:
        UserError: Either cost is unknown or zero, or not even one step fits.
    """
    if price is None or price.step is None:
        raise UserError("the cost of one example of this run is unknown")
    if budget is None or not budget.cost.total(scope):
        raise UserError("the cost of that run is unknown or zero: name a run of train")
    try:
        seen = matching_examples(1.0, budget.cost, price.step.cost(), scope)
    except ValueError as error:
        raise UserError(str(error)) from None
    steps = round(seen / price.step.batch_size)
    if steps < 1:
        raise UserError(f"the budget of {units.flops(budget.cost.total(scope))} is less than one step costs")
    return steps * price.step.batch_size


def _with_value(section: Section, path: Sequence[str], value: int) -> Section:
    """Copy a config with another value at a path."""
    head, *rest = path
    new = _with_value(getattr(section, head), rest, value) if rest else value
    return section.model_copy(update={head: new})


def _gathered(study: Study, resolved: Sequence[_Resolved]) -> Plan:
    """Make the plan of a study's members: those with equal fingerprints are one run, under its first name."""
    runs: dict[str, PlannedRun] = {}
    labels: dict[str, dict[str, Alias]] = {}
    for member, its in zip(study.members, resolved, strict=True):
        if its.fingerprint not in runs:
            runs[its.fingerprint] = _planned(member, its)
        variant = member.variant
        alias = Alias(variant.name, variant.label, variant.point)
        labels.setdefault(its.fingerprint, {})[variant.label] = alias
    return Plan(
        study,
        tuple(replace(run, aliases=tuple(labels[identity].values())[1:]) for identity, run in runs.items()),
        frozenset(
            reference.name
            for member in study.members
            for reference in member.variant.references
            if reference.role not in member.variant.program.subjects
        ),
    )


def _complete(member: Member, contents: Contents) -> Config:
    program = member.variant.program
    if program.complete is None:
        return member.config
    try:
        return program.complete(member.config, contents)
    except (UserError, OSError, ValueError) as error:
        raise UserError(f"{written_at(member.variant.name)}: {error}") from None


def _fingerprint(member: Member, config: Config, needs: Mapping[str, str]) -> str:
    """Compute a member's fingerprint; the fingerprints of other runs stand in for their names."""
    program = member.variant.program
    name = program.identifier or program.name
    return fingerprint(name, program.version, identity_of(program, config), needs)


def _planned(member: Member, its: _Resolved) -> PlannedRun:
    variant, config = member.variant, its.config
    return PlannedRun(
        fingerprint=its.fingerprint,
        name=variant.name,
        label=variant.label,
        point=variant.point,
        seed=member.seed,
        program=variant.program.name,
        config=config.model_dump(mode="json") if isinstance(config, BaseModel) else config,
        needs=its.needs,
        price=its.price,
        match=None if variant.match is None else str(variant.match),
    )


def totals(runs: Sequence[PlannedRun]) -> Price:
    """Sum what runs cost, as far as it is known."""
    prices = [run.price for run in runs if run.price is not None]
    whole = sum((price.cost for price in prices), Cost())
    return Price(whole, examples=sum(price.examples for price in prices))
