"""From a study to the runs that a launch makes: ordered, fingerprinted, priced, compared with the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import BaseModel

from jestlab.analysis.costs import EXECUTED, Cost
from jestlab.platform import programs
from jestlab.platform.errors import UserError, sentence
from jestlab.platform.planning.identity import fingerprint, folder_end, identity_of
from jestlab.platform.planning.matching import Timed, examples_in_time, examples_within
from jestlab.platform.planning.timings import Timings, config_key, plain
from jestlab.platform.programs import Config, Contents, Memory, Price, Program, Where
from jestlab.platform.spec.expand import Replicate, written_at
from jestlab.platform.spec.schema import Study
from jestlab.platform.store.recording import Place, RunToRecord, StudyToRecord
from jestlab.platform.store.records import RunState
from jestlab.platform.words import counted

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
        chip: A TPU type such as `v5e`; `gpu`; `local` where chips are not counted, and a run counts as one.
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
        memory: What it occupies at its peak; None where its program does not say.
        state: In the store; None where the store does not know it.
        aliases: Other places in the study where it appears: equal fingerprints make one run.
        budget: What it is expected to occupy; None where that is unknown.
        match: Whose FLOPs or seconds it spends, as "flops: joint"; None where its config says how long it
            trains.
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
    memory: Memory | None = None
    state: RunState | None = None
    aliases: tuple[Alias, ...] = ()
    budget: Budget | None = None
    match: str | None = None

    @property
    def directory(self) -> str:
        """Its folder, relative to the lab's root; its name there is without the part of a union."""
        return f"runs/{self.name.rpartition('/')[2]}{folder_end(self.fingerprint)}"

    def to_record(self) -> RunToRecord:
        """Return the run as the store records it."""
        components = () if self.price is None else EXECUTED
        return RunToRecord(
            fingerprint=self.fingerprint,
            seed=self.seed,
            directory=self.directory,
            program=self.program,
            config=self.config,
            needs=self.needs,
            places=[
                Place(self.name, self.label, self.point),
                *(Place(alias.name, alias.label, alias.point) for alias in self.aliases),
            ],
            flops={name: getattr(self.price.cost, name) for name in components if self.price is not None},
            budget=None if self.budget is None else asdict(self.budget),
        )

    @property
    def action(self) -> Action:
        """What a launch does with the run."""
        if self.state is RunState.COMPLETED:
            return Action.DONE
        return Action.RESUME if self.state in _STARTED else Action.RUN


@dataclass(frozen=True, slots=True)
class Waiting:
    """A member of a study that cannot be planned yet: nobody has measured how long it shall train.

    Attributes:
        label: Its label, and `seed` its seed.
        match: Whose seconds it spends, as "seconds: joint"; of a run that needs such a run, that run's.
        awaits: Labels of runs of the study, some of which must complete before.
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
        runs: Each run once, dependencies first, otherwise in the order of the spec.
        needed: Names of the runs that others refer to, except to diagnose them. A run with two names counts
            only under the name referred to.
        absent: Folders and files that configs name and that are missing → what they would be. The
            fingerprints of runs that read them rest on these paths, and are not those of a launch.
        left_out: Folders of shards that were read → what of them is in no example; empty if nothing.
        parts: For a union, the plan of each of its studies by itself, in order; otherwise empty.
        waiting: Members that can be planned only when others have completed.
        later: Fingerprints of runs of the study that are left to later rounds; another launcher may have
            begun them already.
    """

    study: Study
    runs: tuple[PlannedRun, ...]
    needed: frozenset[str] = frozenset()
    absent: Mapping[Path, str] = field(default_factory=dict)
    left_out: Mapping[Path, str] = field(default_factory=dict)
    parts: tuple[Plan, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    later: frozenset[str] = frozenset()

    @property
    def fingerprints(self) -> list[str]:
        """Fingerprints of the runs, in order."""
        return [run.fingerprint for run in self.runs]

    @property
    def by_study(self) -> dict[str, list[str]]:
        """Fingerprints of the runs of the study and of each of its parts, by name; its own come first."""
        return {each.study.name: each.fingerprints for each in (self, *self.parts)}

    def to_record(self) -> StudyToRecord:
        """Return the study and its runs as the store records them."""
        return StudyToRecord(
            name=self.study.name,
            question=self.study.question,
            paper=self.study.paper,
            scale=self.study.scale,
            spec=self.study.to_dict(),
            runs=[run.to_record() for run in self.runs],
            needed=self.needed,
            later=self.later,
            parts=[part.to_record() for part in self.parts],
        )

    def with_states(self, states: Mapping[str, RunState]) -> Plan:
        """Compare the plan with a store, by the states of the fingerprints that it knows."""
        runs = tuple(replace(run, state=states.get(run.fingerprint)) for run in self.runs)
        return replace(self, runs=runs, parts=tuple(part.with_states(states) for part in self.parts))


def plan(
    study: Study,
    absent: Literal["refuse", "note"] = "refuse",
    where: Where = "here",
    timings: Timings | None = None,
) -> Plan:
    """Plan a study. Takes time linear in its runs.

    Args:
        study: The study.
        absent: Whether missing data and weights are an error, or noted in a plan that is only to look at.
        where: Where its runs are executed.
        timings: What is known of how long runs train; None for nothing.

    Raises:
        UserError: The spec is wrong, what it names is missing, or a config does not fit its data; the place
            is named.
    """
    contents = Contents(note_absent=absent == "note", where=where)
    chips = 0 if (slice_ := study.resources.slice) is None else slice_.chips
    resolved: list[_Resolved | Waiting] = []
    while len(resolved) < len(study.members):
        resolved.append(_resolve(study.members, resolved, contents, timings or Timings(), chips))
    parts, end = [], 0
    for part in study.studies.values():
        begin, end = end, end + len(part.members)
        parts.append(_gathered(part, resolved[begin:end]))
    gathered = _gathered(study, resolved)
    return replace(gathered, absent=contents.absent, left_out=contents.left_out, parts=tuple(parts))


@dataclass(frozen=True, slots=True)
class _Resolved:
    """What planning finds out about a member; `configs` are of what it needs, as prices ask for them."""

    config: Config
    fingerprint: str
    needs: Mapping[str, str]
    configs: Mapping[str, Config]
    price: Price | None
    memory: Memory | None


def _resolve(
    members: Sequence[Replicate],
    before: Sequence[_Resolved | Waiting],
    contents: Contents,
    timings: Timings,
    chips: int,
) -> _Resolved | Waiting:
    """Complete the next member's config from its data, solve for its budget, and price and fingerprint it.

    In the identity, the fingerprints of other runs stand in for their names.
    """
    member = members[len(before)]
    variant, program = member.variant, _program(member)
    needed: dict[str, _Resolved] = {}
    for role, place in member.needs.items():
        need = before[place]
        if isinstance(need, Waiting):
            return replace(need, label=variant.label, seed=member.seed)
        needed[role] = need
    config = _complete(member, contents)
    configs = {role: need.config for role, need in needed.items()}
    for role, need in needed.items():
        configs |= {f"{role}.{theirs}": its for theirs, its in need.configs.items()}
    if program.fits_needs is not None:
        try:
            program.fits_needs(config, configs)
        except UserError as error:
            raise UserError(f"{written_at(variant.name)}.{error}") from None
    price = program.price(config, configs)
    if variant.match is not None and member.match is not None and program.extent is not None:
        # The rival itself does not match, so only a dependency of its may wait.
        rival = before[member.match]
        if isinstance(rival, Waiting):
            return replace(rival, label=variant.label, seed=member.seed)
        try:
            if variant.match.kind == "seconds":
                its, other = members[member.match].variant, _program(members[member.match])
                seen = examples_in_time(
                    Timed(program, variant.label, config, price),
                    Timed(other, its.label, rival.config, rival.price),
                    timings,
                )
                if seen is None:
                    return _waiting(members, len(before), config, timings)
            else:
                seen = examples_within(price, rival.price, variant.match.scope)
        except UserError as error:
            raise UserError(f"{written_at(variant.name)}.match: {error}") from None
        config = _with_value(cast(BaseModel, config), program.extent, seen)
        price = program.price(config, configs)
    needs = {role: need.fingerprint for role, need in needed.items()}
    memory = program.memory(config, configs, chips)
    name = program.identifier or program.name
    identity = fingerprint(name, program.version, identity_of(program, config), needs)
    return _Resolved(config, identity, needs, configs, price, memory)


def _waiting(members: Sequence[Replicate], index: int, config: Config, timings: Timings) -> Waiting:
    """Say what a member waits for whose time nobody has measured: its rival, and a run of its own config.

    Raises:
        UserError: Nothing in the study or the store has its config.
    """
    member, label = members[index], members[index].variant.label
    assert member.match is not None  # the caller's condition
    rival = members[member.match].variant.label
    key = config_key(_program(member), plain(member.config))
    like = [
        other.variant.label
        for other in members
        if other.match is None and config_key(_program(other), plain(other.config)) == key
    ]
    if not like and config_key(_program(member), plain(config)) not in timings.paces:
        raise UserError(
            f"nothing tells how long an example of {label} takes: add a run of the same config without "
            "match, whatever its examples_seen"
        )
    awaits = tuple(dict.fromkeys([rival, *like[:1]]))
    return Waiting(label, member.seed, str(member.variant.match), awaits)


def _with_value(section: Section, path: Sequence[str], value: int) -> Section:
    """Copy a config with another value at a path."""
    head, *rest = path
    new = _with_value(getattr(section, head), rest, value) if rest else value
    return section.model_copy(update={head: new})


def _gathered(study: Study, resolved: Sequence[_Resolved | Waiting]) -> Plan:
    """Make the plan of a study's members: those with equal fingerprints are one run, under its first name."""
    runs: dict[str, PlannedRun] = {}
    labels: dict[str, dict[str, Alias]] = {}
    for member, its in zip(study.members, resolved, strict=True):
        if isinstance(its, Waiting):
            continue
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
            if reference.role not in _program(member).subjects
        ),
        waiting=tuple(its for its in resolved if isinstance(its, Waiting)),
    )


def _program(member: Replicate) -> Program:
    return programs.get(member.variant.program.name)


def _complete(member: Replicate, contents: Contents) -> Config:
    program = _program(member)
    if program.complete is None:
        return member.config
    try:
        return program.complete(member.config, contents)
    except (UserError, OSError, ValueError) as error:
        raise UserError(f"{written_at(member.variant.name)}: {sentence(error)}") from None


def _planned(member: Replicate, its: _Resolved) -> PlannedRun:
    variant = member.variant
    return PlannedRun(
        fingerprint=its.fingerprint,
        name=variant.name,
        label=variant.label,
        point=variant.point,
        seed=member.seed,
        program=variant.program.name,
        config=plain(its.config),
        needs=its.needs,
        price=its.price,
        memory=its.memory,
        match=None if variant.match is None else str(variant.match),
    )


def totals(runs: Sequence[PlannedRun]) -> Price:
    """Sum what runs cost, as far as it is known."""
    prices = [run.price for run in runs if run.price is not None]
    whole = sum((price.cost for price in prices), Cost())
    return Price(whole, examples=sum(price.examples for price in prices))


def waiting_lines(plan: Plan) -> Iterator[str]:
    """Name the members that can be planned only when others have completed."""
    seeds: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for its in plan.waiting:
        seeds.setdefault((its.label, its.match, its.awaits), []).append(its.seed)
    for (label, match, awaits), its_seeds in seeds.items():
        have = "has" if len(awaits) == 1 else "have"
        what = f"{label} ({match}), {counted(len(its_seeds), 'seed')}"
        yield (
            f"NOT PLANNED YET: {what}: the launch solves for its examples when {' and '.join(awaits)} {have} "
            "completed, and runs it then."
        )
