"""From a study to the runs that a launch makes: ordered, fingerprinted, priced, diffed with the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel

from jestlab.analysis.costs import Cost
from jestlab.platform import matching
from jestlab.platform.errors import UserError
from jestlab.platform.programs import Config, Price
from jestlab.platform.programs.contents import Contents
from jestlab.platform.spec.expand import Member
from jestlab.platform.spec.fields import run_names
from jestlab.platform.spec.fingerprint import fingerprint
from jestlab.platform.spec.schema import Study
from jestlab.platform.spec.tree import depth_of, without
from jestlab.platform.spec.unions import place
from jestlab.platform.store.states import RunState


class Action(StrEnum):
    """What a launch does with a run."""

    DONE = "done"  # completed: nothing
    RESUME = "resume"  # started before: goes on from its last checkpoint
    RUN = "run"  # from the start


_STARTED = frozenset({RunState.RUNNING, RunState.FAILED, RunState.CANCELLED, RunState.PREEMPTED})


@dataclass(frozen=True, slots=True)
class Alias:
    """Another place in the study where the same run stands."""

    name: str
    label: str
    point: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run is expected to occupy, from its start to its end.

    Attributes:
        chip: A TPU type such as `v5e`; `local` for a process of this machine, which counts as one chip.
        chips: How many at a time.
        chip_hours: Chips × hours. Of what the run itself computes: learner, scoring, selection, and
            reference scoring where that is not cached; compiling, loading and evaluating are not in it.
        dollars: At the user's price; None where there is none.
        by_runs: How many earlier runs it is measured by; 0 where a share of the chip's peak is assumed.
    """

    chip: str
    chips: int
    chip_hours: float
    dollars: float | None = None
    by_runs: int = 0

    @property
    def hours(self) -> float:
        """Of wall clock."""
        return self.chip_hours / self.chips


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of a plan.

    Attributes:
        fingerprint: Its identity.
        name: In the study.
        label: Name and values on the axes.
        point: Values on the axes, by dotted key.
        seed: Replicate.
        program: What it executes.
        config: The whole resolved config, plain.
        needs: Role → fingerprint of each run that it needs; those stand before it in the plan.
        price: Cost of the whole run; None where the program does not say.
        state: In the store; None where the store does not know it.
        aliases: Where else in the study it stands: configs with equal fingerprints are one run.
        budget: What it is expected to occupy; None where nobody knows.
        match: Whose FLOPs it spends, as "flops: joint"; None where its spec says how long it trains.
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
        """Its folder, relative to the lab's root: by its own name, whatever part of a union it stands in."""
        return f"runs/{self.name.rpartition('/')[2]}-{self.fingerprint[:8]}"

    @property
    def action(self) -> Action:
        """What a launch does with it."""
        if self.state is RunState.COMPLETED:
            return Action.DONE
        return Action.RESUME if self.state in _STARTED else Action.RUN


@dataclass(frozen=True)
class Plan:
    """A study and its runs.

    Attributes:
        study: The study.
        runs: Each once, needed runs first, else in the order of the spec.
        needed: Names of the runs that others refer to, but to look into them. A run that also stands under
            another name is needed under the one only.
        absent: Folders and files that configs name and that are not there → what they would be. Runs that
            read them are identified by those paths for now, and not the runs that a launch would make.
        parts: Of a union: what each of its studies would be by itself, in order; empty for others.
    """

    study: Study
    runs: tuple[PlannedRun, ...]
    needed: frozenset[str] = frozenset()
    absent: Mapping[Path, str] = field(default_factory=dict)
    parts: tuple[Plan, ...] = ()

    @property
    def fingerprints(self) -> list[str]:
        """Of its runs."""
        return [run.fingerprint for run in self.runs]

    def with_states(self, states: Mapping[str, RunState]) -> Plan:
        """The same plan, compared with a store.

        Args:
            states: Fingerprint → state, of the runs that the store knows.
        """
        runs = tuple(replace(run, state=states.get(run.fingerprint)) for run in self.runs)
        return replace(self, runs=runs, parts=tuple(part.with_states(states) for part in self.parts))


def plan(
    study: Study,
    states: Mapping[str, RunState] | None = None,
    absent: Literal["refuse", "note"] = "refuse",
) -> Plan:
    """Plan a study. Takes time linear in its runs.

    Args:
        study: The study.
        states: Fingerprint → state, of the runs that the store knows.
        absent: Whether data and weights that are not there are an error, or noted in the plan, which is then
            one to look at.

    Raises:
        UserError: The spec is wrong, or a data folder is missing; the place is named.
    """
    contents = Contents(note_absent=absent == "note")
    resolved: list[_Resolved] = []
    for member in study.members:
        resolved.append(_resolve(member, resolved, contents))
    parts, end = [], 0
    for part in study.studies.values():
        begin, end = end, end + len(part.members)
        parts.append(_gathered(part, resolved[begin:end], states or {}))
    whole = _gathered(study, resolved, states or {})
    return replace(whole, absent=contents.absent, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class _Resolved:
    """A member with all that planning finds out about it."""

    config: Config
    fingerprint: str
    needs: Mapping[str, str]
    price: Price | None


def _resolve(member: Member, before: Sequence[_Resolved], contents: Contents) -> _Resolved:
    """A member, its data looked at, its budget solved for.

    Args:
        member: Of the study.
        before: The members that stand before it.
        contents: What lies at the paths that it names.
    """
    program = member.variant.program
    config = _complete(member, contents)
    needed = {role: before[index].config for role, index in member.needs.items()}
    price = program.price(config, needed)
    if member.match is not None and member.variant.match is not None and program.extent is not None:
        try:
            seen = matching.examples(price, before[member.match].price, member.variant.match.scope)
        except UserError as error:
            raise UserError(f"{place(member.variant.name)}.match: {error}") from None
        config = matching.with_value(cast(BaseModel, config), program.extent, seen)
        price = program.price(config, needed)
    needs = {role: before[index].fingerprint for role, index in member.needs.items()}
    return _Resolved(config, _fingerprint(member, config, needs), needs, price)


def _gathered(study: Study, resolved: Sequence[_Resolved], states: Mapping[str, RunState]) -> Plan:
    """A plan of a study's members: those with equal fingerprints are one run, under its first name."""
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
        tuple(
            replace(run, state=states.get(identity), aliases=tuple(labels[identity].values())[1:])
            for identity, run in runs.items()
        ),
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
        raise UserError(f"{place(member.variant.name)}: {error}") from None


def _fingerprint(member: Member, config: Config, needs: Mapping[str, str]) -> str:
    """The names of other runs give way to their fingerprints."""
    program = member.variant.program
    identity = program.identity(config)
    for path in run_names(program.schema) if program.schema is not None else ():
        if depth_of(identity, path) == len(path):
            identity = without(identity, path)
    return fingerprint(program.identifier or program.name, program.version, identity, needs)


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
    """The sum of what runs cost, as far as it is known."""
    prices = [run.price for run in runs if run.price is not None]
    whole = sum((price.cost for price in prices), Cost())
    return Price(whole, examples=sum(price.examples for price in prices))
